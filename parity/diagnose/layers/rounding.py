"""Causes at the run precision only: a module is right in the float64 run and wrong in the float32 run.

Either something was rounded to fewer bits on the way, or the float32 run follows another convention. A float32 run is
recomputed in float64, so it is reproduced to about 22 of its 24 bits; fewer where a sum on the boundary between two
float32 values was rounded to the other one. Such elements are rare, so the agreement of nine in ten decides.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from parity.core.arrays import Array
from parity.core.precision import dtype
from parity.diagnose import explain, solve
from parity.diagnose.explain import Change
from parity.diagnose.formula import NEEDED, Formula, NotApplicable, Settings, predicted, values
from parity.diagnose.layers import LAYERS, attention
from parity.diagnose.layers.call import Call, numbers, observe, observe_low
from parity.diagnose.topic import Side, Sides

RUN: Final = "float32"  # the only run precision that is examined
HONEST: Final = 16.0  # bits to which a correct float32 run is reproduced at least
SHARE: Final = 0.9  # fraction of the elements that decides
MOST_NOISY: Final = 4  # modules of a side whose low runs are examined
PRODUCTS: Final = ("linear", "conv2d", "conv_transpose2d")
NO_OUTPUT: Final = np.asarray(np.nan)  # of a formula that does not fit
Rounding = Callable[[Array], Array]


def low_runs(sides: Sides) -> Iterator[tuple[Side, str, Formula[Call], Call, Call]]:
    """Yield the first modules whose low runs are too noisy: side, path, formula, and the calls of both runs."""
    for side in sides.both:
        names = (key.partition("/")[2] for key in sides.noisier.get(side.name, ()))
        with_formula = [name for name in names if side.modules.get(name) in LAYERS]
        for name in with_formula[:MOST_NOISY]:
            layer = LAYERS[side.modules[name]]
            high = observe(side, layer, name, 0, 0, 0)
            if high and (low := observe_low(side, layer, high)):
                yield side, name, layer.formula, high, low


def at_run_precision(formula: Formula[Call], high: Call, low: Call) -> Change | None:
    """Return what the float32 run of a module's first call (`low`) does and its float64 run does not, or None."""
    explanation = explain.explain(formula, high)
    if explanation is None or low.case.precision != RUN or low.output.size < solve.ENOUGH:
        return None
    low = _as_float64(low)
    try:
        numbers(low)
        formula.check(low)
    except NotApplicable:
        return None
    before = _bits(low, _predicted(formula, low, explanation.settings))
    if before >= HONEST:
        return None
    changes = _changes(formula, low, explanation.settings)
    return next((change._replace(before=before) for change in changes if change.bits >= NEEDED), None)


def _changes(formula: Formula[Call], low: Call, settings: Settings) -> Iterator[Change]:
    """Yield each way of rounding to fewer bits, then each other convention, with how well it reproduces the low run."""
    for name, output in _rounded_outputs(formula, low, settings):
        yield Change("precision", f"precision.{name}", RUN, name, _bits(low, output), 0.0)
    for trait in formula.traits:
        for value in values(formula, trait, low, settings):
            bits = _bits(low, _predicted(formula, low, {**settings, trait.name: value}))
            yield Change(trait.name, trait.cause, settings[trait.name], value, bits, 0.0)


def _predicted(formula: Formula[Call], call: Call, settings: Settings) -> Array:
    return predicted(formula, call, settings).get("output", NO_OUTPUT)


def _bits(low: Call, recomputed: Array) -> float:
    """Return to how many bits of the largest value nine in ten elements are reproduced."""
    recorded = low.output
    if recomputed.shape != recorded.shape:
        return 0.0
    difference = float(np.quantile(np.abs(recomputed - recorded), SHARE))
    largest = float(np.abs(recorded).max())
    if not (math.isfinite(difference) and largest):
        return 0.0
    return min(max(math.log2(largest / difference), 0.0), 24.0) if difference else 24.0


def _rounded_outputs(formula: Formula[Call], low: Call, settings: Settings) -> Iterator[tuple[str, Array]]:
    """Yield the output with something rounded to fewer bits on the way, after the name of that precision.

    If only the factors of a matrix product have ten bits, it is TF32: float16 has as many, but rounds the result too.
    """
    for name, to in ROUNDINGS:
        of_rounded_factors = _predicted(formula, _with_factors(low, to), settings)
        if name == "bfloat16" or (name == "tf32" and low.kind in (*PRODUCTS, "attention")):
            yield name, of_rounded_factors
        if name == "tf32":
            continue
        yield name, to(_predicted(formula, low, settings))
        if low.kind in PRODUCTS and "bias" in low.parameters:
            yield name, _with_product_rounded(formula, low, settings, to)
        yield name, to(of_rounded_factors)
        if low.kind == "attention":
            yield name, attention.with_rounded_heads(low, settings, to)


def _with_product_rounded(formula: Formula[Call], low: Call, settings: Settings, to: Rounding) -> Array:
    """Return the output with inputs, weights and their product rounded, and the bias added at the run precision."""
    bias = low.parameters["bias"]
    added = bias if low.kind == "linear" else bias.reshape(-1, 1, 1)
    rest = {name: value for name, value in low.parameters.items() if name != "bias"}
    recorded = low.seen["output"]._replace(value=low.output - added)
    product = low._replace(parameters=rest, seen={"output": recorded})
    return to(_predicted(formula, _with_factors(product, to), settings)) + added


def _with_factors(low: Call, to: Rounding) -> Call:
    """Return the call with inputs and weights rounded, but not biases."""
    parameters = {name: to(value) if value.ndim > 1 else value for name, value in low.parameters.items()}
    return low._replace(calls=(tuple(map(to, low.inputs)), *low.calls[1:]), parameters=parameters)


def _as_float64(low: Call) -> Call:
    """Return the call with the same numbers as float64."""
    recorded = low.seen["output"]._replace(value=_float64(low.output))
    changed: dict[str, Any] = {"seen": {"output": recorded}}
    for field in ("parameters", "buffers"):
        changed[field] = {name: _float64(x) for name, x in getattr(low, field).items()}
    for field in ("calls", "replicas"):
        changed[field] = tuple(tuple(map(_float64, arguments)) for arguments in getattr(low, field))
    return low._replace(**changed)


def _float64(x: Array) -> Array:
    return x.astype(np.float64) if np.issubdtype(x.dtype, np.floating) else x


def _cast(x: Array, name: str) -> Array:
    """Return float32 values rounded to a dtype."""
    return x.astype(np.float32).astype(dtype(name)).astype(np.float64) if np.issubdtype(x.dtype, np.floating) else x


def _ten_bits(x: Array) -> Array:
    """Return x with ten bits of mantissa, as TF32 rounds the factors of a product."""
    if not np.issubdtype(x.dtype, np.floating):
        return x
    bits = (x.astype(np.float32).view(np.int32) + (1 << 12)) & ~((1 << 13) - 1)
    return bits.view(np.float32).astype(np.float64)


ROUNDINGS: Final[tuple[tuple[str, Rounding], ...]] = (
    ("tf32", _ten_bits),
    ("bfloat16", partial(_cast, name="bfloat16")),
    ("float16", partial(_cast, name="float16")),
)

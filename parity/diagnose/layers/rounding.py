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
Rounding = Callable[[Array], Array]


def low_runs(sides: Sides) -> Iterator[tuple[Side, str, Formula[Call], Call, Call]]:
    """Yield the first modules whose low runs are too noisy: side, path, formula, and the calls of both runs."""
    for side in sides.both:
        names = (key.partition("/")[2] for key in sides.noisier.get(side.name, ()))
        with_formula = [name for name in names if side.modules.get(name) in LAYERS]
        for name in with_formula[:MOST_NOISY]:
            layer = LAYERS[side.modules[name]]
            high, low = observe(side, layer, name, 0, 0, 0), observe_low(side, layer, name)
            if high and low:
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
    for name, compute, to in ROUNDINGS:
        if name == "tf32" and low.kind not in (*PRODUCTS, "attention"):  # TF32 exists for matrix products only
            continue
        bits = _bits(low, compute(formula, low, settings, to))
        yield Change("precision", f"precision.{name}", RUN, name, bits, 0.0)
    for trait in formula.traits:
        for value in values(formula, trait, low, settings):
            bits = _bits(low, _predicted(formula, low, {**settings, trait.name: value}))
            yield Change(trait.name, trait.cause, settings[trait.name], value, bits, 0.0)


def _predicted(formula: Formula[Call], call: Call, settings: Settings) -> Array | None:
    return predicted(formula, call, settings).get("output")


def _bits(low: Call, recomputed: Array | None) -> float:
    """Return to how many bits of the largest value nine in ten elements are reproduced."""
    recorded = low.output
    if recomputed is None or recomputed.shape != recorded.shape:
        return 0.0
    difference = float(np.quantile(np.abs(recomputed - recorded), SHARE))
    largest = float(np.abs(recorded).max())
    if not (math.isfinite(difference) and largest):
        return 0.0
    return min(max(math.log2(largest / difference), 0.0), 24.0) if difference else 24.0


def _result(formula: Formula[Call], low: Call, settings: Settings, to: Rounding) -> Array | None:
    """Return the output with the result rounded."""
    result = _predicted(formula, low, settings)
    return None if result is None else to(result)


def _factors(formula: Formula[Call], low: Call, settings: Settings, to: Rounding) -> Array | None:
    """Return the output with inputs and weights rounded."""
    return _predicted(formula, _with_factors(low, to), settings)


def _whole(formula: Formula[Call], low: Call, settings: Settings, to: Rounding) -> Array | None:
    """Return the output with inputs, weights and result rounded."""
    return _result(formula, _with_factors(low, to), settings, to)


def _product(formula: Formula[Call], low: Call, settings: Settings, to: Rounding) -> Array | None:
    """Return the output with inputs, weights and their product rounded, and the bias added at the run precision."""
    bias = low.parameters.get("bias")
    if bias is None or low.kind not in PRODUCTS:
        return None
    added = bias if low.kind == "linear" else bias.reshape(-1, 1, 1)
    rest = {name: value for name, value in low.parameters.items() if name != "bias"}
    recorded = low.seen["output"]._replace(value=low.output - added)
    product = _whole(formula, low._replace(parameters=rest, seen={"output": recorded}), settings, to)
    return None if product is None else product + added


def _heads(formula: Formula[Call], low: Call, settings: Settings, to: Rounding) -> Array | None:
    """Return the output of an attention with the heads' outputs rounded before the output projection."""
    return attention.with_rounded_heads(low, settings, to) if low.kind == "attention" else None


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


BFLOAT16: Final[Rounding] = partial(_cast, name="bfloat16")
FLOAT16: Final[Rounding] = partial(_cast, name="float16")
# What is rounded, and how. If only the factors have ten bits, it is TF32: float16 has as many, but rounds the result
# as well.
ROUNDINGS: Final = (
    ("tf32", _factors, _ten_bits),
    ("bfloat16", _factors, BFLOAT16),
    *(
        (name, place, to)
        for name, to in (("bfloat16", BFLOAT16), ("float16", FLOAT16))
        for place in (_result, _product, _whole, _heads)
    ),
)

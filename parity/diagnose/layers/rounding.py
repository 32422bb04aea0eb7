"""Causes that exist at the run precision only: the float64 run of a module is right, and the float32 run is not.

Either something was rounded to fewer bits on the way, or the float32 run follows another convention. A
float32 run is reproduced in float64 and so to about 22 of its 24 bits, less where a sum on the edge between
two neighbours was rounded to the other one; therefore nine of ten elements decide.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.core.precision import dtype
from parity.diagnose import explain, solve
from parity.diagnose.explain import Change
from parity.diagnose.formula import NEEDED, Formula, Settings, predicted, values
from parity.diagnose.layers import attention
from parity.diagnose.layers.evidence import output
from parity.diagnose.observation import Call

RUN: Final = "float32"  # the only run precision that is looked into
HONEST: Final = 16.0  # bits to which the float32 run is reproduced at the least, if nothing is wrong with it
SHARE: Final = 0.9  # of the elements
PRODUCTS: Final = ("linear", "conv2d", "conv_transpose2d")
Rounding = Callable[[Array], Array]


def at_run_precision(formula: Formula[Call], high: Call, low: Call) -> Change | None:
    """What the float32 run of a module does that its float64 run does not."""
    known = explain.explain(formula, high)
    if known is None or low.case.precision != RUN or output(low).size < solve.ENOUGH:
        return None
    low = _widened(low)
    before = _bits(low, _predicted(formula, low, known.settings))
    if before >= HONEST:
        return None
    found = itertools.chain(_rounded(formula, low, known.settings), _otherwise(formula, low, known.settings))
    return next((change._replace(before=before) for change in found if change.bits >= NEEDED), None)


def _rounded(formula: Formula[Call], low: Call, settings: Settings) -> Iterator[Change]:
    """Fewer bits at some place."""
    for name, place, to in PLACES:
        if name == "tf32" and low.kind not in (*PRODUCTS, "attention"):  # which is for products
            continue
        bits = _bits(low, place(formula, low, settings, to))
        yield Change("precision", f"precision.{name}", RUN, name, bits, 0.0)


def _otherwise(formula: Formula[Call], low: Call, settings: Settings) -> Iterator[Change]:
    """Another convention."""
    for trait in formula.traits:
        for value in values(trait, low, settings):
            bits = _bits(low, _predicted(formula, low, {**settings, trait.name: value}))
            yield Change(trait.name, trait.cause, settings[trait.name], value, bits, 0.0)


def _predicted(formula: Formula[Call], call: Call, settings: Settings) -> Array | None:
    return predicted(formula, call, settings).get("output")


def _bits(low: Call, made: Array | None) -> float:
    """To how many bits of the largest value most elements are reproduced."""
    seen = output(low)
    if made is None or made.shape != seen.shape:
        return 0.0
    apart = float(np.quantile(np.abs(made - seen), SHARE))
    largest = float(np.abs(seen).max())
    if not (math.isfinite(apart) and largest):
        return 0.0
    return min(max(math.log2(largest / apart), 0.0), 24.0) if apart else 24.0


def _result(formula: Formula[Call], low: Call, settings: Settings, to: Rounding) -> Array | None:
    made = _predicted(formula, low, settings)
    return None if made is None else to(made)


def _factors(formula: Formula[Call], low: Call, settings: Settings, to: Rounding) -> Array | None:
    return _predicted(formula, _with_factors(low, to), settings)


def _whole(formula: Formula[Call], low: Call, settings: Settings, to: Rounding) -> Array | None:
    return _result(formula, _with_factors(low, to), settings, to)


def _product(formula: Formula[Call], low: Call, settings: Settings, to: Rounding) -> Array | None:
    """Without the bias, which is added afterwards, at the run precision."""
    bias = low.parameters.get("bias")
    if bias is None or low.kind not in PRODUCTS:
        return None
    added = bias if low.kind == "linear" else bias.reshape(-1, 1, 1)
    rest = {name: value for name, value in low.parameters.items() if name != "bias"}
    seen = low.seen["output"]._replace(value=output(low) - added)
    made = _whole(formula, low._replace(parameters=rest, seen={"output": seen}), settings, to)
    return None if made is None else made + added


def _heads(formula: Formula[Call], low: Call, settings: Settings, to: Rounding) -> Array | None:
    return attention.with_rounded_heads(low, settings, to) if low.kind == "attention" else None


def _with_factors(low: Call, to: Rounding) -> Call:
    """Inputs and weights rounded, biases not."""
    parameters = {name: to(value) if value.ndim > 1 else value for name, value in low.parameters.items()}
    return low._replace(calls=(tuple(map(to, low.inputs)), *low.calls[1:]), parameters=parameters)


def _widened(low: Call) -> Call:
    """Its numbers in float64, the same ones."""
    seen = low.seen["output"]._replace(value=_wide(output(low)))
    parameters, buffers = ({name: _wide(x) for name, x in held.items()} for held in (low.parameters, low.buffers))
    calls, replicas = (tuple(tuple(map(_wide, each)) for each in every) for every in (low.calls, low.replicas))
    return low._replace(calls=calls, replicas=replicas, parameters=parameters, buffers=buffers, seen={"output": seen})


def _wide(x: Array) -> Array:
    return x.astype(np.float64) if np.issubdtype(x.dtype, np.floating) else x


def _cast(name: str) -> Rounding:
    def rounded(x: Array) -> Array:
        if not np.issubdtype(x.dtype, np.floating):
            return x
        return x.astype(np.float32).astype(dtype(name)).astype(np.float64)

    return rounded


def _ten_bits(x: Array) -> Array:
    """As TF32 rounds the factors of a product."""
    if not np.issubdtype(x.dtype, np.floating):
        return x
    bits = (x.astype(np.float32).view(np.int32) + (1 << 12)) & ~((1 << 13) - 1)
    return bits.view(np.float32).astype(np.float64)


BFLOAT16, FLOAT16 = _cast("bfloat16"), _cast("float16")
# What is rounded, and how. Factors of ten bits alone are TF32's: float16 has as many, but rounds the product too.
PLACES: Final = (
    ("tf32", _factors, _ten_bits),
    ("bfloat16", _factors, BFLOAT16),
    *(
        (name, place, to)
        for name, to in (("bfloat16", BFLOAT16), ("float16", FLOAT16))
        for place in (_result, _product, _whole, _heads)
    ),
)

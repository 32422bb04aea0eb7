"""Find modules that computed less than float64 in a high run, although everything in it is to be float64.

A value that was rounded to float32 on its way can be told afterwards: its last 29 bits are zero. Values may also be so
because they were never computed (inputs, initial weights, whole numbers), so that more is asked for than that.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.trace import keys
from parity.verdict.steps import Step, is_whole

WIDTH: Final = 8  # bytes of a float64
SAMPLE: Final = 4096  # elements that are looked at
ENOUGH: Final = 16  # elements that must have float32's full precision: whole numbers and the like say nothing
SHORT: Final = 16  # significant bits of numbers that say nothing


def not_promoted(name: str, files: Step) -> tuple[bool, bool]:
    """Return for each side whether a module's output was computed in less than float64.

    It was if it has another dtype, or float32's values where the other side's are no such values. It was on both sides
    if both have such values although the module's input has none, and the witness, whose weights are moved by a float64
    ulp, has them too.
    """
    key = keys.key("activation", name)
    reference, candidate = (_rounded(file.get(key)) for file in files.highs)
    narrow = [_is_narrow(file.get(key)) for file in files.highs]
    both = reference and candidate and _kept_rounded(name, files)
    other = [_is_other(file.get(key)) for file in files.highs]
    return narrow[0] or both or (reference and other[1]), narrow[1] or both or (candidate and other[0])


def _kept_rounded(name: str, files: Step) -> bool:
    """Return whether a module rounds: its input has values that are no float32's, and the witness's output has none."""
    given: Mapping[str, Array] = files.reference_high
    witness = (files.witness or {}).get(keys.key("activation", name))
    return _is_other(given.get(keys.key("input", name))) and _rounded(witness)


def _is_narrow(array: Array | None) -> bool:
    return array is not None and not is_whole(array) and array.dtype.itemsize < WIDTH


def _is_other(array: Array | None) -> bool:
    """Return whether an array has values that float32 cannot hold."""
    return array is not None and not is_whole(array) and not _fits(_sample(array))


def _rounded(array: Array | None) -> bool:
    """Return whether float32 holds all values of an array, and enough of them need its full precision."""
    if array is None or is_whole(array) or array.size < ENOUGH:
        return False
    values = _sample(array)
    return _fits(values) and int(np.count_nonzero(np.ldexp(np.frexp(values)[0], SHORT) % 1)) >= ENOUGH


def _fits(values: Array) -> bool:
    return bool((values.astype(np.float32) == values).all())


def _sample(array: Array) -> Array:
    """Return the first finite values of an array, in float64."""
    values = array.reshape(-1)[:SAMPLE].astype(np.float64)
    return values[np.isfinite(values)]

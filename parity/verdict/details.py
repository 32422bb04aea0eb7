"""Collect, tensor by tensor, what a report tells of a comparison beside its verdict, and how much was compared.

That is what the HTML report draws, where a diverged tensor differs most, and the modules that computed less than
float64 in a high run, although everything in it is to be float64. A value that was rounded to float32 on its way can be
told afterwards: its last 29 bits are zero. Values may also be so because they were never computed (inputs, initial
weights, whole numbers), so that more is asked for than that.
"""

import math
from typing import Final

import numpy as np

from parity.config.pair import Pair
from parity.core.arrays import Array
from parity.core.groups import by_key
from parity.core.precision import ROUNDOFF
from parity.details import BATCHES, EVALUATION, TRAINING, Compared, Details, Extent, share
from parity.results import Side
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.summary import shape
from parity.trace.tensorfile import blocks
from parity.verdict.kernel import Spread
from parity.verdict.rule import Rule, TensorVerdict
from parity.verdict.steps import Step, StepTensor, is_whole
from parity.verdict.stream import BLOCK

LOSS = keys.key("loss", "loss")
WIDTH: Final = 8  # bytes of a float64
SAMPLE: Final = 4096  # elements that are looked at
ENOUGH: Final = 16  # elements that must have float32's full precision: whole numbers and the like say nothing
SHORT: Final = 16  # significant bits of numbers that say nothing


class Collector:
    """Collects the compared tensors, the losses, and the tensors of the high runs that are not float64."""

    def __init__(self, names: tuple[str, str], rule: Rule) -> None:
        self.names, self._roundoff = names, ROUNDOFF[rule.low]
        self.details = Details(needed=rule.needed, losses={name: [] for name in names})
        self._not_promoted: dict[tuple[str, str], None] = {}  # sides and modules

    def tensor(self, tensor: StepTensor, verdict: TensorVerdict, spread: Spread | None) -> None:
        """Add one tensor with its verdict; `spread` is None if it was not compared element by element."""
        step, replica, kind, name, files = tensor
        row = Compared(step=step, replica=replica, kind=kind, name=name, verdict=verdict.verdict, bits=verdict.bits)
        if spread:
            noise = max(spread.noise, self._roundoff * spread.scale)
            row.scale, row.difference, row.noise = map(_finite, (spread.scale, spread.difference, noise))
        elif kind != keys.UPDATE:
            has = [side for side, file in zip(self.names, files.highs, strict=True) if tensor.key in file]
            row.alone = has[0] if len(has) == 1 else ""
        self.details.tensors.append(row)
        if kind == "activation" and step == 0:
            for side, is_narrow in zip(self.names, not_promoted(name, files), strict=True):
                if is_narrow:
                    self._not_promoted[side, name] = None

    def losses(self, replicas: list[Step]) -> None:
        """Add each side's loss in a step, if both have it: the mean over replicas and elements."""
        for number, side in enumerate(self.names):
            arrays = [files.highs[number][LOSS] for files in replicas if all(LOSS in file for file in files.highs)]
            if any(array.size for array in arrays):
                mean = np.mean([np.mean(array, dtype=np.float64) for array in arrays])
                self.details.losses[side].append(_finite(float(mean)))

    def extent(self, reference: Trace) -> Extent:
        """Return how much of the reference's trace was compared."""
        rows = [row for row in self.details.tensors if not row.alone]
        alone = by_key((row.alone, row.name) for row in self.details.tensors)
        activations = {row.name for row in rows if (row.kind, row.step) == ("activation", 0)}
        returned = set(activations)  # by the reference's modules in the first step
        for file, listed in reference.manifest.files.items():
            if file.startswith("high/") and file.endswith(keys.step_file(0)):
                aliases = reference.manifest.aliases.get(file, {})  # compared under another key
                kinds = (keys.split(key) for key in listed if key not in aliases)
                returned.update(name for kind, name in kinds if kind == "activation")
        parameters = {row.name for row in rows if row.kind == "parameter"}
        initial = [keys.of_kind(reference.open("high", stem), "parameter") for stem in reference.stems("high")[:1]]
        sizes = {name: math.prod(shape(array)) for tensors in initial for name, array in tensors.items()}
        return Extent(
            parameters=share(sum(sizes[name] for name in sizes if name in parameters), sum(sizes.values())),
            activations=share(len(activations), len(returned)),
            alone={side: list(dict.fromkeys(alone[side])) for side in self.names if side in alone},
            not_promoted=by_key(self._not_promoted),
            not_run=_not_run(reference),
        )


def _not_run(reference: Trace) -> dict[str, str]:
    """Return the modes that a recording did not run, with the reasons."""
    case, reasons = reference.case, {}
    if not case.model.trains:
        reasons[TRAINING] = "the pair file has no [train]"
    elif not any(file.endswith(keys.step_file(case.steps)) for file in reference.manifest.files):
        reasons[EVALUATION] = "only training steps were recorded"
    if not isinstance(case.model, Pair):
        reasons[BATCHES] = "a built-in case has one batch size"
    return reasons


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def not_promoted(name: str, files: Step) -> tuple[bool, bool]:
    """Return for each side whether a module's output was computed in less than float64.

    It was if it has another dtype, or float32's values where the other side's are no such values. It was on both sides
    if both have such values, the module's input has none, and the witness, which begins an ulp away, has them too.
    """
    key = keys.key("activation", name)
    outputs = [file.get(key) for file in files.highs]
    narrow = [array is not None and not is_whole(array) and array.dtype.itemsize < WIDTH for array in outputs]
    (reference, candidate), is_wide = map(_rounded, outputs), list(map(_is_other, outputs))
    # A module rounds whose input has values that are no float32's, and whose output in the witness has none.
    given, witness = files.reference_high.get(keys.key("input", name)), (files.witness or {}).get(key)
    both = reference and candidate and _is_other(given) and _rounded(witness)
    return narrow[0] or both or (reference and is_wide[1]), narrow[1] or both or (candidate and is_wide[0])


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


def furthest(left: Array, right: Array, *, magnitude: float) -> list[int]:
    """Return where two arrays of one shape differ most, among elements up to `magnitude`; NaN counts as infinite."""
    largest, position, start = -1.0, 0, 0
    for parts in blocks(left, right, size=BLOCK):
        a, b = (part.astype(np.float64) for part in parts)
        with np.errstate(invalid="ignore", over="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            same |= np.fmax(np.abs(a), np.abs(b)) > magnitude
            apart = np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf))
        if apart.max() > largest:
            largest, position = float(apart.max()), start + int(apart.argmax())
        start += len(a)
    return [int(i) for i in np.unravel_index(position, left.shape)] if left.size else []


def describe(array: Array, index: list[int] | None) -> Side:
    """Return shape and dtype, minimum, maximum and mean of the finite values, and the value at `index`."""
    side = Side(shape=list(array.shape), dtype=str(array.dtype))
    smallest, largest, total, count = np.inf, -np.inf, 0.0, 0
    for (part,) in blocks(array, size=BLOCK):
        block = part.astype(np.float64)
        block = block[np.isfinite(block)]
        if block.size:
            smallest, largest = min(smallest, float(block.min())), max(largest, float(block.max()))
            total, count = total + float(block.sum()), count + block.size
    if count:
        side.smallest, side.largest, side.mean = smallest, largest, total / count
    value = float(array[tuple(index)]) if index is not None and array.size else np.nan
    side.value = value if np.isfinite(value) else None
    return side

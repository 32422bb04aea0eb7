"""Collect, tensor by tensor, the evidence for a match, what a report tells beside it, and how much was compared.

A match claims something about every kind of tensor that a case has. Without evidence for it (numbers that are not
finite, a kind without any tensor to compare, a reference that does not reproduce itself), the case is inconclusive.

A report tells what the HTML page draws, and the modules that computed less than float64 in a high run, although
everything in it is to be float64. A value that was rounded to float32 on its way can be told afterwards: its last 29
bits are zero. Values may also be so because they were never computed (inputs, initial weights, whole numbers), so that
more is asked for than that.
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np

from parity.config.pair import Pair
from parity.config.schema import Case
from parity.core.arrays import Array
from parity.core.groups import by_key
from parity.core.precision import ROUNDOFF
from parity.core.wording import agree, count
from parity.details import BATCHES, EVALUATION, TRAINING, Compared, Details, Extent, share
from parity.results import Check, Finding, Verdict
from parity.trace import keys
from parity.trace.keys import INPUT, MODEL
from parity.trace.manifest import Trace
from parity.trace.recorder import BEYOND
from parity.trace.summary import shape
from parity.trace.tensorfile import blocks
from parity.verdict.kernel import Spread
from parity.verdict.rule import Rule, TensorVerdict
from parity.verdict.steps import Step, StepTensor, is_whole

CLAIMED: Final = ("activation", "loss", "gradient", "parameter")  # kinds of which a match needs evidence
FINITE: Final = ("activation", "loss", "gradient", "parameter", "buffer", "optimizer_state")  # kinds that must be so
LOSS = keys.key("loss", "loss")
WIDTH: Final = 8  # bytes of a float64
SAMPLE: Final = 4096  # elements that are looked at
ENOUGH: Final = 16  # elements that must have float32's full precision: whole numbers and the like say nothing
SHORT: Final = 16  # significant bits of numbers that say nothing


class Evidence:
    """Collects, tensor by tensor, what could be compared; `unjudged` are the reasons why the case is inconclusive."""

    def __init__(self, names: tuple[str, str], case: Case) -> None:
        self.names, self.low = names, case.precision
        # Without [train], a pair's loss is a weighted sum of its outputs that this project made up.
        self._has_loss = case.model.trains
        self.unjudged: list[str] = []
        self.findings: list[Finding] = []
        self._has_outputs = self._outputs_tell = False
        self._outputs_move = False  # whether an output is another when the weights and inputs are nudged
        self._has_gradients = self._gradients_tell = False
        self.parted: Counter[str] = Counter()  # by kind, the tensors that rounding alone moves visibly
        self._exploded = False  # whether the losses of both high runs have become infinite or NaN
        # Since when the losses of both low runs are infinite or NaN; from then on they do not show rounding any more.
        self.low_exploded = ""

    def saw(self, step: int | None, key: str, files: Step) -> None:
        """Note a tensor of the high and low runs, before its verdict."""
        kind, name = keys.split(key)
        if step == 0 and kind == "activation" and name.startswith(MODEL):
            self._has_outputs = True
            self._outputs_tell |= any(_tells(file[key]) for file in files.highs)
            witness = files.runs(key)[-1]
            self._outputs_move |= witness is None or not np.array_equal(witness, files.highs[0][key], equal_nan=True)
        if kind == "gradient" and not name.startswith(INPUT):
            self._has_gradients = True
            self._gradients_tell |= any(_tells(file[key]) for file in files.highs)
        if kind == "loss" and self._has_loss:
            self._exploded |= not any(np.isfinite(file[key]).any() for file in files.highs)
            if not self.low_exploded and not any(np.isfinite(file[key]).any() for file in files.lows):
                self.low_exploded = f"from step {step} on the loss of the {self.low} runs is finite on neither side"
                self.unjudged.append(self.low_exploded)

    def lost(self, step: int | None, kind: str, spread: Spread) -> tuple[Verdict, str]:
        """Return the verdict that NaN and infinity force on a tensor, and why; a match if they do not matter.

        Infinities at the same positions agree, as in a mask, except in a loss or a gradient. After the first step the
        low runs may differ, because when a training explodes one side may do so a step earlier. Once the loss is
        infinite on both sides, it is chance which numbers become infinity and which NaN.
        """
        if kind == "loss" and not self._has_loss and (spread.nans or spread.infinite):
            return "match", ""
        if not spread.same_nonfinite:
            if self._exploded or self.low_exploded:
                return "inconclusive", "behind a loss that is finite on neither side nothing can be compared"
            return "diverged", "NaN or infinity at different positions of the float64 runs"
        if not (spread.same_nonfinite_low or step):
            return "diverged", f"NaN or infinity at different positions of the {self.low} runs"
        if kind not in FINITE:
            return "match", ""
        if lost := spread.nans + (spread.infinite if kind in ("loss", "gradient") else 0):
            of = f"{count(spread.size, 'number')} {agree(lost, 'is')}"
            return "inconclusive", f"{lost} of {of} not finite on either side"
        if spread.nans_low and step == 0:
            of = f"{count(spread.size, 'number')} of the {self.low} runs"
            return "inconclusive", f"{spread.nans_low} of {of} {agree(spread.nans_low, 'is')} NaN"
        return "match", ""

    def not_reproducible(self, step: int | None, key: str, moved: float) -> None:
        """Note the first tensor that changed when the reference's high run was repeated; `moved` is the difference."""
        at = "before the first step" if step is None else f"at step {step}"
        apart = "is another tensor or not finite" if moved == BEYOND else f"is {moved:.1e} away"
        again = f"run again on the same inputs and weights, {self.names[0]}'s {key} {at} {apart}"
        message = f"{again}: the reference is not a function of them; seed or remove what is random in it"
        where = keys.split(key)[1]
        self.findings.append(Finding(id="reference.not_reproducible", side=self.names[0], where=where, message=message))
        self.unjudged.append(message)

    def claim(self, reference: Trace, checks: Mapping[str, Check]) -> None:
        """Note the kinds of tensors for which a match lacks evidence, after all tensors have been compared."""
        if self._has_outputs and not self._outputs_tell:
            self.unjudged.append("the model's outputs are zero, not finite or empty: they would agree with any others")
        # Gradients are truly zero where a loss is saturated, or where outputs are constant: a softmax of one number.
        if self._has_gradients and not self._gradients_tell and self._outputs_move and not self._has_loss:
            self.unjudged.append("the gradients of all parameters are zero on both sides: they would agree anyhow")
        recorded = {keys.split(key)[0] for listed in reference.manifest.files.values() for key in listed}
        for kind in CLAIMED:
            if kind in recorded and kind not in checks:
                self.unjudged.append(f"no {kind} has a counterpart that it could be compared with")
        for kind, check in checks.items():
            if check.compared == self.parted[kind]:
                self.unjudged.append(f"rounding alone moves every {kind} as far as the two sides are apart")


def _tells(array: Array) -> bool:
    """Return whether the array has a number that is finite and not zero."""
    return any(bool((np.isfinite(block) & (block != 0)).any()) for (block,) in blocks(array))


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

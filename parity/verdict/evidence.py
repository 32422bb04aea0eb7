"""Evidence for a match: the reasons why a case is inconclusive although no tensor diverged.

A match claims something about every kind of tensor that a case has. Without evidence for it (numbers that are not
finite, a kind without any tensor to compare, a reference that does not reproduce itself), the case is inconclusive.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np

from parity.config.schema import Case
from parity.core.arrays import Array
from parity.core.wording import agree, count
from parity.results import Check, Finding, Verdict
from parity.trace import keys
from parity.trace.keys import INPUT, MODEL
from parity.trace.manifest import Trace
from parity.trace.recorder import BEYOND
from parity.trace.tensorfile import blocks
from parity.verdict.kernel import Spread
from parity.verdict.steps import Step

CLAIMED: Final = ("activation", "loss", "gradient", "parameter")  # kinds of which a match needs evidence
FINITE: Final = ("activation", "loss", "gradient", "parameter", "buffer", "optimizer_state")  # kinds that must be so


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

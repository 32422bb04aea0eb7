"""What a comparison could not judge: numbers that are not finite, kinds without evidence, a reference that moves.

A match says something about every kind of tensor that a case has. Where there was nothing to say it of, the case is
inconclusive, and the reason is told in one line.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from parity.config.pair import Pair
from parity.config.schema import Case
from parity.core.arrays import Array
from parity.core.names import INPUT, MODEL
from parity.results import Check, Finding, Verdict
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.pages import blocks
from parity.trace.repeat import BEYOND
from parity.verdict.kernel import Spread
from parity.verdict.rule import SUBPRECISION, TensorVerdict
from parity.verdict.steps import Step

CLAIMED: Final = ("activation", "loss", "gradient", "parameter")  # kinds that a match says something about
FINITE: Final = ("activation", "loss", "gradient", "parameter", "buffer", "optimizer_state")


class Lost(NamedTuple):
    """The verdict where NaN or infinity leaves something that cannot be compared, and why."""

    verdict: Verdict
    reason: str


class Evidence:
    """What was there to be judged, and what was not. `unjudged`: why the case is inconclusive, in words."""

    def __init__(self, names: tuple[str, str], case: Case) -> None:
        self.names, self.low = names, case.precision
        # Without [train] the loss is a fixed sum of the outputs, of this project's making.
        self._has_loss = not isinstance(case.model, Pair) or case.model.train is not None
        self.unjudged: list[str] = []
        self.findings: list[Finding] = []
        self._has_outputs = self._outputs_tell = False
        self._has_gradients = self._gradients_tell = False
        self._parted: Counter[str] = Counter()  # tensors of a kind that rounding alone moves visibly
        self._exploded = False  # the loss of both sides is not finite any more
        self.low_exploded = ""  # since when that of both low runs is not: what rounding does is not known any more

    def saw(self, step: int | None, key: str, files: Step) -> None:
        """Take note of a tensor of floats before it is judged."""
        kind, name = keys.split(key)
        if step == 0 and kind == "activation" and name.startswith(MODEL):
            self._has_outputs = True
            self._outputs_tell |= any(_tells(file[key]) for file in files.highs)
        if kind == "gradient" and not name.startswith(INPUT):
            self._has_gradients = True
            self._gradients_tell |= any(_tells(file[key]) for file in files.highs)
        if kind == "loss" and self._has_loss:
            self._exploded |= not any(np.isfinite(file[key]).any() for file in files.highs)
            if not self.low_exploded and not any(np.isfinite(file[key]).any() for file in files.lows):
                self.low_exploded = f"from step {step} on the loss of the {self.low} runs is finite on neither side"
                self.unjudged.append(self.low_exploded)

    def lost(self, step: int | None, kind: str, spread: Spread) -> Lost | None:
        """What NaN and infinity make of a tensor; None where nothing is lost.

        Infinities at the same positions agree, as in a mask, but not in a loss or a gradient. Later low runs may part
        for good when a training explodes, one side a step before the other; and behind a loss that is infinite on both
        sides it is chance what becomes infinity and what NaN.
        """
        if kind == "loss" and not self._has_loss and (spread.nans or spread.infinite):
            return None
        if not spread.same_nonfinite:
            if self._exploded or self.low_exploded:
                return Lost("inconclusive", "behind a loss that is finite on neither side nothing can be compared")
            return Lost("diverged", "NaN or infinity at different positions of the float64 runs")
        if not (spread.same_nonfinite_low or step):
            return Lost("diverged", f"NaN or infinity at different positions of the {self.low} runs")
        if kind not in FINITE:
            return None
        if lost := spread.nans + (spread.infinite if kind in ("loss", "gradient") else 0):
            return Lost("inconclusive", f"{lost} of {spread.size} numbers are not finite on either side")
        if spread.nans_low and step == 0:
            return Lost("inconclusive", f"{spread.nans_low} of {spread.size} numbers of the {self.low} runs are NaN")
        return None

    def judged(self, kind: str, judgement: TensorVerdict) -> None:
        """Take note of the verdict on a tensor."""
        self._parted[kind] += judgement.excused > SUBPRECISION

    def not_reproducible(self, step: int | None, key: str, moved: float) -> None:
        """Note where the reference first is not itself when it is run again. `moved`: the largest difference."""
        at = "before the first step" if step is None else f"at step {step}"
        apart = "is another tensor or not finite" if moved == BEYOND else f"is {moved:.1e} away"
        again = f"run again on the same inputs and weights, {self.names[0]}'s {key} {at} {apart}"
        message = f"{again}: the reference is not a function of them; seed or remove what is random in it"
        where = keys.split(key)[1]
        self.findings.append(Finding(id="reference.not_reproducible", side=self.names[0], where=where, message=message))
        self.unjudged.append(message)

    def claim(self, reference: Trace, checks: Mapping[str, Check]) -> None:
        """Note what a match would need evidence of, and has none."""
        if self._has_outputs and not self._outputs_tell:
            self.unjudged.append("the model's outputs are zero, not finite or empty: they would agree with any others")
        if self._has_outputs and self._has_gradients and not self._gradients_tell:
            self.unjudged.append("the gradients of all parameters are zero on both sides: they would agree anyhow")
        recorded = {keys.split(key)[0] for listed in reference.manifest.files.values() for key in listed}
        for kind in CLAIMED:
            if kind in recorded and kind not in checks:
                self.unjudged.append(f"no {kind} has a counterpart that it could be compared with")
        for kind, check in checks.items():
            if check.compared == self._parted[kind]:
                self.unjudged.append(f"rounding alone moves every {kind} as far as the two sides are apart")


def _tells(array: Array) -> bool:
    """Whether some number is neither zero nor NaN nor infinite."""
    return any(bool((np.isfinite(block) & (block != 0)).any()) for (block,) in blocks(array))

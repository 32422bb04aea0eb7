"""The rule that gives a tensor its verdict, from the differences between its runs (docs/verdicts.md).

Rounding errors shrink by E bits from the run precision to float64 (29 for float32); a difference of meaning does not.
So the difference of the float64 runs is compared with the noise of the low runs: bits = log2(noise / difference).
"""

import math
from functools import partial
from typing import Final, NamedTuple

from parity.core.precision import HIGH, ROUNDOFF, SMALLEST, gap
from parity.results import RANKING, Verdict
from parity.trace import keys
from parity.verdict.kernel import Spread
from parity.verdict.octaves import FEW_ULP, LOST, LOST_ULP, SLACK, Octave

WITNESS: Final = 64  # the witness excuses differences of up to so many times its own
SUBPRECISION: Final = 2.0**-22  # float32 cannot see a relative difference below this
# A tensor that follows from a subprecision origin may differ by so many times what the growth of the witness predicts.
INHERITED: Final = 8
NOISIER: Final = 5  # bits by which one side's low run may be noisier than the other's without a finding
FAR_NOISIER: Final = 8  # bits from which on it is diverged, if its noise is also visible
VISIBLE: Final = 2.0**-10  # noise from which on it is visible, relative to the largest value
GROSS: Final = 2.0**-3  # the same for gradients that a switched ReLU may have changed
EXPECTED: Final = 4  # a low run may be so many times as noisy as the witness, scaled to the run precision
ZERO: Final = 2.0**-36  # a gradient up to this part of the largest loss or gradient is truly zero, but for rounding
# A tensor that matches although it differs by more than this part of its scale is nothing but rounding.
NOTHING: Final = 2.0**-3
# Kinds that an update moves; rounding may be all that moves such a tensor, where its true gradient is zero.
MOVED: Final = (keys.UPDATE, "parameter", "optimizer_state")
MANY: Final = 16  # elements from which on a tensor's witness is not small by luck
MANY_KINKS: Final = 16  # sign changes from which on both sides' gradients are about equally noisy


class TensorVerdict(NamedTuple):
    """The verdict on one tensor."""

    verdict: Verdict
    bits: float | None = None  # None if the difference is 0
    by_bits: bool = False  # whether the verdict was reached by them
    # The difference, relative to the largest value, that is a match only because of the witness; else 0.
    excused: float = 0.0
    growth: float = 0.0  # for a subprecision origin, its difference in units of the witness's
    largest: float = math.inf  # the magnitude of the elements that the verdict is about, if it is not about all


class Rule:
    """Gives the tensors of one case their verdicts, in execution order.

    `kinks`: for each side, how many elements of activations changed sign between the low and the high run.
    `kinks_unseen`: whether there are activations of which only summaries were recorded, which do not tell that.
    `excuses`: whether the witness may excuse differences; not once the reference has failed to reproduce itself.
    `parted`: whether rounding alone has moved a tensor of the first step visibly, its low runs having lost all digits.
    """

    def __init__(self, low: str) -> None:
        self.low, self.needed = low, gap(low) - SLACK
        self.kinks, self.kinks_unseen = [0, 0], False
        self.excuses, self.parted = True, False
        self._backward = 0.0  # the largest loss or gradient so far
        self._growth = 0.0  # the largest difference of an origin, in units of the witness's there

    @property
    def gradients_tell(self) -> bool:
        """Return whether the noise of the gradients in the low runs shows their precision.

        A ReLU that rounding switches on or off changes gradients by far more than rounding itself. So the
        noise is meaningful only if no activation changed its sign, or so many on both sides that it evens out.
        """
        return not self.kinks_unseen and (not any(self.kinks) or min(self.kinks) >= MANY_KINKS)

    def high(self, spread: Spread, stored: float = 0.0, kind: str = "", first: bool = False) -> TensorVerdict:
        """Return the verdict on the float64 runs of a tensor: the worst of the whole and of each octave.

        `stored`: the scale of the values from which the tensor was derived, if larger than its own. (An update is the
        difference of two stored parameters, and so is known only to a few ulp of these.) `kind`: the kind of tensor.
        `first`: whether it belongs to the forward or backward pass of the first step. There no training has amplified
        rounding yet, so the witness excuses only what float32 cannot see; except where the pass itself is chaotic and
        the low runs have lost all digits.
        """
        whole = Octave(spread.scale, spread.scale, spread.difference, spread.noise, 0.0, spread.witness)
        most = SUBPRECISION * min(spread.scale, spread.live)
        if kind in ("loss", "gradient"):
            self._backward = max(self._backward, spread.scale)
        is_moved = kind in MOVED or (kind == "gradient" and spread.scale <= ZERO * self._backward)
        verdict_on = partial(self._octave, stored=stored, most=most, is_moved=is_moved, first=first)
        # Parts of a gradient that cancel leave the rounding of the others, of which float32 shows nothing.
        rest = LOST_ULP * spread.scale if kind == "gradient" else 0.0
        octaves = (size for size in spread.octaves if size.difference > rest or size.noise < LOST * size.scale)
        judged = [verdict_on(whole), *(verdict_on(size)._replace(largest=size.scale) for size in octaves)]
        worst = max(judged, key=lambda each: RANKING.index(each.verdict))
        if worst.verdict == "match" and not is_moved and self._noise_hides(spread):
            worst = verdict_on(whole._replace(noise=0.0))
            if spread.size < MANY or not first:
                worst = worst._replace(verdict="inconclusive")
        if worst.verdict == "subprecision":  # only the whole tensor can be an origin: none of its octaves has diverged
            self._growth = max(self._growth, *(each.growth for each in judged))
        return worst._replace(excused=max(each.excused for each in judged) / (spread.scale or 1.0))

    def _noise_hides(self, spread: Spread) -> bool:
        """Return whether the low runs are too far off to show rounding, and the witness shows that it is smaller.

        The sine of 10^7, for example, has no correct digit in float32. Its noise is as large as its values, and E bits
        less than that would not be rounding in float64. The witness of fewer than MANY elements may be small by luck.
        """
        if spread.noise <= LOST * spread.scale or not self.excuses:
            return False
        rounding = WITNESS * max(spread.witness, FEW_ULP * spread.scale)
        return spread.difference > (rounding if spread.size >= MANY else WITNESS * rounding)

    def reproduces(self, spread: Spread, moved: float) -> bool:
        """Return whether the reference repeats itself, `moved` apart, as closely as a candidate must."""
        noise = max(spread.noise, ROUNDOFF[self.low] * spread.scale)
        return moved <= max(FEW_ULP * spread.scale, noise * 2.0**-self.needed)

    def _octave(self, size: Octave, stored: float, most: float, is_moved: bool, first: bool) -> TensorVerdict:
        """Return the verdict on the elements of one octave.

        `most`: the largest difference that float32 may hide. `is_moved`: whether rounding may be all that moves the
        tensor. `stored`, `first`: as for `high`.
        """
        noise, bits = max(size.noise, ROUNDOFF[self.low] * size.scale), None
        if size.difference:
            bits = math.log2(noise) - math.log2(size.difference) if noise else 0.0
        if size.difference <= FEW_ULP * max(size.reach, stored):
            return TensorVerdict("match", bits)
        if bits is not None and bits >= self.needed:
            return TensorVerdict("match", bits, by_bits=True)
        if excuse := self._excused(size, is_moved, first):
            return TensorVerdict(excuse, bits, excused=size.difference)
        witness = max(size.witness, ROUNDOFF[HIGH] * max(size.reach, stored), SMALLEST[HIGH])
        if size.difference <= min(most, max(SUBPRECISION * size.scale, size.error)):
            return TensorVerdict("subprecision", bits, by_bits=True, growth=size.difference / witness)
        # A tensor that follows from a subprecision origin inherits its verdict. The ratio of the witness's differences
        # here and there shows by how much a difference grows on the way.
        if size.difference <= INHERITED * self._growth * witness:
            return TensorVerdict("subprecision", bits, by_bits=True)
        return TensorVerdict("diverged", bits, by_bits=True)

    def _excused(self, size: Octave, is_moved: bool, first: bool) -> Verdict | None:
        """Return the verdict that the witness gives to a difference; None if it does not excuse it.

        A parameter whose true gradient is zero may be moved by nothing but rounding, which a normalising optimizer such
        as Adam magnifies to its full step: that is reported, but is a match. If outputs, losses or gradients move
        visibly by rounding alone, the two trainings have drifted apart, and the verdict is inconclusive.
        """
        limit = (SUBPRECISION if first else VISIBLE) * size.reach
        witness = WITNESS * size.witness
        if first and not (is_moved or self.parted) and size.noise <= LOST * size.scale:
            witness = min(witness, limit)
        if size.difference > witness or not self.excuses:
            return None
        if is_moved:
            return "match"
        self.parted |= first and size.difference > limit
        return "match" if size.difference <= limit else "inconclusive"

    def reason(self, spread: Spread, judgement: TensorVerdict) -> str:
        """Return a sentence that says why a tensor is not a match."""
        if judgement.largest < spread.scale:
            size = next(each for each in spread.octaves if each.scale == judgement.largest)
            apart = f"{size.difference:.1e} apart in float64 in elements of up to {size.scale:.1e}, beside larger ones"
        else:
            share = spread.difference / (spread.scale or 1.0)
            apart = f"{spread.difference:.1e} apart in float64, {share:.1e} of the largest value"
        if judgement.verdict == "inconclusive":
            return f"{apart}, but one rounding in the initial values moves the reference itself as far"
        return f"{apart}: {max(judgement.bits or 0.0, 0.0):.1f} bits, {self.needed} needed"

    def excess(self, spread: Spread, stored: float = 0.0) -> list[tuple[float, float]]:
        """Return how many bits noisier than rounding each low run is: by L2 norm, and by the element furthest off."""
        floor, norm = self._floor(spread, stored), math.sqrt(spread.size) or 1.0
        errors = spread.reference_error, spread.candidate_error
        furthest = spread.reference_furthest, spread.candidate_furthest
        return [(_log2(error / norm / floor), _log2(far / floor)) for error, far in zip(errors, furthest, strict=True)]

    def noisier(self, spread: Spread, stored: float = 0.0) -> float:
        """Return by how many bits the candidate's low run is noisier than the reference's; negative if less."""
        floor = self._floor(spread, stored) * (math.sqrt(spread.size) or 1.0)
        reference, candidate = max(spread.reference_error, floor), max(spread.candidate_error, floor)
        return _log2(candidate / reference)

    def relative_noise(self, spread: Spread) -> float:
        """Return the larger noise of the two low runs, as a root mean square relative to the largest value."""
        norm = spread.scale * math.sqrt(spread.size)
        return max(spread.reference_error, spread.candidate_error) / norm if norm else 0.0

    def _floor(self, spread: Spread, stored: float) -> float:
        """Return the error that honest rounding may cause in an element of a low run, always above 0.

        It is the larger of the error of storing the values, and of what the witness shows, scaled by E bits from
        float64 to the run precision; the latter includes cancellation. `stored`: as for `high`.
        """
        # A tensor that is nothing but rounding on both sides, such as a truly zero gradient, is a witness itself.
        rounding = spread.difference if spread.difference > NOTHING * spread.scale else 0.0
        expected = EXPECTED * max(spread.witness, rounding) * 2.0 ** gap(self.low)
        return max(ROUNDOFF[self.low] * max(spread.scale, stored), expected, SMALLEST[self.low])


def _log2(value: float) -> float:
    return math.log2(value) if 0.0 < value < math.inf else 0.0

"""The rules by which one tensor is judged, from how far its runs are spread.

Rounding shrinks by E bits from the run precision to float64 (29 for float32); a difference of
meaning does not. So the difference between the two float64 runs is measured against the noise of
the low runs: bits = log2(noise / difference).
"""

import math
from typing import Final, NamedTuple

from parity.numerics.kernel import Spread
from parity.numerics.precision import HIGH, ROUNDOFF, gap
from parity.results import Verdict

SLACK: Final = 9  # bits that honest rounding may lose of E
FEW_ULP: Final = 8 * ROUNDOFF[HIGH]  # four ulp of float64, relative
WITNESS: Final = 64  # times what one ulp in the initial weights does to the reference
SUBPRECISION: Final = 2.0**-22  # below this, relative, float32 cannot see a difference
INHERITED: Final = 8  # times what an origin's difference becomes if it grows as the witness does
NOISIER: Final = 5  # bits by which one side's low run may be noisier than the other's
FAR_NOISIER: Final = 8
VISIBLE: Final = 2.0**-10  # relative noise from which on far noisier is another computation
GROSS: Final = 2.0**-3  # the same for gradients that a switched ReLU may have changed
EXPECTED: Final = 4  # times the witness, at the run precision, that a low run may be noisy
MANY_KINKS: Final = 16  # sign changes from which on both sides' gradients are about equally noisy


class Judgement(NamedTuple):
    """The verdict on one tensor. `bits` is None where the difference is 0; `by_bits`: judged by them."""

    verdict: Verdict
    bits: float | None
    by_bits: bool


class Judge:
    """Judges the tensors of one case in execution order.

    `kinks`: how many activations of each side changed their sign between its low and its high run.
    """

    def __init__(self, low: str) -> None:
        self.low = low
        self.needed = gap(low) - SLACK
        self.kinks = [0, 0]
        self._growth = 0.0  # the largest difference of an origin, in units of the witness's there

    @property
    def gradients_tell(self) -> bool:
        """Whether the noise of low gradients says something about precision.

        One ReLU that rounding switches on or off changes gradients by far more than rounding does. So
        they tell where no activation changed its sign, or so many on both sides that it evens out.
        """
        return not any(self.kinks) or min(self.kinks) >= MANY_KINKS

    def high(self, spread: Spread, stored: float = 0.0, forward: bool = False) -> Judgement:
        """The verdict on the float64 runs of a tensor.

        `stored`: the scale of the values that the tensor was derived from, if larger than its own.
        An update is the difference of two stored parameters, and known to a few ulp of these.
        `forward`: of the first step, where no trajectory has spread rounding yet: a witness that is far from
        the reference says that the reference is not a function of its inputs, and excuses nothing.
        """
        witness = min(spread.witness, SUBPRECISION / WITNESS * spread.scale) if forward else spread.witness
        bits = self._bits(spread)
        if spread.difference <= FEW_ULP * max(spread.scale, stored):
            return Judgement("match", bits, by_bits=False)
        if bits is not None and bits >= self.needed:
            return Judgement("match", bits, by_bits=True)
        if spread.difference <= WITNESS * witness:
            return Judgement("match", bits, by_bits=False)
        witness = max(witness, ROUNDOFF[HIGH] * max(spread.scale, stored))
        if spread.difference <= SUBPRECISION * spread.scale:
            self._growth = max(self._growth, spread.difference / witness)
            return Judgement("subprecision", bits, by_bits=True)
        # What follows from a subprecision origin inherits its verdict; the witness shows how far one
        # rounding grows from there to here.
        if spread.difference <= INHERITED * self._growth * witness:
            return Judgement("subprecision", bits, by_bits=True)
        return Judgement("diverged", bits, by_bits=True)

    def noisier(self, spread: Spread) -> tuple[float, float]:
        """By how many bits the candidate's low run is noisier than the reference's (negative: the
        other way round), in L2; and the larger noise, relative to the largest value.

        The floor is what storing the values costs, or what the witness says that rounding at this
        precision does to them: it grows by E bits from float64, cancellation and all.
        """
        norm = spread.scale * math.sqrt(spread.size)
        expected = EXPECTED * spread.witness * 2.0 ** gap(self.low)
        floor = max(ROUNDOFF[self.low] * spread.scale, expected) * math.sqrt(spread.size)
        if not norm:
            return 0.0, 0.0
        reference, candidate = max(spread.reference_error, floor), max(spread.candidate_error, floor)
        if not math.isfinite(reference + candidate):
            return 0.0, 0.0
        return math.log2(candidate / reference), max(reference, candidate) / norm

    def _bits(self, spread: Spread) -> float | None:
        noise = max(spread.noise, ROUNDOFF[self.low] * spread.scale)
        if not spread.difference:
            return None
        return math.log2(noise) - math.log2(spread.difference) if noise else 0.0

"""The rules by which one tensor is judged, from how far its runs are spread.

Rounding shrinks by E bits from the run precision to float64 (29 for float32); a difference of
meaning does not. So the difference between the two float64 runs is measured against the noise of
the low runs: bits = log2(noise / difference).
"""

import math
from typing import Final, NamedTuple

from parity.core.precision import HIGH, ROUNDOFF, SMALLEST, gap
from parity.results import RANKING, Verdict
from parity.trace import keys
from parity.verdict.kernel import Spread
from parity.verdict.octaves import FEW_ULP, LOST, SLACK, Octave

WITNESS: Final = 64  # times what one ulp in the initial weights does to the reference
SUBPRECISION: Final = 2.0**-22  # below this, relative, float32 cannot see a difference
INHERITED: Final = 8  # times what an origin's difference becomes if it grows as the witness does
NOISIER: Final = 5  # bits by which one side's low run may be noisier than the other's
FAR_NOISIER: Final = 8
VISIBLE: Final = 2.0**-10  # relative noise from which on far noisier is another computation
GROSS: Final = 2.0**-3  # the same for gradients that a switched ReLU may have changed
EXPECTED: Final = 4  # times the witness, at the run precision, that a low run may be noisy
ZERO: Final = 2.0**-36  # times the largest loss or gradient: one that is truly zero, but for rounding
NOTHING: Final = 2.0**-3  # times its scale: what is so far apart in float64, and a match, is nothing but rounding
# Kinds that a step moves, where rounding alone may be all that moves one of them.
MOVED: Final = (keys.UPDATE, "parameter", "optimizer_state")
MANY: Final = 16  # numbers whose witness is not small by luck
MANY_KINKS: Final = 16  # sign changes from which on both sides' gradients are about equally noisy


class TensorVerdict(NamedTuple):
    """The verdict on one tensor. `bits` is None where the difference is 0; `by_bits`: judged by them.

    `excused`: the difference, relative to the largest value, that the witness alone makes a match; else 0.
    `growth`: of what float32 cannot see: the difference in units of the witness's. `largest`: the magnitude of the
    elements that the verdict is about, where these are not all.
    """

    verdict: Verdict
    bits: float | None
    by_bits: bool
    excused: float = 0.0
    growth: float = 0.0
    largest: float = math.inf


class Excess(NamedTuple):
    """By how many bits a low run is noisier than rounding explains: in L2 over all numbers, and in the furthest."""

    bits: float
    furthest: float


class Rule:
    """Judges the tensors of one case in execution order.

    `kinks`: how many activations of each side changed their sign between its low and its high run.
    `excuses`: whether the witness says what rounding does; not where the reference does not reproduce itself.
    `parted`: whether rounding alone has moved a tensor of the first step as far as its low runs are lost.
    """

    def __init__(self, low: str) -> None:
        self.low = low
        self.needed = gap(low) - SLACK
        self.kinks = [0, 0]
        self.excuses = True
        self.parted = False
        self._backward = 0.0  # the largest loss or gradient so far
        self._growth = 0.0  # the largest difference of an origin, in units of the witness's there

    @property
    def gradients_tell(self) -> bool:
        """Whether the noise of low gradients says something about precision.

        One ReLU that rounding switches on or off changes gradients by far more than rounding does. So
        they tell where no activation changed its sign, or so many on both sides that it evens out.
        """
        return not any(self.kinks) or min(self.kinks) >= MANY_KINKS

    def high(self, spread: Spread, stored: float = 0.0, kind: str = "", first: bool = False) -> TensorVerdict:
        """The verdict on the float64 runs of a tensor: on the whole, and on the elements of each size.

        `stored`: the scale of the values that the tensor was derived from, if larger than its own.
        An update is the difference of two stored parameters, and known to a few ulp of these.
        `kind`: of tensor. `first`: in the forward and backward pass of the first step, where no trajectory has spread
        rounding yet, the witness excuses no more than float32 could not see; unless the pass is chaotic in itself, and
        the low runs have lost all.
        """
        whole = Octave(spread.scale, spread.scale, spread.difference, spread.noise, 0.0, spread.witness)
        most = SUBPRECISION * min(spread.scale, spread.live)
        if kind in ("loss", "gradient"):
            self._backward = max(self._backward, spread.scale)
        is_moved = kind in MOVED or (kind == "gradient" and spread.scale <= ZERO * self._backward)
        judged = [self._octave(whole, stored, most, is_moved, first)]
        judged += [
            self._octave(size, stored, most, is_moved, first)._replace(largest=size.scale) for size in spread.octaves
        ]
        found = max(judged, key=lambda each: RANKING.index(each.verdict))
        if found.verdict == "match" and not is_moved and self._noise_hides(spread):
            found = self._octave(whole._replace(noise=0.0), stored, most, is_moved, first)
            if spread.size < MANY or not first:
                found = found._replace(verdict="inconclusive")
        if found.verdict == "subprecision":  # an origin is the whole tensor: not while some octave of it has diverged
            self._growth = max(self._growth, *(each.growth for each in judged))
        return found._replace(excused=max(each.excused for each in judged) / (spread.scale or 1.0))

    def _noise_hides(self, spread: Spread) -> bool:
        """Whether the low runs are too far off to say what rounding is, and the witness says that it is less.

        float32 is lost in the sine of 10^7, say: of noise as large as the values E bits less are not rounding. The
        witness of fewer than MANY numbers may be small by luck.
        """
        if spread.noise <= LOST * spread.scale or not self.excuses:
            return False
        rounding = WITNESS * max(spread.witness, FEW_ULP * spread.scale)
        return spread.difference > (rounding if spread.size >= MANY else WITNESS * rounding)

    def reproduces(self, spread: Spread, moved: float) -> bool:
        """Whether the reference, done again, was as close to itself as a candidate has to be. `moved`: by how much."""
        noise = max(spread.noise, ROUNDOFF[self.low] * spread.scale)
        return moved <= max(FEW_ULP * spread.scale, noise * 2.0**-self.needed)

    def _octave(self, size: Octave, stored: float, most: float, is_moved: bool, first: bool) -> TensorVerdict:
        """The verdict on the elements of one size. `most`: the largest difference that float32 may hide.

        `is_moved`: rounding alone may be all that moves the tensor.
        """
        bits = self._bits(size)
        if size.difference <= FEW_ULP * max(size.reach, stored):
            return TensorVerdict("match", bits, by_bits=False)
        if bits is not None and bits >= self.needed:
            return TensorVerdict("match", bits, by_bits=True)
        if excuse := self._excused(size, is_moved, first):
            return TensorVerdict(excuse, bits, by_bits=False, excused=size.difference)
        witness = max(size.witness, ROUNDOFF[HIGH] * max(size.reach, stored), SMALLEST[HIGH])
        if size.difference <= min(most, max(SUBPRECISION * size.scale, size.error)):
            return TensorVerdict("subprecision", bits, by_bits=True, growth=size.difference / witness)
        # What follows from a subprecision origin inherits its verdict; the witness shows how far one
        # rounding grows from there to here.
        if size.difference <= INHERITED * self._growth * witness:
            return TensorVerdict("subprecision", bits, by_bits=True)
        return TensorVerdict("diverged", bits, by_bits=True)

    def _excused(self, size: Octave, is_moved: bool, first: bool) -> Verdict | None:
        """What the witness makes of a difference: a match, inconclusive where rounding alone does as much; or None.

        A parameter whose gradient is truly zero may be moved by nothing but rounding, which a normalising optimizer
        blows up to its whole step: that is told, but it is the same computation. If outputs, losses or gradients
        move visibly, the trajectories have parted, and nothing can be said of them.
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
        """Why a tensor is not a match, in words."""
        if judgement.largest < spread.scale:
            size = next(each for each in spread.octaves if each.scale == judgement.largest)
            apart = f"{size.difference:.1e} apart in float64 in elements of up to {size.scale:.1e}, beside larger ones"
        else:
            share = spread.difference / (spread.scale or 1.0)
            apart = f"{spread.difference:.1e} apart in float64, {share:.1e} of the largest value"
        if judgement.verdict == "inconclusive":
            return f"{apart}, but one rounding in the initial values moves the reference itself as far"
        return f"{apart}: {max(judgement.bits or 0.0, 0.0):.1f} bits, {self.needed} needed"

    def excess(self, spread: Spread, stored: float = 0.0) -> list[Excess]:
        """By how much each side's low run is noisier than rounding at the run precision explains."""
        floor, norm = self._floor(spread, stored), math.sqrt(spread.size) or 1.0
        sides = (
            (spread.reference_error, spread.reference_furthest),
            (spread.candidate_error, spread.candidate_furthest),
        )
        return [Excess(_log2(error / norm / floor), _log2(furthest / floor)) for error, furthest in sides]

    def noisier(self, spread: Spread, stored: float = 0.0) -> float:
        """By how many bits the candidate's low run is noisier than the reference's (negative: the other way round)."""
        floor = self._floor(spread, stored) * (math.sqrt(spread.size) or 1.0)
        reference, candidate = max(spread.reference_error, floor), max(spread.candidate_error, floor)
        return _log2(candidate / reference)

    def relative_noise(self, spread: Spread) -> float:
        """The larger noise of the low runs, in L2, relative to the largest value."""
        norm = spread.scale * math.sqrt(spread.size)
        return max(spread.reference_error, spread.candidate_error) / norm if norm else 0.0

    def _floor(self, spread: Spread, stored: float) -> float:
        """What honest rounding may do to a number of a low run. Above 0.

        It costs what storing the values costs, or what the witness says that rounding at this precision does to them:
        it grows by E bits from float64, cancellation and all. `stored`: as for `high`.
        """
        # What is nothing but rounding on both sides, as a gradient that is truly zero, is a witness itself.
        rounding = spread.difference if spread.difference > NOTHING * spread.scale else 0.0
        expected = EXPECTED * max(spread.witness, rounding) * 2.0 ** gap(self.low)
        return max(ROUNDOFF[self.low] * max(spread.scale, stored), expected, SMALLEST[self.low])

    def _bits(self, size: Octave) -> float | None:
        noise = max(size.noise, ROUNDOFF[self.low] * size.scale)
        if not size.difference:
            return None
        return math.log2(noise) - math.log2(size.difference) if noise else 0.0


def _log2(value: float) -> float:
    return math.log2(value) if 0.0 < value < math.inf else 0.0

"""The runs at the run precision, judged in the first step: are they as noisy as rounding makes them, and no more?

A fault that only exists at the run precision does not show in the float64 runs. Each side's low run is held against
its own high run, beside the other side's noise and beside what rounding explains; so two low runs that are wrong
together are found as well as one.
"""

from typing import Final, Literal, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.core.precision import ROUNDOFF, SMALLEST
from parity.results import Finding
from parity.trace import keys
from parity.verdict import kernel
from parity.verdict.kernel import Change, Runs, Spread, Tensor
from parity.verdict.octaves import octave_of, sampled
from parity.verdict.rule import FAR_NOISIER, GROSS, NOISIER, VISIBLE, Rule

# A switched rounding or comparison (floor, sort, argmax) is no noise if it changes at most one in so many elements.
FEW: Final = 64
SOME: Final = 6  # numbers of which something can be said at all
SHARE: Final = 0.25  # of an error's energy: as much lies along the values if it has to do with them
FURTHER: Final = 4  # times the error of larger numbers
CHANCE: Final = 1e-4  # that so much of it lies along them by chance, where there are few


BACKWARD: Final = ("gradient", keys.UPDATE)
KINDS: Final = ("activation", "loss", "buffer", *BACKWARD)
# Of a loss or a buffer a few bits more or less are the luck of one number, or of a sum's order.
TOLD: Final = ("activation", *BACKWARD)


class Noise(NamedTuple):
    """By how many bits a side's low run is noisier than something, and in which tensor."""

    side: str
    key: str
    bits: float
    than: str
    told_only: bool = False  # a finding, however far it is
    systematic: bool = False  # along the values, as no switched ReLU is


class Low(NamedTuple):
    """A tensor of one side, in float64 and at the run precision."""

    name: str
    high: Tensor
    low: Tensor


class LowRuns:
    """What was found of the low runs so far.

    `noisier`: by side, the tensors that are noisier than the other side's or than rounding explains, however far.
    """

    def __init__(self, names: tuple[str, str], rule: Rule) -> None:
        self.names, self.rule = names, rule
        self.noisier: dict[str, list[str]] = {}
        self._told: dict[str, list[Noise]] = {}

    def check(self, key: str, spread: Spread, runs: Runs, stored: float = 0.0) -> str:
        """Rule one tensor of the first step. Returns why it is diverged, or "" where it is not.

        `runs`: the tensor in every run. `stored`: of an update, the scale of its parameter.
        """
        kind = keys.split(key)[0]
        if kind not in KINDS:
            return ""
        sides = _sides(self.names, runs)
        if kind == "activation":
            for number, (_, high, low) in enumerate(sides):
                assert not isinstance(high, Change) and not isinstance(low, Change)
                # What is smaller than the run precision can hold becomes zero, and switches nothing.
                self.rule.kinks[number] += kernel.sign_changes(high, low, SMALLEST[self.rule.low])
        blind = kind in BACKWARD and not self.rule.gradients_tell
        noises = self._beside_the_other(key, spread, sides, stored)
        if runs.witness is not None:
            noises += self._beside_rounding(key, spread, sides, stored)
        for noise in noises:
            limit = GROSS if blind and not noise.systematic else VISIBLE
            if noise.bits > FAR_NOISIER and not noise.told_only and self.rule.relative_noise(spread) > limit:
                return f"{noise.side}'s {self.rule.low} run is {noise.bits:.1f} bits noisier than {noise.than}"
            if kind in TOLD and not blind:
                self._told.setdefault(noise.side, []).append(noise)
        return self._small_ones(key, sides) if kind == "activation" else ""

    def _beside_the_other(self, key: str, spread: Spread, sides: list[Low], stored: float) -> list[Noise]:
        bits = self.rule.noisier(spread, stored)
        if abs(bits) <= NOISIER:
            return []
        side, other = sides[bits > 0], sides[bits <= 0]
        self._note(side.name, key)
        along = systematic(*map(_sampled, (side.high, side.low, other.low))) is not None
        return [Noise(side.name, key, abs(bits), "the other's", systematic=along)]

    def _note(self, side: str, key: str) -> None:
        if key not in self.noisier.setdefault(side, []):
            self.noisier[side].append(key)

    def _beside_rounding(self, key: str, spread: Spread, sides: list[Low], stored: float) -> list[Noise]:
        """What is further off than rounding explains, and not as rounding is off.

        Rounding that cancellation leaves is as large as it likes, and the witness may not show it; but it has nothing
        to do with the values, and where it does, as where all is lost, it is the same on both sides.
        """
        found = []
        for side, other, excess in zip(sides, sides[::-1], self.rule.excess(spread, stored), strict=True):
            kind = systematic(*map(_sampled, (side.high, side.low, other.low))) if excess.bits > NOISIER else None
            if kind == "one":
                self._note(side.name, key)
                found.append(Noise(side.name, key, excess.bits, "rounding explains", systematic=True))
            elif kind == "both" and excess.bits > FAR_NOISIER:
                found.append(Noise(side.name, key, excess.bits, "rounding explains, like the other's", told_only=True))
            elif excess.furthest > FAR_NOISIER and excess.bits < excess.furthest and self._few(side, other, spread):
                than = "rounding explains in few numbers"
                found.append(Noise(side.name, key, excess.furthest, than, told_only=True))
        return found

    def _few(self, side: Low, other: Low, spread: Spread) -> bool:
        """Whether this side alone is off in few elements: a fault, or a sort or comparison that fell out otherwise."""
        far = 2.0**FAR_NOISIER * ROUNDOFF[self.rule.low] * spread.scale
        counts = [
            kernel.count_apart(high, low, far)
            for _, high, low in (side, other)
            if not isinstance(high, Change) and not isinstance(low, Change)
        ]
        return bool(counts) and 0 < counts[0] <= spread.size // FEW and not counts[1]

    def _small_ones(self, key: str, sides: list[Low]) -> str:
        """Why elements of one size are diverged in a low run, though larger ones beside them hide it; or ""."""
        low = self.rule.low
        for side, other in zip(sides, sides[::-1], strict=True):
            high, rounded, others = (_sampled(tensor) for tensor in (side.high, side.low, other.low))
            rows = octave_of(high)
            error, scale = np.abs(rounded - high), np.ldexp(1.0, rows)
            limit = 2.0**FAR_NOISIER * np.maximum(ROUNDOFF[low] * scale, SMALLEST[low])
            wrong = (error > limit) & (error > VISIBLE * scale)
            for row in np.unique(rows[wrong]):
                of_size, larger = rows <= row, error[rows > row]
                # Rounding is no larger in small numbers than in the large ones that it comes from.
                if not larger.size or np.sqrt(np.mean(error[of_size] ** 2)) <= FURTHER * np.sqrt(np.mean(larger**2)):
                    continue
                if systematic(high[of_size], rounded[of_size], others[of_size]) == "one":
                    self._note(side.name, key)
                    return f"{side.name}'s {low} run is off in elements of up to {2.0 ** int(row):.1e}"
        return ""

    def findings(self) -> list[Finding]:
        """One remark for each side whose low run is noisier than it should be."""
        return [
            Finding(
                id="precision.noise",
                side=side,
                where=noises[0].key,
                message=f"{side}'s {self.rule.low} run is {noises[0].bits:.1f} bits noisier than {noises[0].than} "
                f"(the first of {len(noises)} such tensors)",
            )
            for side, noises in self._told.items()
        ]


def systematic(high: Array, low: Array, other: Array) -> Literal["one", "both"] | None:
    """Whether a low run is off by a multiple of the values or by a constant: it alone, or the other side as well.

    `high`: the values in float64. `low`, `other`: both sides' low runs. Of fewer than SOME numbers nothing is known.
    """
    exact, rounded, others = (array.reshape(-1).astype(np.float64) for array in (high, low, other))
    finite = np.isfinite(exact) & np.isfinite(rounded) & np.isfinite(others)
    exact, rounded, others = exact[finite], rounded[finite], others[finite]
    error = rounded - exact
    energy, values = float(error @ error), float(exact @ exact)
    if exact.size < SOME or not energy or not values:
        return None
    along = max(float(error @ exact) ** 2 / values, float(error.sum()) ** 2 / exact.size)
    # The part of a random direction's energy along a given one exceeds s with probability of about (1-s)^((n-1)/2).
    if along <= max(SHARE, 1.0 - CHANCE ** (2 / (exact.size - 1))) * energy:
        return None
    return "one" if float(np.square(rounded - others).sum()) > SHARE**2 * energy else "both"


def _sides(names: tuple[str, str], runs: Runs) -> list[Low]:
    """Both sides of a tensor, in float64 and at the run precision."""
    pairs = (runs.reference_high, runs.reference_low), (runs.candidate_high, runs.candidate_low)
    return [Low(name, high, low) for name, (high, low) in zip(names, pairs, strict=True) if low is not None]


def _sampled(tensor: Tensor) -> Array:
    """Some of a tensor's elements; of an update, of what it comes to. A whole one may be larger than the memory."""
    if isinstance(tensor, Change):
        change: Array = sampled(tensor.now) - sampled(tensor.before)
        return change
    return sampled(tensor)

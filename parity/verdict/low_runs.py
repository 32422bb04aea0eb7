"""The verdict on the low runs in the first step: they must not be noisier than rounding makes them.

A fault that exists only at the run precision does not show in the float64 runs. The noise of each side's low run, its
distance from that side's high run, is therefore compared with that of the other side, and with what rounding explains,
which finds faults that both sides share.
"""

from typing import Final, Literal, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.core.precision import ROUNDOFF, SMALLEST
from parity.core.wording import count
from parity.results import Finding
from parity.trace import keys
from parity.trace.summary import Summary
from parity.verdict import kernel
from parity.verdict.kernel import Runs, Spread
from parity.verdict.octaves import octave_of, sampled
from parity.verdict.rule import FAR_NOISIER, GROSS, NOISIER, VISIBLE, Rule
from parity.verdict.stream import Change, Tensor

# Where rounding makes an operation jump (floor, sort, argmax), it does not count as noise if at most one element in
# FEW changes.
FEW: Final = 64
SOME: Final = 6  # elements that a tensor needs at least for a statement on its error's direction
SHARE: Final = 0.25  # share of an error's energy in the direction of the values from which on it depends on them
FURTHER: Final = 4  # an error in small elements stands out if it is so many times that in larger elements
CHANCE: Final = 1e-4  # admitted probability that a random error of few elements lies in that direction
NOISE: Final = "precision.noise"  # the finding on tensors that are noisier on one side
BACKWARD: Final = ("gradient", keys.UPDATE)
KINDS: Final = ("activation", "loss", "buffer", *BACKWARD)
# Kinds for which there are findings. In a loss or a buffer, a few bits are the luck of one number or of a sum's order.
TOLD: Final = ("activation", *BACKWARD)


class Noise(NamedTuple):
    """The excess noise of a side's low run in one tensor: `bits` more than what `than` names."""

    side: str
    key: str
    bits: float
    than: str
    told_only: bool = False  # only a finding and never `diverged`, however large it is
    systematic: bool = False  # whether the error depends on the values, which that of a switched ReLU does not


class Low(NamedTuple):
    """A tensor of one side in the high run (float64) and in the low run (the run precision)."""

    name: str
    high: Tensor
    low: Tensor


class LowRuns:
    """Checks low runs; `noisier`: by side, the tensors by NOISIER bits noisier than the other's, or than rounding."""

    def __init__(self, names: tuple[str, str], rule: Rule) -> None:
        self.names, self.rule = names, rule
        self.noisier: dict[str, list[str]] = {}
        self._told: dict[str, list[Noise]] = {}

    def check(self, key: str, spread: Spread, runs: Runs, stored: float = 0.0) -> str:
        """Return why a tensor of the first step is diverged, or "". `stored`: for an update, its parameter's scale."""
        kind = keys.split(key)[0]
        if kind not in KINDS:
            return ""
        pairs = (runs.reference_high, runs.reference_low), (runs.candidate_high, runs.candidate_low)
        sides = [Low(name, high, low) for name, (high, low) in zip(self.names, pairs, strict=True) if low is not None]
        if kind == "activation":
            for number, (_, high, low) in enumerate(sides):
                assert not isinstance(high, Change) and not isinstance(low, Change)
                if isinstance(high, Summary):
                    self.rule.kinks_unseen = True
                    break
                # Values too small for the run precision become zero there; that is no switched ReLU.
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
        along = systematic(*map(sampled, (side.high, side.low, other.low))) is not None
        return [Noise(side.name, key, abs(bits), "the other's", systematic=along)]

    def _note(self, side: str, key: str) -> None:
        if key not in self.noisier.setdefault(side, []):
            self.noisier[side].append(key)

    def _beside_rounding(self, key: str, spread: Spread, sides: list[Low], stored: float) -> list[Noise]:
        """Return the noise that rounding does not explain, neither by its size nor by its direction.

        Rounding errors that are left by cancellation may be of any size, and the witness may not show them. But they
        do not depend on the values; or if they do, because all digits are lost, they are the same on both sides.
        """
        noises = []
        for side, other, (bits, furthest) in zip(sides, sides[::-1], self.rule.excess(spread, stored), strict=True):
            kind = systematic(*map(sampled, (side.high, side.low, other.low))) if bits > NOISIER else None
            if kind == "one":
                self._note(side.name, key)
                noises.append(Noise(side.name, key, bits, "rounding explains", systematic=True))
            elif kind == "both" and bits > FAR_NOISIER:
                noises.append(Noise(side.name, key, bits, "rounding explains, like the other's", told_only=True))
            elif furthest > FAR_NOISIER and bits < furthest and self._few(side, other, spread):
                than = "rounding explains in few numbers"
                noises.append(Noise(side.name, key, furthest, than, told_only=True))
        return noises

    def _few(self, side: Low, other: Low, spread: Spread) -> bool:
        """Return whether only this side is off in few elements: by a fault, or a sort that rounding has changed."""
        far = 2.0**FAR_NOISIER * ROUNDOFF[self.rule.low] * spread.scale
        counts = [
            kernel.count_apart(high, low, far)
            for _, high, low in (side, other)
            if not isinstance(high, Change) and not isinstance(low, Change)
        ]
        return bool(counts) and 0 < counts[0] <= spread.size // FEW and not counts[1]

    def _small_ones(self, key: str, sides: list[Low]) -> str:
        """Return why elements of one size have diverged in a low run, which larger elements beside them hide; or ""."""
        low = self.rule.low
        for side, other in zip(sides, sides[::-1], strict=True):
            high, rounded, others = (sampled(tensor) for tensor in (side.high, side.low, other.low))
            rows = octave_of(high)
            error, scale = np.abs(rounded - high), np.ldexp(1.0, rows)
            limit = 2.0**FAR_NOISIER * np.maximum(ROUNDOFF[low] * scale, SMALLEST[low])
            wrong = (error > limit) & (error > VISIBLE * scale)
            for row in np.unique(rows[wrong]):
                of_size, larger = rows <= row, error[rows > row]
                # Rounding errors in small elements come from the large ones, in which they are at least as large.
                if not larger.size or np.sqrt(np.mean(error[of_size] ** 2)) <= FURTHER * np.sqrt(np.mean(larger**2)):
                    continue
                if systematic(high[of_size], rounded[of_size], others[of_size]) == "one":
                    self._note(side.name, key)
                    return f"{side.name}'s {low} run is off in elements of up to {2.0 ** int(row):.1e}"
        return ""

    def findings(self) -> list[Finding]:
        """Return a finding for each side whose low run is noisier than it should be."""
        findings = []
        for side, (first, *further) in self._told.items():
            than = f"{first.than} (the first of {count(1 + len(further), 'such tensor')})"
            message = f"{side}'s {self.rule.low} run is {first.bits:.1f} bits noisier than {than}"
            findings.append(Finding(id=NOISE, side=side, where=first.key, message=message))
        return findings


def systematic(high: Array, low: Array, other: Array) -> Literal["one", "both"] | None:
    """Return whether a low run is off by a multiple of the values or by a constant, which rounding is not.

    `high`: the values in float64. `low`: this side's low run. `other`: the other side's.
    Returns "one" if only this side is off, "both" if the other side shares the error, and None if the error does not
    depend on the values or there are fewer than SOME of them.
    """
    exact, rounded, others = (array.reshape(-1).astype(np.float64) for array in (high, low, other))
    finite = np.isfinite(exact) & np.isfinite(rounded) & np.isfinite(others)
    exact, rounded, others = exact[finite], rounded[finite], others[finite]
    error = rounded - exact
    energy, values = float(error @ error), float(exact @ exact)
    if exact.size < SOME or not energy or not values:
        return None
    along = max(float(error @ exact) ** 2 / values, float(error.sum()) ** 2 / exact.size)
    # For a random error of n elements, the share of its energy in a given direction exceeds s with a probability of
    # about (1-s)^((n-1)/2).
    if along <= max(SHARE, 1.0 - CHANCE ** (2 / (exact.size - 1))) * energy:
        return None
    return "one" if float(np.square(rounded - others).sum()) > SHARE**2 * energy else "both"

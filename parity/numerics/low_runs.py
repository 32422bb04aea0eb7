"""The runs at the run precision, judged in the first step: are they as noisy as rounding makes them, and no more?

A fault that only exists at the run precision does not show in the float64 runs. Each side's low run is held against
its own high run, beside the other side's noise and beside what rounding explains; so two low runs that are wrong
together are found as well as one.
"""

from typing import Final, NamedTuple

import numpy as np

from parity.numerics import kernel
from parity.numerics.kernel import Array, Spread
from parity.numerics.octaves import low_errors
from parity.numerics.precision import ROUNDOFF, SMALLEST, gap
from parity.numerics.steps import Step
from parity.numerics.verdict import EXPECTED, FAR_NOISIER, GROSS, NOISIER, VISIBLE, Judge
from parity.results import Finding
from parity.trace import keys

# A switched rounding or comparison (floor, sort, argmax) is no noise if it changes at most one in so many elements.
FEW: Final = 64
SOME: Final = 4  # elements of one size that are not wrong by chance


class Noise(NamedTuple):
    """By how many bits a side's low run is noisier than something, and in which tensor."""

    side: str
    key: str
    bits: float
    than: str
    few: bool = False  # in few elements alone


class LowRuns:
    """What was found of the low runs so far.

    `noisier`: by side, the tensors that are noisier than the other side's, however far.
    """

    def __init__(self, names: tuple[str, str], judge: Judge) -> None:
        self.names, self.judge = names, judge
        self.noisier: dict[str, list[str]] = {}
        self._told: dict[str, list[Noise]] = {}

    def check(self, key: str, spread: Spread, files: Step, stored: float = 0.0) -> str:
        """Judge one tensor of the first step. Returns why it is diverged, or "" where it is not.

        `stored`: of an update, the scale of its parameter.
        """
        kind = keys.split(key)[0]
        if kind == "activation":
            for side, (high, low) in enumerate(zip(files.highs, files.lows, strict=True)):
                self.judge.kinks[side] += kernel.sign_changes(high[key], low[key])
        if kind not in ("activation", "gradient", keys.UPDATE):
            return ""
        blind = kind != "activation" and not self.judge.gradients_tell
        limit = GROSS if blind else VISIBLE
        told = self._beside_the_other(key, spread, stored)
        witness = files.witness or {}
        if key in witness or (witness and kind == keys.UPDATE):
            told += self._beside_rounding(key, spread, files, stored)
        for noise in told:
            if noise.bits > FAR_NOISIER and not noise.few and self.judge.relative_noise(spread) > limit:
                return f"{noise.side}'s {self.judge.low} run is {noise.bits:.1f} bits noisier than {noise.than}"
            if not blind:
                self._told.setdefault(noise.side, []).append(noise)
        return self._small_ones(key, files, witness[key]) if kind == "activation" and key in witness else ""

    def _beside_the_other(self, key: str, spread: Spread, stored: float) -> list[Noise]:
        bits = self.judge.noisier(spread, stored)
        if abs(bits) <= NOISIER:
            return []
        side = self.names[bits > 0]
        self.noisier.setdefault(side, []).append(key)
        return [Noise(side, key, abs(bits), "the other's")]

    def _beside_rounding(self, key: str, spread: Spread, files: Step, stored: float) -> list[Noise]:
        """What is noisier than rounding explains; few elements may be where a rounding or a sort fell out otherwise."""
        found = []
        for side, excess in enumerate(self.judge.excess(spread, stored)):
            few = key in files.highs[side] and self._few(key, spread, files, side)
            if excess.bits > NOISIER:
                found.append(Noise(self.names[side], key, excess.bits, "rounding explains", few))
            elif few and excess.furthest > FAR_NOISIER:
                found.append(Noise(self.names[side], key, excess.furthest, "rounding explains in few numbers", few))
        return found

    def _few(self, key: str, spread: Spread, files: Step, side: int) -> bool:
        """Whether few elements make all of the noise: a rounding, a sort or a comparison that fell out otherwise."""
        far = 2.0**FAR_NOISIER * ROUNDOFF[self.judge.low] * spread.scale
        return 0 < kernel.count_apart(files.highs[side][key], files.lows[side][key], far) <= spread.size // FEW

    def _small_ones(self, key: str, files: Step, witness: Array) -> str:
        """Why elements of one size are diverged in a low run, though larger ones beside them hide it; or ""."""
        low = self.judge.low
        for side, (high, rounded) in zip(self.names, zip(files.highs, files.lows, strict=True), strict=True):
            found = low_errors(high[key], rounded[key], witness)
            floor = np.maximum(ROUNDOFF[low] * found.scale, EXPECTED * found.witness * 2.0 ** gap(low))
            limit = 2.0**FAR_NOISIER * np.maximum(floor, SMALLEST[low])
            wrong = (found.error > limit) & (found.error > VISIBLE * found.scale)
            of_size, bad = np.bincount(found.rows), np.bincount(found.rows, wrong)
            if ((of_size >= SOME) & (2 * bad >= of_size)).any():
                return f"{side}'s {low} run is off in elements of up to {found.scale[wrong].max():.1e}"
        return ""

    def findings(self) -> list[Finding]:
        """One remark for each side whose low run is noisier than it should be."""
        return [
            Finding(
                id="precision.noise",
                side=side,
                where=noises[0].key,
                message=f"{side}'s {self.judge.low} run is {noises[0].bits:.1f} bits noisier than {noises[0].than} "
                f"(the first of {len(noises)} such tensors)",
            )
            for side, noises in self._told.items()
        ]

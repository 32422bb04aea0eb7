"""The runs at the run precision, judged in the first step: are they as noisy as rounding makes them, and no more?

A fault that only exists at the run precision does not show in the float64 runs. Each side's low run is held against
its own high run, beside the other side's noise and beside what rounding explains; so two low runs that are wrong
together are found as well as one.
"""

from typing import Final, NamedTuple

from parity.numerics import kernel
from parity.numerics.kernel import Spread
from parity.numerics.precision import ROUNDOFF
from parity.numerics.steps import Step
from parity.numerics.verdict import FAR_NOISIER, GROSS, NOISIER, VISIBLE, Judge
from parity.results import Finding
from parity.trace import keys

# A switched rounding or comparison (floor, sort, argmax) is no noise if it changes at most one in so many elements.
FEW: Final = 64


class Noise(NamedTuple):
    """By how many bits a side's low run is noisier than something, and in which tensor."""

    side: str
    key: str
    bits: float
    than: str


class LowRuns:
    """What was found of the low runs so far.

    `noisier`: by side, the tensors that are noisier than the other side's, however far.
    """

    def __init__(self, names: tuple[str, str], judge: Judge) -> None:
        self.names, self.judge = names, judge
        self.noisier: dict[str, list[str]] = {}
        self._told: dict[str, list[Noise]] = {}

    def check(self, key: str, spread: Spread, files: Step) -> str:
        """Judge one tensor of the first step. Returns why it is diverged, or "" where it is not."""
        kind = keys.split(key)[0]
        if kind == "activation":
            for side, (high, low) in enumerate(zip(files[:2], files[2:4], strict=True)):
                self.judge.kinks[side] += kernel.sign_changes(high[key], low[key])
        if kind not in ("activation", "gradient"):
            return ""
        blind = kind == "gradient" and not self.judge.gradients_tell
        limit = GROSS if blind else VISIBLE
        for noise in self._noises(key, spread, files):
            if noise.bits > FAR_NOISIER and self.judge.relative_noise(spread) > limit:
                return f"{noise.side}'s {self.judge.low} run is {noise.bits:.1f} bits noisier than {noise.than}"
            if not blind:
                self._told.setdefault(noise.side, []).append(noise)
        return ""

    def _noises(self, key: str, spread: Spread, files: Step) -> list[Noise]:
        """What is noisier than it should be in a tensor."""
        bits = self.judge.noisier(spread)
        found = []
        if abs(bits) > NOISIER:
            side = self.names[bits > 0]
            self.noisier.setdefault(side, []).append(key)
            found.append(Noise(side, key, abs(bits), "the other's"))
        if files.witness is not None and key in files.witness:
            excess = zip(self.names, self.judge.excess(spread), strict=True)
            found += [Noise(side, key, above, "rounding explains") for side, above in excess if above > NOISIER]
        return [] if found and self._switched(key, spread, files) else found

    def _switched(self, key: str, spread: Spread, files: Step) -> bool:
        """Whether few elements make all of the noise: a rounding, a sort or a comparison that fell out otherwise."""
        far = 2.0**FAR_NOISIER * ROUNDOFF[self.judge.low] * spread.scale
        few = spread.size // FEW
        pairs = zip(files[:2], files[2:4], strict=True)
        return 0 < max(kernel.count_apart(high[key], low[key], far) for high, low in pairs) <= few

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

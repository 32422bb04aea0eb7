"""Gradients that are a sum of those of several micro-batches: what was done to each of these is told by the sum."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parity.core.arrays import Array
from parity.diagnose.experiment.later import Parted
from parity.diagnose.experiment.micro_batches import summed
from parity.trace.training import Training

PARTS = [draws / np.linalg.norm(draws) for draws in np.random.default_rng(0).normal(size=(3, 30))]
LIMIT = 0.5


class Recorded:
    """A side of a recording: the gradients of each step, of which the last alone makes an update."""

    def __init__(self, steps: list[Array], losses: tuple[float, ...] = ()) -> None:
        self._recorded = {"gradient": steps, "loss": losses}
        self.manifest = SimpleNamespace(training=Training(waiting=[0, 1]))

    def of_kind(self, kind: str, step: int) -> dict[str, Any]:
        return {kind: np.asarray(self._recorded[kind][step])} if self._recorded[kind] else {}


def clipped(gradient: Array) -> Array:
    return gradient * min(1.0, LIMIT / float(np.linalg.norm(gradient)))


def torch(losses: tuple[float, ...] = (), clips: bool = False) -> Recorded:
    first, second, third = np.cumsum(PARTS, 0)
    return Recorded([first, second, clipped(third) if clips else third], losses)


def keras(*factors: float, losses: tuple[float, ...] = (), clips: bool = False, share: float = 1.0) -> Recorded:
    parts = [factor * part for factor, part in zip(factors, PARTS, strict=True)]
    total = sum(map(clipped, parts) if clips else parts, np.zeros(30))
    return Recorded([*parts[:2], share * total], losses)


NORMALISED = ("loss.normalisation", 1.0, 0.5)
CLIPPED = ("clip.before_accumulation", "their sum, at 0.5", "each part, at 0.5")


@pytest.mark.parametrize(
    ("mine", "theirs", "told"),
    [
        (torch(), keras(0.5, 0.75, 0.25), NORMALISED),
        (torch(), keras(0.5, 0.75, 0.25, share=1 / 3), NORMALISED),
        (torch((1.0, 1.0, 1.0)), keras(0.5, 0.75, 0.25, losses=(0.5, 0.75, 0.25)), NORMALISED),
        (torch((1.0, 1.0, 1.0)), keras(0.5, 0.75, 0.25, losses=(1.0, 1.0, 1.0)), None),
        (torch(), keras(0.5, 0.5, 0.5), None),
        (torch(), keras(1.0, 1.0, 1.0), None),
        (torch(), keras(0.5, 0.75, 0.25, share=0.4), None),
        (torch(clips=True), keras(1.0, 1.0, 1.0, clips=True), CLIPPED),
        (torch(clips=True), keras(1.0, 1.0, 1.0), None),
        (torch(), keras(1.0, 1.0, 1.0, clips=True), None),
    ],
)
def test_what_is_told_of_a_sum(mine: Recorded, theirs: Recorded, told: tuple[str, Any, Any] | None) -> None:
    cause = summed(Parted("weight", "gradient", "weight", 2), (mine, theirs))  # type: ignore[arg-type]
    assert (cause and (cause.id, cause.torch, cause.keras)) == told

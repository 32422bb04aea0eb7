"""Gradients to which those of an earlier update are added, and factors of all, from the numbers of both sides."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parity.diagnose.experiment.later import Parted
from parity.diagnose.experiment.ratios import kept, normalised, rescaled, unbiased
from parity.trace.training import Training

FIRST, SECOND = (
    {"weight": draws[:20].reshape(4, 5), "bias": draws[20:]} for draws in np.random.default_rng(0).normal(size=(2, 25))
)


class Recorded:
    """A side of a recording: the gradients of an update, of a step without one, and of a second update."""

    def __init__(self, last: dict[str, Any], first: dict[str, Any] = FIRST) -> None:
        self._steps = [first, {}, last]
        self.manifest = SimpleNamespace(training=Training(waiting=[1]))

    def of_kind(self, kind: str, step: int) -> dict[str, Any]:
        return self._steps[step] if kind == "gradient" else {}


def total(*weights: float) -> dict[str, Any]:
    """The gradients of both updates, each with a weight; clipping makes these others than 1."""
    return {name: weights[0] * FIRST[name] + weights[1] * SECOND[name] for name in FIRST}


@pytest.mark.parametrize(
    ("torch", "keras", "told"),
    [
        (total(0, 1), total(1, 1), ("begins anew", "added to those before")),
        (total(0, 0.5), total(0.3, 0.2), ("begins anew", "added to those before")),
        (total(1, 1), total(0, 1), ("added to those before", "begins anew")),
        (total(0, 1), total(0, 1), None),
        (total(0, 1), total(0, 0.5), None),
        (total(0, 1), total(-1, 1), ("added to those before", "begins anew")),
        (total(0, 1), {name: each + 0.01 * each**2 for name, each in total(1, 1).items()}, None),
        (total(0, 1), {"weight": total(1, 1)["weight"]}, ("begins anew", "added to those before")),
        (total(0, 1), {}, None),
    ],
)
def test_what_is_kept(torch: dict[str, Any], keras: dict[str, Any], told: tuple[str, str] | None) -> None:
    asked = Parted("weight", "gradient", "weight", 2)
    cause = kept(asked, (Recorded(torch), Recorded(keras)))  # type: ignore[arg-type]
    assert (cause and (cause.torch, cause.keras)) == told
    assert cause is None or (cause.id, "step 0" in cause.evidence) == ("gradient.kept", True)


def test_two_numbers_are_a_sum_of_any_two_pairs() -> None:
    first, second, third = ({"bias": np.array(each)} for each in ([1.0, 0.0], [0.0, 1.0], [3.0, 5.0]))
    sides = Recorded(second, first), Recorded(third, first)
    assert kept(Parted("bias", "gradient", "bias", 2), sides) is None  # type: ignore[arg-type]


class Scaled:
    """A side whose loss, gradients and updates are those of another times a factor."""

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def of_kind(self, kind: str, step: int | None) -> dict[str, Any]:
        if kind == "loss":
            return {"loss": np.array(self._factor)}
        return {name: (0.0 if step is None else self._factor) * each for name, each in FIRST.items()}


class Several(Scaled):
    """A side of a step with two losses, each with the gradients of one module, of which one is scaled."""

    def of_kind(self, kind: str, step: int | None) -> dict[str, Any]:
        others = {"loss": {"loss#1": np.array(2.0)}, "gradient": {"other": np.arange(4.0)}}
        return super().of_kind(kind, step) | others.get(kind, {})


def test_the_sign_of_one_of_several_losses() -> None:
    sides: Any = (Several(1.0), Several(-1.0))
    cause = normalised(Parted("loss", "loss", "loss", 0), sides)
    assert cause and (cause.id, cause.keras) == ("loss.scale", -1.0)
    assert normalised(Parted("loss#1", "loss", "loss#1", 0), sides) is None


@pytest.mark.parametrize(("factor", "told"), [(0.5, 0.5), (1.0, None), (1 + 2**-52, None), (1 + 2e-7, None)])
def test_a_factor_that_is_printed_as_1_is_none(factor: float, told: float | None) -> None:
    sides: Any = (Scaled(1.0), Scaled(factor))
    for cause in (
        rescaled(Parted("weight", "update", "weight", 0), sides),
        normalised(Parted("loss", "loss", "loss", 0), sides),
    ):
        assert (cause and cause.keras) == told


@pytest.mark.parametrize(
    ("factor", "told"), [(8 / 7, ["n = 8"]), (1.0, []), (1.1, ["n = 11"]), (1.05, ["n = 21"]), (1.03, [])]
)
def test_running_variances_that_are_unbiased_on_one_side(factor: float, told: list[str]):
    """However much of the old is kept, which was 1 in each channel."""
    added = np.random.default_rng(0).uniform(0.5, 2.0, 6)

    class Buffers(Recorded):
        def of_kind(self, kind: str, step: int | None) -> dict[str, Any]:
            return {"norm.running_var": np.ones(6) if step is None else self._steps[0]}

    sides = tuple(Buffers({}, 0.9**3 + 0.2 * share * added) for share in (factor, 1.0))
    causes = unbiased(Parted("norm.running_var", "buffer", "norm.running_var", 0), sides)
    assert [cause.evidence.rpartition("with ")[2] for cause in causes] == told
    assert all((cause.where, cause.torch, cause.keras) == ("norm", "unbiased", "biased") for cause in causes)

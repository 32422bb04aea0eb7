"""Containers in which something is dropped are not compared in training, nor are calls in another order."""

import pytest

from parity.pairs.activations.modules import in_training
from parity.runtime.survey import Module, Rehearsal, Seen, Survey
from parity.trace.mapping import Match, Matching


def matching(*keys: str) -> Matching:
    return Matching(
        matches=[Match(torch=key, keras=key.replace(".", "/"), axes=[0], by="value") for key in keys], torch_alone=["x"]
    )


HEAD = ("a", "b", "head", "(model)")


def called(side: str, inference: tuple[str, ...], training: tuple[str, ...]) -> Survey:
    return Survey(
        side=side,
        modules=[Module(path=path, kind="linear") for path in dict.fromkeys(inference)],
        weights=[],
        called=list(inference),
        outputs=[Seen(key=key, module=key, shape=(1,)) for key in inference],
        rehearsal=Rehearsal(drawn=dict.fromkeys(training, 0)),
    )


@pytest.mark.parametrize(
    ("torch", "keras", "compared"),
    [
        (("a", "head", "b", "head#1"), ("a", "head", "b", "head#1"), True),
        (("a", "head", "b", "head#1"), ("a", "b", "head", "head#1"), False),
        (("a", "head", "b", "head#1"), ("a", "b", "head"), False),
        (("a", "b", "head"), ("a", "b", "head"), True),
        ((), (), True),  # the trial in training failed: nothing is known
    ],
)
def test_calls_in_another_order_in_training_are_not_compared(
    torch: tuple[str, ...], keras: tuple[str, ...], compared: bool
) -> None:
    sides = [called(side, HEAD[:3], calls) for side, calls in (("torch", torch), ("keras", keras))]
    found = in_training(matching(*HEAD), *sides)
    assert ("head" in [match.torch for match in found.matches]) == compared
    assert [match.torch for match in found.matches if match.torch != "head"] == ["a", "b", "(model)"]

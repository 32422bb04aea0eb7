"""Containers in which something is dropped are not compared in training, nor are calls in another order."""

import pytest
from msgspec.structs import replace

from parity.pairs.activations.dropping import in_training
from parity.runtime.survey import Module, Rehearsal, Seen, Survey
from parity.trace.mapping import Match, Matching


def survey(side: str, rate: float) -> Survey:
    dot = "." if side == "torch" else "/"
    paths = ["block", f"block{dot}attn", f"block{dot}attn{dot}proj", f"block{dot}attn{dot}drop", f"block{dot}norm"]
    facts = {"rate": rate}
    modules = [
        Module(path=path, kind="dropout" if path.endswith("drop") else "Block", facts=facts if "drop" in path else {})
        for path in paths
    ]
    return Survey(side=side, modules=modules, weights=[], called=paths)


def matching(*keys: str) -> Matching:
    return Matching(
        matches=[Match(torch=key, keras=key.replace(".", "/"), axes=[0], by="value") for key in keys], torch_alone=["x"]
    )


KEYS = ("block.attn.proj", "block.attn.drop", "block.attn", "block.attn#1", "block.norm", "block", "(model)")


def test_containers_around_a_dropout_stand_alone() -> None:
    for rates in ((0.1, 0.1), (0.1, 0.0), (0.0, 0.1)):
        found = in_training(matching(*KEYS), *map(survey, ("torch", "keras"), rates))
        assert [match.torch for match in found.matches] == [
            "block.attn.proj", "block.attn.drop", "block.norm", "(model)",
        ]  # fmt: skip
        assert found.torch_alone == ["x", "block.attn", "block.attn#1", "block"]
        assert found.keras_alone == ["block/attn", "block/attn#1", "block"]


def test_what_an_attention_drops_within_itself_tells_nothing_about_it() -> None:
    sides = [survey(side, 0.1) for side in ("torch", "keras")]
    told = [
        replace(
            one,
            modules=[replace(each, kind="attention") if each.path.endswith("attn") else each for each in one.modules],
        )
        for one in sides
    ]
    assert in_training(matching(*KEYS), *told) == matching(*KEYS)


def test_where_nothing_is_dropped_all_are_compared() -> None:
    assert in_training(matching(*KEYS), survey("torch", 0.0), survey("keras", 0.0)) == matching(*KEYS)


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

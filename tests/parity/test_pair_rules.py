"""The user's rules about weights: names with placeholders, what they leave open, and every mistake in one line."""

import numpy as np
import pytest
from msgspec.structs import replace
from pair_surveys import PAIR, dense, keras, linear, torch
from pair_zoo import bare, gpt2, packed_dense

from parity.config.pair import Ignore, WeightRule
from parity.core.errors import UsageError
from parity.pairs.weights.propose import Proposal, propose
from parity.pairs.weights.transfer import to_keras
from parity.runtime.survey import Survey


def proposed(here: Survey, there: Survey, *rules: WeightRule, ignore: Ignore | None = None) -> Proposal:
    return propose(here, there, replace(PAIR, weights=list(rules), ignore=ignore or Ignore()))


def ruled(proposal: Proposal) -> list[tuple[list[str], list[str]]]:
    return [(entry.torch, entry.keras) for entry in proposal.mapping.entries if entry.by == "rule"]


PACKED = "transformer_layer_{i}/self_attention/query/kernel"
EXAMPLE = WeightRule(
    torch="h.{i}.attn.c_attn.weight",
    keras=[PACKED, ".../key/kernel", ".../value/kernel"],
    rearrange="d (three heads k) -> three d heads k",
)


def test_the_example_of_the_readme_is_about_every_layer() -> None:
    model = gpt2()
    proposal = proposed(model.torch, model.keras, EXAMPLE)
    expected = [
        (
            [f"h.{i}.attn.c_attn.weight"],
            [f"transformer_layer_{i}/self_attention/{part}/kernel" for part in ("query", "key", "value")],
        )
        for i in range(2)
    ]
    assert (ruled(proposal), proposal.mapping.unplaced) == (expected, [])
    biases = [entry for entry in proposal.mapping.entries if entry.torch[0].endswith("c_attn.bias")]
    assert [len(entry.keras) for entry in biases] == [3, 3], "what a rule does not name is still found"


@pytest.mark.parametrize("keras_name", ["mixer/w1", "net/mixer/w1", "w1"])
def test_keras_weights_by_any_of_their_names(keras_name: str) -> None:
    model = bare()
    rule = WeightRule(torch="mix.w1", keras=keras_name, rearrange="a b -> b a")
    assert ruled(proposed(model.torch, model.keras, rule)) == [(["mix.w1"], ["mixer/w1"])]


def test_without_a_pattern_several_ways_are_a_doubt() -> None:
    model = bare()
    proposal = proposed(model.torch, model.keras, WeightRule(torch="mix.w1", keras="mixer/w2"))
    (first, *_) = proposal.ambiguities
    assert first.place == "mix" and [[entry.rearrange for entry in choice] for choice in first.choices] == [
        [""],
        ["a0 a1 -> a1 a0"],
    ]


def test_a_rule_for_the_matrices_alone_leaves_the_biases_to_be_found() -> None:
    model = packed_dense()
    names = ["a/to_q/kernel", ".../to_k/kernel", ".../to_v/kernel"]
    rule = WeightRule(
        torch="attn.qkv.weight", keras=names, rearrange="(heads n k) i -> n i (heads k)", sizes={"heads": 2}
    )
    proposal = proposed(model.torch, model.keras, rule)
    assert proposal.mapping.unplaced == []
    (ambiguity,) = proposal.ambiguities
    values = [to_keras(choice[0], [np.arange(24)], [(8,)] * 3)[0].tolist() for choice in ambiguity.choices]
    assert list(range(8)) in values and [0, 1, 2, 3, 12, 13, 14, 15] in values


MISTAKES = [
    (WeightRule(torch="mix.w3", keras="mixer/w1"), r"torch has no weight 'mix.w3' \(did you mean 'mix.w\d'\?\)"),
    (WeightRule(torch="mix.w1", keras="mixer/w3"), r"keras has no weight 'mixer/w3' \(did you mean 'mixer/w\d'\?\)"),
    (WeightRule(torch="mux.w{i}", keras="mixer/w{i}"), "torch has no weight like 'mux.w{i}'"),
    (WeightRule(torch="mix.w1", keras="mixer/w{i}"), "{i} is not in 'mix.w1'"),
    (WeightRule(torch="mix.w1", keras=["mixer/w1", "mixer/w1"], combine="copy"), "keras's 'mixer/w1' is named twice"),
    (WeightRule(torch="mix.w1", keras="out/bias"), r"shapes \(4, 4\) do not become \(4,\)"),
    (
        WeightRule(torch="mix.w1", keras="mixer/w1", rearrange="a b c -> c b a"),
        "names 3 axes, but the array has the shape",
    ),
    (WeightRule(torch="mix.w1", keras=[]), "an empty list of names"),
]


@pytest.mark.parametrize(("rule", "message"), MISTAKES)
def test_mistakes_are_told(rule: WeightRule, message: str) -> None:
    model = bare()
    with pytest.raises(UsageError, match=message) as error:
        proposed(model.torch, model.keras, rule)
    assert "\n" not in str(error.value)


def test_the_end_of_a_name_is_not_enough_if_several_end_so() -> None:
    here = torch(linear("a", 4, 4))
    there = keras(dense("x/dense", 4, 4), dense("y/dense", 4, 4))
    with pytest.raises(UsageError, match="'dense/kernel' is the end of 2 weights: x/dense/kernel, y/dense/kernel"):
        proposed(here, there, WeightRule(torch="a.weight", keras="dense/kernel"))


def test_two_rules_for_one_weight_are_refused() -> None:
    model = bare()
    rules = WeightRule(torch="mix.w1", keras="mixer/w1"), WeightRule(torch="mix.w{i}", keras="mixer/w{i}")
    with pytest.raises(UsageError, match=r"'mix\.w1' is named twice"):
        proposed(model.torch, model.keras, *rules)


@pytest.mark.parametrize(
    ("ignore", "said"),
    [
        (Ignore(torch=["a.wieght"]), "torch has no weight that fits 'a.wieght' (did you mean 'a.weight'?)"),
        (Ignore(keras=["*", "c/bias"]), "keras has no weight that fits 'c/bias'"),
    ],
)
def test_what_is_ignored_and_is_not_there_is_told_with_the_nearest_name(ignore: Ignore, said: str) -> None:
    with pytest.raises(UsageError) as error:
        proposed(torch(linear("a", 4, 3)), keras(dense("b", 4, 3)), ignore=ignore)
    assert said in str(error.value) and "\n" not in str(error.value)


TOWERS = (
    torch(*(linear(f"towers.{number}.fc{layer}", 4, 4) for number in range(2) for layer in range(2))),
    keras(*(dense(f"{name}/dense_{layer}", 4, 4) for name in ("part_1", "part_0") for layer in range(2))),
)


def test_a_prefix_says_within_which_modules_weights_belong_together() -> None:
    swapped = [WeightRule(torch=f"towers.{number}.**", keras=f"part_{1 - number}/**") for number in range(2)]
    numbered = [WeightRule(torch="towers.{i}.**", keras="part_{i}/**")]
    for rules, parts in ((swapped, ("part_1", "part_0")), (numbered, ("part_0", "part_1"))):
        proposal = proposed(*TOWERS, *rules)
        found = {entry.torch[0]: entry.keras[0] for entry in proposal.mapping.entries}
        assert proposal.mapping.unplaced == [] and len(found) == 8
        for number, part in enumerate(parts):
            for layer in range(2):
                assert found[f"towers.{number}.fc{layer}.weight"] == f"{part}/dense_{layer}/kernel"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("tower.**", "part_0/**"), "torch has no weight within 'tower.\\*\\*'"),
        (("towers.0.**", "part/**"), "keras has no weight within 'part'"),
    ],
)
def test_a_prefix_that_fits_nothing_is_a_mistake(names: tuple[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        proposed(*TOWERS, WeightRule(torch=names[0], keras=names[1]))
    assert "did you mean" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"torch": "a.**", "keras": "b/kernel"}, "one such name on each side"),
        ({"torch": ["a.**"], "keras": "b/**"}, "one such name on each side"),
        ({"torch": "a.**", "keras": "b/**", "order": [0]}, "no other field"),
        ({"torch": "a", "keras": "b", "slice": "2"}, "expected start:stop"),
        ({"torch": "a", "keras": "b", "slice": "2:3:1"}, "expected start:stop"),
    ],
)
def test_a_rule_that_contradicts_itself_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WeightRule(**fields)

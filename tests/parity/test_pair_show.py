"""A mapping as text: the list, the rules to paste, the complaint."""

import tomllib

import msgspec
import pytest
from msgspec.structs import replace
from pair_surveys import PAIR, Model, dense, keras, line, linear, torch
from pair_zoo import MODELS, bare, gpt2, tied_once

from parity.config.pair import WeightRule
from parity.pairs.weights.propose import propose
from parity.pairs.weights.show import as_toml, complaint, table
from parity.trace.mapping import Entry, Mapping, Unplaced


@pytest.mark.parametrize("known", [True, False], ids=["with shapes", "without"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_pasted_rules_give_the_same_mapping(model: Model, known: bool) -> None:
    mapping = propose(model.torch, model.keras, PAIR).mapping
    rules = msgspec.convert(
        tomllib.loads(as_toml(mapping, model.torch if known else None))["weights"], list[WeightRule]
    )
    again = propose(model.torch, model.keras, replace(PAIR, weights=rules))
    assert again.mapping.entries == [replace(entry, by="rule") for entry in mapping.entries]
    assert (again.ambiguities, again.mapping.unplaced, again.mapping.constants) == ([], [], mapping.constants)


def test_pasted_rules_keep_what_running_decided() -> None:
    model = bare()
    proposal = propose(model.torch, model.keras, PAIR)
    turned = proposal.ambiguities[0].choices[-1]
    names = {name for entry in turned for name in entry.keras}
    rest = [entry for entry in proposal.mapping.entries if not names & set(entry.keras)]
    mapping = replace(proposal.mapping, entries=[*turned, *rest])
    rules = msgspec.convert(tomllib.loads(as_toml(mapping, model.torch))["weights"], list[WeightRule])
    again = propose(model.torch, model.keras, replace(PAIR, weights=rules)).mapping.entries
    assert sorted(again, key=lambda entry: entry.torch) == sorted(
        (replace(entry, by="rule") for entry in mapping.entries), key=lambda entry: entry.torch
    )


def test_layers_that_are_alike_are_one_line() -> None:
    model = gpt2()
    lines = table(propose(model.torch, model.keras, PAIR).mapping, model.torch, model.keras).splitlines()
    assert "h.{i}.ln_1.weight [8] (by order), i = 0 to 1" in lines and not [line for line in lines if "h.0" in line]


def test_missing_weights_that_are_alike_are_one_line() -> None:
    here = torch(*(linear(f"layers.{number}.fc", 4, 3) for number in range(90)), linear("head", 3, 2))
    text = complaint(propose(here, keras(dense("head", 3, 2)), PAIR).mapping)
    assert text.splitlines()[:2] == [
        "  torch: layers.{i}.fc.weight [3, 4], i = 0 to 89; no free weight of the other side has this size",
        "  torch: layers.{i}.fc.bias [3], i = 0 to 89; no free weight of the other side has this size",
    ]


def test_layers_that_are_alike_are_one_rule() -> None:
    model = gpt2()
    text = as_toml(propose(model.torch, model.keras, PAIR).mapping, model.torch)
    assert text.count("[[weights]]") == 4 + 12 and "h.{i}.ln_1.weight" in text and "h.0" not in text


def test_a_placeholder_stands_for_no_other_weight() -> None:
    """Of three layers one belongs elsewhere: a rule for {i} would be about it too."""
    pairs = {"l.0.w": "x/l0/w", "l.1.w": "x/l1/w", "l.2.w": "other/w"}
    mapping = Mapping(entries=[Entry(torch=[one], keras=[other]) for one, other in pairs.items()])
    text = as_toml(mapping)
    assert "{i}" not in text and all(name in text for name in [*pairs, *pairs.values()])
    two = as_toml(replace(mapping, entries=mapping.entries[:2]))
    assert two.count("[[weights]]") == 1 and "x/l{i}/w" in two


def test_the_list_says_what_moves_how_and_why() -> None:
    model = tied_once()
    text = table(propose(model.torch, model.keras, PAIR).mapping, model.torch, model.keras)
    assert text.splitlines()[:3] == [
        "emb.weight [9, 4]: ... -> ...; o i -> i o, copy (by name)",
        "    embed/embeddings [9, 4]",
        "    logits/kernel [4, 9]",
    ]
    assert "body.bias [4] (by " in text and max(map(len, text.splitlines())) <= 80


def test_the_list_tells_of_all_other_weights() -> None:
    here = torch(linear("a", 4, 3), line("pos", "Positions", position_ids=(1, 9)), line("x", "Odd", w9=(7, 7)))
    there = keras(line("b", "linear", kernel=(4, 3), bias=(3,)), line("y", "Odd", w9=(8,)))
    mapping = propose(here, there, PAIR).mapping
    lines = table(replace(mapping, ignored=["some"])).splitlines()[-4:]
    assert lines == [
        "torch: x.w9 [7, 7] (not found)",
        "keras: y/w9 [8] (not found)",
        "pos.position_ids (constant: no counterpart needed)",
        "some (ignored)",
    ]


def test_the_complaint_names_each_weight_and_what_could_be_meant() -> None:
    here = torch(linear("a", 4, 3))
    there = keras(line("b", "linear", kernel=(4, 3)), line("c", "linear", kernel=(4, 3)))
    text = complaint(propose(here, there, PAIR).mapping)
    assert text.splitlines() == [
        "  torch: a.bias [3]; no free weight of the other side has this size; "
        "its module's counterpart, b of keras, has no such weight",
        "  keras: c/kernel [4, 3]; no free weight of the other side has this size",
        "say in [[weights]] which belong together, or in [ignore] what the other side does not need",
    ]


def test_the_complaint_ends_with_a_rule_to_paste() -> None:
    one = Unplaced(side="torch", name="a.scale", shape=(3,), candidates=["b/factor", "c/gamma"])
    text = complaint(Mapping(entries=[], unplaced=[Unplaced(side="keras", name="c/gamma", shape=(3,)), one]))
    (rule,) = tomllib.loads(text.partition("for example:")[2])["weights"]
    assert rule == {"torch": "a.scale", "keras": "b/factor"}

"""A mapping as text: the list, the rules to paste, the complaint."""

import tomllib

from pair_surveys import PAIR, keras, line, linear, torch
from pair_zoo import gpt2

from parity.pairs.weights.propose import propose
from parity.pairs.weights.show import as_toml, complaint, table
from parity.trace.mapping import Mapping, Unplaced


def test_layers_that_are_alike_are_one_line() -> None:
    model = gpt2()
    lines = table(propose(model.torch, model.keras, PAIR).mapping).splitlines()
    assert "h.{i}.ln_1.weight (by order), i = 0 to 1" in lines and not [line for line in lines if "h.0" in line]


def test_layers_that_are_alike_are_one_rule() -> None:
    model = gpt2()
    text = as_toml(propose(model.torch, model.keras, PAIR).mapping)
    assert text.count("[[weights]]") == 4 + 12 and "h.{i}.ln_1.weight" in text and "h.0" not in text


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

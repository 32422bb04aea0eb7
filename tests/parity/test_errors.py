"""Messages about mistakes: hints by the same table alone, and text that no encoding can hold."""

from typing import Any

import pytest

from parity.config.cases import allowed_fields, allowed_values
from parity.config.schema import Case
from parity.core.errors import nearest, printable

NAMES = ["learning_rate", "layers", "weight_decay", "shape"]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("lr", "learning_rate"),
        ("learn_rate", "learning_rate"),
        ("wd", "weight_decay"),
        ("weightdecay", "weight_decay"),
        ("shap", "shape"),
        ("layer", "layers"),
    ],
)
def test_a_near_or_abbreviated_name_is_suggested(word: str, hint: str) -> None:
    assert nearest(word, NAMES) == f" (did you mean {hint!r}?)"


@pytest.mark.parametrize("word", ["lr", "l", "sp", "rl", "", "xyz"])
def test_what_is_not_near_is_not_suggested(word: str) -> None:
    assert nearest(word, ["layers", "shape", "heads"]) == ""


def test_text_that_utf_8_cannot_hold() -> None:
    assert printable("a\ud800ä") == "a\\ud800ä"


@pytest.mark.parametrize(
    ("table", "path", "there", "elsewhere"),
    [
        ({}, "$", "strategy", "kind"),
        ({"model": {"kind": "simple_block"}}, "$.model", "hidden", "d_model"),
        ({"model": {"kind": "transformer"}}, "$.model", "d_model", "hidden"),
        ({"model": {"kind": "pair"}}, "$.model.inputs[...]", "shape", "torch_kwargs"),
        ({"model": {"kind": "pair"}}, "$.model.weights[0]", "rearrange", "shape"),
    ],
)
def test_fields_are_those_of_the_place(table: dict[str, Any], path: str, there: str, elsewhere: str) -> None:
    fields = allowed_fields(Case, table, path)
    assert there in fields and elsewhere not in fields


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$.optimizer.kind", ["adam", "adamw", "sgd"]),
        ("$.precision", ["bfloat16", "float16", "float32"]),
        ("$.model.train.loss", ["cross_entropy", "mse"]),
        ("$.steps", []),
    ],
)
def test_choices_are_all_that_the_field_may_be(path: str, values: list[str]) -> None:
    table = {"model": {"kind": "pair"}, "optimizer": {"kind": "lion"}}
    assert sorted(allowed_values(Case, table, path)) == values

"""What both sides compute and do not train is compared as their builders make it, and no weight to be copied.

The models are those of tests/pairs/constants_torch.py and its counterpart: each right, and with other values in Keras.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from judged import Judge, passes_strict, remembered
from slow import sampled

from parity.pairs import file
from parity.pairs.compare import compared
from parity.results import CaseResult

FILE = Path(__file__).parent / "pairs" / "constants.toml"
EMBEDDED = {"pair.torch": "constants_torch:Embedded", "pair.keras": "constants_keras:Embedded"}
TRAINED = {"train.loss": "mse", "train.optimizer": "sgd", "train.learning_rate": 0.0625, "train.steps": 2}
WRONG = {"pair.keras_kwargs.wrong": True}


def held(what: str, **more: Any) -> dict[str, Any]:
    return {"pair.kwargs.what": what, **more}


ROWS = {
    "table": (held("table"), "table"),
    "table_trained": (held("table", **TRAINED), "table"),
    "table_frozen": (held("table", **{"pair.torch_kwargs.frozen": True}), "table"),
    "order": (held("order"), "order"),
    "moments": (held("moments"), "mean"),
    "temperature": (held("temperature"), "temperature"),
    "window": (held("window"), "window"),
    "embedded": (EMBEDDED, "positions.weight"),
}


@pytest.fixture(scope="module")
def judge(backends, tmp_path_factory) -> Judge:
    """`judge(changes..., more=)`: the pair with these changes to its file, and `more` lines, recorded and judged."""
    numbers = itertools.count()

    def judged(*changes: dict[str, Any], more: str = "") -> CaseResult:
        folder = tmp_path_factory.mktemp(f"constants{next(numbers)}")
        written = folder / "constants.toml"
        written.write_text(f"{FILE.read_text()}\n{more}")
        overrides = [f"{key}={json.dumps(value)}" for each in changes for key, value in each.items()]
        pair = file.load(written, overrides)._replace(search=[str(FILE.parent)])
        return compared(pair, backends, folder, varied=False)

    return remembered(judged)


@pytest.mark.parametrize("row", sampled(ROWS, "order"))
def test_the_right_values_match(row: str, judge: Judge):
    result = judge(ROWS[row][0])
    assert passes_strict(result) and result.assumptions == [], result


@pytest.mark.parametrize("row", sampled(ROWS, "order"))
def test_the_wrong_values_are_named(row: str, judge: Judge):
    changes, name = ROWS[row]
    result = judge(changes, WRONG)
    assert result.verdict == "diverged"
    assert [(cause.id, cause.where) for cause in result.causes] == [("buffer.values", name)]


@pytest.mark.parametrize("row", sampled([*ROWS, "mask"], "order"))
def test_what_is_suggested_loads_torchs_values(row: str, judge: Judge):
    changes = ROWS[row][0] if row in ROWS else held(row)
    (suggestion,) = judge(changes, WRONG).suggestions
    assert judge(changes, WRONG, more=suggestion.toml).verdict == "match"


def test_a_rule_of_the_users_loads_torchs_values(judge: Judge):
    result = judge(held("table"), WRONG, more='[[weights]]\ntorch = "table"\nkeras = "table"\n')
    assert result.verdict == "match" and result.assumptions == []


def test_what_keras_leaves_at_one_may_be_loaded_later_or_be_wrong(judge: Judge):
    assert judge(held("mask")).verdict == "match"
    result = judge(held("mask"), WRONG)
    assert result.verdict == "inconclusive"
    assert result.reason.startswith("mask of torch (min 0, max 1, at [0] 0) and mask of keras (1) differ")
    assert [sentence.endswith("torch's values were loaded") for sentence in result.assumptions] == [True]


@pytest.mark.slow
def test_a_variable_is_not_overwritten_by_a_buffer_that_is_none_of_its_own(judge: Judge):
    result = judge(held("foreign"))
    assert result.verdict == "match"
    assert [sentence.partition(",")[0] for sentence in result.assumptions] == [
        "random are class_freq [8] in torch and nothing in keras"
    ]
    assert judge(held("foreign"), WRONG).verdict == "diverged"


@pytest.mark.slow
def test_what_both_draw_at_random_is_torchs(judge: Judge):
    result = judge(held("random"))
    assert result.verdict == "match"
    assert result.assumptions == [
        "torch's values are used in Keras for directions [9, 8], random on both sides and drawn alike (32 seeds)"
    ]
    assert judge(held("random"), WRONG).verdict == "diverged"


@pytest.mark.slow
def test_frozen_weights_that_are_drawn_are_torchs(judge: Judge):
    for drawn in ("pair.kwargs.drawn", "pair.torch_kwargs.drawn", "pair.keras_kwargs.drawn"):
        result = judge(EMBEDDED, {drawn: True})
        assert result.verdict == "match" and result.assumptions == [
            "torch's values are used in Keras for positions.weight: frozen weights, random as layers begin with them, "
            "and not compared"
        ]


def test_values_that_make_no_difference_are_told(judge: Judge):
    result = judge(held("unused"), WRONG)
    assert result.verdict == "match"
    assert ["each side kept its own" in sentence for sentence in result.assumptions] == [True]

"""What tells weights, dropouts and tensors of two models apart: each question has a right pair and one that is wrong.

The models are those of tests/pairs/telling_torch.py and its counterpart; a case is given by changes to its file.
"""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from judged import passes_strict, remembered
from slow import sampled

from parity.pairs import file
from parity.pairs.compare import compared
from parity.results import CaseResult

FOLDER = Path(__file__).parent / "pairs"
IMAGE = {"inputs.x.shape": [2, 3, 7, 9], "inputs.x.keras_layout": "n c h w -> n h w c"}
OWN = {"train.torch_optimizer": "telling_torch:Momentum", "train.keras_optimizer": "telling_keras:momentum"}
ADAMW = {"train.optimizer": "adamw"}


class Row(NamedTuple):
    """`model`: of both sides; `keras`: if it is another there. `wrong`: what makes a fault of it; `cause`: its name."""

    model: str
    wrong: dict[str, Any]
    cause: str = ""
    keras: str = ""
    trained: bool = False
    more: dict[str, Any] = {}
    verdict: str = "diverged"

    def overrides(self, wrong: bool) -> list[str]:
        """As --set has them."""
        changes = {
            "pair.torch": f"telling_torch:{self.model}",
            "pair.keras": f"telling_keras:{self.keras or self.model}",
        }
        changes |= self.more | (self.wrong if wrong else {})
        return [f"{key}={json.dumps(value)}" for key, value in changes.items()]


LATE = {"pair.torch_kwargs.after": 2, "pair.keras_kwargs.after": 2, "train.steps": 3}
EXCHANGED = {"pair.keras_kwargs.exchanged": True}
ROWS = [
    Row("Glu", EXCHANGED, "weights.exchanged"),
    Row("Glu", EXCHANGED, "weights.exchanged", trained=True),
    Row("Scores", EXCHANGED, "weights.exchanged", more={"inputs.x.shape": [2, 5, 8]}),
    Row("Heads", EXCHANGED, "weights.exchanged"),
    Row("Heads", EXCHANGED, keras="unnamed_heads", verdict="inconclusive"),
    Row("Blocks", EXCHANGED, "weights.exchanged"),
    Row("Matrices", EXCHANGED, "weights.exchanged"),
    Row("Averaging", {"pair.keras_kwargs.held": False}, "buffer.missing"),
    Row("Averaging", {"pair.keras_kwargs.held": False}, "buffer.missing", trained=True),
    Row("Averaging", LATE | {"pair.keras_kwargs.held": False}, "buffer.missing", trained=True, more=LATE),
    Row("Counts", {"pair.keras_kwargs.held": False}, "buffer.missing"),
    Row("Counts", {"pair.keras_kwargs.held": False}, "buffer.missing", trained=True),
    Row("Counts", {"pair.keras_kwargs.each": 2}, trained=True),
    Row("Counts", {"pair.keras_kwargs.each": 2}, trained=True, more={"pair.keras_kwargs.dtype": "int64"}),
    Row("Positions", {"pair.keras_kwargs.step": 1.01}, trained=True),
    Row(
        "Positions",
        {"pair.keras_kwargs.step": 1.01},
        more={"pair.torch_kwargs.held": False, "pair.keras_kwargs.held": True},
    ),
    Row("Floor", {"pair.keras_kwargs.through": True}, "gradient.stopped", trained=True),
    Row("Floor", ADAMW, "weight_decay.without_gradient", trained=True),
    Row("Drops", {"pair.keras_kwargs.rate": 0.3}, "dropout.rate", trained=True, more=IMAGE),
    Row("Drops", {"pair.keras_kwargs.more": 0.25}, trained=True, more=IMAGE),
    Row("Drops", {"pair.torch_kwargs.rate": 0.3}, trained=True, more=IMAGE | {"pair.torch_kwargs.functional": True}),
    Row("Drops", {"pair.torch_kwargs.rate": 0.3}, trained=True, more=IMAGE | {"pair.keras_kwargs.functional": True}),
    Row("Calls", {"pair.keras_kwargs.biased": False}, trained=True),
    Row("Glu", {"train.keras_optimizer": "telling_keras:less_momentum"}, trained=True, more=OWN),
]


@pytest.fixture(scope="module")
def judge(backends, tmp_path_factory) -> Callable[..., CaseResult]:
    """`judge(row, wrong)`: the pair of a row, recorded and judged."""
    numbers = itertools.count()

    def judged(row: Row, wrong: bool) -> CaseResult:
        folder = tmp_path_factory.mktemp(f"telling{next(numbers)}")
        name = "telling_trained" if row.trained else "telling"
        return compared(file.load(FOLDER / f"{name}.toml", row.overrides(wrong)), backends, folder)

    return remembered(judged)


def row_id(row: Row) -> str:
    changes = [f"{key}={value}" for key, value in row.wrong.items()]
    return "-".join([row.keras or row.model, *changes, *(["trained"] if row.trained else [])])


CASES = sampled(
    (pytest.param(row, id=row_id(row)) for row in ROWS),
    "Averaging-pair.keras_kwargs.held=False",
    "Counts-pair.keras_kwargs.held=False",
)


@pytest.mark.parametrize("row", CASES)
def test_the_right_pair_matches(row, judge):
    result = judge(row, False)
    assert result.verdict == "match" and passes_strict(result), result


@pytest.mark.parametrize("row", CASES)
def test_the_wrong_pair_does_not(row, judge, request):
    if not row.cause:
        request.getfixturevalue("verdicts_only")
    result = judge(row, True)
    assert result.verdict == row.verdict, result
    assert not row.cause or row.cause in [cause.id for cause in result.causes], result


def test_what_only_order_tells_is_an_assumption(judge):
    row = next(row for row in ROWS if row.keras)
    (right,), (wrong,) = judge(row, False).assumptions, judge(row, True).assumptions
    start = "head_a, head_b of torch were taken to be"
    assert right == f"{start} dense_1, dense_2 of keras (by order of creation); the other way round differs"
    assert wrong.startswith(f"{start} dense_2, dense_1 of keras") and "against the order of creation" in wrong


@pytest.mark.slow
def test_a_harmless_exchange_is_said_to_be_harmless(judge):
    result = judge(Row("Bilinear", {}, keras="bilinear"), False)
    assert result.verdict == "match"
    assert [sentence.rpartition("; ")[2] for sentence in result.assumptions] == ["the other way round matches too"]


@pytest.mark.slow
def test_names_leave_nothing_to_be_assumed(judge):
    assert judge(Row("Glu", {}), False).assumptions == []


@pytest.mark.slow
def test_constants_without_a_counterpart_are_told(judge):
    result = judge(Row("Normalized", {}, keras="normalized"), False)
    said = "torch's buffer mean has no counterpart: it is constant here, other values were not tried"
    assert result.verdict == "match" and said in result.not_compared
    assert not any("buffer" in one for one in judge(Row("Glu", {}), False).not_compared)


@pytest.mark.slow
def test_outputs_that_are_not_named_are_told(judge):
    (row,) = [row for row in ROWS if row.model == "Heads" and not row.keras]
    named = judge(row._replace(more={"outputs.a.torch": 0, "outputs.a.keras": 0}), False).not_compared
    assert named[-1] == "not named in [outputs], and not compared: 1"
    assert not any("[outputs]" in one for one in judge(row, False).not_compared)


@pytest.mark.slow
def test_slots_of_optimizers_that_only_one_has_are_told(judge):
    result = judge(Row("Glu", {}, trained=True, more=OWN), False)
    assert [sentence.partition(" has no")[0] for sentence in result.assumptions] == [
        "velocity of torch's optimizer", "momentum_buffer of keras's optimizer"
    ]  # fmt: skip
    assert result.checks["update"].verdict == "match" and result.checks["optimizer_state"].compared


@pytest.mark.slow
def test_what_one_side_alone_records_is_counted_there(judge):
    result = judge(Row("Calls", {}, trained=True), False)
    assert {"act", "a#1"} <= set(result.matched.torch_alone)

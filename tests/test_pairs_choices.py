"""Weights that could be put together in several ways: right ports match, and no fault is mapped away.

The models are those of tests/pairs/choices_torch.py and its counterpart; a case is given by changes to its file.
"""

import itertools
import json
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from judged import passes_strict
from slow import sampled

from parity.core.errors import UsageError
from parity.pairs import file
from parity.pairs.compare import compared
from parity.results import CaseResult
from parity.trace.mapping import UnmappedError

FOLDER = Path(__file__).parent / "pairs"
LAST = "n c h w -> n h w c"
IMAGE = {"inputs.x.shape": [2, 8, 5, 7], "inputs.x.keras_layout": LAST, "outputs.y.keras_layout": LAST}
PATCHES = {"inputs.x.shape": [2, 3, 8, 8], "inputs.x.keras_layout": LAST}
SEQUENCE = {"inputs.x.shape": [2, 5, 8]}
WIDE = {"inputs.x.shape": [4, 24], "pair.kwargs.depth": 1}
PARTS = ["query", "key", "value"]
SPLIT = {"torch": "qkv.weight", "keras": [f"{part}/kernel" for part in PARTS], "each": "o i -> i o"}
BIASES = {"torch": "qkv.bias", "keras": [f"{part}/bias" for part in PARTS]}
BY_GROUP = {"rearrange": "(group n k) i -> n group k i", "each": "n group k i -> i (group n k)"}
BY_GROUP_BIASES = {"rearrange": "(group n k) -> n group k", "each": "n group k -> (group n k)"}
SIZES = {"sizes": {"group": 2, "k": 3}}
SLICE = {"weights": [{"torch": "positions.weight", "keras": "embedding/embeddings", "slice": "2:"}]}
OF_QUERY = {"outputs.q.torch": 0, "outputs.q.keras": 0}
NAMED_TABLE = SEQUENCE | {"ignore.torch": ["extra"], "pair.keras_kwargs.name": "position_embedding"}
BY_GROUPS = {"pair.torch_kwargs.by_group": True}
TRAIN = {"train.steps": 2, "train.optimizer": "adam"}


class Row(NamedTuple):
    """`model`: of both sides; `keras`: if it has another name there. `where`: a glob of the place that is named."""

    name: str
    model: str
    changes: dict[str, Any] = {}
    verdict: str = "match"
    keras: str = ""
    cause: str = ""
    where: str = "*"
    assumed: str = ""

    def overrides(self) -> list[str]:
        """As --set has them."""
        changes = {
            "pair.torch": f"choices_torch:{self.model}",
            "pair.keras": f"choices_keras:{self.keras or self.model}",
        }
        return [f"{key}={toml(value)}" for key, value in (changes | self.changes).items()]


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(member)}" for key, member in value.items()) + "}"
    return "[" + ", ".join(map(toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


def keras_kwargs(**kwargs: Any) -> dict[str, Any]:
    return {f"pair.keras_kwargs.{key}": value for key, value in kwargs.items()}


EXCHANGED = keras_kwargs(exchanged=True)
ROWS = [
    Row("gate and up by outcome", "Gated", assumed="wi_0, wi_1 of torch were taken to be dense_1, dense of keras"),
    Row("the other layer is the gate", "Gated", EXCHANGED),
    Row("a fault behind the gate", "Gated", keras_kwargs(activation="relu"), "diverged", where="act"),
    Row("gate and up by name", "Named"),
    Row("gate and up exchanged", "Named", EXCHANGED, "diverged", cause="weights.exchanged"),
    Row("towers by name", "Towers", WIDE),
    Row("towers exchanged", "Towers", WIDE | EXCHANGED, "diverged", cause="weights.exchanged"),
    Row("towers by outcome", "Towers", WIDE | keras_kwargs(named=False), assumed="tower_2, tower_1, tower of keras"),
    Row("branches", "Inception", IMAGE, keras="inception", assumed="by the order of creation"),
    Row("branches exchanged", "Inception", IMAGE | EXCHANGED, "diverged", keras="inception"),
    Row("projections by name", "Attention", SEQUENCE),
    Row("projections exchanged", "Attention", SEQUENCE | EXCHANGED, "diverged", cause="weights.exchanged"),
    Row("projections by outcome", "Attention", SEQUENCE | keras_kwargs(named=False), assumed="q, k, v of torch"),
    Row(
        "towers by rule",
        "Towers",
        WIDE
        | keras_kwargs(named=False)
        | {
            "weights": [
                {"torch": f"{tower}_model.**", "keras": f"{keras}/**"}
                for tower, keras in (("text", "tower_2"), ("vision", "tower_1"), ("audio", "tower"))
            ]
        },
    ),
    Row("a slice", "Positions", SEQUENCE | SLICE | {"ignore.torch": ["extra"]}),
    Row("a slice in training", "Positions", SEQUENCE | SLICE | TRAIN | {"ignore.torch": ["extra"]}),
    Row(
        "a wrong slice",
        "Positions",
        SEQUENCE | SLICE | {"ignore.torch": ["extra"]} | keras_kwargs(first=1),
        "diverged",
    ),
    Row("unequal parts", "Grouped", {"weights": [SPLIT, BIASES]}),
    Row("unequal parts in training", "Grouped", {"weights": [SPLIT, BIASES]} | OF_QUERY | TRAIN),
    Row("parts exchanged", "Grouped", {"weights": [SPLIT, BIASES]} | EXCHANGED, "diverged"),
    Row(
        "parts by group",
        "Grouped",
        {
            "weights": [SPLIT | BY_GROUP | SIZES, BIASES | BY_GROUP_BIASES | SIZES],
            "pair.torch_kwargs.by_group": True,
        },
    ),
    Row("a slice by outcome", "Positions", NAMED_TABLE, assumed='moved by slice "2:"'),
    Row("the first rows", "Positions", NAMED_TABLE | {"pair.torch_kwargs.offset": 0}),
    Row("rows in between", "Positions", NAMED_TABLE | {"pair.torch_kwargs.offset": 1}, assumed='moved by slice "1:6"'),
    Row("rows in another order", "Positions", NAMED_TABLE | keras_kwargs(first=1), "diverged", where="positions"),
    Row("unequal parts by outcome", "Grouped", assumed="qkv.bias of torch were taken to be query, key, value of keras"),
    Row("unequal parts by outcome in training", "Grouped", OF_QUERY | TRAIN),
    Row("key and value crossed", "Grouped", EXCHANGED, "diverged"),
    Row("parts by group by outcome", "Grouped", BY_GROUPS, assumed="part group size"),
    Row("key and value crossed by group", "Grouped", BY_GROUPS | EXCHANGED, "diverged"),
    Row("experts", "Experts", assumed="gate_up_proj of torch was taken to be"),
    Row("experts in training", "Experts", TRAIN),
    Row("experts by turns", "Experts", {"pair.torch_kwargs.by_turns": True}),
    Row("experts of another function", "Experts", keras_kwargs(act="gelu"), "diverged"),
    Row("a head that both have and neither uses", "Heads"),
    Row("the other head is used", "Heads", keras_kwargs(taken="spare"), "diverged"),
    Row("a head of another name is used", "Heads", keras_kwargs(taken="other", made=["main", "other"]), "diverged"),
    Row("a head that is made and not called", "Heads", keras_kwargs(taken="", made=["main"]), "diverged"),
    Row("an unused head is missing", "Heads", keras_kwargs(made=["main"])),
    Row("an unused head is missing in training", "Heads", keras_kwargs(made=["main"]) | TRAIN),
    Row("unused weights on both sides", "Pooled", TRAIN),
    Row("forward alone", "Stepped", {"pair.backward": False}),
    Row("a gradient that is missing", "Stepped", {}, "error"),
    Row("a convolution of patches", "Unfolded", PATCHES, assumed="moved by o (i y x) -> y x i o"),
    Row("a kernel turned around", "Turned", PATCHES | {"outputs.y.keras_layout": LAST}, assumed="order 8 7 6 5"),
    Row("a cell of one's own", "Cell", SEQUENCE, assumed="order 1 0 2"),
    Row("a cell with torch's order of gates", "Cell", SEQUENCE | keras_kwargs(order="rzn"), assumed="order 0 1 2"),
    Row("a cell of both frameworks", "Cell", SEQUENCE, keras="Framework"),
    Row("a cell that resets before the product", "Cell", SEQUENCE | keras_kwargs(after=False), "diverged"),
    Row("a gelu before a module", "Spatial", SEQUENCE, "diverged", cause="gelu.form", where="gate"),
]  # fmt: skip
SAMPLE = ("a slice by outcome", "a wrong slice")


@pytest.fixture(scope="module")
def judge(backends, tmp_path_factory) -> Callable[[Row], CaseResult]:
    """`judge(row)`: the pair of a row, recorded and judged."""
    numbers = itertools.count()

    def judged(row: Row) -> CaseResult:
        folder = tmp_path_factory.mktemp(f"choices{next(numbers)}")
        return compared(file.load(FOLDER / "choices.toml", row.overrides()), backends, folder, False)

    return judged


@pytest.mark.parametrize("row", sampled((pytest.param(row, id=row.name) for row in ROWS), *SAMPLE))
def test_choice(row: Row, judge: Callable[[Row], CaseResult], request: pytest.FixtureRequest) -> None:
    if not row.cause:
        request.getfixturevalue("verdicts_only")
    result = judge(row)
    assert result.verdict == row.verdict, result
    assert row.verdict != "match" or passes_strict(result), result.findings
    assert not row.cause or row.cause in [cause.id for cause in result.causes], result
    assert not result.first_divergence or fnmatchcase(result.first_divergence.name, row.where), result
    assert any(row.assumed in sentence for sentence in result.assumptions) or not row.assumed, result.assumptions


@pytest.mark.slow
def test_what_takes_part_in_nothing_is_told_of_each_side(judge: Callable[[Row], CaseResult]) -> None:
    result = judge(Row("", "Pooled"))
    apart = "of {} without a counterpart {} part in nothing that is compared: {}"
    assert "2 weights " + apart.format("torch", "take", "extra.weight, extra.bias") in result.not_compared
    assert "1 weight " + apart.format("keras", "takes", "words/embeddings") in result.not_compared
    assert result.mapping and result.mapping.unused == {
        "torch": ["extra.weight", "extra.bias"],
        "keras": ["words/embeddings"],
    }


@pytest.mark.slow
def test_a_weight_without_a_gradient_that_takes_part_is_asked_for(judge: Callable[[Row], CaseResult]) -> None:
    with pytest.raises(UnmappedError, match=r"torch: extra\.weight \[8, 8\]; no free weight of the other") as error:
        judge(Row("", "Pooled", {"pair.torch_kwargs.detached": True}))
    assert [weight.name for weight in error.value.mapping.unplaced] == ["extra.weight", "extra.bias"]


@pytest.mark.slow
def test_an_unused_head_is_none_for_a_head_that_is_used_and_missing(judge: Callable[[Row], CaseResult]) -> None:
    changes = keras_kwargs(taken="other", made=["spare", "other"])
    result = judge(Row("", "Heads", changes))
    assert result.verdict == "match" and result.mapping
    pairs = {entry.torch[0]: entry.keras[0] for entry in result.mapping.entries}
    assert (pairs["main.weight"], pairs["spare.weight"]) == ("other/kernel", "spare/kernel")


@pytest.mark.slow
def test_a_forward_pass_alone_is_told(judge: Callable[[Row], CaseResult]) -> None:
    result = judge(Row("", "Stepped", {"pair.backward": False}))
    assert "no gradient was compared, as the file has backward = false" in result.not_compared
    assert "gradient" not in result.checks or not result.checks["gradient"].compared


@pytest.mark.parametrize("batch", [False, True], ids=["layer norm", "batch norm"])
def test_a_missing_scale_is_told_and_its_offset_is_mapped(batch: bool, judge: Callable[[Row], CaseResult]) -> None:
    changes = {"pair.torch_kwargs.batch": batch} | keras_kwargs(batch=batch)
    with pytest.raises(UnmappedError, match=r"norm2\.weight \[8\]; no free weight of the other side") as error:
        judge(Row("", "Normed", changes))
    pairs = {entry.torch[0]: entry.keras[0] for entry in error.value.mapping.entries}
    assert pairs["norm2.bias"].endswith("beta") and pairs["norm1.weight"].endswith("gamma")
    assert [weight.name for weight in error.value.mapping.unplaced] == ["norm2.weight"]


def test_a_scale_that_is_ignored_keeps_the_builders_ones(judge: Callable[[Row], CaseResult]) -> None:
    assert judge(Row("", "Normed", {"ignore.torch": ["norm2.weight"]})).verdict == "match"


def test_a_mistake_in_a_rule_still_shows_what_is_found_without_rules(judge: Callable[[Row], CaseResult]) -> None:
    rule = {"weights": [{"torch": "wo.weight", "keras": "nowhere/kernel"}]}
    with pytest.raises(UsageError, match="keras has no weight 'nowhere/kernel'") as error:
        judge(Row("", "Gated", rule))
    assert isinstance(error.value, UnmappedError) and len(error.value.mapping.entries) == 6

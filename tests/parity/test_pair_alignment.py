"""The alignment of two sequences, and what speaks for a unit's counterpart in that of weights."""

import itertools
import random
from collections.abc import Iterator

import pytest
from pair_surveys import PAIR, conv, dense, keras, line, linear, torch

from parity.pairs.alignment import Block
from parity.pairs.alignment import align as best_blocks
from parity.pairs.weights import align
from parity.pairs.weights.propose import propose
from parity.runtime.survey import Survey


def pairs(scores: list[list[float]], adjoining: float = 0.0) -> list[tuple[int, int]]:
    """The alignment of single items with these scores."""

    def ending(row: int) -> Iterator[Block]:
        return (Block(row, column, 1, 1, score) for column, score in enumerate(scores[row - 1], 1))

    blocks = best_blocks(len(scores), len(scores[0]), ending, adjoining)
    return [(block.torch_end - 1, block.keras_end - 1) for block in blocks]


def without_crossings(rows: int, columns: int) -> Iterator[list[tuple[int, int]]]:
    for count in range(min(rows, columns) + 1):
        for ours, theirs in itertools.product(
            itertools.combinations(range(rows), count), itertools.combinations(range(columns), count)
        ):
            yield list(zip(ours, theirs, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_no_other_pairs_without_crossings_have_a_higher_score(seed: int) -> None:
    numbers = random.Random(seed)
    rows, columns = numbers.randint(1, 4), numbers.randint(1, 4)
    scores = [[numbers.randint(-2, 5) for _ in range(columns)] for _ in range(rows)]

    def total(chosen: list[tuple[int, int]]) -> float:
        return sum(scores[row][column] for row, column in chosen)

    chosen = pairs(scores)
    assert chosen in list(without_crossings(rows, columns))
    assert total(chosen) == max(map(total, without_crossings(rows, columns)))
    assert all(scores[row][column] > 0 for row, column in chosen)


def test_blocks_that_adjoin_are_preferred() -> None:
    scores = [[1.0, 0.0, 0.0], [0.0, 1.0, 1.25]]
    assert pairs(scores) == [(0, 0), (1, 2)]
    assert pairs(scores, 0.5) == [(0, 0), (1, 1)]
    assert pairs([[1.0, 0.0], [0.0, 0.0]], 0.5) == [(0, 0)], "a block without a score is impossible"


def test_one_item_may_belong_to_several() -> None:
    blocks = [Block(1, 3, 1, 3, 4.0), Block(1, 1, 1, 1, 3.0), Block(2, 4, 1, 1, 3.0), Block(2, 2, 1, 1, 3.0)]
    found = best_blocks(2, 4, lambda row: (block for block in blocks if block.torch_end == row))
    assert found == [blocks[0], blocks[2]]


def towers(sizes: dict[str, int]) -> list[str]:
    return [f"{tower}/dense_{number}" for tower, count in sizes.items() for number in range(count)]


CUSTOM = {"weight": (4, 4), "bias": (4,)}, {"kernel": (4, 4), "bias": (4,)}
# The last layer's name has both words, so that they do not exclude each other.
MIXED = (
    torch(line("o_proj", "Custom", **CUSTOM[0]), linear("v_proj", 4, 4), linear("value_out", 5, 5)),
    keras(dense("value", 4, 4), line("output", "CustomLayer", **CUSTOM[1]), dense("value_output", 5, 5)),
    {"o_proj": "output", "v_proj": "value", "value_out": "value_output"},
)
# Each by the score without which it is another.
EVIDENCE = {
    "KIND": MIXED,
    "PART": MIXED,
    "NAME": MIXED,
    "NUMBER": (torch(linear("o_proj", 4, 4), linear("fc2", 4, 4)), keras(dense("dense_2", 4, 4)), {"fc2": "dense_2"}),
    "MISSING": (
        torch(linear("fc1", 4, 4), line("fc2", "linear", weight=(4, 4))),
        keras(line("dense", "linear", kernel=(4, 4))),
        {"fc2": "dense"},
    ),
    "NEXT": (
        torch(line("k_proj", "linear", weight=(4, 4)), *(linear(name, 4, 4) for name in ("up_proj", "fc1", "token"))),
        keras(line("key", "linear", kernel=(4, 4)), dense("dense_1", 4, 4), dense("up", 4, 4)),
        {"k_proj": "key", "up_proj": "up", "fc1": "dense_1"},
    ),
    # Towers of unequal depth that Keras calls in the other order, and whose layers nobody named.
    "ELSEWHERE": (
        torch(
            *(linear(name.replace("/dense_", "."), 4, 4) for name in towers({"encoder": 2, "decoder": 3})),
            linear("decoder.encoder_attn", 5, 5),
        ),
        keras(
            *(dense(name, 4, 4) for name in towers({"decoder": 3, "encoder": 2})), dense("decoder/encoder_attn", 5, 5)
        ),
        {name.replace("/dense_", "."): name for name in towers({"encoder": 2, "decoder": 3})}
        | {"decoder.encoder_attn": "decoder/encoder_attn"},
    ),
}


def matrices(here: Survey, there: Survey) -> dict[str, str]:
    return {
        entry.torch[0].removesuffix(".weight"): entry.keras[0].removesuffix("/kernel")
        for entry in propose(here, there, PAIR).mapping.entries
        if entry.torch[0].endswith("weight")
    }


@pytest.mark.parametrize("score", EVIDENCE)
def test_evidence_tells_the_counterpart_and_without_it_another_is_taken(
    score: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there, truth = EVIDENCE[score]
    assert matrices(here, there) == truth
    monkeypatch.setattr(align, score, 0.0)
    assert matrices(here, there) != truth


@pytest.mark.parametrize("order", list(itertools.permutations(("text", "vision", "audio"))))
def test_towers_whose_names_exclude_each_other_are_no_counterparts(order: tuple[str, ...]) -> None:
    """Three or more, in any order of calls; `encoder`, which all share, tells nothing."""
    here = torch(*(linear(f"{name}_model.encoder.{i}", 4, 4) for name in ("text", "vision", "audio") for i in range(3)))
    there = keras(*(dense(f"{name}_encoder/dense_{i}", 4, 4) for name in order for i in range(3)))
    found = matrices(here, there)
    assert {one.partition("_")[0] + other.partition("_")[0] for one, other in found.items()} == {
        "texttext", "visionvision", "audioaudio",
    }  # fmt: skip


@pytest.mark.parametrize("missing", ["weight", "bias"])
def test_a_norm_without_scale_or_offset_keeps_its_other_weights(missing: str) -> None:
    roles = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
    has = {keras_role: (4,) for role, keras_role in roles.items() if role != missing}
    here = torch(linear("fc", 4, 4), line("norm", "batch_norm", **dict.fromkeys(roles, (4,))))
    proposal = propose(here, keras(dense("fc", 4, 4), line("bn", "batch_norm", **has)), PAIR)
    found = {entry.torch[0]: entry.keras[0] for entry in proposal.mapping.entries}
    assert {f"norm.{role}": f"bn/{roles[role]}" for role in roles if role != missing}.items() <= found.items()
    assert [weight.name for weight in proposal.mapping.unplaced] == [f"norm.{missing}"]


def test_a_scale_is_no_counterpart_of_an_offset() -> None:
    here, there = torch(line("own", "Own", scale=(4,))), keras(line("own", "Own", beta=(4,)))
    assert [weight.name for weight in propose(here, there, PAIR).mapping.unplaced] == ["own.scale", "own/beta"]


def test_buffers_of_whole_numbers_are_no_counterparts_of_others() -> None:
    here = torch(linear("a", 4, 4), line("", "Net", position_ids=(1, 4)), called=["", "a"])
    there = keras(dense("a", 4, 4), line("b", "Table", moving_mean=(1, 4)))
    assert propose(here, there, PAIR).mapping.constants[:1] == ["position_ids"]


def test_patches_that_keras_flattens_stand_in_one_of_two_orders() -> None:
    """A convolution over three axes has 24 orders, too many to try."""
    (ambiguity,) = propose(torch(conv("p", 3, 8, 2, 4, 4)), keras(dense("d", 96, 8)), PAIR).ambiguities
    patterns = [entry.rearrange for choice in ambiguity.choices for entry in choice]
    assert patterns == ["o i z y x -> (z y x i) o", "o i z y x -> (i z y x) o"]


def test_a_square_embedding_is_not_transposed() -> None:
    here, there = torch(line("e", "embedding", weight=(8, 8))), keras(line("t", "embedding", embeddings=(8, 8)))
    assert propose(here, there, PAIR).ambiguities == []


def test_matrices_may_be_joined_head_by_head() -> None:
    here = torch(*(linear(f"a.{name}", 8, 8) for name in ("q_proj", "k_proj", "v_proj")))
    (ambiguity,) = propose(here, keras(dense("qkv", 8, 24)), PAIR).ambiguities
    heads = [choice[0].sizes.get("heads") for choice in ambiguity.choices]
    assert heads == [None, 2, 4] and ambiguity.choices[1][0].rearrange == "(n heads k) i -> i (heads n k)"


def test_an_lstm_without_one_of_its_biases_is_told() -> None:
    shapes = {"weight_ih_l0": (16, 3), "weight_hh_l0": (16, 4), "bias_ih_l0": (16,)}
    here = torch(line("r", "lstm", **shapes))
    there = keras(line("l", "lstm", kernel=(3, 16), recurrent_kernel=(4, 16), bias=(16,)))
    assert [one.name for one in propose(here, there, PAIR).mapping.unplaced] == ["r.bias_ih_l0", "l/bias"]

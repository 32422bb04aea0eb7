"""The automatic mapping of weights: which belong together, what is in ambiguity, what stays without a counterpart."""

from typing import Any

import pytest
from pair_surveys import MATRIX, NORM, PAIR, Model, both, conv, conv_k, dense, keras, line, linear, norm, norm_k, torch
from pair_zoo import MODELS

from parity.pairs.weights.propose import Proposal, propose
from parity.runtime.survey import Survey


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_every_weight_is_mapped_to_its_own(model: Model) -> None:
    proposal = propose(model.torch, model.keras, PAIR)
    found = {"+".join(entry.torch): "+".join(entry.keras) for entry in proposal.mapping.entries}
    assert (found, proposal.mapping.unplaced) == (model.truth, [])
    assert [ambiguity.place for ambiguity in proposal.ambiguities] == model.ambiguities


def unplaced(here: Survey, there: Survey) -> list[str]:
    return [one.name for one in propose(here, there, PAIR).mapping.unplaced]


def test_a_missing_bias_is_no_other_layers() -> None:
    here = torch(linear("a", 4, 8), line("b", "linear", weight=(8, 8)))
    there = keras(line("a", "linear", kernel=(4, 8)), dense("b", 8, 8))
    assert unplaced(here, there) == ["a.bias", "b/bias"]


def test_a_shortcut_of_the_same_shape_is_tried_with_its_norm() -> None:
    """Keras calls it first, under names that say nothing: order is wrong throughout, and shapes do not show it."""
    ours = ["conv1", "conv2", "downsample.0"], ["bn1", "bn2", "downsample.1"]
    theirs = ["a", "b", "c"], ["na", "nb", "nc"]
    here = [
        made for one, two in zip(*ours, strict=True) for made in (conv(f"l.{one}", 4, 4, 3, 3), norm(f"l.{two}", 4))
    ]
    there = [made for one, two in zip(*theirs, strict=True) for made in (conv_k(one, 4, 4, 3, 3), norm_k(two, 4))]
    (ambiguity,) = propose(torch(*here), keras(*there), PAIR).ambiguities
    found = [{entry.torch[0]: entry.keras[0] for entry in choice} for choice in ambiguity.choices]
    truth = {"l.conv1": "b", "l.conv2": "c", "l.downsample.0": "a"}
    norms = {"l.bn1": "nb", "l.bn2": "nc", "l.downsample.1": "na"}
    assert ambiguity.place == "l.conv1" and both(truth, MATRIX) | both(norms, NORM) in found


def test_packed_parts_of_several_sizes_stand_one_after_the_other_or_by_groups() -> None:
    here = torch(linear("attn.qkv", 8, 16))
    there = keras(dense("q", 8, 8), dense("k", 8, 4), dense("v", 8, 4))
    (ambiguity,) = propose(here, there, PAIR).ambiguities
    first, by_group = ([(entry.rearrange, entry.each, entry.sizes) for entry in choice] for choice in ambiguity.choices)
    assert first == [("", "o i -> i o", {}), ("", "", {})]
    sizes = {"group": 2, "size": 2}
    assert by_group == [
        ("(group part size) inner -> part group size inner", "part group size i -> i (group part size)", sizes),
        ("(group part size) -> part group size", "part group size -> (group part size)", sizes),
    ]
    assert ambiguity.choices[0][0].keras == ["q/kernel", "k/kernel", "v/kernel"]


def test_arrays_of_experts_are_packed_if_names_say_so() -> None:
    here = torch(line("experts", "Experts", gate_up=(3, 12, 8), down=(3, 8, 6)))
    sizes = {"gate": (3, 8, 6), "intermediate": (3, 8, 6), "output": (3, 6, 8)}
    (ambiguity,) = propose(here, keras(line("bank", "Bank", **sizes)), PAIR).ambiguities
    assert [(choice[0].rearrange, choice[0].keras) for choice in ambiguity.choices] == [
        ("a0 (n a1) a2 -> n a0 a2 a1", ["bank/gate", "bank/intermediate"]),
        ("a0 (a1 n) a2 -> n a0 a2 a1", ["bank/gate", "bank/intermediate"]),
        ("a0 (n a1) a2 -> n a0 a2 a1", ["bank/intermediate", "bank/gate"]),
    ]
    unnamed = line("bank", "Bank", **dict(zip(("one", "other", "output"), sizes.values(), strict=True)))
    assert "experts.gate_up" in unplaced(here, keras(unnamed))


def tables(here: int, there: int, keras_name: str = "position_embedding", **more: Any) -> Proposal:
    ours = torch(line("embed_positions", "embedding", weight=(here, 4)), linear("fc", 4, 3))
    theirs = keras(line(keras_name, "embedding", embeddings=(there, 4)), dense("fc", 4, 3), **more)
    return propose(ours, theirs, PAIR)


@pytest.mark.parametrize(
    ("rows", "slices"),
    [(6, ["1:", ":5"]), (8, ["3:", ":5", "1:6", "2:7"]), (64, ["59:", ":5"])],
)
def test_a_table_may_hold_a_part_of_the_rows(rows: int, slices: list[str]) -> None:
    found = tables(rows, 5)
    assert [choice[0].slice for ambiguity in found.ambiguities for choice in ambiguity.choices] == slices
    assert found.mapping.unplaced == []


@pytest.mark.parametrize(
    "found",
    [
        tables(6, 5, "token_embedding"),
        tables(6, 5, "embedding"),
        tables(5, 6),
        tables(6, 5, unused=["position_embedding/embeddings"]),
    ],
    ids=["of another thing", "of no name", "more rows in keras", "unused on one side"],
)
def test_no_table_is_taken_for_a_part_of_another(found: Proposal) -> None:
    assert "embed_positions.weight" in {weight.name for weight in found.mapping.unplaced}


def test_an_unused_weight_of_the_size_of_a_missing_one_is_shown_with_it() -> None:
    here = torch(linear("trunk", 4, 4), line("main", "linear", weight=(6, 4)))
    there = keras(dense("trunk", 4, 4), line("extra", "linear", kernel=(8, 3)), unused=["extra/kernel"])
    left = {weight.name: weight.candidates for weight in propose(here, there, PAIR).mapping.unplaced}
    assert left == {"main.weight": ["extra/kernel"], "extra/kernel": ["main.weight"]}


@pytest.mark.parametrize("missing", ["weight", "bias"])
def test_a_norm_without_scale_or_offset_keeps_its_other_weights(missing: str) -> None:
    roles = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
    has = {keras_role: (4,) for role, keras_role in roles.items() if role != missing}
    here = torch(linear("fc", 4, 4), line("norm", "batch_norm", **dict.fromkeys(roles, (4,))))
    proposal = propose(here, keras(dense("fc", 4, 4), line("bn", "batch_norm", **has)), PAIR)
    found = {entry.torch[0]: entry.keras[0] for entry in proposal.mapping.entries}
    assert {f"norm.{role}": f"bn/{roles[role]}" for role in roles if role != missing}.items() <= found.items()
    assert [weight.name for weight in proposal.mapping.unplaced] == [f"norm.{missing}"]


def test_buffers_of_whole_numbers_are_no_counterparts_of_others() -> None:
    here = torch(linear("a", 4, 4), line("", "Net", position_ids=(1, 4)), called=["", "a"])
    there = keras(dense("a", 4, 4), line("b", "Table", moving_mean=(1, 4)))
    assert propose(here, there, PAIR).mapping.constants[:1] == ["position_ids"]

"""The automatic mapping of weights: which belong together, what is in ambiguity, what stays without a counterpart."""

import time
from typing import Any

import pytest
from msgspec.structs import replace
from pair_surveys import MATRIX, NORM, PAIR, Model, both, conv, conv_k, dense, keras, line, linear, norm, norm_k, torch
from pair_zoo import MODELS

from parity.config.pair import WeightRule
from parity.pairs.weights import names
from parity.pairs.weights.propose import Proposal, propose
from parity.pairs.weights.show import complaint
from parity.runtime.survey import Rehearsal, Survey


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_every_weight_is_mapped_to_its_own(model: Model) -> None:
    proposal = propose(model.torch, model.keras, PAIR)
    found = {"+".join(entry.torch): "+".join(entry.keras) for entry in proposal.mapping.entries}
    assert (found, proposal.mapping.unplaced) == (model.truth, [])
    assert [ambiguity.place for ambiguity in proposal.ambiguities] == model.ambiguities


def placed(here: Survey, there: Survey) -> dict[str, str]:
    mapping = propose(here, there, PAIR).mapping
    return {"+".join(entry.torch): "+".join(entry.keras) for entry in mapping.entries}


def unplaced(here: Survey, there: Survey) -> list[str]:
    return [one.name for one in propose(here, there, PAIR).mapping.unplaced]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_the_choices_of_a_doubt_are_about_the_same_variables(model: Model) -> None:
    proposal = propose(model.torch, model.keras, PAIR)
    for ambiguity in proposal.ambiguities:
        variables = [sorted(name for entry in choice for name in entry.keras) for choice in ambiguity.choices]
        weights = [sorted(name for entry in choice for name in entry.torch) for choice in ambiguity.choices]
        assert len(ambiguity.choices) > 1 and variables == variables[:1] * len(variables)
        assert weights == weights[:1] * len(weights) and len(set(variables[0])) == len(variables[0])
        mapped = [replace(entry, by="order") for entry in proposal.mapping.entries]
        assert all(replace(entry, by="order") in mapped for entry in ambiguity.choices[0])  # the first choice
        assert all(one not in ambiguity.choices[:number] for number, one in enumerate(ambiguity.choices))


def test_matrices_of_known_kinds_stand_as_their_kind_has_them() -> None:
    model = MODELS["mlp"]
    assert {one.rearrange for one in propose(model.torch, model.keras, PAIR).mapping.entries} == {"o i -> i o", ""}


def test_a_custom_layer_that_is_called_dense_may_stand_either_way() -> None:
    here, there = torch(linear("a", 4, 4)), keras(dense("a", 4, 4, "MyDense"))
    (ambiguity,) = propose(here, there, PAIR).ambiguities
    assert [[entry.rearrange for entry in choice] for choice in ambiguity.choices] == [["o i -> i o"], [""]]


def test_both_packings_are_choices() -> None:
    model = MODELS["gpt2"]
    for ambiguity in propose(model.torch, model.keras, PAIR).ambiguities:
        assert [[entry.rearrange for entry in choice] for choice in ambiguity.choices] == [
            ["c (n d e) -> n c d e", "(n d e) -> n d e"],
            ["c (d n e) -> n c d e", "(d n e) -> n d e"],
        ]


def test_the_packing_of_an_attention_of_torchs_is_known() -> None:
    model = MODELS["multihead"]
    assert propose(model.torch, model.keras, PAIR).ambiguities == []


def test_a_flattened_image_may_be_permuted_in_the_matrix() -> None:
    model = MODELS["lenet"]
    (ambiguity,) = propose(model.torch, model.keras, PAIR).ambiguities
    assert [(choice[0].rearrange, choice[0].sizes) for choice in ambiguity.choices] == [
        ("o i -> i o", {}),
        ("o (i y x) -> (y x i) o", {"y": 5, "x": 5}),
    ]


def test_branches_that_nothing_tells_apart_are_tried_in_every_order() -> None:
    here = torch(linear("mean", 8, 4), linear("spread", 8, 4), linear("third", 8, 4))
    there = keras(dense("apple", 8, 4), dense("pear", 8, 4), dense("plum", 8, 4))
    (ambiguity,) = propose(here, there, PAIR).ambiguities
    orders = {
        tuple(entry.keras[0] for entry in choice if entry.torch[0].endswith("weight")) for choice in ambiguity.choices
    }
    assert (ambiguity.place, len(orders)) == ("mean", 6)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (["fc1", "fc2"], ["dense", "dense_1"]),
        (["q", "k"], ["key", "query"]),
        (["left", "right"], ["right_arm", "left_arm"]),
    ],
)
def test_branches_whose_names_tell_are_no_doubt(ours: list[str], theirs: list[str]) -> None:
    here, there = torch(*(linear(name, 4, 4) for name in ours)), keras(*(dense(name, 4, 4) for name in theirs))
    proposal = propose(here, there, PAIR)
    found = [
        entry.keras[0].partition("/")[0] for entry in proposal.mapping.entries if entry.torch[0].endswith("weight")
    ]
    told = theirs if ours[0] == "fc1" else theirs[::-1]
    assert (found, proposal.ambiguities) == (told, [])


@pytest.mark.parametrize("names", [["w1", "w3"], ["user.fc", "item.fc"], ["a", "b", "c"]])
def test_equal_names_belong_together_whatever_the_order(names: list[str]) -> None:
    """Or an exchange of two layers in a port would be mapped away."""
    here = torch(*(linear(name, 4, 4) for name in names))
    there = keras(*(dense(name.replace(".", "/"), 4, 4) for name in names[::-1]))
    proposal = propose(here, there, PAIR)
    pairs = [
        (entry.torch[0].rpartition(".")[0], entry.keras[0].rpartition("/")[0]) for entry in proposal.mapping.entries
    ]
    assert {one: other.replace("/", ".") for one, other in pairs} == {name: name for name in names}
    assert proposal.ambiguities == []


def test_order_and_orientation_are_one_doubt() -> None:
    here = torch(line("mix", "Mixer", alpha1=(4, 4), other=(4, 4)))
    there = keras(line("mixer", "Mixer", some=(4, 4), more=(4, 4)))
    (ambiguity,) = propose(here, there, PAIR).ambiguities
    assert len(ambiguity.choices) == 2 * 2 * 2


@pytest.mark.parametrize("swapped", [False, True])
def test_modules_that_are_never_called_stand_where_they_are_defined(swapped: bool) -> None:
    here = torch(linear("a", 4, 4), linear("b", 4, 4), called=["", "b"] if swapped else [])
    there = keras(dense("first", 4, 4), dense("second", 4, 4), called=[""])
    assert placed(here, there)["a.weight"] == "first/kernel"


def test_a_missing_bias_is_no_other_layers() -> None:
    here = torch(linear("a", 4, 8), line("b", "linear", weight=(8, 8)))
    there = keras(line("a", "linear", kernel=(4, 8)), dense("b", 8, 8))
    assert unplaced(here, there) == ["a.bias", "b/bias"]


def test_more_layers_than_the_other_side_has_are_not_placed() -> None:
    here = torch(*(linear(f"l.{number}", 4, 4) for number in range(3)))
    there = keras(*(dense(f"d_{number}", 4, 4) for number in range(2)))
    assert len(unplaced(here, there)) == 2
    assert unplaced(torch(linear("a", 4, 5)), keras(dense("a", 4, 6))) == ["a.weight", "a.bias", "a/kernel", "a/bias"]


def test_buffers_are_constants_unless_keras_has_them() -> None:
    here = torch(line("pos", "Positions", pe=(1, 6, 4), position_ids=(1, 6)), linear("a", 4, 4))
    both = keras(line("pos", "Positions", embeddings=(6, 4)), dense("a", 4, 4))
    fixed = replace(both, weights=[replace(both.weights[0], trainable=False), *both.weights[1:]])
    assert propose(here, keras(dense("a", 4, 4)), PAIR).mapping.constants == ["pos.pe", "pos.position_ids"]
    assert placed(here, fixed)["pos.pe"] == "pos/embeddings"
    assert propose(here, fixed, PAIR).mapping.constants == ["pos.position_ids"]
    assert unplaced(here, both) == ["pos/embeddings"], "what Keras trains is no constant of torch's"


def test_frozen_layers_are_mapped_like_others() -> None:
    here, there = torch(linear("a", 4, 4), linear("b", 4, 4)), keras(dense("a", 4, 4), dense("b", 4, 4))
    frozen = replace(here, weights=[replace(weight, trainable=False) for weight in here.weights])
    assert placed(frozen, there) == placed(here, there) != {}


def test_a_gru_that_resets_first_has_no_second_bias() -> None:
    model = MODELS["gru"]
    modules = [replace(one, facts={"reset_after": False} if one.kind == "gru" else {}) for one in model.keras.modules]
    weights = [replace(one, shape=(18,)) if one.role == "bias" else one for one in model.keras.weights]
    mapping = propose(model.torch, replace(model.keras, modules=modules, weights=weights), PAIR).mapping
    assert len(mapping.entries) == 8 and "reset_after=False" in mapping.unplaced[-1].note
    assert "reset_after=False" in complaint(mapping)


def test_an_lstms_bias_is_a_sum() -> None:
    model = MODELS["lstm"]
    entries = propose(model.torch, model.keras, PAIR).mapping.entries
    assert [entry.combine for entry in entries].count("sum") == 4


def test_a_name_is_one_however_its_parts_are_joined() -> None:
    """A functional model may call its layers in any order."""
    here = torch(*(linear(f"blocks.{n}.skip_conv", 4, 4) for n in range(3)))
    there = keras(*(dense(f"blocks_{n}_skip_conv", 4, 4) for n in (1, 2, 0)))
    found = placed(here, there)
    assert len(found) == 6 and all(name.split(".")[1] == layer.split("_")[1] for name, layer in found.items())


def test_the_biases_of_an_lstm_whose_matrices_rules_cover_are_sums() -> None:
    model = MODELS["lstm"]
    matrices = [entry for entry in propose(model.torch, model.keras, PAIR).mapping.entries if entry.combine != "sum"]
    rules = [WeightRule(torch=entry.torch, keras=entry.keras, rearrange=entry.rearrange) for entry in matrices]
    mapping = propose(model.torch, model.keras, replace(PAIR, weights=rules)).mapping
    assert [entry.combine for entry in mapping.entries].count("sum") == 4 and mapping.unplaced == []


def test_what_a_parametrization_keeps_is_its_modules() -> None:
    """Two convolutions of one size, of which the second has the wider matrix in between."""
    names = ("a", "b", "c")
    parts = [
        part
        for name in names
        for part in (
            line(name, "ParametrizedConv1d", bias=(16,)),
            line(f"{name}.parametrizations.weight", "ParametrizationList", original0=(16, 1, 1), original1=(16, 16, 3)),
        )
    ]
    layers = [line(f"conv_{name}", "WNConv1D", v=(3, 16, 16), g=(16,), bias=(16,)) for name in names]
    expected = {
        f"{name}.{mine}": f"conv_{name}/{theirs}"
        for name in names
        for mine, theirs in (
            ("parametrizations.weight.original0", "g"),
            ("parametrizations.weight.original1", "v"),
            ("bias", "bias"),
        )
    }
    assert placed(torch(*parts), keras(*layers)) == expected


def test_separate_weights_of_torchs_have_no_tied_one_in_keras() -> None:
    here = torch(line("emb", "embedding", weight=(9, 4)), line("head", "linear", weight=(9, 4)))
    there = keras(line("emb", "embedding", embeddings=(9, 4)), tied={"head/kernel": "emb/embeddings"})
    assert unplaced(here, there) == ["head.weight"]


def test_how_each_was_found() -> None:
    here = torch(linear("query", 4, 4), linear("x", 4, 4), linear("only", 4, 7))
    there = keras(dense("query_dense", 4, 4), dense("y", 4, 4), dense("z", 4, 7))
    entries = propose(here, there, PAIR).mapping.entries
    assert [entry.by for entry in entries] == ["name", "name", "order", "order", "shape", "shape"]


def test_a_model_of_a_hundred_layers_takes_seconds() -> None:
    here = [
        made for n in range(100) for made in (norm(f"h.{n}.ln", 8), linear(f"h.{n}.a", 8, 8), linear(f"h.{n}.b", 8, 9))
    ]
    there = [
        made for n in range(100) for made in (norm_k(f"l{n}/n", 8), dense(f"l{n}/x", 8, 8), dense(f"l{n}/y", 8, 9))
    ]
    start = time.process_time()
    found = placed(torch(*here), keras(*there))
    assert time.process_time() - start < 10
    assert len(found) == 600 and all(one.split(".")[1] == other.split("/")[0][1:] for one, other in found.items())


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


def test_what_a_norm_has_moves_together() -> None:
    """A layer norm over channels and a square image."""
    here = torch(line("n", "layer_norm", weight=(3, 4, 4), bias=(3, 4, 4)))
    there = keras(line("n", "layer_norm", gamma=(4, 4, 3), beta=(4, 4, 3)))
    (ambiguity,) = propose(here, there, PAIR).ambiguities
    patterns = [[entry.rearrange for entry in choice] for choice in ambiguity.choices]
    assert len(patterns) == 2 and all(one == other for one, other in patterns)


def test_an_attention_of_other_sizes_has_three_matrices_and_one_bias() -> None:
    """torch's MultiheadAttention with kdim and vdim."""
    matrices = {"q_proj_weight": (8, 8), "k_proj_weight": (8, 6), "v_proj_weight": (8, 5)}
    here = torch(line("a", "attention", in_proj_bias=(24,), **matrices), linear("a.out_proj", 8, 8))
    facts = {"equation": "abc,cde->abde"}
    parts = {"query": 8, "key": 6, "value": 5}
    there = [line(f"m/{name}", "einsum_dense", facts, kernel=(size, 4, 2), bias=(4, 2)) for name, size in parts.items()]
    out = line("m/attention_output", "einsum_dense", {"equation": "abcd,cde->abe"}, kernel=(4, 2, 8), bias=(8,))
    found = placed(here, keras(*there, out))
    assert found == {
        "a.q_proj_weight": "m/query/kernel",
        "a.k_proj_weight": "m/key/kernel",
        "a.v_proj_weight": "m/value/kernel",
        "a.in_proj_bias": "m/query/bias+m/key/bias+m/value/bias",
        "a.out_proj.weight": "m/attention_output/kernel",
        "a.out_proj.bias": "m/attention_output/bias",
    }


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


def test_heads_tell_the_groups_of_parts_of_several_sizes() -> None:
    here = torch(linear("attn.qkv", 8, 24))
    equations = "btm,muh->btuh", "bsm,mvh->bsvh", "bkm,mvh->bkvh"
    there = keras(
        *(
            line(name, "einsum_dense", {"equation": equation}, kernel=(8, count, 3), bias=(count, 3))
            for name, count, equation in zip(("query", "key", "value"), (4, 2, 2), equations, strict=True)
        )
    )
    (ambiguity,) = propose(here, there, PAIR).ambiguities
    assert [choice[0].sizes for choice in ambiguity.choices] == [{}, {"group": 2, "size": 3}]
    assert [choice[0].each for choice in ambiguity.choices] == [
        "(u h) m -> m u h",
        "part group size m -> m (group part) size",
    ]


def test_an_equation_may_use_the_letter_of_the_parts() -> None:
    """As KerasHub's Bloom, whose equations differ in a letter as well."""
    here = torch(linear("attn.query_key_value", 8, 24))
    equations = {"query": "btm,mnh->btnh", "key": "bsm,mnh->bsnh", "value": "bsm,mnh->bsnh"}
    there = keras(
        *(
            line(name, "einsum_dense", {"equation": text}, kernel=(8, 4, 2), bias=(4, 2))
            for name, text in equations.items()
        )
    )
    (ambiguity,) = propose(here, there, PAIR).ambiguities
    assert [choice[0].rearrange for choice in ambiguity.choices] == [
        "(part n h) m -> part m n h",
        "(n part h) m -> part m n h",
    ]


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


def with_extra(unused: list[str]) -> Proposal:
    here = torch(linear("trunk", 4, 4), linear("main", 4, 3))
    return propose(here, keras(dense("trunk", 4, 4), dense("main", 4, 3), dense("extra", 4, 5), unused=unused), PAIR)


def test_what_takes_part_in_nothing_needs_no_counterpart() -> None:
    idle = ["extra/kernel", "extra/bias"]
    assert with_extra(idle).mapping.unused == {"keras": idle} and with_extra(idle).mapping.unplaced == []
    assert {weight.name for weight in with_extra([]).mapping.unplaced} == set(idle)


def test_an_unused_weight_of_the_size_of_a_missing_one_is_shown_with_it() -> None:
    here = torch(linear("trunk", 4, 4), line("main", "linear", weight=(6, 4)))
    there = keras(dense("trunk", 4, 4), line("extra", "linear", kernel=(8, 3)), unused=["extra/kernel"])
    left = {weight.name: weight.candidates for weight in propose(here, there, PAIR).mapping.unplaced}
    assert left == {"main.weight": ["extra/kernel"], "extra/kernel": ["main.weight"]}


def test_a_used_weight_is_rather_the_counterpart_of_a_used_one() -> None:
    here = torch(linear("trunk", 4, 4), linear("first", 4, 3))
    there = [dense("trunk", 4, 4), dense("one", 4, 3), dense("other", 4, 3)]
    for idle, used in (("one", "other"), ("other", "one")):
        survey = keras(*there, unused=[f"{idle}/kernel", f"{idle}/bias"])
        assert placed(here, survey)["first.weight"] == f"{used}/kernel"


def test_gate_and_up_are_packed_in_either_order() -> None:
    here = torch(line("mlp.gate_up_proj", "linear", weight=(24, 8)))
    there = keras(line("up", "linear", kernel=(8, 12)), line("gate", "linear", kernel=(8, 12)))
    (ambiguity,) = propose(here, there, PAIR).ambiguities
    assert ambiguity.choices[0][0].keras == ["gate/kernel", "up/kernel"]
    assert ["up/kernel", "gate/kernel"] in [choice[0].keras for choice in ambiguity.choices]


def test_a_convolution_over_one_place_is_a_matrix() -> None:
    here = torch(line("a", "conv1d", weight=(5, 4, 1), bias=(5,)), linear("b", 5, 6))
    there = keras(dense("x", 4, 5), conv_k("y", 5, 6, 1, 1))
    patterns = [entry.rearrange for entry in propose(here, there, PAIR).mapping.entries if "weight" in entry.torch[0]]
    assert patterns == ["o i 1 -> i o", "o i -> 1 1 i o"]


@pytest.mark.parametrize(
    ("path", "words", "part"),
    [
        ("layers.0.self_attn.q_proj", {"self", "attention", "query"}, "query"),
        ("transformer_layer_0/self_attention/query", {"self", "attention", "query"}, "query"),
        ("transformer_layer_1/feedforward_gate_dense", {"transformer", "feedforward", "gate"}, "gate"),
        ("encoder.layer.0.attention.output.LayerNorm", {"out"}, ""),
        ("block.fc2", set(), ""),
    ],
)
def test_names_are_read_by_their_words(path: str, words: set[str], part: str) -> None:
    assert (set(names.distinctive_words(path)), names.part(path)) == (words, part)


def test_modules_with_nothing_but_a_bias() -> None:
    """As a head has it whose matrix is tied."""
    here = torch(line("shift", "Shift", bias=(6,)), linear("a", 4, 6))
    there = keras(*(line(f"s{number}", "Shift", bias=(2,)) for number in range(3)), dense("a", 4, 6))
    assert placed(here, there) == {"a.weight": "a/kernel", "a.bias": "a/bias"}
    alone = keras(line("other", "Shift", b=(6,)), dense("a", 4, 6))
    assert placed(here, alone)["shift.bias"] == "other/b"


def test_nothing_on_either_side() -> None:
    assert placed(torch(), keras()) == {}
    assert unplaced(torch(linear("a", 4, 4)), keras()) == ["a.weight", "a.bias"]


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        (("gate", "up"), ("gate_dense", "up_dense"), 2),
        (("gate", "up"), ("up_dense", "gate_dense"), -2),
        (("head_a", "head_b"), ("b/out", "a/out"), -2),
        (("gate", "up"), ("gate", "other"), 1),
        (("mean", "spread"), ("apple", "pear"), 0),
        (("fc1", "fc2"), ("dense2", "dense1"), -2),
        (("blocks.0.fc", "blocks.1.fc"), ("block_1/fc", "block_0/fc"), -2),
        (("h.0.fc", "h.1.fc"), ("block_1/fc", "block_2/fc"), 0),  # the one counts from 0, the other from 1
        (("h.5.e.7", "h.4.e.8"), ("h6/e8", "h5/e9"), 0),
        (("a1", "b2"), ("a2", "b1"), 0),  # words and numbers contradict each other
    ],
)
def test_what_names_say_of_two_links(here: tuple[str, str], there: tuple[str, str], said: int) -> None:
    assert names.link_evidence(here, there) == said
    assert names.link_evidence(here, there[::-1]) == -said


def labelled(survey: Survey, **attributes: str) -> Survey:
    """Keras's survey with layers that it has counted; `attributes`: those that somebody holds by one."""
    modules = [
        replace(one, label=attributes.get(one.path, one.path), chosen=attributes.get(one.path, ""))
        for one in survey.modules
    ]
    return replace(survey, modules=modules)


@pytest.mark.parametrize("called", [["dense", "dense_1"], ["dense_1", "dense"]])
def test_attributes_are_names(called: list[str]) -> None:
    """Whatever the order of calls, and without an ambiguity."""
    here = torch(linear("head_a", 4, 4), linear("head_b", 4, 4))
    there = keras(dense("dense", 4, 4), dense("dense_1", 4, 4), called=called)
    proposal = propose(here, labelled(there, dense="b_of_two", dense_1="a_of_two"), PAIR)
    found = {entry.torch[0]: entry.keras[0] for entry in proposal.mapping.entries}
    assert found["head_a.weight"] == "dense_1/kernel" and not proposal.ambiguities


@pytest.mark.parametrize("called", [["dense", "dense_1"], ["dense_1", "dense"]])
def test_what_nobody_names_is_in_order_of_creation_and_in_doubt(called: list[str]) -> None:
    """A functional model calls its layers in any order."""
    here = torch(linear("head_a", 4, 4), linear("head_b", 4, 4))
    there = labelled(keras(dense("dense", 4, 4), dense("dense_1", 4, 4), called=called))
    (ambiguity,) = propose(here, there, PAIR).ambiguities
    assert ambiguity.counted and len(ambiguity.choices) == 2
    assert next(one.keras for one in ambiguity.choices[0] if one.torch == ["head_a.weight"]) == ["dense/kernel"]
    (named,) = propose(here, keras(dense("x", 4, 4), dense("y", 4, 4)), PAIR).ambiguities
    assert not named.counted


def test_only_what_both_sides_create_in_one_order_is_in_order_of_creation() -> None:
    here = torch(linear("head_b", 4, 4), linear("head_a", 4, 4), called=["", "head_a", "head_b"])
    there = labelled(keras(dense("dense", 4, 4), dense("dense_1", 4, 4), called=["dense_1", "dense"]))
    (ambiguity,) = propose(here, there, PAIR).ambiguities
    assert not ambiguity.counted, "torch defines them in another order than it calls them"
    assert next(one.keras for one in ambiguity.choices[0] if one.torch == ["head_a.weight"]) == ["dense_1/kernel"]
    here = torch(linear("head_a", 4, 4), linear("head_b", 4, 4))
    there = labelled(keras(dense("dense", 4, 4), dense("own_dense", 4, 4)))
    (ambiguity,) = propose(here, there, PAIR).ambiguities
    assert not ambiguity.counted, "Keras counts each kind by itself"


def test_a_buffer_that_training_changes_is_no_constant() -> None:
    here = torch(line("m", "Averaging", pe=(4,), position_ids=(1, 6)), linear("a", 4, 4))
    there = keras(dense("a", 4, 4))
    changed = replace(here, rehearsal=Rehearsal(changing=["m.pe", "m.position_ids"], counting=["m.position_ids"]))
    mapping = propose(changed, there, PAIR).mapping
    assert (mapping.changing, mapping.constants) == (["m.pe"], ["m.position_ids"])
    assert ["m.position_ids" in sentence for sentence in mapping.assumptions] == [True]
    assert propose(here, there, PAIR).mapping.changing == []


def test_a_table_of_kerass_own_needs_no_counterpart() -> None:
    there = keras(dense("a", 4, 4), line("pos", "Positions", pe=(6, 4)))
    fixed = replace(there, weights=[*there.weights[:-1], replace(there.weights[-1], trainable=False, fixed=True)])
    here = torch(linear("a", 4, 4))
    assert propose(here, fixed, PAIR).mapping.constants == ["pos/pe"]
    state = propose(here, replace(fixed, rehearsal=Rehearsal(changing=["pos/pe"])), PAIR).mapping
    assert state.constants == ["pos/pe"] and "changes in training" in state.assumptions[0]
    assert unplaced(here, there) == ["pos/pe"], "what is trained is no table"
    missed = torch(linear("a", 4, 4), line("pos", "Positions", weight=(3, 8)))
    assert "pos/pe" in unplaced(missed, fixed), "it may be what torch misses"

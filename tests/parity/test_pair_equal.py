"""Which tensors of two halves correspond where many have the same values, or values that say little."""

import time

import numpy as np
import pytest
from pair_halves import Half, mapped, matching, normal, of, pairs

from parity.core.arrays import Array
from parity.core.errors import UsageError
from parity.pairs.activations.matching import match
from parity.trace.mapping import Mapping


def test_identities_are_aligned_in_order_and_by_kind() -> None:
    def model(half: Half, names: list[tuple[str, str]]) -> Half:
        x = normal(0, 4, 6)
        half.owns("first" if half.side == "torch" else "dense", weight=(6, 6))
        y = x @ normal(1, 6, 6)
        for path, kind in names:
            half.returns(path, kind, y, given=(y,))
        half.ends(y)
        return half

    torch = model(
        Half("torch"), [("first", "linear"), ("same", "Identity"), ("drop", "dropout"), ("box", "Sequential")]
    )
    keras = model(Half("keras"), [("dense", "linear"), ("dropout", "dropout"), ("reshape", "Reshape"), ("block", "B")])
    found = matching(torch, keras, mapped(first__weight="dense__weight"))
    assert pairs(found) == {"first": "dense", "drop": "dropout", "box": "reshape", "(model)": "(model)"}
    assert found.torch_alone == ["same"] and found.keras_alone == ["block"]


def test_what_is_before_a_dropout_is_not_what_is_behind_one() -> None:
    def model(half: Half, names: list[tuple[str, str]]) -> Half:
        y = normal(0, 4, 6)
        for path, kind in names:
            half.returns(path, kind, y, given=(y,))
        half.ends(y)
        return half

    torch = model(Half("torch"), [("act", "relu"), ("drop", "dropout"), ("mlp", "Mlp")])
    keras = model(Half("keras"), [("re_lu", "relu"), ("ffn", "Ffn"), ("dropout", "dropout")])
    found = matching(torch, keras, Mapping(entries=[]))
    assert pairs(found) == {"act": "re_lu", "drop": "dropout", "(model)": "(model)"}
    assert found.torch_alone == ["mlp"] and found.keras_alone == ["ffn"]
    alone = matching(
        model(Half("torch"), [("drop", "dropout")]), model(Half("keras"), [("ffn", "Ffn")]), Mapping(entries=[])
    )
    assert alone.torch_alone == ["drop"]


def test_a_branch_that_runs_earlier_on_one_side() -> None:
    def model(half: Half, order: list[str]) -> Half:
        x = normal(0, 4, 6)
        for name in order:
            half.owns(name, weight=(6, 6))
            half.returns(name, "linear", x @ normal(ord(name), 6, 6), given=(x,))
        half.ends(x)
        return half

    names = mapped(**{f"{name}__weight": f"{name}__weight" for name in "abcs"})
    found = matching(model(Half("torch"), list("abcs")), model(Half("keras"), list("sabc")), names)
    assert pairs(found) == {**{name: name for name in "abcs"}, "(model)": "(model)"}
    assert all(one.by == "weights" for one in found.matches[:-1])


def test_a_shared_module_is_matched_call_by_call() -> None:
    def model(half: Half, name: str, wrong: float = 1.0) -> Half:
        x = normal(0, 4, 6)
        half.owns(name, weight=(6, 6))
        for factor in (1.0, wrong, 1.0):
            x = half.returns(name, "linear", x @ normal(1, 6, 6) * factor, given=(x,))
        half.ends(x)
        return half

    names = mapped(enc__weight="encoder__weight")
    expected = {"enc": "encoder", "enc#1": "encoder#1", "enc#2": "encoder#2", "(model)": "(model)"}
    for wrong in (1.0, 1.001, -3.0):
        found = matching(model(Half("torch"), "enc"), model(Half("keras"), "encoder", wrong), names)
        assert pairs(found) == expected
        assert [one.inputs for one in found.matches[:3]] == [[0, 1]] * 3


def test_inputs_of_all_calls_are_compared_or_of_none() -> None:
    def model(half: Half, calls: list[str]) -> Half:
        x = normal(0, 4, 6)
        half.owns("enc", weight=(6, 6))
        for path in calls:
            x = half.returns(path, "linear", x @ normal(1, 6, 6), given=(x,))
        half.ends(x)
        return half

    names = mapped(enc__weight="enc__weight")
    for calls, inputs in ((["enc", "enc"], [[0, 1]] * 2), (["enc", "other"], [None, None])):
        found = matching(model(Half("torch"), ["enc", "enc"]), model(Half("keras"), calls), names)
        assert [one.inputs for one in found.matches] == [*inputs, None]
    hidden = model(Half("keras"), ["enc", "enc"])
    hidden.outputs = [seen for seen in hidden.outputs if seen.key != "enc#1"]
    found = matching(model(Half("torch"), ["enc", "enc"]), hidden, names)
    assert [(one.torch, one.inputs) for one in found.matches] == [("enc", None), ("(model)", None)]


def test_nearly_the_same_is_not_the_same_where_the_same_is_there() -> None:
    def model(half: Half, names: list[str]) -> Half:
        x, y = normal(0, 4, 6), normal(1, 4, 6)
        for number, name in enumerate(names):
            half.returns(name, "Block" if half.side == "torch" else "Layer", x + 2e-7 * number * y)
        half.ends(x)
        return half

    found = matching(model(Half("torch"), ["a", "b", "c"]), model(Half("keras"), ["u", "v", "w"]), Mapping(entries=[]))
    assert pairs(found) == {"a": "u", "b": "v", "c": "w", "(model)": "(model)"}
    short = model(Half("keras"), ["u", "v", "w"])
    short.outputs = [seen for seen in short.outputs if seen.key != "u"]
    found = matching(model(Half("torch"), ["a", "b", "c"]), short, Mapping(entries=[]))
    assert pairs(found) == {"b": "v", "c": "w", "(model)": "(model)"}


def alike(half: Half, rows: list[tuple[str, str]], owner: str = "") -> Half:
    """Modules that all return the same."""
    y = normal(0, 4, 6)
    for path, kind in rows:
        half.returns(path, kind, y, given=(y,))
    if owner:
        half.owns(owner, weight=(6, 6))
    half.ends(y)
    return half


def test_kinds_weights_and_dropouts_count_more_than_many_pairs() -> None:
    torch, keras = [("same", "Identity"), ("act", "relu")], [("re_lu", "relu"), ("reshape", "Reshape")]
    found = matching(alike(Half("torch"), torch), alike(Half("keras"), keras), Mapping(entries=[]))
    assert pairs(found) == {"act": "re_lu", "(model)": "(model)"}
    torch, keras = [("l", "linear"), ("box", "Box")], [("entry", "Entry"), ("dense", "Projection")]
    owners = mapped(l__weight="dense__weight")
    found = matching(alike(Half("torch"), torch, "l"), alike(Half("keras"), keras, "dense"), owners)
    assert pairs(found) == {"l": "dense", "(model)": "(model)"}
    torch = [("drop", "dropout"), *((f"m{number}", "M") for number in range(4))]
    keras = [*((f"f{number}", "F") for number in range(4)), ("dropout", "dropout")]
    found = matching(alike(Half("torch"), torch), alike(Half("keras"), keras), Mapping(entries=[]))
    assert pairs(found) == {"drop": "dropout", "(model)": "(model)"}


# ---- tensors that say little


def single(half: Half, value: Array) -> Half:
    half.owns("first", weight=(6, 6))
    half.returns("first", "linear", value, given=(value,))
    half.returns("act", "relu", value, given=(value,))
    half.returns("block" if half.side == "torch" else "layer", "B" if half.side == "torch" else "L", value)
    half.ends(normal(0, 3))
    return half


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((4, 6)),
        np.ones((4, 6)),
        np.full((4, 6), np.nan),
        np.full((4, 6), np.inf),
        np.zeros((0, 6)),
        np.array(3.0),
        np.array(0.0),
        np.zeros((4, 6), np.int64),
        np.array([[True, False], [False, True]]),
        np.where(normal(0, 4, 6) > 0, np.nan, normal(1, 4, 6)),
        np.arange(24).reshape(4, 6),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("error")
def test_degenerate_tensors(value: Array) -> None:
    found = matching(single(Half("torch"), value), single(Half("keras"), value), mapped(first__weight="first__weight"))
    assert pairs(found)["first"] == "first" and pairs(found)["act"] == "act"
    assert of(found, "first").axes == list(range(value.ndim))


def test_zeros_all_over_a_model_are_matched_by_weights_and_order_alone() -> None:
    def model(half: Half, extra: bool) -> Half:
        for layer in range(3):
            half.owns(f"l{layer}", weight=(6, 6))
            half.returns(f"l{layer}", "linear", np.zeros((4, 6)), given=(np.zeros((4, 6)),))
            if layer != 1 or extra:
                half.returns(f"a{layer}", "relu", np.zeros((4, 6)), given=(np.zeros((4, 6)),))
        half.ends(normal(0, 3))
        return half

    names = mapped(**{f"l{layer}__weight": f"l{layer}__weight" for layer in range(3)})
    found = matching(model(Half("torch"), True), model(Half("keras"), False), names)
    assert pairs(found) == {**{name: name for name in ("l0", "a0", "l1", "l2", "a2")}, "(model)": "(model)"}
    assert found.torch_alone == ["a1"]


def test_another_dtype_or_size_is_no_counterpart() -> None:
    for value, other in ((np.arange(24.0), np.arange(24)), (np.zeros((4, 6)), np.zeros((4, 5)))):
        torch, keras = single(Half("torch"), value), single(Half("keras"), other)
        assert pairs(matching(torch, keras, mapped(first__weight="first__weight"))) == {"(model)": "(model)"}


# ---- the whole model's outputs


def test_the_models_outputs_go_by_name_whatever_they_hold() -> None:
    torch, keras = Half("torch"), Half("keras")
    torch.ends(normal(0, 2, 3), normal(1, 4))
    keras.ends(normal(2, 2, 3), normal(3, 4))
    assert pairs(matching(torch, keras, Mapping(entries=[]))) == {"(model)": "(model)", "(model)#1": "(model)#1"}
    turned = Half("keras")
    turned.ends(normal(2, 3, 2), normal(3, 4))
    assert pairs(matching(torch, turned, Mapping(entries=[]))) == {"(model)#1": "(model)#1"}
    keras = Half("keras")
    keras.ends(normal(2, 2, 3))
    with pytest.raises(UsageError, match=r"Keras's model does not return \(model\)#1: .*\[outputs\]"):
        matching(torch, keras, Mapping(entries=[]))
    with pytest.raises(UsageError, match=r"torch's model does not return \(model\)#1"):
        match(keras.survey(), keras.values, torch.survey(), torch.values, Mapping(entries=[]))


# ---- tied weights


def test_a_tied_head() -> None:
    def model(half: Half) -> Half:
        table, ids = normal(0, 11, 6), np.arange(8).reshape(2, 4)
        torch = half.side == "torch"
        first, last = ("wte", "lm_head") if torch else ("token_embedding", "token_embedding")
        half.owns(first, weight=(11, 6))
        if torch:
            half.tied["lm_head.weight"] = "wte.weight"
        e = half.returns(first, "embedding", table[ids], given=(ids,))
        half.ends(half.returns(last, "linear" if torch else "embedding", e @ table.T, given=(e,)))
        return half

    found = matching(model(Half("torch")), model(Half("keras")), mapped(wte__weight="token_embedding__weight"))
    assert pairs(found) == {
        "wte": "token_embedding",
        "lm_head": "token_embedding#1",
        "(model)": "(model)",
    }
    assert [one.by for one in found.matches] == ["weights", "weights", "order"]
    assert of(found, "lm_head").inputs is None


# ---- size


def test_two_thousand_tensors_take_seconds() -> None:
    torch, keras = Half("torch"), Half("keras")
    for number in range(400):
        value = np.tile(normal(number, 25), (4, 20))
        for name in ("a", "b", "c"):
            torch.returns(f"{name}{number}", f"kind_{name}", value, given=(value,))
            keras.returns(f"{name}{number}", f"kind_{name}", value.T, given=(value.T,))
    for half in (torch, keras):
        half.ends(np.ones(3))
    start = time.process_time()
    found = matching(torch, keras, Mapping(entries=[]))
    assert time.process_time() - start < 20
    assert pairs(found) == {**{key: key for key in torch.values}}

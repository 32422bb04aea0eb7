"""Which tensors of two halves correspond: models cut into modules differently, right ones and faulty ones."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pair_halves import Half, mapped, normal

from parity.errors import UsageError
from parity.pairs.activations.matching import match, summary
from parity.pairs.activations.values import Tensor, distance, fit, orders
from parity.pairs.mapping import Entry, Mapping, Match, Matching
from parity.report.pairs import lines
from parity.results import CaseResult

Array = NDArray[Any]


def matching(torch: Half, keras: Half, mapping: Mapping) -> Matching:
    return match(torch.survey(), torch.values, keras.survey(), keras.values, mapping)


def pairs(found: Matching) -> dict[str, str]:
    return {one.torch: one.keras for one in found.matches}


def of(found: Matching, key: str) -> Match:
    return next(one for one in found.matches if one.torch == key)


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def norm(x: Array, epsilon: float = 1e-5) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)


# ---- orders of axes


def test_the_orders_of_axes_are_those_that_merge_and_split() -> None:
    assert list(orders((2, 5, 7, 3), (2, 3, 5, 7))) == [(0, 3, 1, 2)]
    assert list(orders((2, 5, 4, 3), (2, 5, 12))) == [(0, 1, 2, 3), (0, 1, 3, 2)]
    assert list(orders((10, 3), (2, 5, 3))) == [(0, 1)]
    assert list(orders((2, 3), (3, 2))) == [(1, 0)]
    assert not orders((4, 9), (6, 6))
    assert not orders((2, 3), (2, 4))
    assert next(iter(orders((2, 4, 4, 4), (2, 4, 4, 4)))) == (0, 1, 2, 3)
    assert list(orders((), ())) == [()]
    assert list(orders((1, 1, 5), (5,))) == [(0, 1, 2)]
    assert list(orders((2, 1, 1, 3), (2, 3, 1, 1))) == [(0, 3, 1, 2)]
    assert len(orders((2,) * 8, (2,) * 8)) == 5040


@pytest.mark.parametrize("axes", [(0, 3, 1, 2), (1, 0, 2, 3), (3, 2, 1, 0)])
def test_values_tell_the_order_where_lengths_do_not(axes: tuple[int, ...]) -> None:
    keras = normal(0, 4, 4, 4, 4)
    found = fit(Tensor(keras.transpose(axes)), Tensor(keras))
    assert found == (axes, 0.0)
    merged = fit(Tensor(keras.transpose(axes).reshape(16, 16)), Tensor(keras))
    assert merged == (axes, 0.0)


def test_sparse_tensors_and_those_with_nan_have_their_order() -> None:
    keras = np.zeros((4, 64, 64))
    keras[1, 2, 3], keras[0, 1, 1], keras[3, 3, 2] = 1.0, np.nan, -2.0
    assert fit(Tensor(keras.transpose(0, 2, 1)), Tensor(keras)) == ((0, 2, 1), 0.0)
    torch = keras.copy()
    torch[0, 1, 1] = 0.0
    apart = fit(Tensor(torch), Tensor(keras))
    assert apart and apart.distance == np.inf


def test_the_distance_is_relative_and_survives_any_magnitude() -> None:
    one = normal(0, 100)
    for scale in (1e-300, 1.0, 1e300):
        assert distance(one * scale, one * scale * (1 + 1e-3)) == pytest.approx(1e-3, rel=1e-2)
    assert distance(one, normal(1, 100)) > 1.2
    assert distance(one[:0], one[:0]) == 0.0
    assert distance(np.zeros(3), np.zeros(3)) == 0.0


def test_floats_integers_and_booleans_are_never_the_same() -> None:
    numbers = np.arange(6)
    assert fit(Tensor(numbers), Tensor(numbers.astype(np.int32)))
    for other in (numbers.astype(float), numbers > 2):
        assert fit(Tensor(numbers), Tensor(other)) is None


# ---- right ports


def mlp(half: Half, fused: bool = False, fault: Callable[[Array], Array] = relu) -> Half:
    """linear, relu, dropout, linear; the relu within the first layer if fused."""
    x, w, v = normal(0, 4, 8), normal(1, 8, 16), normal(2, 16, 3)
    torch = half.side == "torch"
    first, act, drop, last = ("0", "1", "2", "3") if torch else ("dense", "re_lu", "dropout", "head")
    role = "weight" if torch else "kernel"
    half.owns(first, **{role: (8, 16)})
    half.owns(last, **{role: (16, 3)})
    y = x @ w
    if not fused:
        y = half.returns(first, "linear", y, given=(x,))
        h = half.returns(act, "relu", fault(y), given=(y,))
    else:
        half.facts[first] = {"activation": "relu"}
        h = half.returns(first, "linear", fault(y), given=(x,))
    d = half.returns(drop, "dropout", h, given=(h,))
    half.ends(half.returns(last, "linear", d @ v, given=(d,)))
    return half


MLP = mapped(**{"0__weight": "dense__kernel", "3__weight": "head__kernel"})


def test_a_port_of_the_same_cut() -> None:
    found = matching(mlp(Half("torch")), mlp(Half("keras")), MLP)
    assert pairs(found) == {"0": "dense", "1": "re_lu", "2": "dropout", "3": "head", "(model)": "(model)"}
    assert [one.by for one in found.matches] == ["weights", "value", "value", "weights", "order"]
    assert [one.inputs for one in found.matches] == [[0, 1]] * 4 + [None]
    assert not found.torch_alone and not found.keras_alone


def test_a_fused_activation_belongs_to_the_activation() -> None:
    found = matching(mlp(Half("torch")), mlp(Half("keras"), fused=True), MLP)
    assert pairs(found) == {"1": "dense", "2": "dropout", "3": "head", "(model)": "(model)"}
    assert found.torch_alone == ["0"] and of(found, "1").inputs is None
    other = matching(mlp(Half("torch"), fused=True), mlp(Half("keras")), MLP)
    assert pairs(other) == {"0": "re_lu", "2": "dropout", "3": "head", "(model)": "(model)"}
    assert other.keras_alone == ["dense"]


@pytest.mark.parametrize("fault", [lambda x: relu(x) + 0.01 * x, np.tanh, lambda x: np.where(x > 0, x, 0.2 * x)])
def test_a_wrong_fused_activation_is_still_the_activation(fault: Callable[[Array], Array]) -> None:
    found = matching(mlp(Half("torch")), mlp(Half("keras"), fused=True, fault=fault), MLP)
    assert pairs(found) == {"1": "dense", "2": "dropout", "3": "head", "(model)": "(model)"}
    assert found.torch_alone == ["0"]


def test_a_layer_with_its_activation_is_no_counterpart_of_one_without() -> None:
    """Where torch's activation is a function, nothing of torch's corresponds, though small numbers hardly change."""

    def model(half: Half, factor: float) -> Half:
        x = normal(0, 4, 6) / 10
        half.owns("a", weight=(6, 6))
        half.owns("b", weight=(6, 6))
        y = x @ normal(1, 6, 6)
        if half.side == "keras":
            half.facts["a"] = {"activation": "tanh"}
        half.returns("a", "linear", y if half.side == "torch" else np.tanh(y) * factor)
        half.ends(half.returns("b", "linear", np.tanh(y) * (factor if half.side == "keras" else 1.0) @ normal(2, 6, 6)))
        return half

    for factor in (1.0, 1.01, -3.0):
        found = matching(
            model(Half("torch"), 1.0),
            model(Half("keras"), factor),
            mapped(a__weight="a__weight", b__weight="b__weight"),
        )
        assert pairs(found) == {"b": "b", "(model)": "(model)"}


def test_a_wrong_activation_of_its_own() -> None:
    found = matching(mlp(Half("torch")), mlp(Half("keras"), fault=np.tanh), MLP)
    assert of(found, "0").by == "weights" and of(found, "1").keras == "re_lu" and of(found, "1").by == "order"
    assert of(found, "3").keras == "head"


def conv_net(half: Half, size: int, channels: int, swapped: bool = False) -> Half:
    """A 1x1 convolution, relu, flatten in torch's order, linear. `swapped`: the port is NHWC."""
    x = normal(0, 2, channels, size, size)
    w, v = normal(1, channels, channels), normal(2, channels * size * size, 5)
    to = (0, 2, 3, 1) if swapped else (0, 1, 2, 3)
    y = np.einsum("bchw,cd->bdhw", x, w)
    names = ("conv", "act", "flat", "fc") if half.side == "torch" else ("c", "a", "f", "d")
    half.owns(names[0], weight=w.shape)
    half.owns(names[3], weight=v.shape)
    half.returns(names[0], "conv2d", y.transpose(to), given=(x.transpose(to),))
    half.returns(names[1], "relu", relu(y).transpose(to), given=(y.transpose(to),))
    flat = relu(y).reshape(2, -1)
    half.returns(names[2], "flatten", flat, given=(relu(y),))
    half.ends(half.returns(names[3], "linear", flat @ v, given=(flat,)))
    return half


CONV = mapped(conv__weight="c__weight", fc__weight="d__weight")


@pytest.mark.parametrize(("size", "channels"), [(5, 3), (4, 4), (1, 3), (3, 1)])
def test_channels_last(size: int, channels: int) -> None:
    torch, keras = conv_net(Half("torch"), size, channels), conv_net(Half("keras"), size, channels, swapped=True)
    found = matching(torch, keras, CONV)
    assert pairs(found) == {"conv": "c", "act": "a", "flat": "f", "fc": "d", "(model)": "(model)"}
    assert of(found, "conv").axes == of(found, "conv").inputs == [0, 3, 1, 2]
    assert of(found, "act").axes == [0, 3, 1, 2]
    for one in found.matches:
        canonical = keras.values[one.keras].transpose(one.axes).reshape(torch.values[one.torch].shape)
        assert distance(canonical.reshape(-1), torch.values[one.torch].reshape(-1)) < 1e-12


def attention(half: Half, heads: int = 2, wrong_scale: bool = False, merged: bool = True) -> Half:
    """torch: packed qkv; Keras: query, key, value with heads, out over both axes."""
    b, s, d = 3, 5, 8
    x, w, o = normal(0, b, s, d), normal(1, d, 3 * d), normal(2, d, d)
    k = d // heads
    q, key, v = np.split(x @ w, 3, axis=-1)
    q, key, v = (part.reshape(b, s, heads, k) for part in (q, key, v))
    scores = np.einsum("bshk,bthk->bhst", q, key) / (np.sqrt(k) * (2 if wrong_scale else 1))
    scores = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    y = np.einsum("bhst,bthk->bshk", scores, v)
    if half.side == "torch":
        half.owns("attn.qkv", weight=(3 * d, d))
        half.owns("attn.proj", weight=(d, d))
        half.returns("attn.qkv", "linear", x @ w, given=(x,))
        half.returns("attn.proj", "linear", y.reshape(b, s, d) @ o, given=(y.reshape(b, s, d),))
        half.ends(half.returns("attn", "Attention", y.reshape(b, s, d) @ o))
        return half
    for name, part in (("query", q), ("key", key), ("value", v)):
        half.owns(f"mha/{name}", kernel=(d, heads, k))
        half.returns(f"mha/{name}", "einsum_dense", part, given=(x,))
    half.owns("mha/attention_output", kernel=(heads, k, d))
    half.returns("mha/attention_output", "einsum_dense", y.reshape(b, s, d) @ o, given=(y,))
    half.ends(half.returns("mha", "attention", y.reshape(b, s, d) @ o))
    return half


ATTENTION = Mapping(
    entries=[
        Entry(torch=["attn.qkv.weight"], keras=[f"mha/{name}/kernel" for name in ("query", "key", "value")]),
        Entry(torch=["attn.proj.weight"], keras=["mha/attention_output/kernel"]),
    ]
)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_packed_projection_has_no_counterpart_and_its_surroundings_have(wrong: bool) -> None:
    found = matching(attention(Half("torch")), attention(Half("keras"), wrong_scale=wrong), ATTENTION)
    assert pairs(found) == {"attn.proj": "mha/attention_output", "attn": "mha", "(model)": "(model)"}
    assert [one.by for one in found.matches[:2]] == ["weights", "weights"]
    assert found.torch_alone == ["attn.qkv"] and found.keras_alone == ["mha/query", "mha/key", "mha/value"]


def test_merged_heads_and_sequence_first() -> None:
    torch, keras = Half("torch"), Half("keras")
    y = normal(0, 3, 5, 2, 4)
    torch.owns("q", weight=(8, 8))
    keras.owns("query", kernel=(8, 2, 4))
    x = normal(1, 3, 5, 8)
    torch.returns("q", "linear", y.transpose(1, 0, 2, 3).reshape(5, 3, 8), given=(x.transpose(1, 0, 2),))
    keras.returns("query", "linear", y, given=(x,))
    for half in (torch, keras):
        half.ends(y)
    one = of(matching(torch, keras, mapped(q__weight="query__kernel")), "q")
    assert (one.axes, one.by) == ([1, 0, 2, 3], "weights")
    assert one.inputs is None  # nothing says that sequences are first there


def stream(half: Half, layers: int, fault: int = -1, names: str = "block{}", wrong: float = 1e-3) -> Half:
    """Equal blocks of one: norm, linear, gelu-like without weights, linear, residual. One epsilon may be wrong."""
    separator = "." if half.side == "torch" else "/"
    x = normal(0, 2, 6, 16)
    for layer in range(layers):
        path = names.format(layer)
        n = norm(x, wrong if layer == fault else 1e-5)
        parts = [f"{path}{separator}{name}" for name in ("norm", "up", "act", "down", "drop")]
        for part, shape in ((parts[0], (16,)), (parts[1], (16, 32)), (parts[3], (32, 16))):
            half.owns(part, weight=shape)
        half.returns(parts[0], "layer_norm", n, given=(x,))
        up = half.returns(parts[1], "linear", n @ normal(2 * layer + 1, 16, 32), given=(n,))
        act = half.returns(parts[2], "silu", up / (1 + np.exp(-up)), given=(up,))
        down = half.returns(parts[3], "linear", act @ normal(2 * layer + 2, 32, 16), given=(act,))
        x = half.returns(
            path, "Block" if half.side == "torch" else "Layer", x + half.returns(parts[4], "dropout", down)
        )
    half.ends(x)
    return half


def stream_mapping(layers: int) -> Mapping:
    return Mapping(
        entries=[
            Entry(torch=[f"block{layer}.{part}.weight"], keras=[f"block{layer}/{part}/weight"])
            for layer in range(layers)
            for part in ("norm", "up", "down")
        ]
    )


@pytest.mark.parametrize("wrong", [1e-5, 1.001e-5, 1e-3, 0.3, 30.0])
def test_an_epsilon_that_is_wrong_does_not_undo_the_matching(wrong: float) -> None:
    torch, keras = stream(Half("torch"), 6), stream(Half("keras"), 6, fault=2, wrong=wrong)
    found = matching(torch, keras, stream_mapping(6))
    expected = {seen.key: seen.key.replace(".", "/") for seen in torch.outputs}
    assert pairs(found) == expected
    assert not found.torch_alone and not found.keras_alone


def test_a_transposed_square_weight_is_found_where_it_is() -> None:
    def model(half: Half, transposed: bool) -> Half:
        x = normal(0, 4, 6)
        for layer in range(4):
            w = normal(layer + 1, 6, 6)
            half.owns(f"l{layer}", weight=(6, 6))
            x = half.returns(f"l{layer}", "linear", x @ (w.T if transposed and layer == 1 else w), given=(x,))
        half.ends(x)
        return half

    mapping = mapped(**{f"l{layer}__weight": f"l{layer}__weight" for layer in range(4)})
    found = matching(model(Half("torch"), False), model(Half("keras"), True), mapping)
    assert pairs(found) == {**{f"l{layer}": f"l{layer}" for layer in range(4)}, "(model)": "(model)"}
    assert all(one.axes == [0, 1] for one in found.matches)


def test_what_differs_without_any_effect_is_not_matched() -> None:
    """torch scales its query in the projection, Keras behind it: both are right."""

    def model(half: Half, scale: float, effect: float) -> Half:
        x = normal(0, 4, 6)
        for name, inner in (("q", scale), ("k", 1.0), ("o", effect)):
            half.owns(name, weight=(6, 6))
            x = half.returns(name, "linear", x @ normal(len(half.outputs), 6, 6) * inner, given=(x,)) / inner**2 * inner
        half.ends(x)
        return half

    names = mapped(q__weight="q__weight", k__weight="k__weight", o__weight="o__weight")
    right = matching(model(Half("torch"), 1.0, 1.0), model(Half("keras"), 0.5, 1.0), names)
    assert right.torch_alone == right.keras_alone == ["q"]
    faulty = Half("keras")
    model(faulty, 0.5, 1.0)
    faulty.values["(model)"] = faulty.values["(model)"] * 2
    wrong = matching(model(Half("torch"), 1.0, 1.0), faulty, names)
    assert pairs(wrong)["q"] == "q"


# ---- faults in tensors without weights


def three(half: Half, middle: list[tuple[str, str, Array]], scale: float = 1.0) -> Half:
    """linear, something without weights, linear."""
    x = normal(0, 4, 6)
    half.owns("a", weight=(6, 6))
    half.owns("b", weight=(6, 6))
    y = half.returns("a", "linear", x @ normal(1, 6, 6), given=(x,))
    for path, kind, value in middle:
        y = half.returns(path, kind, value, given=(y,))
    half.ends(half.returns("b", "linear", y @ normal(2, 6, 6) * scale, given=(y,)))
    return half


THREE = mapped(a__weight="a__weight", b__weight="b__weight")
Y = normal(0, 4, 6) @ normal(1, 6, 6)


def related(apart: float) -> Array:
    """About so far from the relu of Y."""
    return relu(Y) + apart * np.linalg.norm(relu(Y)) / np.linalg.norm(normal(3, 4, 6)) * normal(3, 4, 6)


@pytest.mark.parametrize(
    ("ours", "theirs", "apart", "found"),
    [
        ("relu", "relu", 1.2, True),  # of one kind, and alone in their place
        ("ReLU6", "relu", 0.4, True),  # of one sort
        ("avg_pool2d", "max_pool2d", 0.4, True),
        ("Pool", "MaskedAverage", 0.4, True),  # alone in their place
        ("Pool", "MaskedAverage", 2.0, False),
        ("dropout", "MaskedAverage", 0.4, False),
    ],
)
def test_what_has_no_weights_is_matched_between_what_has(ours: str, theirs: str, apart: float, found: bool) -> None:
    torch, keras = three(Half("torch"), [("m", ours, relu(Y))]), three(Half("keras"), [("n", theirs, related(apart))])
    assert pairs(matching(torch, keras, THREE)).get("m") == ("n" if found else None)


def test_of_two_of_one_kind_the_clearly_nearer_one() -> None:
    torch = three(Half("torch"), [("m", "relu", relu(Y))])
    for near, far, expected in ((0.1, 0.5, "p"), (0.4, 0.5, None)):
        keras = three(Half("keras"), [("n", "relu", related(far)), ("p", "relu", related(near))])
        assert pairs(matching(torch, keras, THREE)).get("m") == expected


def test_a_recurrent_layers_states_and_layers() -> None:
    """torch returns all steps and the last state, from two layers in one module; Keras has one layer each."""

    def keras_half(half: Half, factor: float) -> Half:
        steps = normal(0, 4, 5, 6)
        for layer, name in enumerate(("rnn", "rnn_1")):
            half.owns(name, kernel=(6, 6))
            half.returns(name, "gru", steps if not layer else normal(1, 4, 6) * factor)
        half.ends(normal(2, 3) * factor)
        return half

    torch = Half("torch")
    torch.owns("rnn", w0=(6, 6), w1=(6, 6))
    torch.returns("rnn", "gru", normal(3, 4, 5, 6), normal(1, 4, 6), normal(4, 4, 6))
    torch.ends(normal(2, 3))
    names = mapped(rnn__w0="rnn__kernel", rnn__w1="rnn_1__kernel")
    for factor in (1.0, 1.1, -2.0):
        found = matching(torch, keras_half(Half("keras"), factor), names)
        assert pairs(found) == {"rnn#1": "rnn_1", "(model)": "(model)"}
        assert found.keras_alone == ["rnn"]


# ---- the same values at several places


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


@pytest.mark.parametrize(("block", "layers"), [("block{}q", 1), ("q", 8), ("q", 2)])
def test_a_difference_that_died_out_before_a_fault_is_not_matched(block: str, layers: int) -> None:
    """The block around it is the same, or most of what follows is; or it may be where the fault is."""

    def model(half: Half) -> Half:
        torch = half.side == "torch"
        path = block.format("." if torch else "/")
        x = normal(0, 4, 6)
        for name in (path, *(f"l{layer}" for layer in range(layers)), "faulty"):
            half.owns(name, weight=(6, 6))
        half.returns(path, "linear", x if torch else 2 * x, given=(x,))
        if "{}" in block:
            half.returns("block", "Block", x + 1)
        for layer in range(layers):
            x = half.returns(f"l{layer}", "linear", x @ normal(layer + 1, 6, 6), given=(x,))
        half.ends(half.returns("faulty", "linear", x if torch else -x, given=(x,)))
        return half

    path = block.format("__")
    names = mapped(
        **{f"{name}__weight": f"{name}__weight" for name in (path, *(f"l{n}" for n in range(layers)), "faulty")}
    )
    found = pairs(matching(model(Half("torch")), model(Half("keras")), names))
    assert (block.format(".") in found) == (layers == 2)
    assert found["faulty"] == "faulty" and found["l0"] == "l0"


# ---- tensors that say little


def single(half: Half, value: Array, others: bool = True) -> Half:
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


# ---- the report


def test_the_report_counts_what_was_matched_and_names_the_rest() -> None:
    found = summary(matching(attention(Half("torch")), attention(Half("keras")), ATTENTION))
    assert (found.matched, found.by) == (2, {"weights": 2})
    assert list(lines(CaseResult(case="pair/m", verdict="match", matched=found))) == [
        "2 activations matched (2 by weights)",
        "1 of torch alone: attn.qkv",
        "3 of keras alone: mha/query, mha/key, mha/value",
    ]
    many = Matching(matches=[], torch_alone=[f"l{layer}" for layer in range(9)])
    case = CaseResult(case="pair/m", verdict="match", matched=summary(many), lifted=["torch: norm"], undecided=["a"])
    assert list(lines(case)) == [
        "0 activations matched",
        "9 of torch alone: l0, l1, l2, l3, l4, l5, ...",
        "computed in float32 on purpose, here in float64: torch: norm",
        "weights that nothing tells apart, in the order of execution: a",
    ]

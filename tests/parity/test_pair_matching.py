"""Which tensors of two halves correspond: models cut into modules differently, right ones and faulty ones."""

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace
from pair_halves import Half, mapped, matching, normal, of, pairs, relu

from parity.core.arrays import Array
from parity.pairs.activations.matching import summary
from parity.pairs.activations.values import distance
from parity.report.pairs import lines
from parity.results import CaseResult
from parity.trace.mapping import Entry, Fed, Mapping, Matching


def norm(x: Array, epsilon: float = 1e-5) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)


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
    assert found.fed == [Fed(torch="0", keras="dense", axes=[0, 1])]  # the two linear layers are given the same
    other = matching(mlp(Half("torch"), fused=True), mlp(Half("keras")), MLP)
    assert pairs(other) == {"0": "re_lu", "2": "dropout", "3": "head", "(model)": "(model)"}
    assert other.keras_alone == ["dense"] and other.fed == found.fed


def test_a_layer_on_which_nothing_depends_is_no_counterpart_of_one_with_other_weights() -> None:
    """As the last residual layer of a WaveNet, whose sum is not returned; Keras drops it from a functional model."""

    def model(half: Half) -> Half:
        x, torch = normal(0, 4, 8), half.side == "torch"
        for name in ("a", "r", "h", "e") if torch else ("a", "h", "e"):
            half.owns(name, weight=(8, 8))
        y = half.returns("a", "linear", x @ normal(1, 8, 8), given=(x,))
        if torch:
            half.returns("r", "linear", y @ normal(2, 8, 8), given=(y,))
            u = half.returns("h", "linear", relu(y) @ normal(3, 8, 8), given=(y,))
        else:
            half.facts["h"] = {"activation": "relu"}
            u = half.returns("h", "linear", relu(y @ normal(3, 8, 8)), given=(y,))  # the fault: no relu before it
        half.ends(half.returns("e", "linear", relu(u) @ normal(4, 8, 8), given=(u,)))
        return half

    mapping = mapped(a__weight="a__weight", h__weight="h__weight", e__weight="e__weight")
    assert "r" in pairs(matching(model(Half("torch")), model(Half("keras")), mapping))
    found = matching(model(Half("torch")), model(Half("keras")), replace(mapping, unused={"torch": ["r.weight"]}))
    assert pairs(found) == {"a": "a", "e": "e", "(model)": "(model)"}
    assert [each.torch for each in found.fed] == ["h"]


def test_a_container_around_a_fused_layer_returns_what_comes_after_the_activation() -> None:
    """It is no counterpart of torch's layer before the activation, though it owns the same weights."""

    def block(half: Half) -> Half:
        x, y = normal(0, 4, 8), normal(0, 4, 8) @ normal(1, 8, 16)
        first, last = ("fc1", "fc2") if half.side == "torch" else ("mlp/dense", "head")
        half.owns(first, **{"weight" if half.side == "torch" else "kernel": (8, 16)})
        half.owns(last, **{"weight" if half.side == "torch" else "kernel": (16, 3)})
        if half.side == "torch":
            half.returns(first, "linear", y, given=(x,))
            h = half.returns("act", "relu", relu(y), given=(y,))
        else:
            half.facts[first] = {"activation": "relu"}
            half.returns(first, "linear", relu(y), given=(x,))
            h = half.returns("mlp", "MLP", np.round(relu(y)), given=(x,))  # the fault
        half.ends(half.returns(last, "linear", h @ normal(2, 16, 3), given=(h,)))
        return half

    mapping = mapped(fc1__weight="mlp__dense__kernel", fc2__weight="head__kernel")
    found = matching(block(Half("torch")), block(Half("keras")), mapping)
    assert pairs(found) == {"act": "mlp/dense", "fc2": "head", "(model)": "(model)"}


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


def test_a_layer_of_weights_that_are_left_out_is_no_other_layer() -> None:
    """torch's `unused` makes what nothing takes; in Keras the head with its activation stands at its place."""

    def model(half: Half) -> Half:
        x, w = normal(0, 4, 8), normal(1, 8, 8)
        half.owns("a", weight=(8, 8))
        half.owns("head", weight=(8, 8))
        y = half.returns("a", "linear", x @ w, given=(x,))
        if half.side == "torch":
            half.owns("unused", weight=(8, 8))
            half.returns("unused", "linear", y @ normal(2, 8, 8), given=(y,))
        else:
            half.facts["head"] = {"activation": "relu"}
        z = y @ normal(3, 8, 8) + (half.side == "keras")
        half.ends(relu(half.returns("head", "linear", z if half.side == "torch" else relu(z), given=(y,))))
        return half

    names = replace(mapped(a__weight="a__weight", head__weight="head__weight"), ignored=["unused.weight"])
    found = matching(model(Half("torch")), model(Half("keras")), names)
    assert pairs(found) == {"a": "a", "(model)": "(model)"}


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


def attention(half: Half, wrong_scale: bool = False) -> Half:
    """torch: packed qkv; Keras: query, key, value with heads, out over both axes."""
    b, s, d = 3, 5, 8
    x, w, o = normal(0, b, s, d), normal(1, d, 3 * d), normal(2, d, d)
    heads, k = 2, d // 2
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


def stream(half: Half, layers: int, fault: int = -1, wrong: float = 1e-3) -> Half:
    """Equal blocks of one: norm, linear, gelu-like without weights, linear, residual. One epsilon may be wrong."""
    separator = "." if half.side == "torch" else "/"
    x = normal(0, 2, 6, 16)
    for layer in range(layers):
        path = f"block{layer}"
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


@pytest.mark.parametrize("second", ["sine", "cosine"])
def test_what_one_module_returns_is_matched_in_order(second: str) -> None:
    """As the cosines and sines of a rotary embedding, whose angles are others: by value nothing tells which is which.

    Where another module returns one of them, nothing does.
    """

    def model(half: Half) -> Half:
        x, torch = normal(0, 4, 8), half.side == "torch"
        for name in ("a", "b"):
            half.owns(name, weight=(8, 8))
        y = half.returns("a", "linear", x @ normal(1, 8, 8), given=(x,))
        angles = normal(2, 4, 8) * (1.0 if torch else 9.0)  # the fault
        kind, name = ("rotary", "rope") if torch else ("position", "rotary")
        cosine = half.returns(name, kind, np.cos(angles), given=(y,))
        sine = half.returns(name if second == "sine" else second, kind, np.sin(angles), given=(y,))
        z = y * cosine + y[:, ::-1] * sine
        half.ends(half.returns("b", "linear", z @ normal(3, 8, 8), given=(z,)))
        return half

    found = matching(model(Half("torch")), model(Half("keras")), mapped(a__weight="a__weight", b__weight="b__weight"))
    inner = {torch: keras for torch, keras in pairs(found).items() if torch not in ("a", "b", "(model)")}
    assert inner == ({"rope": "rotary", "rope#1": "rotary#1"} if second == "sine" else {})


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


def test_the_report_counts_what_was_matched_and_names_the_rest() -> None:
    found = summary(matching(attention(Half("torch")), attention(Half("keras")), ATTENTION))
    assert (found.matched, found.by) == (2, {"weights": 2})
    assert list(lines(CaseResult(case="pair/m", verdict="match", matched=found))) == [
        "2 activations matched (2 by weights)",
        "1 only in torch: attn.qkv",
        "3 only in keras: mha/query, mha/key, mha/value",
    ]
    many = Matching(matches=[], torch_alone=[f"l{layer}" for layer in range(9)])
    case = CaseResult(case="pair/m", verdict="match", matched=summary(many), lifted=["torch: norm"], undecided=["a"])
    assert list(lines(case)) == [
        "0 activations matched",
        "9 only in torch: l0, l1, l2, l3, l4, l5, ...",
        "the model computes these in lower precision; promoted to float64 in the high run: torch: norm",
        "modules whose weights could not be told apart; matched in the order of execution: a",
    ]


@pytest.mark.parametrize(
    ("equation", "given", "inputs"),
    [
        ("abcd,cde->abe", (2, 3, 4, 5), [0, 1, 2, 3]),  # heads and their elements, which torch has in one axis
        ("abc,cd->abd", (2, 3, 20), [0, 1, 2]),
        ("abc,bd->adc", (2, 20, 3), None),  # another axis than the last: nothing tells the order
        ("abc,cd->abd", (2, 20, 3), None),
    ],
)
def test_what_goes_into_a_dense_layer_of_another_kind(
    equation: str, given: tuple[int, ...], inputs: list[int] | None
) -> None:
    def model(half: Half, kind: str, shape: tuple[int, ...]) -> Half:
        half.owns("a", weight=(20, 6))
        half.facts["a"] = {"equation": equation} if half.side == "keras" else {}
        half.ends(half.returns("a", kind, normal(1, 2, 3, 6), given=(np.zeros(shape),)))
        return half

    sides = model(Half("torch"), "linear", (2, 3, 20)), model(Half("keras"), "einsum_dense", given)
    assert of(matching(*sides, mapped(a__weight="a__weight")), "a").inputs == inputs

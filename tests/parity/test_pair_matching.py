"""Which tensors of two halves correspond: models cut into modules differently, right ones and faulty ones."""

from collections.abc import Callable

import numpy as np
import pytest
from pair_halves import Half, mapped, matching, normal, pairs, relu

from parity.core.arrays import Array
from parity.pairs.activations.matching import summary
from parity.pairs.activations.values import Tensor, fit
from parity.report.words import remarks
from parity.results import CaseResult
from parity.trace.mapping import Entry, Mapping, Matching


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


@pytest.mark.parametrize("fault", [lambda x: relu(x) + 0.01 * x, np.tanh, lambda x: np.where(x > 0, x, 0.2 * x)])
def test_a_wrong_fused_activation_is_still_the_activation(fault: Callable[[Array], Array]) -> None:
    found = matching(mlp(Half("torch")), mlp(Half("keras"), fused=True, fault=fault), MLP)
    assert pairs(found) == {"1": "dense", "2": "dropout", "3": "head", "(model)": "(model)"}
    assert found.torch_alone == ["0"]


def test_what_comes_before_a_fused_activation_may_be_positive_by_chance() -> None:
    """Then it has the values of what comes behind: the fused layer returns the latter all the same."""
    found = matching(mlp(Half("torch"), fault=np.array), mlp(Half("keras"), fused=True, fault=np.array), MLP)
    assert pairs(found) == {"1": "dense", "2": "dropout", "3": "head", "(model)": "(model)"}


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


def test_calls_of_a_module_are_matched_in_turn() -> None:
    """After a fault what another call returns may be a little nearer, as attention's is from step to step."""

    def model(half: Half) -> Half:
        x, fault = normal(0, 4, 8), 0.0 if half.side == "torch" else 0.6
        half.owns("a", weight=(8, 8))
        for call in range(3):
            y = half.returns("a", "linear", x * (1.0 + 0.05 * (call + fault)), given=(x,))
        half.ends(y)
        return half

    found = matching(model(Half("torch")), model(Half("keras")), mapped(a__weight="a__weight"))
    assert pairs(found) == {"a": "a", "a#1": "a#1", "a#2": "a#2", "(model)": "(model)"}


def test_what_a_cell_returns_twice_is_no_further_call() -> None:
    """As Keras's cells return their output in their list of states too; the fault takes one state for the other."""

    def model(half: Half) -> Half:
        x, torch = normal(0, 4, 8), half.side == "torch"
        output, state = np.zeros_like(x), np.zeros_like(x)
        half.owns("cell", weight=(8, 8))
        for call in range(3):
            given = x + (output if torch else state)
            state = half.returns("cell", "cell", np.tanh(given @ normal(1, 8, 8) + call), given=(x,))
            output = half.returns("cell", "cell", np.tanh(state) * normal(2, 8), given=(x,))
            if not torch:
                half.returns("cell", "cell", output, given=(x,))
        half.ends(output)
        return half

    found = pairs(matching(model(Half("torch")), model(Half("keras")), mapped(cell__weight="cell__weight")))
    keras = ("cell", "cell#1", "cell#3", "cell#4", "cell#6", "cell#7")
    assert [found["cell"], *(found[f"cell#{number}"] for number in range(1, 6))] == [*keras]


def test_the_report_counts_what_was_matched_and_names_the_rest() -> None:
    found = summary(matching(attention(Half("torch")), attention(Half("keras")), ATTENTION))
    assert (found.matched, found.by) == (2, {"weights": 2})
    assert list(remarks(CaseResult(case="pair/m", verdict="match", matched=found))) == [
        "2 activations matched (2 by weights)",
        "1 only in torch: attn.qkv",
        "3 only in keras: mha/query, mha/key, mha/value",
    ]
    many = Matching(matches=[], torch_alone=[f"l{layer}" for layer in range(9)])
    case = CaseResult(case="pair/m", verdict="match", matched=summary(many), lifted=["torch: norm"], undecided=["a"])
    assert list(remarks(case)) == [
        "0 activations matched",
        "9 only in torch: l0, l1, l2, l3, l4, l5 and 3 more",
        "the model computes these in lower precision; promoted to float64 in the high run: torch: norm",
        "modules whose weights could not be told apart; matched in the order of execution: a",
    ]


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


def test_of_several_calls_none_is_guessed_to_be_the_only_one() -> None:
    """torch calls a layer twice; in the port one of the calls is a function, and nothing says which."""

    def half(side: str, factor: float) -> Half:
        model = Half(side)
        model.owns("a", weight=(6, 6))
        first, second = normal(1, 4, 6), normal(2, 4, 6) * factor
        model.returns("a", "linear", *((first, second) if side == "torch" else (second,)))
        model.ends(normal(3, 4) * factor)
        return model

    names = mapped(a__weight="a__weight")
    assert pairs(matching(half("torch", 1.0), half("keras", 1.0), names)) == {"a#1": "a", "(model)": "(model)"}
    assert pairs(matching(half("torch", 1.0), half("keras", 1.1), names)) == {"a#1": "a", "(model)": "(model)"}
    assert pairs(matching(half("torch", 1.0), half("keras", -2.0), names)) == {"(model)": "(model)"}


def test_an_order_that_does_not_fit_is_none() -> None:
    torch, keras = Tensor(normal(0, 2, 3, 5, 6)), Tensor(normal(1, 2, 5, 6, 3))
    assert fit(torch, keras, known=(0, 1, 2, 3)).order == (0, 3, 1, 2)


def test_the_order_in_which_most_elements_agree_is_taken() -> None:
    """Another one is likelier without that: a matrix to which the identity is not added tells its own axes."""
    matrices = normal(0, 6, 3, 3)
    torch, likely = Tensor(matrices + 5 * np.eye(3)), [(0, 2, 1)]
    assert fit(torch, Tensor(matrices), None, likely).order == (0, 1, 2)
    assert fit(torch, Tensor(normal(1, 6, 3, 3)), None, likely).order == (0, 2, 1)

"""The first op at which two recorded calls part, on programs of numpy functions that are recorded as ops."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from parity.core.arrays import Array
from parity.core.errors import TraceError
from parity.diagnose.experiment import operands, ops, taken
from parity.diagnose.experiment.first_difference import Difference, first_difference, matched, sentence
from parity.diagnose.experiment.ops import Recorder, Recording

Program = Callable[["Tape", Array], Any]
X = np.random.default_rng(0).normal(size=(4, 3, 6))
W = np.random.default_rng(1).normal(size=(6, 6))


class Tape:
    """Runs functions of numpy as ops; the line of an op is its number."""

    def __init__(self, room: int = ops.LARGEST) -> None:
        self.recorder = Recorder(id, lambda array: np.array(array), room)
        self.count = 0

    def __call__(self, name: str, function: Callable[..., Any], *inputs: Any, kind: ops.Kind = "computed") -> Array:
        output = np.array(function(*inputs))
        numbers = [self.recorder.number(each) for each in inputs]
        self.count += 1
        self.recorder.add(name, f"{name}:{self.count}", numbers, [output], kind)
        return output


def record(program: Program, room: int = ops.LARGEST) -> Recording:
    tape = Tape(room)
    return tape.recorder.recording([program(tape, X.copy())])


def parting(one: Program, other: Program) -> Difference | None:
    return first_difference(record(one), record(other))


def softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def fused_softmax(t: Tape, x: Array, axis: int = -1) -> Array:
    return t("softmax", lambda x: softmax(x, axis), x)


def softmax_by_hand(t: Tape, x: Array) -> Array:
    e = t("exp", np.exp, x)
    total = t("sum", lambda e: e.sum(-1, keepdims=True), e)
    return t("div", np.divide, e, total)


def norm(t: Tape, x: Array, eps: float = 1e-5, axis: int = -1) -> Array:
    centred = t("centre", lambda x: x - x.mean(axis, keepdims=True), x)
    variance = t("variance", lambda c: (c * c).mean(axis, keepdims=True), centred)
    return t("rsqrt", lambda c, v: c * (1.0 / np.sqrt(v + eps)), centred, variance)


def norm_by_roots(t: Tape, x: Array, eps: float = 1e-5) -> Array:
    mean = t("mean", lambda x: x.mean(-1, keepdims=True), x)
    variance = t("var", lambda x, m: (x * x).mean(-1, keepdims=True) - m * m, x, mean)
    root = t("sqrt", lambda v: np.sqrt(v + eps), variance)
    return t("divide", lambda x, m, r: (x - m) / r, x, mean, root)


def fused_norm(t: Tape, x: Array, eps: float = 1e-5) -> Array:
    return t("layer_norm", lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps), x)


def matmul(t: Tape, x: Array) -> Array:
    return t("matmul", np.matmul, x, W)


def einsum(t: Tape, x: Array) -> Array:
    turned = t("transpose", lambda x: x.transpose(2, 0, 1).copy(), x, kind="moved")
    return t("einsum", lambda x: np.einsum("ibt,io->tbo", x, W), turned)


def matmul_in_parts(t: Tape, x: Array) -> Array:
    left = t("left", lambda x: x[..., :2] @ W[:2], x)
    right = t("right", lambda x: x[..., 2:] @ W[2:], x)
    return t("add", np.add, left, right)


def relu(t: Tape, x: Array) -> Array:
    return t("relu", lambda x: np.maximum(x, 0.0), x)


SAME = {
    "softmax": (fused_softmax, softmax_by_hand),
    "norm": (norm, norm_by_roots, fused_norm),
    "linear": (matmul, einsum, matmul_in_parts),
}
WAYS = [(one, other) for ways in SAME.values() for one, other in product(ways, ways)]


def chain(*steps: Callable[..., Array]) -> Program:
    """A program of steps one after the other."""

    def run(t: Tape, x: Array) -> Array:
        for step in steps:
            x = step(t, x)
        return x

    return run


@pytest.mark.parametrize(("one", "other"), WAYS)
def test_other_ways_to_the_same_result_are_no_difference(one: Program, other: Program) -> None:
    assert parting(one, other) is None
    assert parting(chain(matmul, one, relu), chain(einsum, other, relu)) is None


def double(t: Tape, x: Array) -> Array:
    return t("double", lambda x: 2.0 * x, x)


def scaled(t: Tape, x: Array) -> Array:
    return t("scale", lambda x: 0.5 * x, x)


# What differs: two programs, and the ops at which they part.


def test_what_has_no_room_is_said() -> None:
    program = chain(matmul, double, matmul)
    short = record(program, room=2 * X.nbytes + 8)
    assert short.calls.cut and len(short.arrays) < len(record(program).arrays)
    found = first_difference(record(chain(matmul, double, matmul, relu)), record(chain(matmul, double, matmul, matmul)))
    assert found is not None and not sentence(found).endswith("may part earlier")
    found = first_difference(record(chain(matmul, double, relu), room=3 * X.nbytes + W.nbytes), record(scaled))
    assert found is not None and sentence(found).endswith("may part earlier")


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"ops": [], "returned": ["a"], "cut": false}'])
def test_a_damaged_list_is_a_trace_error(text: bytes, tmp_path: Path) -> None:
    ops.write(record(relu), tmp_path)
    (tmp_path / "ops.json").write_bytes(text)
    with pytest.raises(TraceError, match=r"ops\.json: cannot be read as a list of ops"):
        ops.read(tmp_path)


def test_structs_refuse_fields_they_do_not_know() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"ops": [], "returned": [], "cut": false, "more": 1}', type=ops.Calls)


# What the ops at which two calls part tell


OFFSETS, OTHERS = np.array([0.0, 12.0, 26.0])[:, None], np.array([0.0, 10.0, 22.0])[:, None]


def adds(name: str, constant: Array, function: Callable[..., Array] = np.add) -> Program:
    return lambda t, x: t("tanh", np.tanh, t(name, function, x, constant))


def makes(name: str, *given: Array) -> Program:
    """Multiplies by frequencies that an op makes of constants, or of nothing."""
    steps = np.linspace(1.0, 5.0, 6) if not given else np.exp2(given[0])
    return lambda t, x: t("mul", np.multiply, x, t(name, lambda *_: steps, *given))


def reduces(name: str, axes: Any, function: Callable[..., Array] = np.sum) -> Program:
    return lambda t, x: t("exp", np.exp, t(name, lambda x: function(x, axis=axes), x))


def heads(
    repeated: Callable[[Array], Array],
    axes: tuple[int, ...] = (0, 1, 2, 3),
    function: Callable[[Array], Array] = np.positive,
) -> Program:
    """Multiplies four heads, which are made of two, by others; `axes` are those of what it takes."""

    def product(x: Array, other: Array) -> Array:
        return function(x.reshape(2, 4, 3, 6) if x.ndim == 5 else x.transpose(axes)) * other

    def called(t: Tape, x: Array) -> Array:
        four = t("repeat", repeated, t("double", lambda x: 2 * x.reshape(2, 2, 3, 6), x))
        other = t("sin", lambda x: np.sin(np.arange(1, 5.0)[:, None, None] * x.reshape(2, 2, 3, 6)[:, :1]), x)
        return t("tanh", np.tanh, t("mul", product, four, other))

    return called


def branches(taken: int) -> Program:
    """Adds to a gate one of two things that are computed, and returns both sums."""

    def called(t: Tape, x: Array) -> Array:
        gate, parts = t("tanh", np.tanh, x), [t("sin", np.sin, x), t("cos", np.cos, x)]
        used = t("join", lambda *parts: np.stack(parts), *(t("exp", np.exp, part) for part in parts))
        return t("join", lambda *parts: np.stack(parts), t("exp", np.exp, t("add", np.add, gate, parts[taken])), *used)

    return called


def products(order: tuple[int, int, int], then: Callable[[Array], Array] = np.cos) -> Program:
    """Multiplies three tensors, the first two of them first."""

    def called(t: Tape, x: Array) -> Array:
        factors = [t("sin", np.sin, x), t("tanh", np.tanh, x), t("exp", np.exp, x)]
        first, second, third = (factors[number] for number in order)
        return t("then", then, t("mul", np.multiply, t("mul", np.multiply, first, second), third))

    return called


def length(t: Tape, x: Array) -> Array:
    return t("exp", np.exp, t("norm", lambda x: np.sqrt((x * x).sum(-1)), x))


def squared_length(t: Tape, x: Array) -> Array:
    return t("exp", np.exp, t("Sum", lambda x: x.sum(-1), t("Square", np.square, x)))


def deviation(t: Tape, x: Array) -> Array:
    return t("exp", np.exp, t("std", lambda x: x.std(-1, ddof=1), x))


def deviation_by_hand(t: Tape, x: Array) -> Array:
    rest = t("Sub", np.subtract, x, t("Mean", lambda x: x.mean(-1, keepdims=True), x))
    variance = t("Mean", lambda square: square.mean(-1), t("Square", np.square, rest))
    return t("exp", np.exp, t("Sqrt", np.sqrt, variance))


def centred(axis: int | None) -> Program:
    return lambda t, x: t("exp", np.exp, t("Sub", np.subtract, x, t("Mean", lambda x: x.mean(axis, keepdims=True), x)))


def part(first: int) -> Program:
    def cut(t: Tape, x: Array) -> Array:
        return t("slice", lambda x: x[:, 1, first : first + 2], t("sin", np.sin, x), kind="selected")

    return lambda t, x: t("exp", np.exp, cut(t, x))


def last(joins: bool) -> Program:
    """Takes the last states of both directions, or what both return at the last step."""

    def called(t: Tape, x: Array) -> Array:
        states = [t(name, function, x[:, 0]) for name, function in (("sin", np.sin), ("cos", np.cos))]
        outputs = t("tanh", np.tanh, np.concatenate([x, x], axis=2))
        if joins:
            taken = t("cat", lambda *parts: np.concatenate(parts, axis=1), *states, kind="selected")
        else:
            taken = t("StridedSlice", lambda x: x[:, -1], outputs, kind="selected")
        used = t("join", lambda *parts: np.concatenate([each.ravel() for each in parts]), *states, outputs)
        return t("join", lambda one, other: np.concatenate([one.ravel(), other]), t("exp", np.exp, taken), used)

    return called


def norms(axis: int | None, then: Callable[[Array], Array] = np.exp, ops: bool = False) -> Program:
    """Takes the length of a tensor, by one op or by several."""

    def called(t: Tape, x: Array) -> Array:
        y = t("sin", np.sin, x)
        if not ops:
            return t("then", np.exp, t("linalg_vector_norm", lambda y: np.sqrt((y * y).sum(axis)), y))
        squares = t("Sum", lambda y: y.sum(axis), t("Square", np.square, y))
        return t("then", then, t("Sqrt", np.sqrt, squares))

    return called


def scores(multiplies: bool) -> Program:
    """Sums the products of two tensors over one axis, or over all in a matrix product."""

    def called(t: Tape, x: Array) -> Array:
        pair = t("sin", np.sin, x[:, 0]), t("cos", np.cos, x[:, 1])
        if multiplies:
            summed = t("sum", lambda y: y.sum(1), t("mul", np.multiply, *pair))
        else:
            summed = t("MatMul", lambda a, b: np.tensordot(a, b, 2), *pair)
        return t("exp", np.exp, summed)

    return called


def weighted(centres: bool) -> Program:
    """Multiplies a tensor by another one, which may be centred before."""

    def called(t: Tape, x: Array) -> Array:
        weights, values = t("sin", np.sin, x), t("cos", np.cos, x)
        used = t("tanh", np.tanh, values)
        if centres:
            mean = t("mean", lambda x: x.mean(-1, keepdims=True), values)
            values = t("div", np.divide, t("sub", np.subtract, values, mean), 2.0)
        product = t("exp", np.exp, t("mul", np.multiply, values, weights))
        return t("join", lambda *parts: np.stack(parts), product, used)

    return called


def ordered_by(inverse: bool) -> Program:
    """Looks up the first in an order, or in the inverse of it."""

    def called(t: Tape, x: Array) -> Array:
        values, order = t("sin", np.sin, x.ravel()), t("argsort", np.argsort, x.ravel())
        taken = t("argsort", np.argsort, order) if inverse else order
        return t("exp", np.exp, t("gather", lambda values, order: values[order[:9]], values, taken))

    return called


def sums_of(shape: tuple[int, ...]) -> Program:
    """Adds two tensors, of which one may have a further axis."""

    def called(t: Tape, x: Array) -> Array:
        parts = t("sin", np.sin, x[:, 0, 0].reshape(shape)), t("cos", np.cos, x[:, 1, 0])
        return t("exp", np.exp, t("add", np.add, *parts))

    return called


def squared(shape: tuple[int, ...] | None) -> Program:
    """Takes the mean square of a difference, by one op or, with a tensor of another shape, by several."""

    def called(t: Tape, x: Array) -> Array:
        value, target = t("sin", np.sin, x[:, 0, 0]), t("cos", np.cos, x[:, 1, 0])
        if shape is None:
            return t("mse_loss", lambda a, b: np.square(a - b).mean(), value, target)
        rest = t("Sub", np.subtract, t("Reshape", lambda a: a.reshape(shape), value, kind="moved"), target)
        return t("Mean", np.mean, t("Square", np.square, rest))

    return called


def terms(factor: float, both_made: bool = True) -> Program:
    """Adds two tensors, each times a number of its own."""

    def called(t: Tape, x: Array) -> Array:
        one, other = t("sin", np.sin, x), t("cos", np.cos, x) if both_made else x
        both = t("half", lambda y: 0.5 * y, one), t("part", lambda y: factor * y, other)
        return t("exp", np.exp, t("add", np.add, *both))

    return called


def weighed(share: float | None) -> Program:
    """Adds to a number a product of two others, and of a constant."""

    def called(t: Tape, x: Array) -> Array:
        one, other = (t(name, lambda x: np.asarray(x.mean()), x) for name in ("mean", "Mean"))
        one, other = t("exp", np.exp, one), t("cos", np.cos, other)
        one = one if share is None else t("mul", lambda x: share * x, one)
        return t("add", np.add, t("Mul", np.multiply, one, other), t("sin", np.sin, other))

    return called


def weighed_mean(weights: Array, is_mean: bool) -> Program:
    """Takes the mean of a tensor times weights, by one op or as a sum that is divided."""

    def called(t: Tape, x: Array) -> Array:
        product = t("Mul", np.multiply, t("sin", np.sin, x), weights)
        return t("mean", np.mean, product) if is_mean else t("RealDiv", np.divide, t("Sum", np.sum, product), X.size)

    return called


def apart(exchanged: bool) -> Program:
    """Takes the difference of two tensors."""

    def called(t: Tape, x: Array) -> Array:
        parts = t("sin", np.sin, x), t("cos", np.cos, x)
        return t("exp", np.exp, t("sub", np.subtract, *parts[:: -1 if exchanged else 1]))

    return called


def spread(axis: int) -> Program:
    """Adds a vector to each row, or each column, of a square table."""

    def called(t: Tape, x: Array) -> Array:
        vector = t("sin", np.sin, x[0, 0])
        moved = t("expand", lambda y: np.expand_dims(y, axis), vector, kind="moved")
        return t("exp", np.exp, t("add", np.add, moved, W))

    return called


def looked_up(name: str, indices: list[int]) -> Program:
    """Takes rows of a table by indices that were computed."""
    return lambda t, x: t(name, lambda y, i: y[i], t("sin", np.sin, x[0]), t("argmax", lambda _: np.array(indices), x))


def lagged(step: int) -> Program:
    """Divides a tensor, or the same shifted along its second axis, by another one."""

    def called(t: Tape, x: Array) -> Array:
        made, size = t("sin", np.sin, x[..., 0]), t("cosh", np.cosh, x[:, :1, 0])
        if step:
            made = t("cat", lambda y: np.concatenate([np.zeros((4, step)), y[:, :-step]], 1), made, kind="selected")
        return t("exp", np.exp, t("div", np.divide, made, size))

    return called


def of_loss(name: str) -> Program:
    """Takes a loss of a tensor, of the kind that its name says."""
    made = {"binary_cross_entropy_with_logits": np.abs, "SoftmaxCrossEntropyWithLogits": np.cosh}[name]
    return lambda t, x: t("mean", np.mean, t(name, made, t("sin", np.sin, x)))


def of_branch(number: int) -> Program:
    """Takes the softmax of one of two tensors, and adds both."""

    def called(t: Tape, x: Array) -> Array:
        both = t("sin", np.sin, x), t("cos", np.cos, x)
        chosen = fused_softmax(t, both[number])
        return t("mul", np.multiply, chosen, t("sub", np.subtract, *both))

    return called


def counted(is_mean: bool) -> Program:
    """Sums a tensor, or divides the sum by what is counted."""

    def called(t: Tape, x: Array) -> Array:
        total = t("Sum", lambda y: np.exp(y).sum(2), x)
        return t("RealDiv", np.divide, total, t("Maximum", lambda y: 1 + (y > 0).sum(2), x)) if is_mean else total

    return called


def cut(is_cut: bool) -> Program:
    """Takes the squares of a tensor, or of all but its last slices, and adds the largest of these."""

    def called(t: Tape, x: Array) -> Array:
        whole = made = t("sin", np.sin, x)
        made = t("slice", lambda y: y[:, :-1], made, kind="selected") if is_cut else made
        rest = t("rest", lambda y: y[:, -1:], whole, kind="selected")
        return t("add", np.add, t("mean", np.mean, t("square", np.square, made)), t("max", np.max, rest))

    return called


def normalised(are_all: bool) -> Program:
    """Subtracts two parts of a tensor, both of them divided by their norm, or one."""

    def called(t: Tape, x: Array) -> Array:
        def by_norm(x: Array) -> Array:
            return t("div", np.divide, x, t("norm", lambda y: np.linalg.norm(y, axis=-1, keepdims=True), x))

        made = t("sin", np.sin, x)
        made = by_norm(made) if are_all else made
        first, second = (t("slice", lambda y, at=at: y[:, at], made, kind="selected") for at in (0, 1))
        return t("sub", np.subtract, first if are_all else by_norm(first), second)

    return called


TABLE = np.random.default_rng(2).normal(size=(3, 6))
EXPONENTS = np.linspace(0.0, np.log2(5.0), 6)
TOLD = {
    "an offset": (adds("add_", OFFSETS), adds("AddV2", OTHERS), (), ("code.tensor", "[0, 12, 26]", "[0, 10, 22]")),
    "frequencies": (makes("linspace"), makes("Pow", EXPONENTS), (),
        ("code.tensor", "[1, 1.8, 2.6", "[1, 1.37973, 1.9")),
    "axes": (reduces("sum", (1, 2)), reduces("Sum", None), (), ("reduction.axes", "axes 1, 2", "all axes")),
    "an order": (heads(lambda x: np.repeat(x, 2, axis=1)),
        heads(lambda x: np.tile(x, (1, 2, 1, 1)).reshape(2, 2, 2, 3, 6)), (),
        ("code.order", "[0, 0, 1, 1]", "[0, 1, 0, 1]")),
    "an order of a table in float32": (lambda t, x: t("add", np.add, x, TABLE.astype(np.float32).astype(np.float64)),
        lambda t, x: t("AddV2", np.add, x, TABLE[:, ::-1].copy()), (),
        ("code.order", "[0, 1, 2, 3, 4, 5]", "[5, 4, 3, 2, 1, 0]")),
    "an order of axes": (heads(lambda x: np.repeat(x, 2, axis=1)),
        heads(lambda x: np.repeat(x, 2, axis=1).transpose(0, 2, 1, 3), (0, 2, 1, 3), np.negative), (),
        ("module.scale", "as it is", "-1 times as large")),
    "a part": (part(4), part(1), (), ("code.slice", "1:2 of axis 1, 4:6 of axis 2", "1:2 of axis 1, 1:3 of axis 2")),
    "other tensors": (last(True), last(False), (), ("module.wiring", "`cat` of what `sin`", "`StridedSlice` of what")),
    "another branch": (branches(0), branches(1), (), ("module.wiring", "what `sin` at ", "what `cos` at ")),
    "another order of factors": (products((0, 1, 2)), products((1, 2, 0), np.cosh), (), None),
    "a divisor": (deviation, deviation_by_hand, (), ("reduction.correction", "n - 1", "n")),
    "a divisor in torch": (deviation_by_hand, deviation, (), ("reduction.correction", "n", "n - 1")),
    "a root": (length, squared_length, (), ("code.function", "square root", "left out")),
    "a square": (squared_length, length, (), ("code.function", "left out", "square root")),
    "a mean within a norm": (reduces("mean", (1, 2), np.mean), centred(-1), (), None),
    "means within norms": (centred(-1), centred(None), (), ("reduction.axes", "axes 2", "all axes")),
    "part of a weight": (adds("add", OFFSETS), adds("AddV2", OTHERS), (np.arange(30.0),), None),
    "another op": (adds("add", OFFSETS), adds("Mul", OTHERS, np.multiply), (), None),
    "another reduction": (reduces("sum", (1, 2)), reduces("Mean", None, np.mean), (), None),
    "a mean of the same": (reduces("sum", (1, 2)), reduces("Mean", (1, 2), np.mean), (),
        ("code.function", "sum", "mean")),
    "a length": (norms(-1), norms(None, ops=True), (), ("reduction.axes", "axes 2", "all axes")),
    "the same length": (norms(-1), norms(-1, np.cosh, ops=True), (), None),
    "a product": (scores(True), scores(False), (), ("reduction.axes", "axes 1", "all axes")),
    "a term": (terms(0.5), terms(1.0), (), ("module.scale", "as it is", "+0.5 times what `cos`")),
    "weights": (weighed_mean(np.arange(1.0, 7.0), True), weighed_mean(np.arange(2.0, 8.0), False), (),
        ("code.tensor", "[1, 2, 3, 4, 5, 6]", "[2, 3, 4, 5, 6, 7]")),
    "a given term": (terms(0.5, False), terms(1.0, False), (),
        ("module.scale", "as it is", "+0.5 times what is given in torch")),
    "a shape": (sums_of((4, 1)), sums_of((4,)), (), ("broadcast.shape", "[4, 4]", "[4]")),
    "a factor": (weighed(0.5), weighed(None), (), ("module.scale", "as it is", "2 times as large")),
    "a difference": (apart(False), apart(True), (), ("operands.order", "a - b", "b - a")),
    "a maximum": (reduces("mean", (1, 2), np.mean), reduces("Max", (1, 2), np.max), (),
        ("code.function", "mean", "max")),
    "the last of a sequence": (lambda t, x: t("select", lambda y: y[:, -1], t("sin", np.sin, x), kind="selected"),
        lambda t, x: t("Mean", lambda y: y.mean(1), t("Sin", np.sin, x)), (),
        ("code.slice", "2:3 of axis 1", "mean of all")),
    "a shape of a loss": (squared(None), squared((4, 1)), (), ("broadcast.shape", "[4]", "[4, 4]")),
    "other axes": (spread(1), spread(0), (), ("operands.axes", "along axes 0", "along axes 1")),
    "other rows": (looked_up("index", [2, 1, 2]), looked_up("GatherV2", [0, 0, 1]), (),
        ("lookup.indices", "[2, 1, 2]", "[0, 0, 1]")),
    "the inverse of an order": (ordered_by(False), ordered_by(True), (),
        ("module.wiring", "as it is", "`argsort` at argsort:3 of it")),
    "more is made of a factor": (weighted(True), weighted(False), (),
        ("module.wiring", "`sub` at sub:5, `div` at div:6 of it", "as it is")),
    "more is made of a factor in keras": (weighted(False), weighted(True), (), ("module.wiring", "as it is", "`sub`")),
    "a lag": (lagged(1), lagged(0), (), ("code.shift", "1 later along axis 1", "as it is")),
    "a lag in keras": (lagged(0), lagged(1), (), ("code.shift", "as it is", "1 later along axis 1")),
    "another loss": (of_loss("binary_cross_entropy_with_logits"), of_loss("SoftmaxCrossEntropyWithLogits"), (),
        ("loss.kind", "binary cross entropy", "cross entropy")),
    "another input": (of_branch(0), of_branch(1), (), ("module.wiring", "what `sin` at ", "what `cos` at ")),
    "a divisor behind a sum": (counted(False), counted(True), (),
        ("module.wiring", "as it is", "divided by what `Maximum` at ")),
    "a divisor behind a sum in torch": (counted(True), counted(False), (),
        ("module.wiring", "divided by what `Maximum` at ", "as it is")),
    "a part of what is taken whole": (cut(True), cut(False), (), ("code.slice", "0:2 of axis 1", "all of it")),
    "a part beside another": (normalised(True), normalised(False), (), None),
    "random numbers": (makes("randn"), makes("RandomUniform", EXPONENTS), (), None),
    "a computed operand": (lambda t, x: t("add", np.add, x, t("sin", np.sin, x)), lambda t,
        x: t("AddV2", np.add, x, t("Cos", np.cos, x)), (), None),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_what_the_ops_tell(name: str) -> None:
    one, other, weights, expected = TOLD[name]
    found = operands.named(parting(one, other), weights)
    if expected is None:
        assert found is None
    else:
        assert found.id == expected[0] and found.torch.startswith(expected[1]) and found.keras.startswith(expected[2])


def test_an_order_that_was_made_before() -> None:
    """No ops part: a tensor is the same on both sides, but for the order of its slices."""

    def positions(order: int) -> Program:
        return lambda t, x: t("sin", np.sin, t("outer", np.outer, np.arange(5.0)[::order] ** 2, np.arange(1.0, 4.0)))

    sides = [record(positions(order)) for order in (-1, 1)]
    assert first_difference(*sides) is None
    cause = taken.ordered(*matched(*sides), [])
    assert cause is not None
    assert (cause.id, cause.torch, cause.keras) == ("code.order", "[0, 1, 2, 3, 4]", "[4, 3, 2, 1, 0]")
    assert taken.ordered(*matched(sides[0], sides[0]), []) is None

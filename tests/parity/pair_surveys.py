"""Surveys of two models as the frameworks would tell them, written by hand, and which weights truly belong together.

A line is (path, kind, weights by role, facts). Lines stand in the order of definition, which is the order of calls
unless a test says another.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from parity.config.pair import Pair, PairInput
from parity.runtime.survey import Module, Survey, Weight

Shape = tuple[int, ...]
Line = tuple[str, str, dict[str, Shape], dict[str, Any]]
STATISTICS = ("running_mean", "running_var", "moving_mean", "moving_variance")
BUFFERS = {"num_batches_tracked": "int64", "position_ids": "int64", "inv_freq": "float32", "pe": "float32"}
PAIR = Pair(torch="port:build", keras="port:build", inputs={"x": PairInput(shape=[1])})


class Model(NamedTuple):
    """Both surveys, Keras's names for each of torch's (joined by +), and the places of all ambiguities."""

    torch: Survey
    keras: Survey
    truth: dict[str, str]
    ambiguities: list[str] = []


def line(path: str, kind: str, facts: dict[str, Any] | None = None, **weights: Shape) -> Line:
    return path, kind, weights, facts or {}


def survey(side: str, lines: Sequence[Line], called: Iterable[str] | None = None, **more: Any) -> Survey:
    dot = "." if side == "torch" else "/"
    weights = [
        Weight(
            name=f"{path}{dot}{role}" if path else role,
            shape=shape,
            dtype=BUFFERS.get(role, "float32"),
            module=path,
            role=role,
            trainable=role not in STATISTICS and role not in BUFFERS,
            statistic=role in STATISTICS,
            constant=side == "torch" and role in BUFFERS,
            also=[f"net/{path}/{role}"] if side == "keras" else [],
        )
        for path, _, roles, _ in lines
        for role, shape in roles.items()
    ]
    modules = [
        Module(path="", kind="Net"),
        *(Module(path=path, kind=kind, facts=f) for path, kind, _, f in lines if path),
    ]
    order = list(called) if called is not None else [module.path for module in modules]
    return Survey(side=side, modules=modules, weights=weights, called=order, **more)


def torch(*lines: Line, **more: Any) -> Survey:
    return survey("torch", lines, **more)


def keras(*lines: Line, **more: Any) -> Survey:
    return survey("keras", lines, **more)


# Layers of torch's


def linear(path: str, inputs: int, outputs: int, kind: str = "linear") -> Line:
    shape = (inputs, outputs) if kind == "linear_io" else (outputs, inputs)
    return line(path, kind, weight=shape, bias=(outputs,))


def conv(path: str, inputs: int, outputs: int, *kernel: int, kind: str = "conv") -> Line:
    return line(path, f"{kind}{len(kernel)}d", weight=(outputs, inputs, *kernel), bias=(outputs,))


def batch_norm(path: str, size: int) -> Line:
    shape = (size,)
    return line(
        path, "batch_norm", weight=shape, bias=shape, running_mean=shape, running_var=shape, num_batches_tracked=()
    )


def norm(path: str, size: int) -> Line:
    return line(path, "layer_norm", weight=(size,), bias=(size,))


# Layers of Keras's


def dense(path: str, inputs: int, outputs: int, kind: str = "linear") -> Line:
    return line(path, kind, kernel=(inputs, outputs), bias=(outputs,))


def conv_k(path: str, inputs: int, outputs: int, *kernel: int) -> Line:
    return line(path, f"conv{len(kernel)}d", kernel=(*kernel, inputs, outputs), bias=(outputs,))


def batch_norm_k(path: str, size: int) -> Line:
    shape = (size,)
    return line(path, "batch_norm", gamma=shape, beta=shape, moving_mean=shape, moving_variance=shape)


def norm_k(path: str, size: int) -> Line:
    return line(path, "layer_norm", gamma=(size,), beta=(size,))


def heads(path: str, width: int, count: int) -> Line:
    """Query, key or value of an attention."""
    size = width // count
    return line(path, "einsum_dense", {"equation": "abc,cde->abde"}, kernel=(width, count, size), bias=(count, size))


def attention_output(path: str, width: int, count: int) -> Line:
    facts = {"equation": "abcd,cde->abe"}
    return line(path, "einsum_dense", facts, kernel=(count, width // count, width), bias=(width,))


def attention(path: str, width: int, count: int) -> list[Line]:
    """Keras's MultiHeadAttention."""
    parts = [heads(f"{path}/{part}", width, count) for part in ("query", "key", "value")]
    return [
        line(path, "attention", {"heads": count}),
        *parts,
        attention_output(f"{path}/attention_output", width, count),
    ]


# Truths


def both(pairs: dict[str, str], roles: dict[str, str]) -> dict[str, str]:
    """Of modules and roles, each by torch's."""
    return {
        f"{here}.{role}": "+".join(f"{name}/{other}" for name in there.split("+"))
        for here, there in pairs.items()
        for role, other in roles.items()
    }


MATRIX = {"weight": "kernel", "bias": "bias"}
NORM = {"weight": "gamma", "bias": "beta"}
BATCH_NORM = NORM | {"running_mean": "moving_mean", "running_var": "moving_variance"}

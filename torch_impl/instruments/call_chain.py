"""Functions that code calls one behind the other: which can be left out, and which may belong behind the next."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from parity.diagnose.experiment import operations as ways
from parity.diagnose.experiment.operations import Operation
from torch_impl.instruments import source
from torch_impl.instruments.windows import Function, Given

CODE = "code"  # the kind of what stands in no layer
EQUAL = 1e-9  # relative: what two orders of functions make is then the same, but for rounding
TRANSPOSES = ("permute", "transpose", "swapaxes", "movedim", "moveaxis", "t", "T", "mT")
REPEATS = ("repeat_interleave", "repeat", "tile")
# Functions that keep the shape of what they are given, so that they can be left out, as pools can be too.
FUNCTIONS = (
    *("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "softsign", "hardtanh"),
    *("hardswish", "hardsigmoid", "tanh", "sigmoid", "exp", "log", "sqrt", "square", "abs", "clamp"),
    *("softmax", "log_softmax", "layer_norm", "group_norm", "rms_norm", "normalize"),
    *("clip", "masked_fill", "triu", "tril", "roll", "flip", "neg", "round", "reciprocal", "rsqrt"),
)
# Of a tensor and a number, by the sign that is written for each.
SIGNED = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**"}
ARITHMETIC = (*SIGNED, "rsub", "matmul")
Variant = Callable[[Function, tuple, Given], torch.Tensor]


class Call(NamedTuple):
    """A call of a function, which returned a tensor; `takes`: at which positions it was given tensors of floats."""

    name: str
    number: int
    function: Function
    args: tuple
    kwargs: Given
    returned: torch.Tensor
    takes: list[int]

    @property
    def is_of_one(self) -> bool:
        """Return whether it is a function of one tensor, the first argument."""
        tensors = [each for each in tree_leaves((self.args, self.kwargs)) if isinstance(each, torch.Tensor)]
        return self.takes == [0] and len(tensors) == 1

    def again(self, x: torch.Tensor, at: int) -> torch.Tensor:
        """Call it with another tensor at a position."""
        return self.function(*self.args[:at], x, *self.args[at + 1 :], **self.kwargs)


def called(name: str, number: int, function: Function, args: tuple, kwargs: Given, result: Any) -> Call | None:
    """Return a call of a function by the user's own code, if it makes a tensor of floats of such tensors."""
    is_in_place = name.endswith("_") and not name.endswith("__")
    if not _is_of_floats(result) or name in REPEATS or is_in_place or not source.direct():
        return None
    takes = [at for at, each in enumerate(args) if _is_of_floats(each)]
    return Call(name, number, function, args, kwargs, result, takes) if takes else None


def _is_of_floats(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def left_out_or_exchanged(call: Call, calls_by_result: Mapping[int, Call]) -> Iterator[Operation]:
    """Yield a call that can be left out, and those of whose results it is, which may belong behind it."""
    name, number, x = call.name, call.number, call.args[call.takes[0]]
    is_other = name not in (*FUNCTIONS, *TRANSPOSES, *ARITHMETIC)  # whose operator is changed in the code
    if call.is_of_one and source.is_standing() and name in SIGNED and len(call.args) > 1:  # whose code is not run again
        yield Operation(name, number, ways.FUNCTION, CODE, f"{SIGNED[name]} {call.args[1]}", {ways.LEFT_OUT: left_out})
    elif call.is_of_one and is_other and x.shape == call.returned.shape and not _are_equal(x, call.returned):
        yield Operation(name, number, ways.FUNCTION, CODE, name, {ways.LEFT_OUT: left_out})
    for at in call.takes:
        before = calls_by_result.get(id(call.args[at]))
        for inner in before.takes if before else ():
            if before and _differ_exchanged(call, at, before, inner):
                first, second = _exchanging(inner)
                moved, behind = (f"`{each.name.strip('_')}`" for each in (before, call))
                ways_told = {f"{moved} {ways.BEHIND} {behind}": first}
                yield Operation(
                    before.name, before.number, ways.ORDER, ways.LAYERS, f"{moved} before {behind}",
                    ways_told, also={(name, number): second},
                )  # fmt: skip


def _differ_exchanged(call: Call, at: int, before: Call, inner: int) -> bool:
    """Return whether two calls can be made in the other order, and then return something else of the same shape.

    Where the one that comes last then has nothing to do, as a sum of one number has, it is not its order that is told.
    """
    try:
        early = call.again(before.args[inner], at)
        exchanged = before.again(early, inner)
    except (RuntimeError, TypeError, ValueError, IndexError):  # an axis that is not there
        return False
    is_idle = early.shape == exchanged.shape and _are_equal(early, exchanged)
    return exchanged.shape == call.returned.shape and not is_idle and not _are_equal(exchanged, call.returned)


def _exchanging(inner: int) -> tuple[Variant, Variant]:
    """Return what two calls do that are made in the other order: the first passes on its argument at a position."""
    held: list[tuple[Function, tuple, Given]] = []

    def first(function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
        held[:] = [(function, args, kwargs)]
        return args[inner]

    def second(function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
        before, given, named = held[0]
        return before(*given[:inner], function(*args, **kwargs), *given[inner + 1 :], **named)

    return first, second


def _are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, rtol=EQUAL, atol=0.0, equal_nan=True)


def left_out(function: Function, args: tuple, kwargs: Given) -> Any:
    """Return the first argument, in place of what a function makes of it."""
    return args[0]

"""Causes in linear layers: a square weight that was not transposed, the bias, a fused activation."""

from typing import Any, Final

from parity.core.arrays import Array
from parity.diagnose.formula import Formula, NotApplicable, Settings, Trait, choices, require
from parity.diagnose.layers.activations import FUNCTIONS
from parity.diagnose.layers.call import Call
from parity.diagnose.layers.evidence import far, optional, parameter

ROWS: Final = 16  # rows that are computed first, to reject settings that are far off
TIMES: Final = {"added": 1.0, "left out": 0.0, "added twice": 2.0}  # factor of a bias, by setting


def _check(call: Call) -> None:
    weight, x, y = parameter(call, "weight", 2), call.inputs[0], call.output
    require(x.ndim > 0 and x.shape[-1] == weight.shape[1], "an input of the weight's size")
    require(y.shape == (*x.shape[:-1], len(weight)), "an output of the weight's size")
    optional(call, "bias", (1, len(weight)))


def _predict(call: Call, **settings: Any) -> dict[str, Array]:
    weight = call.parameters["weight"]
    rows = call.inputs[0].reshape(-1, call.inputs[0].shape[-1])
    y = call.output
    if far(_applied(call, rows[:ROWS], settings), y.reshape(-1, y.shape[-1])[:ROWS]):
        raise NotApplicable("far off")
    return {"output": _applied(call, rows, settings).reshape(*call.inputs[0].shape[:-1], len(weight))}


def _applied(call: Call, rows: Array, settings: Settings) -> Array:
    weight = call.parameters["weight"]
    result = rows @ (weight if settings["weight"] == "transposed" else weight.T)
    if "bias" in call.parameters:
        result = result + TIMES[settings["bias"]] * call.parameters["bias"]
    return FUNCTIONS[settings["activation"]](result)


def _orientations(call: Call, settings: Settings) -> tuple[str, ...]:
    outputs, inputs = call.parameters["weight"].shape
    return ("(out, in)", "transposed") if outputs == inputs else ("(out, in)",)


def biases(call: Call, settings: Settings) -> tuple[str, ...]:
    """Return the settings of a bias to try, if there is one."""
    return tuple(TIMES) if "bias" in call.parameters else ("added",)


LINEAR = Formula(
    _predict,
    (
        Trait("weight", "linear.weight", _orientations),
        Trait("bias", "linear.bias", biases),
        Trait("activation", "linear.activation", choices(*FUNCTIONS)),
    ),
    _check,
)

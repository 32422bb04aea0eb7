"""Causes in activation functions: another function, a slope below zero, a cap, another GELU, another softmax axis."""

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import Formula, Settings, Trait, choices, require
from parity.diagnose.layers.call import PRECISIONS, Call, constant, numbers

_erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x: Array, precision: str = "float64") -> Array:
    """Return x times the normal distribution's cumulative probability, with sqrt(1/2) rounded to `precision`."""
    return np.asarray(0.5 * x * (1.0 + _erf(x * constant(math.sqrt(0.5), precision))))


def gelu_tanh(x: Array, precision: str = "float64") -> Array:
    """Return GELU by Hendrycks and Gimpel's tanh approximation (arXiv:1606.08415)."""
    cubic = constant(0.044715, precision) * x**3
    return np.asarray(0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + cubic))))


def gelu_sigmoid(x: Array, precision: str = "float64") -> Array:
    """Return GELU by Hendrycks and Gimpel's coarser approximation, x sigmoid(1.702 x)."""
    return np.asarray(x * sigmoid(constant(1.702, precision) * x))


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), computed so that exp does not overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


HELD: Final = 1e-12  # of a number that was held in float32, and is solved for in float64
FORMS: Final = {"exact": gelu, "tanh": gelu_tanh, "sigmoid(1.702 x)": gelu_sigmoid}
FUNCTIONS: Final[dict[str, Callable[[Array], Array]]] = {
    "identity": lambda x: x,
    "relu": lambda x: np.asarray(np.maximum(x, 0.0)),
    "gelu": gelu,
    "gelu (tanh)": gelu_tanh,
    "silu": lambda x: np.asarray(x * sigmoid(x)),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "softplus": lambda x: np.logaddexp(0.0, x),
}
# Those that another one looks like as long as its input stays small.
BOUNDED: Final[dict[str, Callable[[Array], Array]]] = {
    "relu6": lambda x: np.asarray(np.clip(x, 0.0, 6.0)),
    "hard_sigmoid": lambda x: np.asarray(np.clip(x / 6.0 + 0.5, 0.0, 1.0)),
    "hard_silu": lambda x: np.asarray(x * np.clip(x / 6.0 + 0.5, 0.0, 1.0)),
}


def _check(call: Call) -> None:
    numbers(call)
    require(call.inputs[0].shape == call.output.shape, "an output of the input's shape")


def _relu(call: Call, dropped: bool, function: str, slope: float, cap: float, constants: str) -> dict[str, Array]:
    x = call.inputs[0]
    if dropped:
        return {"output": x}
    if function != "relu":
        return {"output": FUNCTIONS[function](x)}
    return {"output": np.minimum(np.where(x > 0, x, constant(slope, constants) * x), cap)}


def _slopes(call: Call, settings: Settings) -> Iterator[float]:
    """Yield the slopes below zero to try: none, and the one that the output shows.

    Of one that is held in float32, as TensorFlow holds it, the decimal number is yielded that it was written as.
    """
    yield 0.0
    below = call.inputs[0] < 0
    for slope in solve.scale(call.inputs[0][below], call.output[below]):
        written = float(f"{slope:.7g}")
        yield written if np.isclose(constant(written, "float32"), slope, rtol=HELD, atol=0.0) else slope


def _caps(call: Call, settings: Settings) -> Iterator[float]:
    """Yield the upper limits to try: none, and the largest output if several elements have it."""
    yield math.inf
    y = call.output
    largest = float(y.max(initial=0.0))
    if np.count_nonzero(y == largest) >= solve.ENOUGH:
        yield largest


def _gelu(call: Call, form: str, function: str, constants: str) -> dict[str, Array]:
    x = call.inputs[0]
    return {"output": FORMS[form](x, constants) if function == "gelu" else FUNCTIONS[function](x)}


def softmax(x: Array, axis: int) -> Array:
    """Return the softmax along an axis."""
    exponentials = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis, keepdims=True))


def log_softmax(x: Array, axis: int) -> Array:
    """Return the logarithm of the softmax, computed without taking the softmax."""
    shifted = x - x.max(axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))


def _softmax(call: Call, axis: int, log: bool, scale: float) -> dict[str, Array]:
    _check_axis(call, axis)
    function = log_softmax if log else softmax
    return {"output": function(scale * call.inputs[0], axis)}


def _check_axis(call: Call, axis: int) -> None:
    """Require an axis with elements to take the softmax over."""
    shape = call.inputs[0].shape
    require(axis in range(len(shape)) and shape[axis] > 0, "that axis")


def _scales(call: Call, settings: Settings) -> Iterator[float]:
    """Yield factors on the input: 1, and the slope of the output's logarithm over the input."""
    yield 1.0
    x, y, axis = call.inputs[0], call.output, settings["axis"]
    _check_axis(call, axis)
    logs = y if settings["log"] else np.log(np.maximum(y, np.finfo(np.float64).tiny))
    centred = (np.asarray(array - array.mean(axis, keepdims=True)) for array in (x, logs))
    yield from solve.scale(*centred)


RELU = Formula(
    _relu,
    (
        Trait("dropped", "relu.dropped", choices(False, True)),
        Trait("function", "activation.kind", choices(*list(FUNCTIONS)[1:])),  # the identity is a ReLU that is dropped
        Trait("slope", "relu.slope", _slopes),
        Trait("cap", "relu.cap", _caps),
        Trait("constants", "constant.precision", choices(*PRECISIONS)),
    ),
    _check,
)
GELU = Formula(
    _gelu,
    (
        Trait("form", "gelu.form", choices(*FORMS)),
        Trait("function", "activation.kind", choices("gelu", "identity", "relu", "silu", "tanh", "sigmoid", "elu")),
        Trait("constants", "constant.precision", choices(*PRECISIONS)),
    ),
    _check,
)
SOFTMAX = Formula(
    _softmax,
    (
        Trait("axis", "softmax.axis", lambda call, _: range(call.inputs[0].ndim - 1, -1, -1)),
        Trait("log", "softmax.log", choices(False, True)),
        Trait("scale", "softmax.scale", _scales),
    ),
    _check,
)

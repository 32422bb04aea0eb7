"""The argument of a Keras layer or optimizer that sets what a cause names, and its value in Keras's terms.

A cause's values are those of the formula that found it: a momentum weighs the new value there, as in PyTorch.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from parity.results import Cause
from parity.runtime.experiment import Change

Convert = Callable[[Any], Any]
EXPONENT = re.compile(r"e([+-])0(\d)")


class Expression(str):
    """A value that only Python code can say, such as a function; the code may use the name `keras`."""


def code(value: Any) -> str:
    """Return the Python expression for a value."""
    if isinstance(value, Expression):
        return str(value)
    return EXPONENT.sub(r"e\1\2", repr(tuple(value) if isinstance(value, list) else value))


class Argument(NamedTuple):
    """An argument of Keras's: its name (or names, of which each class has one) and its value for a cause's value."""

    names: tuple[str, ...]
    value: Convert = lambda value: value


class Setting(NamedTuple):
    """What is to be changed: the names that the argument may have, its old and its new value."""

    names: tuple[str, ...]
    old: Any
    new: Any


TANH: Final = Expression("lambda x: keras.activations.gelu(x, approximate=True)")
ACTIVATIONS: Final = {"identity": None, "gelu (tanh)": TANH, "gelu_tanh": TANH}
APPLIED: Final = {"applied": True, "added": True, "left out": False}


def _chosen(values: Mapping[Any, Any]) -> Convert:
    return lambda value: values.get(value, value)


def _padding(value: Any) -> str:
    """Return Keras's word for a padding, which is a number of pixels for each side in a formula."""
    return "same" if any(value if isinstance(value, (list, tuple)) else [value]) else "valid"


_EPSILON = Argument(("epsilon",))
_BIAS = Argument(("use_bias",), _chosen(APPLIED))
_ACTIVATION = Argument(("activation",), _chosen(ACTIVATIONS))
_PADDING = Argument(("padding",), _padding)
_STRIDE = Argument(("strides",))
_RATE = Argument(("learning_rate",))
_DECAY = Argument(("weight_decay",))

ARGUMENTS: Final[dict[str, tuple[Argument, ...]]] = {
    "relu.slope": (Argument(("negative_slope", "alpha")),),
    "relu.cap": (Argument(("max_value",), lambda value: None if value in (None, math.inf) else value),),
    "gelu.form": (
        Argument(("approximate",), lambda value: value != "exact"),
        Argument(("activation",), lambda value: "gelu" if value == "exact" else TANH),
    ),
    "activation.kind": (_ACTIVATION,),
    "softmax.axis": (Argument(("axis",)),),
    "linear.bias": (_BIAS,),
    "linear.activation": (_ACTIVATION,),
    "conv2d.bias": (_BIAS,),
    "conv2d.activation": (_ACTIVATION,),
    "conv2d.stride": (_STRIDE,),
    "conv2d.dilation": (Argument(("dilation_rate",)),),
    "conv2d.padding": (_PADDING,),
    "conv_transpose.bias": (_BIAS,),
    "conv_transpose.activation": (_ACTIVATION,),
    "conv_transpose.stride": (_STRIDE,),
    "conv_transpose.padding": (_PADDING,),
    "max_pool.padding": (_PADDING,),
    **{
        cause: argument
        for norm in ("layer_norm", "group_norm", "batch_norm")
        for cause, argument in (
            (f"{norm}.epsilon", (_EPSILON,)),
            (f"{norm}.weight", (Argument(("scale",), _chosen(APPLIED)),)),
            (f"{norm}.bias", (Argument(("center",), _chosen(APPLIED)),)),
        )
    },
    "group_norm.groups": (Argument(("groups",)),),
    "batch_norm.momentum": (Argument(("momentum",), lambda value: round(1 - value, 12)),),
    "attention.num_heads": (Argument(("num_heads",)),),
    "attention.bias": (_BIAS,),
    "dropout.rate": (Argument(("rate", "dropout")),),
    "sgd.learning_rate": (_RATE,),
    "sgd.momentum": (Argument(("momentum",)),),
    "sgd.nesterov": (Argument(("nesterov",)),),
    "adam.learning_rate": (_RATE,),
    "adam.epsilon": (_EPSILON,),
    "adam.beta1": (Argument(("beta_1",)),),
    "adam.beta2": (Argument(("beta_2",)),),
    "adam.amsgrad": (Argument(("amsgrad",)),),
    "adamw.weight_decay": (_DECAY,),
    "weight_decay.value": (_DECAY,),
    "clip.norm": (Argument(("global_clipnorm", "clipnorm")),),
}


def settings(cause: Cause) -> list[Setting]:
    """Return what may be changed on Keras's side to remove a cause, the likeliest first; [] if no argument sets it."""
    old, new = cause.sides.get("keras"), cause.sides.get("torch")
    known = ARGUMENTS.get(cause.id, ()) if new is not None else ()
    return [Setting(argument.names, argument.value(old), argument.value(new)) for argument in known]


def changed(change: Change) -> Setting:
    """Return what an experiment has changed on Keras's side: a setting of a layer, or a value in the code."""
    old, new = change.before, change.after
    if change.kind == "callable":
        new = ACTIVATIONS.get(new, new)
    return Setting((change.name,), old, new)

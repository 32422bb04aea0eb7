"""Arguments of Keras layers and optimizers that set what a cause names; whether a comparison is better with an edit.

A cause's values are those of the formula that found it: a momentum weighs the new value there, as in PyTorch.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from parity.config.pair import UNNAMED
from parity.core.groups import by_key
from parity.results import CaseResult, Cause
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
    """An argument of Keras's: its name (or names, of which each class has one) and its value for a cause's value.

    `causes`: the ids of those that it removes. These and the names are separated by spaces.
    """

    names: str
    causes: str
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


# Of several for one cause, an object takes one.
_TABLE: Final = (
    Argument("negative_slope alpha", "relu.slope"),
    Argument("max_value", "relu.cap", lambda value: None if value in (None, math.inf) else value),
    Argument("approximate", "gelu.form", lambda value: value != "exact"),
    Argument("activation", "gelu.form", lambda value: "gelu" if value == "exact" else TANH),
    Argument("activation", "activation.kind", _chosen(ACTIVATIONS)),
    Argument("activation", "linear.activation conv2d.activation conv_transpose.activation", _chosen(ACTIVATIONS)),
    Argument("axis", "softmax.axis"),
    Argument("use_bias", "linear.bias conv2d.bias conv_transpose.bias attention.bias", _chosen(APPLIED)),
    Argument("strides", "conv2d.stride conv_transpose.stride"),
    Argument("dilation_rate", "conv2d.dilation"),
    Argument("padding", "conv2d.padding conv_transpose.padding max_pool.padding", _padding),
    Argument("epsilon", "layer_norm.epsilon group_norm.epsilon batch_norm.epsilon adam.epsilon"),
    Argument("scale", "layer_norm.weight group_norm.weight batch_norm.weight", _chosen(APPLIED)),
    Argument("center", "layer_norm.bias group_norm.bias batch_norm.bias", _chosen(APPLIED)),
    Argument("groups", "group_norm.groups"),
    Argument("momentum", "batch_norm.momentum", lambda value: round(1 - value, 12)),
    Argument("num_heads", "attention.num_heads"),
    Argument("rate dropout", "dropout.rate"),
    Argument("learning_rate", "sgd.learning_rate adam.learning_rate"),
    Argument("momentum", "sgd.momentum"),
    Argument("nesterov", "sgd.nesterov"),
    Argument("beta_1", "adam.beta1"),
    Argument("beta_2", "adam.beta2"),
    Argument("amsgrad", "adam.amsgrad"),
    Argument("weight_decay", "adamw.weight_decay weight_decay.value"),
    Argument("global_clipnorm clipnorm", "clip.norm"),
)
ARGUMENTS: Final = by_key((cause, argument) for argument in _TABLE for cause in argument.causes.split())


def settings(cause: Cause) -> list[Setting]:
    """Return what may be changed on Keras's side to remove a cause, the likeliest first; [] if no argument sets it."""
    old, new = cause.sides.get("keras"), cause.sides.get("torch")
    known = ARGUMENTS.get(cause.id, ()) if new is not None else ()
    return [Setting(tuple(each.names.split()), each.value(old), each.value(new)) for each in known]


def changed(change: Change) -> Setting:
    """Return what an experiment has changed on Keras's side: a setting of a layer, or a value in the code."""
    new = ACTIVATIONS.get(change.after, change.after) if change.kind == "callable" else change.after
    return Setting((change.name,), change.before, new)


Key = tuple[str, str]
Outcome = Literal["accepted", "uncertain", "refused"]
CLEAN: Final = ("match", "subprecision")


class Decision(NamedTuple):
    """What came of an edit, and why it was not accepted.

    It is uncertain if a cause came to light that may have been there before, behind the one that is repaired: one
    without a name, or one that was found by experiment, which is made at the first divergence alone.
    """

    outcome: Outcome
    why: str = ""


def keys(causes: Iterable[Cause]) -> set[Key]:
    """Return the id and the place of every cause."""
    return set(map(key, causes))


def key(cause: Cause) -> Key:
    """Return the id and the place of a cause."""
    return cause.id, cause.where


def decide(before: CaseResult, after: CaseResult, meant: set[Key]) -> Decision:
    """Return what came of edits that were to remove the causes in `meant`."""
    if after.verdict == "error":
        return Decision("refused", f"the port no longer runs: {after.reason.splitlines()[0]}")
    if left := sorted(meant & keys(after.causes)):
        return Decision("refused", f"{_said(left[0])} is still there")
    if before.verdict == "diverged" and after.verdict in CLEAN:
        return _varied(before, after) or Decision("accepted")  # what is left was there before, and float32 hides it
    new = sorted(keys(after.causes) - keys(before.causes))
    by_experiment = keys(cause for cause in after.causes if cause.id in UNNAMED or cause.changes)
    if named := [each for each in new if each not in by_experiment]:
        return Decision("refused", f"it brings in {_said(named[0])}")
    if new and (before.verdict in CLEAN or {where for _, where in new} & {at for _, at in meant}):
        return Decision("refused", f"it brings in {_said(new[0])}")
    if refused := _varied(before, after):
        return refused
    return Decision("uncertain", f"behind it is {_said(new[0])}") if new else Decision("accepted")


def _varied(before: CaseResult, after: CaseResult) -> Decision | None:
    """Return the refusal of edits that make the pair diverge on a variation of its inputs; None if they do not."""
    failing = _failing(after) - _failing(before)
    return Decision("refused", f"the pair now diverges on {min(failing)}") if before.variations and failing else None


def _failing(result: CaseResult) -> set[str]:
    return {each.name for each in result.variations if each.verdict not in (*CLEAN, "skipped")}


def _said(cause: Key) -> str:
    return f"{cause[0]} at {cause[1]}"

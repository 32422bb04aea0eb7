"""The user's Keras model: builds it with their function, and calls it with the pair's inputs.

A functional model gets the inputs in the structure of its own inputs. Any other model gets them by the names of its
arguments, as one dict if it has one argument and there are several inputs, else by position.
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange
from keras.src.models.functional import Functional

from keras_impl.instruments import source
from keras_impl.instruments.script_data import fits
from keras_impl.instruments.uncalled import let_call
from keras_impl.record import precision
from keras_impl.record.pair.script import Script
from parity.config.pair import Pair
from parity.core import script
from parity.core.errors import MESSAGE, BackendError, UsageError, nearest
from parity.core.program import load
from parity.core.wording import count
from parity.pairs import structure

script.kinds["keras"] = Script
CONTEXT = ("training", "mask")  # arguments of `call` that Keras fills in itself, unless an input has the name
EMPTY = inspect.Parameter.empty


class Given(NamedTuple):
    """An input under its name on this side; `explicit` if the pair's file gives that name for this side."""

    name: str
    explicit: bool
    tensor: Any


def build(pair: Pair, at: str, search: list[str]) -> Any:
    """Build the model with the user's function. Raises UsageError if it returns no model, BackendError if it raises."""
    kwargs = pair.kwargs | pair.keras_kwargs
    with precision.policy(at), user_errors(f"keras={pair.keras} cannot be built"):
        model = load("keras", pair.keras, search=search, named=kwargs)(**kwargs)
    if not isinstance(model, (keras.Layer, tf.Module)):
        raise UsageError(
            f"keras={pair.keras}: received {type(model).__name__}, expected a keras.Model; return the model itself"
        )
    let_call(model, fits.get(model))
    return model


def call(model: Any, pair: Pair, inputs: dict[str, tf.Tensor], training: bool | None = False) -> Any:
    """Return what the model returns for inputs under their canonical names.

    `training` is None for the call that users write, without it, in which a tf.function of theirs runs as a graph.

    Raises UsageError if the model does not take them, and BackendError if it raises.
    """
    given = [_given(pair, name, tensor) for name, tensor in inputs.items()]
    args, kwargs = _arguments(model, f"keras={pair.keras}", given)
    takes = isinstance(model, keras.Layer) or "training" in inspect.signature(_function(model)).parameters
    if takes and training is not None:
        kwargs.setdefault("training", training)
    with (
        user_errors(f"keras={pair.keras} cannot be called"),
        nullcontext() if training is None else precision.eagerly(),
    ):
        return model(*args, **kwargs)


def is_overridden(model: Any, method: str) -> bool:
    """Return whether a model's class has a method of its own in place of keras.Model's."""
    return isinstance(model, keras.Model) and getattr(type(model), method) is not getattr(keras.Model, method)


def fitted(model: Any, pair: Pair, inputs: dict[str, tf.Tensor]) -> Any:
    """Return the inputs in the one structure in which `fit` gives them to a model's train_step.

    None if `fit` cannot train the model: it is no keras.Model, or takes several arguments and has no train_step of its
    own, which could take them apart.
    """
    if not isinstance(model, keras.Model):
        return None
    args, kwargs = _arguments(model, f"keras={pair.keras}", [_given(pair, *each) for each in inputs.items()])
    values = [*args, *kwargs.values()]
    if len(values) == 1:
        return values[0]
    if type(model).train_step is keras.Model.train_step:
        return None
    if kwargs and _reads_names(type(model).train_step, kwargs):
        return kwargs
    in_order = [name for name in inspect.signature(_function(model)).parameters if name in kwargs]
    return (*args, *(kwargs[name] for name in in_order))


def _reads_names(step: Callable[..., Any], names: Iterable[str]) -> bool:
    """Return whether a train_step takes its batch apart by the names of the inputs, and not by their order."""
    try:
        text = inspect.getsource(step)
    except (OSError, TypeError):
        return True
    return "**" in text or any(f"'{name}'" in text or f'"{name}"' in text for name in names)


def tensors(pair: Pair, arrays: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    """Convert this side's inputs to tensors in its axis order; floats get the run's dtype."""
    own = {name: array for name, array in arrays.items() if pair.inputs[name].only != "torch"}
    return {name: tensor(array, pair.inputs[name].keras_layout) for name, array in own.items()}


def tensor(array: np.ndarray, layout: str = "") -> tf.Tensor:
    """Convert an array to a tensor; `layout` changes its canonical axis order to this side's."""
    values = rearrange(array, layout) if layout else array
    floating = np.issubdtype(array.dtype, np.floating)
    return tf.constant(values, keras.config.floatx() if floating else array.dtype)


@contextmanager
def user_errors(what: str) -> Iterator[None]:
    """Turn an exception of the user's code into a BackendError of one line, with its line; `what` says what failed."""
    filtered = keras.config.is_traceback_filtering_enabled()
    keras.config.disable_traceback_filtering()  # it wraps many lines around a message
    try:
        yield
    except (UsageError, BackendError):
        raise
    except (Exception, SystemExit) as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "").removesuffix(" name:")
        first = re.sub(r"\[[^\]]*$", "[...", first)  # an array of several lines
        line = source.line_of(error.__traceback__)
        where = f", at {line}" if line else ""
        said = textwrap.shorten(first, MESSAGE, placeholder=" ...")
        raise BackendError(f"{what}: {type(error).__name__}: {said}{where}") from error
    finally:
        if filtered:
            keras.config.enable_traceback_filtering()


def _function(model: Any) -> Any:
    """Return the method that takes the inputs; every layer has `call`, even if it is of another version of Keras."""
    return getattr(model, "call", model.__call__)


def _given(pair: Pair, name: str, tensor: tf.Tensor) -> Given:
    own = pair.inputs[name].keras
    return Given(own or name, bool(own), tensor)


def _arguments(model: Any, what: str, given: list[Given]) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and keyword arguments with which the model gets the inputs."""
    explicit = {entry.name.partition(structure.PART)[0]: entry.explicit for entry in given}
    whole = structure.wholes({entry.name: entry.tensor for entry in given}, tf.stack)
    given = [Given(name, explicit[name], x) for name, x in whole.items()]
    if fit := fits.get(model):
        return fit.arguments([each.tensor for each in given])
    if isinstance(model, Functional) and type(model).call is Functional.call:
        return [_structured(model._inputs_struct, what, given)], {}
    if isinstance(model, keras.Sequential):
        return [_only(what, given)], {}
    parameters = inspect.signature(_function(model)).parameters
    filled = set(CONTEXT) - _nested(given).keys()
    args, kwargs = _by_signature({k: v for k, v in parameters.items() if k not in filled}, what, given)
    return structure.as_taken(_function(model), args, kwargs)


def _structured(struct: Any, what: str, given: list[Given]) -> Any:
    """Return the inputs in the structure of a functional model's inputs."""
    if isinstance(struct, dict):
        nested = _nested(given)
        for name in sorted(nested.keys() - struct.keys()):
            raise UsageError(f"{what}: has no input {name!r}{nearest(name, struct)}; its inputs: {sorted(struct)}")
        if missing := sorted(struct.keys() - nested.keys()):
            raise UsageError(f"{what}: needs the inputs {missing} too; add [inputs.{missing[0]}]")
        return nested
    if not isinstance(struct, (list, tuple)):
        _check_explicit(what, given, [struct.name])
        return _only(what, given)
    names = [entry.name for entry in keras.tree.flatten(struct)]
    if len(names) != len(given):
        raise UsageError(f"{what}: received {count(len(given), 'input')}, expected {len(names)}: {', '.join(names)}")
    by_name = {entry.name: entry.tensor for entry in given}
    if set(by_name) != set(names):
        _check_explicit(what, given, names)
        by_name = dict(zip(names, (entry.tensor for entry in given), strict=True))
    return keras.tree.pack_sequence_as(struct, [by_name[name] for name in names])


def _only(what: str, given: list[Given]) -> tf.Tensor:
    if len(given) != 1:
        names = ", ".join(entry.name for entry in given)
        raise UsageError(
            f"{what}: received {count(len(given), 'input')} ({names}), expected 1: the model takes one tensor"
        )
    return given[0].tensor


def _by_signature(
    parameters: dict[str, inspect.Parameter], what: str, given: list[Given]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments for a model with an ordinary `call`: by name as far as possible, else in order."""
    kinds = {item.kind for item in parameters.values()}
    own = {k: v for k, v in parameters.items() if v.kind not in (v.VAR_KEYWORD, v.VAR_POSITIONAL)}
    nested = _nested(given)
    named = {name: value for name, value in nested.items() if name in own}
    required = [name for name, item in own.items() if item.default is EMPTY]
    # One argument may have the name of an input, and take all of them.
    is_alone = not named or (len(nested) > len(own) and inspect.Parameter.VAR_KEYWORD not in kinds)
    if is_alone and len(nested) > 1 and len(required) == 1 and inspect.Parameter.VAR_POSITIONAL not in kinds:
        return [], {required[0]: nested}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        named |= {item.name: item.tensor for item in given if item.explicit and "." not in item.name}
    else:
        _check_explicit(what, given, list(own))
    return _placed(own, named, {name: value for name, value in nested.items() if name not in named}, what, kinds)


def _placed(
    own: dict[str, inspect.Parameter], named: dict[str, Any], rest: dict[str, Any], what: str, kinds: set[Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments: named inputs by name, the rest in the order of the free arguments."""
    free = [name for name in own if name not in named]
    if len(rest) > len(free):
        if inspect.Parameter.VAR_POSITIONAL in kinds and not named:
            return list(rest.values()), {}
        unknown = next(iter(list(rest)[len(free) :]))
        raise UsageError(f"{what}: takes no argument {unknown!r}{nearest(unknown, own)}; it takes {', '.join(own)}")
    placed = dict(zip(free, rest.values(), strict=False))
    only_positional = all(own[name].kind is inspect.Parameter.POSITIONAL_ONLY for name in own)
    if own and only_positional and not named:
        return list(placed.values()), {}
    return [], named | placed


def _nested(given: list[Given]) -> dict[str, Any]:
    return structure.nested({name: value for name, _, value in given})


def _check_explicit(what: str, given: list[Given], accepted: list[str]) -> None:
    """Raise UsageError if the pair's file names an input that the model does not take."""
    for entry in given:
        name = entry.name.partition(".")[0]
        if entry.explicit and name not in accepted:
            raise UsageError(
                f"{what}: takes no input {name!r}{nearest(name, accepted)}; it takes {', '.join(accepted)}"
            )

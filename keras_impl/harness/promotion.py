"""The high run is high everywhere: what a model does in float32 on purpose becomes float64 there, and is named.

Keras gives every dtype that it is told a standard name in one place, and there "float32" gets another. TensorFlow's
public functions that make tensors are wrapped; those within TensorFlow itself are not, nor what they round. Whole
numbers without a dtype are those of a float32 run: where Keras's floats are float64, it makes them int64.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import FrameType
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import dtypes

from keras_impl.harness.numbers import CONSTANT, functions, given_high, numbers_high, parts

HIGH = "float64"
BUILD = "build"
# Whatever makes a tensor of a dtype that it is told, or of float32 where it is told none.
MAKERS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (tf, ("cast", "saturate_cast", "constant", "convert_to_tensor", "zeros", "ones", "range", "eye", "one_hot")),
    (tf, ("zeros_like", "ones_like", "sequence_mask", "map_fn")),
    (tf.dtypes, ("cast", "saturate_cast")),
    (tf.linalg, ("eye",)),
    (tf.random, ("normal", "uniform", "truncated_normal", "stateless_normal", "stateless_uniform")),
)
FILLED = ((tf, "fill"), (tf, "linspace"))  # take their dtype from a Python float, which TensorFlow makes a float32
CAST, BITCAST = tf.cast, tf.bitcast  # as they are where they are not wrapped
# Keras asks here for a common dtype of several: float64 is one already.
ASIDE = ("keras/src/backend/common/dtypes.py",)
FRAMEWORKS = ("tensorflow", "keras")  # make their arrays of tensors for tensors that they have

running: list[str] = []  # the paths of the layers that are being called, the innermost last


@contextmanager
def lifted(at: str) -> Iterator[list[str]]:
    """Within it float32 is float64 if the run is; what was lifted: "layer: cast to float32", each once."""
    places: list[str] = []
    with ExitStack() as patches:
        if at == HIGH:
            for patch in _patches(_noting(places)):
                patches.enter_context(patch)
            patches.enter_context(tf.variable_creator_scope(_variable))
        yield places
    # A layer's weights are made at its first call, when it has no path yet.
    named = {place.partition(": ")[2] for place in places if not place.startswith(f"{BUILD}: ")}
    places[:] = [place for place in places if not (place.startswith(f"{BUILD}: ") and place[len(BUILD) + 2 :] in named)]


def _noting(places: list[str]) -> Callable[[str], None]:
    def note(what: str) -> None:
        place = f"{running[-1] if running else BUILD}: {what}"
        if place not in places:
            places.append(place)

    return note


def _patches(note: Callable[[str], None]) -> Iterator[Any]:
    yield mock.patch.object(dtypes, "PYTHON_DTYPES_MAP", _Names(dtypes.PYTHON_DTYPES_MAP, note))
    for owner, names in MAKERS:
        for name in names:
            yield mock.patch.object(owner, name, _made_high(getattr(owner, name), note))
    yield mock.patch.object(tf, "bitcast", _same_bits)
    yield mock.patch.object(tf.TensorArray, "__init__", _array_high(tf.TensorArray.__init__, note))
    yield mock.patch.object(dtypes, "_resolve_weak_type", _whole_low(dtypes._resolve_weak_type))
    for owner, name in FILLED:
        yield mock.patch.object(owner, name, given_high(getattr(owner, name)))
    for owner, name, function in functions():
        yield mock.patch.object(owner, name, numbers_high(function))


class _Names(dict):
    """Keras's table of names for dtypes, in which float32 stands for float64."""

    def __init__(self, known: dict[Any, str], note: Callable[[str], None]):
        super().__init__(known | {float: HIGH, np.float32: HIGH})
        self.note = note

    def get(self, dtype: Any, default: Any = None) -> Any:
        if dtype is np.float32 or (isinstance(dtype, str) and dtype == "float32"):
            self._tell(sys._getframe(2))
            return HIGH
        return super().get(dtype, default)

    def _tell(self, frame: FrameType | None) -> None:
        """By the function that wants the dtype; of a layer that is told its own, by the layer's class."""
        if frame is None or frame.f_code.co_filename.endswith(ASIDE):
            return
        name = frame.f_code.co_name
        if name.startswith("_"):
            owners = (each.f_locals.get("self") for each in _outwards(frame))
            layer = next((type(owner).__name__ for owner in owners if isinstance(owner, keras.Layer)), "")
            self.note(f"{layer}(dtype=float32)" if layer else "dtype float32")
        else:
            self.note(f"{name}: float32")


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _made_high(function: Callable[..., Any], note: Callable[[str], None]) -> Callable[..., Any]:
    @wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        # A dtype never stands first.
        told = any(map(_is_low, (*args[1:], *kwargs.values())))
        if told:
            note(f"tf.{function.__name__.removesuffix('_v2')}: float32")
            args = (*args[:1], *(tf.float64 if _is_low(each) else each for each in args[1:]))
            kwargs = {name: tf.float64 if _is_low(each) else each for name, each in kwargs.items()}
        if function.__name__ in ("cast", "saturate_cast"):
            args = _exact(args)
        result = function(*args, **kwargs)
        if told or getattr(result, "dtype", None) != tf.float32:
            return result
        return _again(function, result, args, kwargs)

    return made


def _same_bits(value: Any, *args: Any, **kwargs: Any) -> Any:
    """The bits of a float32 are those of a float32, as where Keras looks at the sign."""
    size = tf.as_dtype(args[0] if args else kwargs["type"]).size
    is_cut = tf.is_tensor(value) and value.dtype == tf.float64 and size == tf.float32.size
    return BITCAST(CAST(value, tf.float32) if is_cut else value, *args, **kwargs)


def _variable(create: Callable[..., Any], **kwargs: Any) -> Any:
    """TensorFlow's own variables: those of float32, by its default or because they were told."""
    value, dtype = kwargs["initial_value"], kwargs["dtype"]
    if callable(value):
        value = value() if _is_low(dtype) else value
    if not callable(value):
        kwargs["initial_value"] = tf.convert_to_tensor(value)
    return create(**{**kwargs, "dtype": tf.float64 if _is_low(dtype) else dtype})


def _again(function: Callable[..., Any], result: tf.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What has become float32 without being told: made anew from Python's numbers, else converted."""
    given = inspect.signature(function).bind(*args, **kwargs)
    is_array = any(isinstance(each, (np.ndarray, np.generic)) or tf.is_tensor(each) for each in parts(given.arguments))
    if is_array or "dtype" not in inspect.signature(function).parameters:
        return CAST(result, tf.float64)
    given.arguments["dtype"] = tf.float64
    return function(*given.args, **given.kwargs)


def _exact(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """A Python float that is to be cast: TensorFlow would make it a float32 first."""
    is_float = bool(args) and isinstance(args[0], float) and not isinstance(args[0], np.generic)
    return (CONSTANT(args[0], tf.float64), *args[1:]) if is_float else args


def _array_high(create: Callable[..., None], note: Callable[[str], None]) -> Callable[..., None]:
    """Let an array of tensors that a user's code makes hold float64 instead of float32."""

    @wraps(create)
    def created(self: tf.TensorArray, dtype: Any, *args: Any, **kwargs: Any) -> None:
        caller = str(sys._getframe(1).f_globals.get("__name__"))
        if _is_low(dtype) and caller.partition(".")[0] not in FRAMEWORKS:
            note("tf.TensorArray: float32")
            dtype = tf.float64
        create(self, dtype, *args, **kwargs)

    return created


def _whole_low(resolve: Callable[..., str]) -> Callable[..., str]:
    """Let Keras find the dtype of whole numbers as where its floats are float32."""

    def resolved(dtype: str, precision: str = "32") -> str:
        return resolve(dtype, precision="32" if dtype.startswith(("int", "uint")) else precision)

    return resolved


def _is_low(value: Any) -> bool:
    """Whether an argument is the dtype float32, by one of its names."""
    if isinstance(value, (str, np.dtype)):
        return value == "float32"
    return value is tf.float32 or value is np.float32

"""The precision of a run: Keras's default float type, its dtype policy, and in the high run promotion to float64.

In the high run, what a model computes in float32 on purpose is computed in float64, and so is what mixed policies of
its own would compute in half precision: they are a precision of its runs. Keras looks every requested dtype up in one
table, in which "float32" is replaced. TensorFlow's public functions that make tensors are wrapped; those that
TensorFlow calls internally are not, nor what they round. Whole numbers without a dtype are those of a float32 run:
where Keras's floats are float64, it would make them int64.
"""

import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import product
from types import FrameType, SimpleNamespace
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import dtypes
from keras.src.backend.tensorflow import nn
from keras.src.dtype_policies.dtype_policy import DTypePolicy
from tensorflow.python.data.ops.structured_function import StructuredFunctionWrapper
from tensorflow.python.ops import ctc_ops

from keras_impl.instruments.numbers import CONSTANT, MAKERS, functions, given_high, numbers_high, parts
from keras_impl.record import calls, lowered
from parity.core.ownership import stack
from parity.core.patches import Original, applied, around, setting, wrapping
from parity.core.precision import HIGH

# Compute float32 in full: TF32 keeps 10 of its 23 bits, and TensorFlow uses it on GPUs by default.
tf.config.experimental.enable_tensor_float_32_execution(False)

MIXED = {"bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def policy(at: str) -> AbstractContextManager[None]:
    """Return a context in which new variables and layers are float64 or float32; half precisions are mixed policies."""
    config, floats = keras.config, "float64" if at == "float64" else "float32"
    policies = setting(config.dtype_policy, config.set_dtype_policy, MIXED.get(at, at))
    return applied([policies, setting(config.floatx, config.set_floatx, floats)])


def eagerly(on: bool = True) -> AbstractContextManager[None]:
    """Return a context in which tf.functions run op by op if `on`: nothing is traced, and all values can be seen.

    Keras compiles a convolution in groups, of which TensorFlow has no gradient on a CPU otherwise: it stays compiled.
    Nor has it one of its own functions with a dilated kernel, which `fit` compiles.
    """
    is_eager = tf.config.functions_run_eagerly

    def compiled(conv: Original, *args: Any, **kwargs: Any) -> tf.Tensor:
        with setting(is_eager, tf.config.run_functions_eagerly, False):
            return conv(*args, **kwargs)

    def dilated(conv: Original, *args: Any, **kwargs: Any) -> tf.Tensor:
        given = inspect.signature(conv).bind(*args, **kwargs).arguments
        if not on or max(tf.nest.flatten(given.get("dilations") or 1)) == 1:
            return conv(*args, **kwargs)
        operands = given.pop("input"), given.pop("filters")
        return compiled(tf.function(lambda x, w: conv(x, w, **given), jit_compile=True), *operands)

    patches = [around(nn, "conv", compiled), *(around(tf.nn, name, dilated) for name in ("conv1d", "conv2d"))]
    return applied([setting(is_eager, tf.config.run_functions_eagerly, on or is_eager()), *patches])


ROUNDED = 2.0**-20  # so far from 1 a sum may be that is 1 in float32
BUILD = "build"
DRAWS = ("normal", "uniform", "truncated_normal", "gamma", "poisson")
FILLED = ((tf, "fill"), (tf, "linspace"))  # they take the dtype from a Python float, which TensorFlow makes a float32
CAST, BITCAST = tf.cast, tf.bitcast  # the originals, for use within the wrappers
# Keras asks from this file for the common dtype of several, which is float64 already: not a promotion.
ASIDE = ("keras/src/backend/common/dtypes.py",)
FRAMEWORKS = ("tensorflow", "keras")  # make their arrays of tensors for tensors that they have


@contextmanager
def promoted(at: str) -> Iterator[list[str]]:
    """Replace float32 by float64 in the block, if `at` is float64; the list that it yields gets each promotion once.

    Else a program that makes float64 its default has float32, so that it has a low run as well.
    """
    promotions: list[str] = []

    def note(what: str, place: str = BUILD) -> None:
        promotion = f"{calls.innermost() or place}: {what}"
        if promotion not in promotions:
            promotions.append(promotion)

    with _as_high(note) if at == HIGH else lowered.defaults():
        yield promotions
    # A layer makes its weights at its first call, when it has no path yet. So what was noted under BUILD is dropped if
    # it was noted under a layer as well.
    noted = [promotion.split(": ", 1) for promotion in promotions]
    in_layers = {what for place, what in noted if place != BUILD}
    promotions[:] = [f"{place}: {what}" for place, what in noted if place != BUILD or what not in in_layers]


@contextmanager
def _as_high(note: Callable[[str], None]) -> Iterator[None]:
    """Promote what is computed in the block, but for what a dataset computes, whose numbers are those of a float32 run.

    It takes arrays of float32 as they are, and TensorFlow computes nothing of tensors of two dtypes.
    """
    patches = list(_patches(note))
    patched = [(each.getter(), each.attribute) for each in patches if isinstance(each, mock._patch)]
    originals = [(owner, name, getattr(owner, name)) for owner, name in patched]

    def traced(init: Original, *args: Any, **kwargs: Any) -> None:
        with applied(itertools.starmap(mock.patch.object, originals)):
            init(*args, **kwargs)

    with around(StructuredFunctionWrapper, "__init__", traced), applied(patches):
        yield


def _patches(note: Callable[[str], None]) -> Iterator[Any]:
    yield mock.patch.object(dtypes, "PYTHON_DTYPES_MAP", _Names(dtypes.PYTHON_DTYPES_MAP, note))
    for owner, names in MAKERS:
        for name in names:
            yield mock.patch.object(owner, name, wrapping(_made_high, getattr(owner, name), note))
    for owner, name in product((tf.random, tf.random.Generator), (*DRAWS, *(f"stateless_{name}" for name in DRAWS))):
        if hasattr(owner, name):
            yield mock.patch.object(owner, name, wrapping(_drawn_high, getattr(owner, name)))
    yield around(DTypePolicy, "_parse_name", partial(_policy_high, note))
    yield mock.patch.object(tf, "bitcast", _same_bits)
    yield mock.patch.object(tf, "function", wrapping(_signature_high, tf.function, note))
    yield mock.patch.object(tf.TensorArray, "__init__", wrapping(_array_high, tf.TensorArray.__init__, note))
    # Keras finds the dtype of whole numbers as where its floats are float32.
    yield around(
        dtypes,
        "_resolve_weak_type",
        lambda resolve, dtype, precision="32": resolve(dtype, "32" if dtype.startswith(("int", "uint")) else precision),
    )
    for owner, name in FILLED:
        yield mock.patch.object(owner, name, wrapping(given_high, getattr(owner, name)))
    for owner, name, function in functions():
        yield mock.patch.object(owner, name, wrapping(numbers_high, function))
    yield around(tf.nn, "ctc_loss", _ctc_high)
    yield around(tf.nn, "softmax_cross_entropy_with_logits", partial(_sum_high, note))
    yield tf.variable_creator_scope(_variable)


def _ctc_high(ctc_loss: Original, *args: Any, **kwargs: Any) -> tf.Tensor:
    """Compute TensorFlow's CTC loss in float64, of which it takes only float32 by what its file names so."""
    changed: dict[str, dict[str, Any]] = {
        "dtypes": {"float32": tf.float64},
        "array_ops": {name: partial(getattr(tf, name), dtype=tf.float64) for name in ("one_hot", "ones", "zeros")},
        "linalg_ops": {"eye": partial(tf.eye, dtype=tf.float64)},
        "math_ops": {"log": lambda x: tf.math.log(tf.constant(x, tf.float64) if isinstance(x, float) else x)},
    }
    modules = {name: SimpleNamespace(**(vars(getattr(ctc_ops, name)) | own)) for name, own in changed.items()}
    with mock.patch.multiple(ctc_ops, **modules):
        return ctc_loss(*args, **kwargs)


def _sum_high(
    note: Callable[[str, str], None], loss: Original, labels: Any, logits: Any, axis: int = -1, name: str | None = None
) -> tf.Tensor:
    """Differentiate a cross-entropy by the sum of its labels, which TensorFlow takes for 1, if float32 makes it that.

    Probabilities that were rounded to float32 are up to 1e-7 from it.
    """
    labels = CAST(labels, tf.float64)
    total = tf.reduce_sum(labels, axis, keepdims=True)
    total = tf.where(abs(total - 1) <= ROUNDED, total, tf.ones_like(total))
    if tf.executing_eagerly() and tf.reduce_any(abs(total - 1) > ROUNDED**2):
        note("softmax_cross_entropy_with_logits of labels whose sum is 1 in float32", "loss")
    values = loss(labels / total, logits, axis, name)
    return values * CAST(tf.squeeze(total, axis), values.dtype)


class _Names(dict):
    """Keras's table of dtype names, in which float32 is answered with float64."""

    def __init__(self, names: dict[Any, str], note: Callable[[str], None]):
        super().__init__(names | {float: HIGH, np.float32: HIGH})
        self.note = note

    def get(self, dtype: Any, default: Any = None) -> Any:
        if dtype is np.float32 or (isinstance(dtype, str) and dtype == "float32"):
            self._tell(sys._getframe(2))
            return HIGH
        return super().get(dtype, default)

    def _tell(self, frame: FrameType | None) -> None:
        """Note which function asked for the dtype, or for a private one the layer whose `dtype` argument it is."""
        if frame is None or frame.f_code.co_filename.endswith(ASIDE):
            return
        name = frame.f_code.co_name
        if name.startswith("_"):
            owners = (caller.f_locals.get("self") for caller in stack(frame))
            layer = next((type(owner).__name__ for owner in owners if isinstance(owner, keras.Layer)), "")
            self.note(f"{layer}(dtype=float32)" if layer else "dtype float32")
        else:
            self.note(f"{name}: float32")


def _made_high(function: Original, note: Callable[[str], None], /, *args: Any, **kwargs: Any) -> Any:
    """Let a function that makes tensors make float64 ones, and note requests for float32."""
    # The first argument is never a dtype.
    asks_for_low = any(map(_is_low, (*args[1:], *kwargs.values())))
    if asks_for_low:
        note(f"tf.{function.__name__.removesuffix('_v2')}: float32")
        args = (*args[:1], *(tf.float64 if _is_low(argument) else argument for argument in args[1:]))
        kwargs = {name: tf.float64 if _is_low(argument) else argument for name, argument in kwargs.items()}
    if function.__name__.endswith("cast") and args and type(args[0]) is float:
        args = (CONSTANT(args[0], tf.float64), *args[1:])  # TensorFlow would round Python's number to float32 first
    result = function(*args, **kwargs)
    if asks_for_low or getattr(result, "dtype", None) != tf.float32:
        return result
    return _again(function, result, args, kwargs)


def _drawn_high(draw: Original, /, *args: Any, **kwargs: Any) -> tf.Tensor:
    """Draw in float32, and convert to float64, in which a generator makes other numbers."""
    given = inspect.signature(draw).bind(*args, **kwargs)
    given.apply_defaults()
    if tf.as_dtype(given.arguments["dtype"]) not in (tf.float32, tf.float64):
        return draw(*args, **kwargs)
    for name, value in given.arguments.items():
        is_high = tf.is_tensor(value) and value.dtype == tf.float64
        given.arguments[name] = CAST(value, tf.float32) if is_high else value
    given.arguments["dtype"] = tf.float32
    return CAST(draw(*given.args, **given.kwargs), tf.float64)


def _policy_high(note: Callable[[str], None], parse: Original, policy: DTypePolicy, name: str) -> tuple[str, str]:
    """Let a mixed policy compute in float64, in which its variables are."""
    if not name.startswith("mixed_"):
        return parse(policy, name)
    note(f"policy {name}")
    return HIGH, HIGH


def _same_bits(value: Any, *args: Any, **kwargs: Any) -> Any:
    """Replace tf.bitcast: a promoted tensor is first cast back if it is reinterpreted as 32 bits."""
    size = tf.as_dtype(args[0] if args else kwargs["type"]).size
    is_promoted = tf.is_tensor(value) and value.dtype == tf.float64 and size == tf.float32.size
    return BITCAST(CAST(value, tf.float32) if is_promoted else value, *args, **kwargs)


def _variable(create: Original, **kwargs: Any) -> Any:
    """Create a tf.Variable in float64 if it would be float32, by request or by default."""
    value, high = kwargs["initial_value"], tf.float64 if _is_low(kwargs["dtype"]) else kwargs["dtype"]
    if callable(value) and _is_low(kwargs["dtype"]):
        value = value()
    if not callable(value):
        value = tf.convert_to_tensor(value, None if tf.is_tensor(value) else high)
    return create(**{**kwargs, "initial_value": value, "dtype": high})


def _again(function: Original, result: tf.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convert a result that is float32 without a request for it to float64.

    Made from Python numbers it is computed again, so that they are not rounded; made from arrays or tensors it is cast.
    """
    bound = inspect.signature(function).bind(*args, **kwargs)
    is_array = any(isinstance(part, (np.ndarray, np.generic)) or tf.is_tensor(part) for part in parts(bound.arguments))
    if is_array or "dtype" not in inspect.signature(function).parameters:
        return CAST(result, tf.float64)
    bound.arguments["dtype"] = tf.float64
    return function(*bound.args, **bound.kwargs)


def _signature_high(
    function: Original,
    note: Callable[[str], None],
    func: Any = None,
    input_signature: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Let a user's tf.function take float64 where its signature says float32."""

    def widened(spec: Any) -> Any:
        if not (isinstance(spec, tf.TensorSpec) and _is_low(spec.dtype)):
            return spec
        note("tf.function: input_signature of float32")
        return tf.TensorSpec(spec.shape, tf.float64, spec.name)

    return function(func, tf.nest.map_structure(widened, input_signature), *args, **kwargs)


def _array_high(
    create: Original, note: Callable[[str], None], array: tf.TensorArray, dtype: Any, *args: Any, **kwargs: Any
) -> None:
    """Let an array of tensors that a user's code makes hold float64 instead of float32."""
    caller = str(sys._getframe(2).f_globals.get("__name__"))  # of what calls the function in place of `create`
    if _is_low(dtype) and caller.partition(".")[0] not in FRAMEWORKS:
        note("tf.TensorArray: float32")
        dtype = tf.float64
    create(array, dtype, *args, **kwargs)


def _is_low(value: Any) -> bool:
    """Return whether an argument is the dtype float32, by one of its names."""
    if isinstance(value, (str, np.dtype)):
        return value == "float32"
    return value is tf.float32 or value is np.float32

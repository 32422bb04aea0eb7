"""Models whose train_step calls their layers itself, as those of autoencoders, GANs and diffusion models do."""

import contextlib
import functools
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras.src import tree
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.data_adapters.data_adapter_utils import pack_x_y_sample_weight

from keras_impl.instruments.script_data import Fit
from parity.core.patches import applied, around
from parity.pairs.script_records import GIVEN, Called


class _Left(BaseException):
    """Raised to leave a train_step at its first backward pass."""


def is_uncalled(model: Any) -> bool:
    """Return whether a model has no `call` of its own, but a train_step."""
    kind = type(model)
    is_model = isinstance(model, keras.Model)
    return is_model and kind.call is keras.Model.call and kind.train_step is not keras.Model.train_step


def let_call(model: Any, fit: Fit | None) -> None:
    """Let a model that has no `call` be called: it does what its train_step does before its first backward pass.

    It returns, in one list, the tensors that the layers return which are called there; in inference they are called as
    for that, whatever mode the train_step asks for. If a script's train_step makes what they are given (`fit.calls`),
    they are called with that instead. Other models are left as they are.
    """
    if fit and any(each.layer for each in fit.calls):
        model.call = MethodType(functools.partial(_each_called, fit.calls), model)
    elif is_uncalled(model) and not (fit and fit.calls):
        model.call = MethodType(_called, model)


def _each_called(calls: Sequence[Called], model: keras.Model, inputs: Any) -> Any:
    layers = _layers(model)
    given = [(layers[each.layer], *each.given(inputs)) for each in calls]
    returned = [layer(*args, **kwargs) for layer, args, kwargs in given]
    return tree.flatten(returned) if len(returned) > 1 else returned[0]


class Calls(NamedTuple):
    """How a train_step calls trained layers first, with which tensors, and the shapes of what they return."""

    calls: list[Called]
    inputs: dict[str, np.ndarray]
    returned: list[list[int]]


def calls_of_step(model: Any, fit: Fit) -> Calls:
    """Run a train_step, op by op, on a first batch; return how it calls trained layers, or the model itself.

    There are none if it fails. The model is left trained.
    """
    seen: dict[Any, tuple[Any, Any, list[list[int]]]] = {}
    depth = 0

    def on_call(call: Callable[..., Any], layer: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            outputs = call(layer, *args, **kwargs)
        finally:
            depth -= 1
        if not depth and layer not in seen and layer.trainable_variables:
            shapes = [list(each.shape) for each in tree.flatten(outputs) if tf.is_tensor(each)]
            seen[layer] = args, {name: each for name, each in kwargs.items() if name != "training"}, shapes
        return outputs

    given = tree.map_structure(tf.convert_to_tensor, pack_x_y_sample_weight(fit.x, fit.y, fit.sample_weight))
    with applied([around(keras.Layer, "__call__", on_call)]), contextlib.suppress(Exception):
        model.train_step(given)
    numbers, tensors = {layer: number for number, layer in enumerate(_layers(model))}, list[Any]()
    seen = {layer: each for layer, each in seen.items() if layer is model or (model not in seen and layer in numbers)}

    def noted(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [noted(each) for each in value]
        if isinstance(value, dict):
            return {key: noted(each) for key, each in value.items()}
        if not tf.is_tensor(value):
            return value
        tensors.append(value.numpy())
        return {"tensor": len(tensors) - 1}

    calls = [
        Called(layer=numbers[layer], args=noted(args), kwargs=noted(kwargs))
        for layer, (args, kwargs, _) in seen.items()
    ]
    inputs = {f"{GIVEN}{number}": each for number, each in enumerate(tensors)}
    return Calls(calls, inputs, [shape for *_, shapes in seen.values() for shape in shapes])


def _layers(model: keras.Model) -> list[Any]:
    return [model, *model._flatten_layers(include_self=False)]


def _called(model: keras.Model, inputs: Any) -> list[tf.Tensor]:
    returned: list[tf.Tensor] = []
    training = model._get_call_context().training
    depth = 0

    def on_call(call: Callable[..., Any], layer: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        if training is not None and kwargs.get("training") is not None:
            kwargs["training"] = training
        depth += 1
        try:
            outputs = call(layer, *args, **kwargs)
        finally:
            depth -= 1
        if not depth:
            returned.extend(each for each in tree.flatten(outputs) if tf.is_tensor(each))
        return outputs

    def leave(*_: Any, **__: Any) -> None:
        raise _Left

    stops = [around(tf.GradientTape, "gradient", leave), around(BaseOptimizer, "apply", leave)]
    with applied([around(keras.Layer, "__call__", on_call), *stops]), contextlib.suppress(_Left):
        try:
            model.train_step(inputs)
        except Exception as error:
            name = type(model).__name__
            raise NotImplementedError(
                f"{name} has no call(), and its train_step fails with the inputs alone ({error}); give it a call()"
            ) from error
    return returned

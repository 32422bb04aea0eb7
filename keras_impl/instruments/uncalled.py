"""Models without a `call`, as autoencoders and GANs are written: their layers are called by their train_step alone."""

import contextlib
from collections.abc import Callable
from types import MethodType
from typing import Any

import keras
import tensorflow as tf
from keras.src import tree
from keras.src.optimizers.base_optimizer import BaseOptimizer

from parity.core.patches import applied, around


class _Left(BaseException):
    """Raised to leave a train_step at its first backward pass."""


def is_uncalled(model: Any) -> bool:
    """Return whether a model has no `call` of its own, but a train_step."""
    kind = type(model)
    is_model = isinstance(model, keras.Model)
    return is_model and kind.call is keras.Model.call and kind.train_step is not keras.Model.train_step


def let_call(model: Any) -> None:
    """Let a model that has no `call` be called: it does what its train_step does before its first backward pass.

    It returns, in one list, the tensors that the layers return which are called there; in inference they are called as
    for that, whatever mode the train_step asks for. Other models are left as they are.
    """
    if is_uncalled(model):
        model.call = MethodType(_called, model)


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

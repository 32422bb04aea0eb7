"""Models whose train_step calls their layers itself, as those of autoencoders, GANs and diffusion models do."""

import contextlib
import functools
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import keras
import tensorflow as tf
from keras.src import tree
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.data_adapters.data_adapter_utils import pack_x_y_sample_weight
from msgspec.structs import replace
from tensorflow.python.eager import record  # whether a tape records has no public name

from keras_impl.instruments.script_data import Fit
from keras_impl.instruments.script_fetches import Calls, Trained, layers_of
from parity.core.patches import Left, applied, around, pushed
from parity.pairs.script_records import GIVEN, INNER, Called

MOST_INNER = 8  # layers that others call


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


def _each_called(calls: Sequence[Called], model: keras.Model, inputs: Any, training: Any = None) -> Any:
    layers, returned = layers_of(model), list[Any]()  # the former have `training` of the context, as in any call
    last: Any = None
    for each in calls:
        args, kwargs = each.given(inputs, returned)
        last = layers[each.layer](*args, **kwargs)
        returned += tree.flatten(last)
    taken = set().union(*(each.numbers("output") for each in calls))
    left = [output for number, output in enumerate(returned) if number not in taken]
    return last if len(calls) == 1 else left if len(left) > 1 else left[0]


def calls_of_step(model: Any, fit: Fit) -> Trained:
    """Run a train_step, op by op, on a first batch; return how it calls trained layers, or the model itself.

    Those are trained of which a tape records a call. There are no calls if it fails. The model is left trained.
    """
    calls, depths, running, recorded = Calls(), dict[Any, int](), list[Any](), set[Any]()
    numbers = {layer: number for number, layer in enumerate(layers_of(model))}

    def on_call(call: Callable[..., Any], layer: Any, *args: Any, **kwargs: Any) -> Any:
        with pushed(running, layer):
            outputs = call(layer, *args, **kwargs)
        is_built = keras.KerasTensor in map(type, tree.flatten([args, kwargs]))  # a Sequential is, of its layers
        if tf.executing_eagerly() and not is_built and layer in numbers and layer.trainable_variables:
            calls.note(layer, args, kwargs, outputs)
            depths.setdefault(layer, len(running))
            recorded.update([layer] if record.could_possibly_record() else [])
        return outputs

    given = tree.map_structure(tf.convert_to_tensor, pack_x_y_sample_weight(fit.x, fit.y, fit.sample_weight))
    with applied([around(keras.Layer, "__call__", on_call)]), contextlib.suppress(Exception):
        model.train_step(given)
    depths = {layer: depths[layer] for layer in depths if layer in recorded}
    first = [layer for layer in depths if not depths[layer]]
    of_step, arrays = calls.only([model] if model in first else first).described(numbers, fit)
    inner = sorted((layer for layer in depths if depths[layer]), key=lambda layer: depths[layer])[:MOST_INNER]
    within = [calls.only([layer]).described(numbers, Fit([])) for layer in inner]
    within += [calls.only(first).described(numbers, Fit([]), is_linked=True)] if len(first) > 1 else []  # one by one
    for number, (_, of_layer) in enumerate(within):
        arrays |= {f"{INNER}{number}.{name.removeprefix(GIVEN)}": array for name, array in of_layer.items()}
    return replace(of_step, inner=[each for each, _ in within]), arrays


def _called(model: keras.Model, inputs: Any) -> list[tf.Tensor]:
    returned: list[tf.Tensor] = []
    training = model._get_call_context().training
    running: list[Any] = []

    def on_call(call: Callable[..., Any], layer: Any, *args: Any, **kwargs: Any) -> Any:
        if training is not None and kwargs.get("training") is not None:
            kwargs["training"] = training
        with pushed(running, layer):
            outputs = call(layer, *args, **kwargs)
        if not running:
            returned.extend(each for each in tree.flatten(outputs) if tf.is_tensor(each))
        return outputs

    def leave(*_: Any, **__: Any) -> None:
        raise Left

    stops = [around(tf.GradientTape, "gradient", leave), around(BaseOptimizer, "apply", leave)]
    with applied([around(keras.Layer, "__call__", on_call), *stops]), contextlib.suppress(Left):
        try:
            model.train_step(inputs)
        except Exception as error:
            name = type(model).__name__
            raise NotImplementedError(
                f"{name} has no call(), and its train_step fails with the inputs alone ({error}); give it a call()"
            ) from error
    return returned

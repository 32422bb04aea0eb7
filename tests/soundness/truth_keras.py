"""A row's Keras side, run by hand. See truth.py."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import keras_models
import keras_training
import numpy as np
import tensorflow as tf
from einops import rearrange

from parity.data.pairs import PairData

Found = Iterator[tuple[str, np.ndarray]]
LEAVES = {
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
    "embeddings": "weight",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
LAYOUTS = {2: "i o -> o i", 3: "k i o -> o i k", 4: "h w i o -> o i h w"}


def run(case: Any, data: PairData, weights: Path, precision: str) -> Found:
    keras.config.set_floatx(precision)
    keras.config.set_dtype_policy(precision)
    pair = case.model
    model = getattr(keras_models, pair.keras.partition(":")[2])(**pair.keras_kwargs)
    train = pair.train
    model(*_inputs(pair, data, 0).values())
    own = dict(_variables(model, ""))
    with np.load(weights) as arrays:
        for name in arrays.files:
            own[name].assign(_there(own[name], arrays[name]))
    trained = {name: own[name] for name in arrays.files}
    optimizer = _own(train.keras_optimizer)() if train else None
    if optimizer:
        optimizer.build(list(trained.values()))
    for number in range(case.steps):
        inputs = _inputs(pair, data, number)
        floats = {name: one for name, one in inputs.items() if one.dtype.is_floating}
        variables = [one.value for one in trained.values()]
        with tf.GradientTape() as tape:
            tape.watch(list(floats.values()))
            outputs = model(*inputs.values(), training=bool(train))
            loss = _loss(train, outputs, data, number)
        yield from _outputs(outputs, number)
        yield f"loss{number}", loss.numpy()
        of_variables, of_inputs = tape.gradient(loss, (variables, list(floats.values())))
        for name, one in zip(trained, of_variables, strict=True):
            if one is not None and (found := _here(trained[name], tf.convert_to_tensor(one).numpy())).any():
                yield f"gradient{number} {name}", found
        for name, one in zip(floats, of_inputs, strict=True):
            if one is not None and (found := _canonical(pair, name, one.numpy())).any():
                yield f"gradient{number} {name}", found
        before = {name: one.numpy().copy() for name, one in trained.items()}
        if optimizer:
            both = zip(of_variables, trained.values(), strict=True)
            gradients, moved = zip(*[each for each in both if each[0] is not None], strict=True)
            optimizer.apply(list(gradients), list(moved))
        for name, one in trained.items() if optimizer else ():
            yield f"update{number} {name}", _here(one, one.numpy() - before[name])
    if optimizer:
        yield from _outputs(model(*inputs.values(), training=False), case.steps)
        held = {name: one for name, one in own.items() if name not in trained and "seed" not in name}
        yield from ((f"buffer {name}", one.numpy()) for name, one in held.items())


def _outputs(outputs: Any, number: int) -> Found:
    for place, output in enumerate(outputs if isinstance(outputs, (tuple, list)) else [outputs]):
        yield f"output{number} {place}", output.numpy()


def _variables(layer: Any, prefix: str) -> Iterator[tuple[str, keras.Variable]]:
    """By torch's names: attributes, joined with dots."""
    for one in [*layer._trainable_variables, *layer._non_trainable_variables]:
        yield prefix + LEAVES.get(one.name, one.name), one
    for name, each in vars(layer).items():
        if isinstance(each, keras.Layer) and not name.startswith("_"):
            yield from _variables(each, f"{prefix}{name}.")


def _here(variable: keras.Variable, values: np.ndarray) -> np.ndarray:
    return rearrange(values, LAYOUTS[values.ndim]) if variable.name == "kernel" else values


def _there(variable: keras.Variable, values: np.ndarray) -> np.ndarray:
    own, _, torch = LAYOUTS.get(values.ndim, "->").partition("->")
    return rearrange(values, f"{torch} -> {own}") if variable.name == "kernel" else values


def _canonical(pair: Any, name: str, values: np.ndarray) -> np.ndarray:
    torch, _, own = pair.inputs[name].keras_layout.partition("->")
    return rearrange(values, f"{own} -> {torch}") if own else values


def _inputs(pair: Any, data: PairData, number: int) -> dict[str, tf.Tensor]:
    return {name: _tensor(array, pair.inputs[name].keras_layout) for name, array in data.step(number).items()}


def _tensor(array: np.ndarray, layout: str = "") -> tf.Tensor:
    floating = np.issubdtype(array.dtype, np.floating)
    return tf.constant(rearrange(array, layout) if layout else array, keras.config.floatx() if floating else None)


def _loss(train: Any, outputs: Any, data: PairData, number: int) -> tf.Tensor:
    floats = [one for one in (outputs if isinstance(outputs, (tuple, list)) else [outputs]) if one.dtype.is_floating]
    if train is None:
        probes = [_tensor(data.probe(place, tuple(one.shape))) for place, one in enumerate(floats)]
        parts = [tf.reduce_mean(one * probe) for one, probe in zip(floats, probes, strict=True)]
        return sum(parts, tf.zeros((), keras.config.floatx()))
    target = data.target(number, tuple(floats[0].shape), train.loss == "cross_entropy")
    return _own(train.keras_loss or "keras_training:mean_square")(floats[0], _tensor(target))


def _own(text: str) -> Any:
    return getattr(keras_training, text.partition(":")[2])

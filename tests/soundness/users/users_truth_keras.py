"""A row's Keras side, run as its user runs it. See users_truth.py."""

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from users_rows import Arrays, Row
from users_truth import BESIDE, DRAWS, beside, fresh, inputs, moments, of_masks, rate

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")


def run(row: Row, folder: Path) -> Iterator[tuple[str, Any]]:
    keras.utils.set_random_seed(0)
    with np.load(folder / f"weights-{row.name}.npz") as arrays:
        weights = dict(arrays)
    if row.random:
        yield "moments", moments(_table(_made(row)[1], row.random[1]) for _ in range(DRAWS))
    yield from _trained(row, weights, folder) if row.train else _called(row, weights)


def _called(row: Row, weights: Arrays) -> Iterator[tuple[str, Any]]:
    model = _loaded(row, weights)[1]
    if row.masks:
        outputs = [model(_inputs(row, 0)).numpy() for _ in range(3)]
        yield from of_masks(outputs, outputs[:2])
        return
    for number in range(3):
        for place, output in enumerate(_tensors(model(_inputs(row, number)))):
            yield f"call{number} {place}", output.numpy()


def _trained(row: Row, weights: Arrays, folder: Path) -> Iterator[tuple[str, Any]]:
    if row.before and not row.masks:
        yield "before", _tensors(_loaded(row, weights)[1](_inputs(row, 0)))[0].numpy()
    with np.load(folder / f"shape-{row.name}.npz") as arrays:
        shape, single = tuple(arrays["shape"].tolist()), arrays["outputs"] == 1
    module, model = _loaded(row, weights)
    if "keras_step" in row.train:
        seen = _stepped(row, module, model, shape)
    else:
        seen = _fitted(row, module, model, shape, single and "torch_step" not in row.train)
    evaluated = [_evaluated(row, model) for _ in range(2 if row.masks else 1)]
    if row.masks:
        yield from of_masks(seen, evaluated)
        return
    yield from ((f"output{number}", output) for number, output in enumerate(seen))
    yield "after", evaluated[0]
    with np.load(folder / f"trained-{row.name}.npz") as arrays:
        expected = _weights(row, dict(arrays), _variables(model))
    for number, (variable, values) in enumerate(zip(_variables(model), expected, strict=True)):
        distance = abs(variable.numpy() - values).max() / max(abs(values).max(), abs(variable.numpy()).max())
        yield f"apart {number} {variable.path}", distance


def _fitted(row: Row, module: Any, model: keras.Model, shape: tuple[int, ...], shown: bool) -> list[np.ndarray]:
    """One call of fit for all steps; outputs are kept by a metric, where a metric gets them and torch shows its own."""
    batches = [inputs(row, number) | beside(row, number, shape) for number in range(row.steps)]
    whole = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    size = len(batches[0]["target"])
    record = Record()
    optimizer, loss = _optimizer(module, row), _loss(module, row.train)
    shown = shown and type(model).train_step is keras.Model.train_step
    model.compile(optimizer=optimizer, loss=loss, metrics=[record] if shown else None)
    x = {name: array for name, array in whole.items() if name not in BESIDE}
    model.fit(
        x if len(x) > 1 else next(iter(x.values())),
        whole["target"],
        batch_size=size,
        epochs=1,
        shuffle=False,
        verbose=0,
        sample_weight=whole.get("sample_weight"),
        class_weight=dict(enumerate(row.train["class_weight"])) if "class_weight" in row.train else None,
        callbacks=[record.callback()],
    )
    return record.seen


class Record(keras.metrics.Metric):
    """Keep the outputs of a step."""

    def __init__(self):
        super().__init__(name="record")
        self.kept: Any = None
        self.seen: list[np.ndarray] = []

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        with tf.init_scope():
            if self.kept is None:
                self.kept = tf.Variable(tf.zeros(y_pred.shape, y_pred.dtype))
        self.kept.assign(y_pred)

    def result(self) -> Any:
        return tf.zeros(())

    def reset_state(self) -> None: ...

    def callback(self) -> keras.callbacks.Callback:
        return keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: self.keep())

    def keep(self) -> None:
        if self.kept is not None:
            self.seen.append(self.kept.numpy())


def _stepped(row: Row, module: Any, model: keras.Model, shape: tuple[int, ...]) -> list[np.ndarray]:
    """A step of the user's own for each batch."""
    step, optimizer = getattr(module, row.train["keras_step"]), _optimizer(module, row)
    for number in range(row.steps):
        batch = inputs(row, number) | beside(row, number, shape)
        step(model, optimizer, {name: _tensor(array) for name, array in batch.items()})
    return []


def _evaluated(row: Row, model: keras.Model) -> np.ndarray:
    """A model that was fitted predicts; one that was trained by hand is called."""
    if "keras_step" in row.train:
        return _tensors(model(_inputs(row, 0), training=False))[0].numpy()
    arrays = inputs(row, 0)
    size = len(next(iter(arrays.values())))
    x = arrays if len(arrays) > 1 else next(iter(arrays.values()))
    return _tensors(model.predict(x, batch_size=size, verbose=0))[0]


def _made(row: Row) -> tuple[Any, keras.Model]:
    """A model that has its weights and was not called, where it can be built so."""
    module = fresh(row, "keras")
    model = getattr(module, row.builder("keras"))(**row.keras_kwargs)
    if not model.built and type(model).build is not keras.Model.build:
        model.build(tuple(next(iter(inputs(row, 0).values())).shape))
    elif not model.built:
        model(_inputs(row, 0))
    return module, model


def _loaded(row: Row, weights: Arrays) -> tuple[Any, keras.Model]:
    module, model = _made(row)
    variables = _variables(model)
    for variable, values in zip(variables, _weights(row, weights, variables), strict=True):
        if values is None:
            continue
        if tuple(variable.shape) != values.shape:
            raise ValueError(f"{variable.path} is {variable.shape}, its weight {values.shape}")
        variable.assign(values)
    for name, table in row.tables.items():
        (variable,) = [one for one in model.variables if one.name == name]
        variable.assign(table(weights, variable.numpy()))
    return module, model


def _table(model: keras.Model, name: str) -> np.ndarray:
    return next(one.numpy() for one in model.variables if one.name == name)


def _weights(row: Row, arrays: Arrays, variables: list[keras.Variable]) -> list[np.ndarray]:
    if row.weights:
        return row.weights(arrays)
    pairs = zip(variables, [arrays[name] for name in arrays["parameters"]], strict=True)
    return [_there(values) if "kernel" in variable.name else values for variable, values in pairs]


def _there(values: np.ndarray) -> np.ndarray:
    return values.transpose({2: (1, 0), 3: (2, 1, 0), 4: (2, 3, 1, 0)}[values.ndim])


def _variables(layer: Any) -> list[keras.Variable]:
    """What was made to be trained, whether or not it is."""
    found = [*layer._trainable_variables]
    for each in layer._layers:
        found += [variable for variable in _variables(each) if all(variable is not known for known in found)]
    return found


def _inputs(row: Row, number: int) -> Any:
    tensors = {name: _tensor(array) for name, array in inputs(row, number).items()}
    return tensors if len(tensors) > 1 else next(iter(tensors.values()))


def _optimizer(module: Any, row: Row) -> keras.optimizers.Optimizer:
    if "keras_optimizer" in row.train:
        return getattr(module, row.train["keras_optimizer"])()
    return keras.optimizers.SGD(rate(row))


def _loss(module: Any, train: Any) -> Any:
    if "keras_loss" not in train:
        if train.get("loss") == "cross_entropy":
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return keras.losses.MeanSquaredError()
    loss = getattr(module, train["keras_loss"])
    if inspect.isclass(loss) or isinstance(loss, keras.losses.Loss):
        return loss
    if list(inspect.signature(loss).parameters)[:2] == ["y_true", "y_pred"]:
        return loss
    return lambda y_true, y_pred: loss(y_pred, y_true)


def _tensors(outputs: Any) -> list[Any]:
    if isinstance(outputs, dict):
        return list(outputs.values())
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def _tensor(array: np.ndarray) -> tf.Tensor:
    return tf.constant(array)

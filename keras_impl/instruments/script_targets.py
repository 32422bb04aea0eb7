"""Where the targets of a Keras script's training loop come from, and what stands in their place."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe  # what runs an op has no public API
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

from keras_impl.instruments import source
from keras_impl.instruments.script_data import OF_LOSS, is_array, is_of_whole, is_sequence, like, replaced
from parity.config.pair import SAMPLE_WEIGHT, TARGET
from parity.core.errors import UsageError
from parity.core.patches import Original, around
from parity.pairs.script_names import counted
from parity.pairs.script_steps import are_data_alike

OF_KERAS = ("y_true", "y_pred")  # the first arguments of Keras's own loss functions
MOST_PARTS = 8  # of a batch


class Targets:
    """The targets, and the weights of samples, that a loop is given in place of its own.

    They are replaced where a loss of Keras's takes them while a tape records, in the batches (x, y) or (x, y, weights)
    of a dataset or a tf.function; or, if it `is_held`, where the code holds it. `given`: the pair's batches, by
    NAME@STEP.
    """

    def __init__(self, given: Mapping[str, np.ndarray], is_held: bool, is_recorded: Callable[[], bool]) -> None:
        self.begun = 0  # steps
        self._given, self._is_recorded = given, is_recorded
        self._given_in: set[int] = set()  # the steps whose target was replaced
        # Of the batch's own target, where it was: a loss may take what is made of it.
        self._form: tuple[Any, ...] | None = None
        self._last_source: Any = None  # the number of the dataset, or the tf.function, that has given the last batch
        self._unfit: UsageError | None = None  # why that of a batch cannot be replaced: a step may make another of it
        self._source: Any = None  # the one that gives the batches of training steps
        self.is_seen = False  # whether a loss of Keras's, a batch of a dataset or that of a tf.function has one
        self._is_held = is_held
        self._name: tuple[Any, ...] | None = None  # of what is held, with the code that holds it
        self._held: tuple[Any, Any] | None = None  # the tensor that is the code's target in this step, and the pair's
        self._written: tuple[np.ndarray, np.ndarray] | None = None  # the array that is, and what was in it

    def check(self, script: str) -> None:
        """Raise UsageError if there is a target, and that of the last step was not replaced."""
        if f"{TARGET}@0" in self._given and self.begun - 1 not in self._given_in:
            raise self._unfit or UsageError(
                f"{script}: where the target of its loss comes from is not seen; expected a loss of keras.losses, "
                "batches of a tf.data.Dataset, a tf.function that is given them, or one variable that holds it"
            )

    def begin_step(self, inputs: Sequence[Any]) -> None:
        """Begin a training step, whose model would be given these `inputs`."""
        self.begun += 1
        self._held = None
        if self._written:
            self._written[0][...] = self._written[1]
            self._written = None
        if self._is_held and self.begun - 1 not in self._given_in and f"{TARGET}@{self.begun - 1}" in self._given:
            self._hold(list(map(np.asarray, inputs)))
        self._source = self._last_source if self._source is None else self._source

    def patches(self) -> Iterator[AbstractContextManager[Any]]:
        """Yield what has to be patched while the script runs."""
        yield around(keras.losses.Loss, "__call__", self._on_loss)
        for name, function in vars(keras.losses).items():
            if inspect.isfunction(function) and tuple(inspect.signature(function).parameters)[:2] == OF_KERAS:
                yield around(keras.losses, name, self._on_loss_function)
        yield around(Function, "__call__", self._on_function)
        if self._is_held:
            yield around(pywrap_tfe, "TFE_Py_FastPathExecute", self._on_op)

    def _on_loss(self, compute: Original, loss: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        self.is_seen |= self._is_recorded()
        if self._is_target(y_true):
            y_true, sample_weight = self._of_step(self.begun - 1, y_true, sample_weight)
        return compute(loss, y_true, y_pred, sample_weight)

    def _on_loss_function(self, compute: Original, y_true: Any, *args: Any, **kwargs: Any) -> Any:
        self.is_seen |= self._is_recorded()
        if self._is_target(y_true):
            y_true, _ = self._of_step(self.begun - 1, y_true, None)
        return compute(y_true, *args, **kwargs)

    def _is_target(self, y_true: Any) -> bool:
        """Return whether what a loss is given may be the script's own target: as a rule it differs among samples."""
        target = self._given.get(f"{TARGET}@{self.begun - 1}")
        is_usual = target is not None and (not _varies(target) or _varies(np.asarray(y_true)))
        return is_usual and self._is_recorded() and self._form in (None, _form(y_true))

    def _on_function(self, call: Original, function: Any, *args: Any, **kwargs: Any) -> Any:
        given = args if self._is_recorded() else self.replaced(tuple(map(_in_run, args)), function)
        return call(function, *given, **kwargs)

    def _on_op(self, execute: Original, context: Any, op: str, name: Any, *given: Any) -> Any:
        """Run an op, which may be given the target that the code holds."""
        if self._held is not None and any(each is self._held[0] for each in given):
            given = tuple(self._held[1] if each is self._held[0] else each for each in given)
            self._given_in.add(self.begun - 1)
        return execute(context, op, name, *given)

    def _hold(self, inputs: Sequence[np.ndarray]) -> None:
        """Let the only array that may be a target, of those that the running code holds, be the step's.

        NumPy's is written until the next step begins, as code may compute with it before an op is given anything.
        """
        for frame in source.frames():
            held = {(frame.f_code, *path): each for path, each in _arrays(frame.f_locals)}
            fitting = {name: each for name, each in held.items() if self._may_be_target(each, inputs)}
            if self._name is None and len(set(map(id, fitting.values()))) == 1:
                self._name = next(iter(fitting))
            if self._name in fitting:  # later on outputs of the step before may look alike
                self._put(fitting[self._name])
                return

    def _put(self, own: Any) -> None:
        """Let the step's target stand for an array that the code holds."""
        target, _ = self._of_step(self.begun - 1, own, None)
        if not isinstance(own, np.ndarray):
            self._held = (own, target)
        else:
            self._written = (own, own.copy())
            own[...] = target

    def _may_be_target(self, value: Any, inputs: Sequence[np.ndarray]) -> bool:
        """Return whether an array that the code holds, beside the model's inputs, has the form of the step's target."""
        target = self._given[f"{TARGET}@{self.begun - 1}"]
        is_fixed = isinstance(value, np.ndarray) and not value.flags.writeable
        if is_fixed or not target.size or tuple(value.shape[:1]) != target.shape[:1]:
            return False
        own = np.asarray(value)
        first = [each for name, each in self._given.items() if name.endswith("@0") and name[:-2] not in OF_LOSS]
        is_input = any(np.array_equal(each, self._given[f"{TARGET}@0"]) for each in first)  # as of an autoencoder
        is_number = own.dtype.kind in "fiub" and bool(own.size)
        if not is_number or any(np.array_equal(own, each) for each in inputs) != is_input:
            return False
        targets = [each for name, each in self._given.items() if name.partition("@")[0] == TARGET]
        are_within = min(map(np.min, targets)) <= own.min() and own.max() <= max(map(np.max, targets))
        are_floats = own.dtype.kind == target.dtype.kind == "f"
        if not (are_data_alike(target, own) if are_floats else are_within):  # rather than indices of the samples
            return False
        try:
            return self._is_target(own) and like(own, target, len(target)).shape == own.shape
        except UsageError:
            return False

    def of_dataset(self, batch: Any, dataset: Any) -> Any:
        """Return what stands for a batch of a dataset, in the precision of the run."""
        return self.replaced(tf.nest.map_structure(_in_run, batch), dataset)

    def replaced(self, batch: Any, source: Any) -> Any:
        """Return a batch (x, y) or (x, y, weights) with the target and the weights of the pair's next one.

        That of a source that gives no batches of training steps, such as those of a validation, stays.
        """
        if self._source is not None and self._source != source:
            return batch
        inputs = [name for name in self._given if name.endswith("@0") and name[:-2] not in OF_LOSS]
        target = self._given.get(f"{TARGET}@0")
        if any(np.array_equal(self._given[name], target) for name in inputs):  # as of an autoencoder
            whole = self._inputs_of_step(inputs, batch)
            if whole is not batch:
                self._last_source = source
                self._given_in.add(self.begun)
                return whole
        is_batch = isinstance(batch, tuple) and len(batch) > 1
        # (x, other, y) of a function; of a dataset also (x, y), if the step makes what else its model is given.
        at = len(inputs) if is_batch and is_array(batch[0]) and len(batch) > len(inputs) else 1
        if not is_batch or len(batch) - at not in (1, 2) or not all(map(is_array, batch[at:])):
            return batch
        self._last_source, self.is_seen = source, True
        given = self._inputs_of_step(inputs, batch[:at])
        if inputs and is_of_whole(batch[0], batch[at], target, len(self._given[inputs[0]])):
            self._given_in.add(self.begun)
            return (*given, given[0], *batch[at + 1 :])
        try:
            target, weight = self._of_step(self.begun, batch[at], (*batch, None)[at + 1])
        except UsageError as error:
            self._unfit = error
            return batch
        self._form = _form(batch[at])
        return (*given, target, weight)[: len(batch)]

    def _inputs_of_step(self, names: Sequence[str], own: tuple[Any, ...]) -> Any:
        """Return what stands for the inputs of the next step, of which the script may make masks for its loss.

        They stay where the model's inputs have another form than PyTorch's; its calls are given theirs all the same.
        """
        given = [self._given.get(f"{name[:-2]}@{self.begun}") for name in names]
        leaves = tf.nest.flatten(own)
        if len(leaves) < len(given):  # the step makes what else its model is given
            shapes = [tuple(leaf.shape) for leaf in leaves]
            given = [next((each for each in given if each is not None and each.shape == size), None) for size in shapes]
        if len(leaves) != len(given) or any(
            array is None or not (tuple(leaf.shape) == array.shape or is_sequence(leaf, array))
            for leaf, array in zip(leaves, given, strict=True)
        ):
            return own
        return tf.nest.pack_sequence_as(own, list(map(replaced, leaves, given, map(len, leaves))))

    def _of_step(self, step: int, target: Any, weight: Any) -> tuple[Any, Any]:
        """Return what stands for a target and the samples' weights in a step, in the form of the script's own."""
        given = [self._given.get(f"{name}@{step}") for name in (TARGET, SAMPLE_WEIGHT)]
        inputs = next((each for name, each in self._given.items() if name.endswith(f"@{step}")), None)
        if inputs is None:
            return target, weight
        given[0] = None if given[0] is None else counted(given[0], given[1])
        values = [
            own if own is None or array is None else replaced(own, array, len(inputs))
            for own, array in zip((target, weight), given, strict=True)
        ]
        self._given_in.add(step)
        return values[0], values[1]


def _varies(array: np.ndarray) -> bool:
    return bool((array != array.ravel()[:1]).any())


def _form(value: Any) -> tuple[Any, ...]:
    """Return whether a tensor holds fractions, and the sizes of its axes but that of the samples."""
    array = np.asarray(value)
    return (array.dtype.kind == "f", *array.shape[1:])


def _arrays(variables: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the arrays that variables hold, alone or in a small structure such as a batch, with their paths."""
    for name, value in list(variables.items()):
        is_batch = type(value) in (tuple, list, dict) and len(value) <= MOST_PARTS
        parts = keras.tree.flatten_with_path(value) if is_batch else [((), value)]
        for path, each in parts:
            if isinstance(each, np.ndarray) or (tf.is_tensor(each) and hasattr(each, "numpy")):
                yield (name, *path), each


def _in_run(value: Any) -> Any:
    """Return a float32 tensor in the precision of the run; anything else as it is."""
    is_float = tf.is_tensor(value) and value.dtype == tf.float32
    return tf.cast(value, keras.config.floatx()) if is_float else value

"""One run of a training script in a greenlet: what it makes and calls, and where it is suspended or left."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar
from unittest import mock

import keras
import tensorflow as tf
from greenlet import getcurrent, greenlet
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.utils import file_utils
from tensorflow.python.distribute.distribute_lib import _get_default_strategy
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

from keras_impl.instruments.script_copies import Copy, copy_to
from keras_impl.instruments.script_data import Begin, first_batch, fits, labels_of
from keras_impl.instruments.script_fetches import Together, layers_of
from parity.core import script
from parity.core.errors import UsageError
from parity.core.patches import Left, Original, around
from parity.pairs.script_records import Fetched

STRATEGIES = (
    "MirroredStrategy", "MultiWorkerMirroredStrategy", "OneDeviceStrategy", "TPUStrategy", "CentralStorageStrategy"
)  # fmt: skip
# What can be set once in a process, which has been set.
ONCE = (
    (tf.config, ("set_logical_device_configuration", "set_visible_devices")),
    (tf.config.experimental, ("set_virtual_device_configuration", "set_visible_devices", "set_memory_growth")),
    (tf.config.threading, ("set_intra_op_parallelism_threads", "set_inter_op_parallelism_threads")),
    (tf.debugging, ("set_log_device_placement",)),
)


EXCLUDED = "_exclude_from_weight_decay"  # what begins so is not in an optimizer's config


class Tapes(list[tf.GradientTape]):
    """The tapes of a script that record, the innermost last."""

    def patches(self) -> Iterator[AbstractContextManager[Any]]:
        """Yield what has to be patched while the script runs."""
        yield around(tf.GradientTape, "__enter__", self._on_enter)
        yield around(tf.GradientTape, "__exit__", self._on_exit)

    def pause(self) -> None:
        """Let none of them record until they `go_on`."""
        for tape in reversed(self):
            tape._pop_tape()

    def go_on(self) -> None:
        """Let them record again."""
        for tape in self:
            tape._push_tape()

    def _on_enter(self, enter: Callable[..., Any], tape: tf.GradientTape) -> Any:
        self.append(tape)
        return enter(tape)

    def _on_exit(self, leave: Callable[..., Any], tape: tf.GradientTape, *args: Any) -> Any:
        self.remove(tape)
        return leave(tape, *args)


class ByHand(keras.optimizers.Optimizer):
    """Stands for the updates that a loop writes itself: it has no rate and no slots, and is never called."""

    def __init__(self) -> None:
        super().__init__(lambda: math.nan)


class Run(script.Script):
    """A script that is run up to its call of `fit`, or to where its loop begins to train, and from there in parts.

    With `free`, it is run on batches of its own from there on, as its user runs it, or op by op.
    """

    free: ClassVar[Begin | None] = None
    _resume: Callable[[], None]  # runs it until it is suspended or left, or to its end; what it raises is raised here

    def __init__(self, text: str, search: Sequence[str]) -> None:
        super().__init__(text, search)
        self._free = self.free
        self._run = greenlet(self.main)
        self.is_loop = False  # whether the script trains in a loop of its own
        self._made: list[Any] = []  # layers that the script has made
        self._copies: list[Copy] = []  # models beside the trained one that begin as copies of it
        self._fetched: Fetched | None = None  # how its steps are known to begin with a batch
        self._chain: Fetched | None = None  # or to call layers one by one
        self._tapes = Tapes()
        self._functions = 0  # calls of tf.functions and of `train_on_batch`
        self._in_function = False
        self._runs_eagerly = False  # whether it has set that tf.functions run op by op
        self._sliced: list[list[str]] = []  # what the code calls the leaves of the dataset that was made last
        self._until = math.inf  # updates, after which a free run is suspended

    def optimizer(self) -> BaseOptimizer:
        """Return the first optimizer of the script, then new ones like it; of a loop that has none, ByHand."""
        if self.is_loop and not self._optimizers:
            return ByHand()
        first = self._optimizers[0] if self.is_loop else self._model.optimizer
        had, self._has_optimizer = self._has_optimizer, True
        return another(first) if had else first

    @property
    def updates(self) -> int:
        """Return how many updates the first optimizer has made."""
        return int(self._optimizers[0].iterations)

    def run_freely(self, updates: int) -> None:
        """Run on until there are so many updates, or to the end. Raises UsageError if several are made at once."""
        self._until = updates
        self._copies = copy_to(self._copies)
        self._resume()
        if self.updates > updates:
            raise UsageError(f"{self.name}: makes several updates in one tf.function")

    def _is_part(self, layer: Any) -> bool:
        """Return whether a layer is one within the model, which the loss calls, as a penalty does an embedding."""
        parts = self._model.layers if isinstance(self._model, Together) else [self._model]
        inner = (each for part in parts for each in layers_of(part)[1:])
        return self._model is not None and any(each is layer for each in inner)

    def _is_left(self) -> bool:
        """Run the script on, and return whether it was left where it calls `fit`."""
        try:
            with self.built():
                self._resume()
        except Left:
            return True
        return False

    def _patches(self) -> list[AbstractContextManager[Any]]:
        """Return what is patched while the script runs."""
        return [
            *_one_replica(lambda: setattr(self, "is_distributed", True)),
            around(keras.Model, "fit", self._on_fit),
            around(tf.data.Dataset, "from_tensor_slices", self._on_slices),
            around(keras.Model, "train_on_batch", self._on_batch),
            around(Function, "__call__", self._within_function),
            around(tf.config, "run_functions_eagerly", lambda _, eagerly: setattr(self, "_runs_eagerly", eagerly)),
            around(BaseOptimizer, "__init__", self._on_optimizer),
            around(keras.Layer, "__new__", self._on_layer),  # Keras reads the signature of __init__
            around(file_utils.config, "keras_home", lambda own: os.environ.get("PARITY_KERAS_HOME", own())),
        ]

    def _suspend(self) -> None:
        """Suspend the script; its tapes do not record meanwhile."""
        resumer = self._run.parent
        assert resumer and getcurrent() is self._run
        self._tapes.pause()
        resumer.switch()
        self._tapes.go_on()

    def _on_fit(self, fit: Original, model: Any, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> None:
        named = dict(zip(("batch_size", "epochs", "verbose", "callbacks"), args, strict=False)) | kwargs
        leaves = self._sliced if isinstance(x, tf.data.Dataset) else labels_of((x, y) if y is not None else x)
        first = first_batch(model, x, y, named)._replace(leaves=leaves)
        if getattr(model, "optimizer", None) is None:
            raise UsageError(f"{self.name}: calls fit of a model that it has not compiled")
        model.run_eagerly |= self._runs_eagerly
        known = self._fetched or self._chain
        self._model, fits[model] = model, first._replace(calls=known.calls if known else ())
        raise Left

    def _on_slices(self, make: Original, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        self._sliced = labels_of(tensors)
        return make(tensors, *args, **kwargs)

    def _on_batch(
        self, train: Original, model: Any, x: Any, y: Any = None, sample_weight: Any = None,
        class_weight: Any = None, return_dict: bool = False,
    ) -> Any:  # fmt: skip
        """Run a step of a loop, in a free run as it is; else op by op, and in no scope that cannot be resumed."""
        if self._free:
            return self._within_function(train, model, x, y, sample_weight, class_weight, return_dict)
        logs = self._within_function(model.train_step, batch_of(model, x, y, sample_weight, class_weight))
        return logs if return_dict else model._flatten_metrics_in_order(logs)

    def _within_function(self, call: Original, *args: Any, **kwargs: Any) -> Any:
        """Call what makes a graph; in a free run, suspend the script before it trains, and once it has done so."""
        if self._in_function or getcurrent() is not self._run:
            return call(*args, **kwargs)
        self._functions += 1
        if self._free and self._functions == self._free.call:
            self._model, self.is_loop = self._made[self._free.layer], True
            fits[self._model] = self._free.fit
            self._suspend()
        with mock.patch.object(self, "_in_function", True):
            result = call(*args, **kwargs)
        if self._until < math.inf and self.updates >= self._until:
            self._suspend()
        return result

    @property
    def _number(self) -> int:
        """Return the number of the model among all layers that the script has made."""
        return next(number for number, each in enumerate(self._made) if each is self._model)

    def _on_layer(self, new: Original, kind: type, *args: Any, **kwargs: Any) -> Any:
        self._made.append(new(kind, *args, **kwargs))
        return self._made[-1]


def batch_of(model: Any, x: Any, y: Any, sample_weight: Any, class_weight: Any) -> Any:
    """Return the batch that `train_on_batch` gives to the train_step of a model, which it builds."""
    if class_weight is not None:
        sample_weight = data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
    given = data_adapter_utils.pack_x_y_sample_weight(x, y, sample_weight)
    batch = tf.nest.map_structure(tf.convert_to_tensor, given)
    model._maybe_symbolic_build(data_batch=batch)
    return batch


def another(optimizer: BaseOptimizer) -> BaseOptimizer:
    """Return a new optimizer like one that a script has made, with its schedule, which need not be serializable."""
    rate = optimizer._learning_rate
    with mock.patch.object(optimizer, "_learning_rate", 0.0) if callable(rate) else nullcontext():
        config = optimizer.get_config() | ({"learning_rate": rate} if callable(rate) else {})
    again = type(optimizer).from_config(config)
    vars(again).update({name: value for name, value in vars(optimizer).items() if name.startswith(EXCLUDED)})
    return again


def _one_replica(on_strategy: Callable[[], None]) -> Iterator[AbstractContextManager[Any]]:
    """Yield what lets a script find one replica, whatever strategy it asks for; `on_strategy` is called when it does.

    Of TensorFlow's strategies the default one runs a replica in the script's own thread, where it can be suspended.
    One of several workers knows which worker it is: the only one.
    """

    class OneReplica:
        """Stands in for a class of strategies: an instance is the default strategy."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            on_strategy()
            return _get_default_strategy()

    for owner in (tf.distribute, tf.distribute.experimental):
        for name in STRATEGIES:
            if hasattr(owner, name):
                yield mock.patch.object(owner, name, OneReplica)
    for owner, names in ONCE:
        for name in names:
            yield around(owner, name, lambda *_, **__: None)
    only = tf.train.ClusterSpec({"worker": ["localhost:0"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(only, task_type="worker", task_id=0)
    default = _get_default_strategy().extended
    yield mock.patch.object(default, "_cluster_resolver", resolver, create=True)
    # Its own scope is one of variables' creators, which the script, suspended within it, would leave out of turn.
    yield mock.patch.object(default, "_scope", nullcontext)

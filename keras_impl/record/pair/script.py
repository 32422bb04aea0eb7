"""A user's training script in Keras: run up to its call of `fit`, or step by step if it has a loop of its own.

Where it calls `fit` it is left, with the model that it has compiled: the model's own `train_step` then runs, as `fit`
calls it, and what else `fit` does (callbacks, validation) does not.

A loop runs in a greenlet, which is left and resumed. The model is the layer that is called where a tf.GradientTape
records. A step begins with such a call, and ends before the next one behind its backward pass, or before one outside of
a tape, which is not observed. It runs op by op. Where gradients are accumulated, several steps make one update.

In place of the script's own batches come those of the pair, in the form that the script's own have.
"""

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from greenlet import getcurrent, greenlet
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.utils import file_utils
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

from keras_impl.instruments.script_calls import Tapes, another, batch_of, copies, copy_to
from keras_impl.instruments.script_data import Begin, Fit, first_batch, fits, inputs_of
from keras_impl.instruments.script_targets import Targets
from keras_impl.record import calls, precision
from keras_impl.record.pair.layers import share
from parity.core import script
from parity.core.errors import UsageError
from parity.core.patches import applied, around
from parity.core.wording import count
from parity.pairs.script_records import VALUES, Early, known


class _Left(BaseException):
    """Raised to leave the script where it calls `fit`."""


class Script(script.Script):
    """One run of a script.

    With `free`, it is run on batches of its own from there on, as its user runs it, or op by op.
    """

    free: ClassVar[Begin | None] = None

    def __init__(self, text: str, search: Sequence[str]) -> None:
        super().__init__(text, search)
        self.begin: Begin | None = None  # where this run has begun to train, if its user's begins in a graph there
        self._free = self.free
        self._made: list[Any] = []  # that the script has made
        self._functions = 0  # calls of tf.functions and of `train_on_batch`
        self._in_function = False
        self._runs_eagerly = False  # whether it has set that tf.functions run op by op
        self._until = math.inf  # updates, after which a free run is suspended
        self._text, self._search = text, search
        self._run = greenlet(self.main)
        self.second: Fit | None = None  # what the model of a loop is given in its second step, if that was run up to
        self._called, self._ahead = 0, -1  # calls of trained layers; and without a tape, before the second step
        self._copies: list[Any] = []  # models beside the trained one that begin as copies of it
        self.is_loop = False  # whether the script trains in a loop of its own
        self._model: Any = None
        self._stands_in: Any = None  # the model of an earlier run, which is called in its place
        self._shared: Mapping[int, Any] = {}  # the variables of that, by id() of its own, which are differentiated
        self._optimizers: list[BaseOptimizer] = []
        self._has_optimizer = False  # whether the script's own was asked for
        self._tapes = Tapes()
        self._batch: Mapping[str, Any] | None = None
        self._passes = self._backwards = 0  # in the current step
        self._given: list[tuple[Any, Any]] = []  # what its calls of the model would be given, and are
        self._accumulates = False  # whether a step has updated nothing
        self._loss: Any = None  # what was differentiated last
        before = known(search)
        self._fetched, self._keeps_data = (before.fetched, before.keeps_data) if before else (None, False)
        self._early = before.keras_early if before else None
        file = next((each for folder in search if (each := Path(folder) / VALUES).is_file()), None)
        given = dict(np.load(file)) if file and not self._keeps_data else {}
        self._targets = Targets(given, lambda: bool(self._tapes))

    def build(self) -> Any:
        """Run the script until it is about to train, and return its model. Raises UsageError if it does not train."""
        try:
            self._resume()
        except _Left:
            return self._model
        if self._model is None:
            raise UsageError(
                f"{self.name}: ended, and neither called fit or train_on_batch, nor a model where a tf.GradientTape "
                "records; give a script that trains one model"
            )
        self._copies = copies(self._model, self._made)
        return self._model

    def early(self) -> Early | None:
        """Run the first step of a loop; return with which call it begins, if that is before the one within a tape."""
        if not self.is_loop or self.begin:
            return None
        called, self._ahead = self._called, 0
        self._resume()
        return Early(call=called - self._ahead, module=self._number) if 0 < self._ahead < called else None

    def optimizer(self) -> BaseOptimizer:
        """Return the optimizer that the script has made, the first time; then new ones like it.

        Of several, the first. Raises UsageError if a loop has none.
        """
        if self.is_loop and not self._optimizers:
            raise UsageError(f"{self.name}: has made no optimizer before its first training step")
        first = self._optimizers[0] if self.is_loop else self._model.optimizer
        had, self._has_optimizer = self._has_optimizer, True
        return another(first) if had else first

    def step(self, model: Any, optimizer: BaseOptimizer, batch: Mapping[str, Any]) -> Any:
        """Run the loop's next training step, on a batch; or again up to its backward pass, if it was left there.

        Returns what it differentiates; where gradients are accumulated, that is only a part of a loss, and it returns
        nothing. Raises UsageError where the script has no such step.
        """
        if model is not (self._stands_in or self._model):
            raise UsageError(f"{self.name}: was run anew since this model was built")
        self._copies = copy_to(self._copies, self._model)
        if self._run.dead:
            self._again(batch)
        self._batch, self._passes, self._backwards = {} if self._keeps_data else batch, 0, 0
        before = int(optimizer.iterations)
        self._resume()
        self._accumulates |= before == int(optimizer.iterations)
        if not self._backwards:
            raise UsageError(f"{self.name}: ended before its backward pass")
        self._targets.check(self.name)
        return None if self._accumulates else self._loss

    def _again(self, batch: Mapping[str, Any]) -> None:
        """Run the script anew up to the backward pass in which it was left, with this model in the place of its own."""
        if not self._passes or self._backwards:
            raise UsageError(f"{self.name}: has ended; give fewer --steps")
        again = Script(self._text, self._search)
        again._targets.begun = self._targets.begun - 1
        again._shared = share(again.build(), self._model)
        again._stands_in = self._model
        try:
            again.step(self._model, self._optimizers[0], batch)
        finally:
            again.close()
        raise UsageError(f"{self.name}: was left in this step")

    @property
    def updates(self) -> int:
        """Return how many updates the first optimizer has made."""
        return int(self._optimizers[0].iterations)

    def run_freely(self, updates: int) -> None:
        """Run a free run on until its optimizer has made so many updates, or to its end.

        Raises UsageError if it makes several at a time.
        """
        self._until = updates
        self._copies = copy_to(self._copies, self._model)
        self._resume()
        if self.updates > updates:
            raise UsageError(f"{self.name}: makes several updates in one tf.function")

    def close(self) -> None:
        """End the script where it is suspended."""
        if not self._run.dead:
            with self.entered(), contextlib.suppress(Exception):
                self._run.throw()

    def _resume(self) -> None:
        """Run the script until it is suspended or left, or to its end; what it raises is raised here."""
        patches = [
            around(keras.Model, "fit", self._on_fit),
            around(keras.Model, "train_on_batch", self._on_batch),
            around(Function, "__call__", self._within_function),
            around(tf.config, "run_functions_eagerly", lambda _, eagerly: setattr(self, "_runs_eagerly", eagerly)),
            around(BaseOptimizer, "__init__", self._on_optimizer),
            around(keras.Layer, "__new__", self._on_layer),  # Keras reads the signature of __init__
            around(file_utils.config, "keras_home", lambda own: os.environ.get("PARITY_KERAS_HOME", own())),
        ]
        steps: Iterable[AbstractContextManager[Any]] = () if self._free else self._of_steps()
        with (
            self.entered(),
            precision.eagerly(not (self._free and self._free.in_graphs)),
            applied(patches),
            applied(steps),
        ):
            self._run.switch()

    def _of_steps(self) -> Iterator[AbstractContextManager[Any]]:
        """Yield what is patched where the steps are run one by one."""
        yield around(keras.Layer, "__call__", self._on_call)
        yield around(tf.GradientTape, "gradient", self._on_gradient)
        yield from self._tapes.patches()
        yield from self._targets.patches()

    def _suspend(self) -> None:
        """Suspend the script; its tapes do not record meanwhile."""
        resumer = self._run.parent
        assert resumer and getcurrent() is self._run
        self._tapes.pause()
        resumer.switch()
        self._tapes.go_on()

    def _on_fit(
        self, fit: Callable[..., Any], model: Any, x: Any = None, y: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        named = dict(zip(("batch_size", "epochs", "verbose", "callbacks"), args, strict=False)) | kwargs
        first = first_batch(model, x, y, named)
        if getattr(model, "optimizer", None) is None:
            raise UsageError(f"{self.name}: calls fit of a model that it has not compiled")
        model.run_eagerly |= self._runs_eagerly
        self._model, fits[model] = model, first._replace(calls=self._fetched.calls if self._fetched else ())
        raise _Left

    def _on_batch(
        self, train: Callable[..., Any], model: Any, x: Any, y: Any = None, sample_weight: Any = None,
        class_weight: Any = None, return_dict: bool = False,
    ) -> Any:  # fmt: skip
        """Run a step of a loop, in a free run as it is; else op by op, and in no scope that cannot be resumed."""
        if self._free:
            return self._within_function(train, model, x, y, sample_weight, class_weight, return_dict)
        logs = self._within_function(model.train_step, batch_of(model, x, y, sample_weight, class_weight))
        return logs if return_dict else model._flatten_metrics_in_order(logs)

    def _within_function(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call what makes a graph; in a free run, suspend the script before it trains, and once it has done so."""
        if self._in_function or getcurrent() is not self._run:
            return call(*args, **kwargs)
        self._functions += 1
        if self._free and self._functions == self._free.call:
            self._model, self.is_loop = self._made[self._free.layer], True
            fits[self._model] = self._free.fit
            self._suspend()
        self._in_function = True
        try:
            result = call(*args, **kwargs)
        finally:
            self._in_function = False
        if self._until < math.inf and self.updates >= self._until:
            self._suspend()
        return result

    def _on_optimizer(self, init: Callable[..., None], optimizer: BaseOptimizer, *args: Any, **kwargs: Any) -> None:
        init(optimizer, *args, **kwargs)
        self._optimizers.append(optimizer)

    @property
    def _number(self) -> int:
        """Return the number of the model among all layers that the script has made."""
        return next(number for number, each in enumerate(self._made) if each is self._model)

    def _on_layer(self, new: Callable[..., Any], kind: type, *args: Any, **kwargs: Any) -> Any:
        self._made.append(new(kind, *args, **kwargs))
        return self._made[-1]

    def _on_call(self, call: Callable[..., Any], layer: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a call of a layer; suspend the script before one that ends a step."""
        is_trained = not layer.built or bool(layer.trainable_variables)
        if self._depth or getcurrent() is not self._run or not is_trained:
            return self.within(call, layer, args, kwargs)
        self._called += 1
        early = self._early if self._early and self._called == self._early.call else None
        if not (self._tapes or self._model or early):
            return self.within(call, layer, args, kwargs)
        if self._backwards and not self._tapes and self._ahead >= 0:
            self._ahead += 1
        elif self._backwards or self._model is None:
            if self._model is None:
                self.is_loop, self._model = True, self._made[early.module] if early else layer
                fits[self._model] = Fit(self._only(args))
                if self._in_function and not self._runs_eagerly:
                    self.begin = Begin(self._functions, self._number, fits[layer])
            elif self._ahead >= 0:
                self.second = Fit(self._only(args))
            self._suspend()
        if not self._tapes:
            with calls.unobserved():
                return self.within(call, layer, args, kwargs)
        if layer is not self._model:
            raise UsageError(
                f"{self.name}: trains two models that it calls one by one, {self._model.name} and {layer.name}"
            )
        self._passes += 1
        if self._passes == 1:
            self._targets.begin_step()
            self._given = []
        args = self._replaced(args)
        return self.within(call, self._stands_in or layer, args, kwargs)

    def _replaced(self, args: Sequence[Any]) -> Sequence[Any]:
        """Return what a call of the model is given: the batch's inputs; what PyTorch's call is not given stays."""
        own = self._only(args)
        if inputs := inputs_of(self._batch or {}, self._passes):
            self._given.append((own, Fit(own).structured(inputs)))
        return (next((given for before, given in self._given if before is own), own),)

    def _on_gradient(
        self, gradient: Callable[..., Any], tape: tf.GradientTape, target: Any, sources: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Run a backward pass; if a model stands in, by the variables of that."""
        self._loss = target
        sources = tf.nest.map_structure(lambda each: self._shared.get(id(each), each), sources)
        result = gradient(tape, target, sources, *args, **kwargs)
        self._backwards += 1
        return result

    def _only(self, args: Sequence[Any]) -> Any:
        if len(args) != 1:
            number = count(len(args), "positional argument")
            raise UsageError(f"{self.name}: calls its model with {number}, expected one")
        return args[0]

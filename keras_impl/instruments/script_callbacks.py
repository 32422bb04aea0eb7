"""The callbacks of a script's `fit` that are run: when the training begins, when an epoch begins, around each batch."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
from keras.callbacks import Callback, CallbackList, LambdaCallback, LearningRateScheduler

from keras_impl.instruments.script_data import Fit


def is_run(callback: Callback) -> bool:
    """Return whether a callback is run: Keras's own others write files, or wait for the end of an epoch."""
    is_own = type(callback).__module__.partition(".")[0] != keras.__name__
    return is_own or isinstance(callback, (LambdaCallback, LearningRateScheduler))


def steps_of(fit: Fit) -> int:
    """Return how many steps `fit` makes, or those up to an epoch's end at which a callback acts; 0 if it is unknown."""
    run = [each for each in fit.callbacks if is_run(each) and not isinstance(each, LearningRateScheduler)]  # which logs
    acts = any("on_epoch_end" in vars(each) or type(each).on_epoch_end is not Callback.on_epoch_end for each in run)
    return (fit.batches or 0) * (1 if acts else fit.epochs - fit.initial_epoch)


class Callbacks(CallbackList):
    """Those that are run: when the training begins, when an epoch begins, and around each batch.

    What they do at an end is not run, as it may read what a validation gives.
    """

    def __init__(self, fit: Fit, model: Any) -> None:
        run = list(filter(is_run, fit.callbacks))  # and the history, which `fit` returns
        super().__init__(run, add_history=True, model=model, verbose=0, epochs=fit.epochs, steps=fit.batches)
        self._batches = fit.batches or sys.maxsize  # of an epoch of the script's own, which is not that of a test
        self._step, self._first_epoch = 0, fit.initial_epoch
        self._together = int(model.steps_per_execution)  # steps around all of which callbacks are called
        self._graph: Any = None  # of the step, if a callback has made it anew
        self._trained: list[tuple[Any, bool]] = []  # the layers and variables, and whether that graph trains them

    def around(self, train: Callable[[], Any]) -> Any:
        """Run the next training step, and what callbacks do before and behind it; return what the step does."""
        if not self._step:
            self.on_train_begin()
        self.on_train_batch_begin(self._step)
        with self._as_traced():
            returned = train()
        self.on_train_batch_end(self._step, returned)
        return returned

    @contextmanager
    def _as_traced(self) -> Iterator[None]:
        """Train what was trainable when `fit` made its graph of the step; a graph keeps that."""
        model = self._model
        now = [(each, each.trainable) for each in (*model._flatten_layers(), *model.variables)]
        if not self._trained or model.run_eagerly or self._graph is not model.train_function:
            self._graph, self._trained = model.train_function, now
        for each, is_trained in self._trained:
            each._trainable = is_trained
        try:
            yield
        finally:
            for each, is_trained in now:
                each._trainable = is_trained

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin a step, and an epoch before its first."""
        epoch, batch = divmod(self._step, self._batches)
        if not batch:
            super().on_epoch_begin(self._first_epoch + epoch)
        if not batch % self._together:
            super().on_train_batch_begin(batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """End a step."""
        batch = self._step % self._batches
        if (batch + 1) % self._together == 0 or batch + 1 == self._batches:
            super().on_train_batch_end(batch, logs)
        self._step += 1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Do nothing: the script's own epoch begins with a step."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Do nothing."""

    def on_train_end(self, logs: Any = None) -> None:
        """Do nothing."""

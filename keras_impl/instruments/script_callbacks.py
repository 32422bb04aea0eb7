"""The callbacks of a script's `fit`, run as `fit` runs them, but for what waits for the end of an epoch."""

import sys
from collections.abc import Callable
from typing import Any

import keras
from keras.callbacks import Callback, CallbackList, LambdaCallback, LearningRateScheduler

from keras_impl.instruments.script_data import Fit


def is_run(callback: Callback) -> bool:
    """Return whether a callback is run: Keras's own others write files, or wait for the end of an epoch."""
    is_own = type(callback).__module__.partition(".")[0] != keras.__name__
    return is_own or isinstance(callback, (LambdaCallback, LearningRateScheduler))


class Callbacks(CallbackList):
    """Those that are run: when the training begins, when an epoch begins, and around each batch.

    What they do at an end is not run, as it may read what a validation gives.
    """

    def __init__(self, fit: Fit, model: Any) -> None:
        run = list(filter(is_run, fit.callbacks))
        super().__init__(run, add_history=True, model=model, steps=fit.batches)  # `fit` returns the history
        self._batches = fit.batches or sys.maxsize  # of an epoch of the script's own, which is not that of a test
        self._step, self._has_begun = 0, False

    def around(self, train: Callable[[], Any]) -> Any:
        """Run the next training step, and what callbacks do before and behind it; return what the step does."""
        if not self._has_begun:
            self.on_train_begin()
        self.on_train_batch_begin(self._step)
        returned = train()
        self.on_train_batch_end(self._step, returned)
        return returned

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin the training."""
        self._has_begun = True
        super().on_train_begin()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin a step, and an epoch before its first."""
        epoch, batch = divmod(self._step, self._batches)
        if not batch:
            super().on_epoch_begin(epoch)
        super().on_train_batch_begin(batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """End a step."""
        super().on_train_batch_end(self._step % self._batches, logs)
        self._step += 1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Do nothing: the script's own epoch begins with a step."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Do nothing."""

    def on_train_end(self, logs: Any = None) -> None:
        """Do nothing."""

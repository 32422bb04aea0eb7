"""The optimizer of a pair's training: a built-in one that the pair's file names, or the user's own."""

from collections.abc import Sequence
from typing import Any

from keras.optimizers import LossScaleOptimizer, Optimizer

from keras_impl import optimizers
from keras_impl.record.pair.build import user_errors
from parity.config.schema import Case
from parity.core.errors import UsageError
from parity.doctor.program import load


def made(case: Case, parameters: Sequence[Any], search: list[str]) -> Optimizer:
    """Return a new optimizer of these variables: the built-in one, or the one that the user's function makes.

    Raises UsageError if that function returns something else.
    """
    text = case.model.train.keras_optimizer
    if not text:
        optimizer = optimizers.build(case)
    else:
        with user_errors(f"train.keras_optimizer={text} fails"):
            optimizer = load("train.keras_optimizer", text, search=search)()
        if not isinstance(optimizer, Optimizer):
            received = type(optimizer).__name__
            raise UsageError(
                f"train.keras_optimizer={text}: expected a keras.optimizers.Optimizer, received {received}"
            )
    optimizer.build(list(parameters))
    return optimizer


def unwrapped(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer that updates the weights: the one within a LossScaleOptimizer."""
    return unwrapped(optimizer.inner_optimizer) if isinstance(optimizer, LossScaleOptimizer) else optimizer

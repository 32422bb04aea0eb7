"""Layer i on device i mod n, activations moved between them.

The same chain of stages as send_recv's, of one block each, with devices that repeat.
"""

import itertools
from collections.abc import Callable, Iterable

import keras

from keras_impl.losses import Loss
from keras_impl.strategies.send_recv import Chain, evaluate, staged, train_chain
from keras_impl.strategies.single import MicroBatch

__all__ = ["evaluate", "place", "train"]


def place(
    make_model: Callable[[], keras.Model],
    make_optimizer: Callable[[], keras.optimizers.Optimizer],
    devices: list[str],
    input_shape: tuple,
) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """A model, built, each block's variables on its device, and its optimizer."""
    turns = itertools.cycle(devices)
    each = [next(turns) for _ in make_model().blocks()]
    return staged(make_model, make_optimizer, each, input_shape)


def train(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    loss: Loss,
    steps: Iterable[list[MicroBatch]],
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """One update per step, from the gradients of its micro-batches added up; then `on_step()`."""
    train_chain(Chain(model, returns_all=False), optimizer, loss, steps, on_step)

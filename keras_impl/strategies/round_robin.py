"""Layer i on device i mod n, activations moved between them.

The same chain of stages as send_recv's, of one block each, with devices that repeat.
"""

import itertools

import keras

from keras_impl.strategies import send_recv
from keras_impl.strategies.send_recv import evaluate, train
from keras_impl.strategies.single import MakeModel, MakeOptimizer

__all__ = ["evaluate", "place", "train"]


def place(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    devices: list[str],
    input_shape: tuple,
) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """A model, built, each block's variables on its device, and its optimizer."""
    turns = itertools.cycle(devices)
    each = [next(turns) for _ in make_model().blocks()]
    return send_recv.place(make_model, make_optimizer, each, input_shape)

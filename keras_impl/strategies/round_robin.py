"""Model parallelism in one process: block i on device i mod n, activations copied from device to device.

It is the chain of stages of send_recv.py, with one block per stage, and devices that repeat.
"""

import itertools

from keras_impl.strategies import send_recv
from keras_impl.strategies.send_recv import evaluate, train
from keras_impl.strategies.single import MakeModel, MakeOptimizer, Placed

__all__ = ["evaluate", "place", "train"]


def place(make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[str], input_shape: tuple) -> Placed:
    """Build the model, with each block's variables on its device, and its optimizer."""
    turns = itertools.cycle(devices)
    block_devices = [next(turns) for _ in make_model().blocks()]
    return send_recv.place(make_model, make_optimizer, block_devices, input_shape)

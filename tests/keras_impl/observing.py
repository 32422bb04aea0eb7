"""Steps of small programs, observed on virtual GPUs: GPU:i is the logical device CPU:i+1."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_impl.doctor.observer import Observer
from keras_impl.instruments.build import Building
from keras_impl.instruments.devices import pretend
from parity.core.ownership import shown
from parity.doctor.evidence import Step

DEVICES = ["GPU:0", "GPU:1"]


def observed(
    build: Callable[[], Any], step: Callable[[Any, dict], Any], inputs: dict[str, Any] | None = None, steps: int = 1
) -> list[Step]:
    """Evidence of so many steps."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    with pretend(len(DEVICES)):
        with Building() as building:
            model = build()
        observer = Observer(model, building, DEVICES)
        seen = []
        for _ in range(steps):
            given = {name: on_host(value) for name, value in (inputs or {"x": np.ones((4, 8), "float32")}).items()}
            with observer.step(given) as one:
                step(model, given)
            seen.append(one)
    return seen


def on_host(values: Any) -> tf.Tensor:
    """As a data loader gives it."""
    with tf.device("CPU:0"):
        return tf.constant(values)


def line(function: Any, text: str) -> str:
    """How the line that ends with a comment, in the file of a function or a class, is told."""
    file = inspect.getsourcefile(function)
    with open(file) as lines:
        (number,) = [number for number, each in enumerate(lines, 1) if each.rstrip().endswith(text)]
    return shown(file, number)

"""The canonical form, which is PyTorch's: names, axis orders, and what is handed over to a recorder in that form."""

from typing import Any, NamedTuple

import keras
import numpy as np
from einops import rearrange

from parity.config import schema
from parity.pairs.weights.patterns import reverse
from parity.trace.recorder import Recorder

# The change from a model's axis order to PyTorch's, by the number of axes of the tensor.
LAYOUTS: dict[type, dict[int, str]] = {
    schema.ResidualBlock: {4: "n h w c -> n c h w"},
    schema.Specimen: {4: "n h w c -> n c h w"},
    schema.Transformer: {2: "n t -> t n", 3: "n t d -> t n d"},
}


def own(array: np.ndarray, model: schema.Model) -> np.ndarray:
    """Convert an input or target from PyTorch's axis order to that of the Keras model."""
    pattern = LAYOUTS.get(type(model), {}).get(array.ndim)
    return rearrange(array, reverse(pattern)) if pattern else array


def module_path(path: str) -> str:
    """Return PyTorch's name of a module of a built-in model by the path of its layer."""
    return path.replace("/", ".")


class Replica(NamedTuple):
    """One replica of the model, with its state in this process, a `Weights` of a built-in model or of a user's."""

    recorder: Recorder
    model: Any
    optimizer: keras.optimizers.Optimizer | None
    weights: Any


class Form(NamedTuple):
    """The axes of a tensor in PyTorch's order, and its shape there."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]


class Seen(NamedTuple):
    """A tensor to record, with the kind and name of its record; without a form, its number of axes tells it."""

    kind: str
    name: str
    tensor: Any
    form: Form | None = None


class Handed(NamedTuple):
    """A tensor that is handed over.

    `token` identifies it within the forward pass. `known` says that it was handed over before or will not be again,
    `is_alias` that its values are left out, as for a layer's input that is another layer's output.
    """

    kind: str
    name: str
    form: Form | None
    token: int
    known: bool
    is_alias: bool

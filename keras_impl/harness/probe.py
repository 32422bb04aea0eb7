"""Records what a training loop does, from outside: wrapped calls of layers, optimizer and loss.

The loop is compiled, so that a wrapper runs once, while the step is traced: it puts an op into the
graph that hands the tensors to the recorder on every execution (tf.numpy_function).
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange

from keras_impl.harness import weights
from parity.config import schema
from parity.trace.recorder import Recorder

OUTPUT = "(model)"  # the name of the whole model's result; no attribute can have it

# From a model's axis order to PyTorch's, by the number of axes of the tensor.
LAYOUTS: dict[type, dict[int, str]] = {
    schema.ResidualBlock: {4: "n h w c -> n c h w"},
    schema.Transformer: {2: "n t -> t n", 3: "n t d -> t n d"},
}


def own(array: np.ndarray, model: schema.Model) -> np.ndarray:
    """An input or a target, which comes in PyTorch's axis order, in that of the Keras model."""
    pattern = LAYOUTS.get(type(model), {}).get(array.ndim)
    return rearrange(array, " -> ".join(reversed(pattern.split(" -> ")))) if pattern else array


class Probe:
    """Attached to a built model and its optimizer for the rest of their lives."""

    def __init__(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer, recorder: Recorder, case: schema.Case
    ):
        self.model, self.optimizer, self.recorder = model, optimizer, recorder
        self.layouts = LAYOUTS.get(type(case.model), {})
        self.ids = case.loss.kind == "cross_entropy"
        self._seen: list[tuple[str, tf.Tensor]] = []
        for path, layer in weights.named_layers(model):
            layer.call = self._on_call(path, layer.call)
        optimizer.apply = self._on_apply(optimizer.apply)

    def watch(self, loss: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        """The loss, its values recorded."""

        def watched(outputs: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
            value = loss(outputs, target)
            # fit hands class ids over as floats.
            self._emit("input", [("target", tf.cast(target, tf.int64) if self.ids else target)])
            self._emit("loss", [("loss", value)])
            return value

        return watched

    def on_step(self) -> None:
        """After an update (and once before the first): the state of model and optimizer."""
        kinds = {
            "parameter": weights.parameters(self.model),
            "buffer": weights.buffers(self.model),
            "optimizer_state": weights.optimizer_state(self.model, self.optimizer),
        }
        for kind, named in kinds.items():
            if self.recorder.wants(kind):
                for name, array in named:
                    self.recorder.add(kind, name, array)
        self.recorder.next_step()

    def _on_call(self, path: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The activations of one forward are handed over together, when the whole model returns."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            if not path:
                self._seen = []
                self._emit("input", [("input", tensor) for tensor in tf.nest.flatten(args[0])])
            outputs = call(*args, **kwargs)
            self._seen += [(path or OUTPUT, tensor) for tensor in tf.nest.flatten(outputs)]
            if not path:
                self._emit("activation", self._seen)
            return outputs

        return watched

    def _on_apply(self, apply: Callable[..., None]) -> Callable[..., None]:
        def watched(gradients: list[tf.Tensor], variables: list[keras.Variable] | None = None) -> None:
            known = self.model.trainable_variables if variables is None else variables
            pairs = zip(gradients, known, strict=True)
            values = {variable.path: tf.convert_to_tensor(g) for g, variable in pairs if g is not None}
            self._emit("gradient", list(weights.gradients(self.model, values)))
            apply(gradients, variables)

        return watched

    def _emit(self, kind: str, named: list[tuple[str, tf.Tensor]]) -> None:
        names = [name for name, _ in named]
        tf.numpy_function(
            lambda *arrays: self._receive(kind, names, arrays), [tensor for _, tensor in named], [], stateful=True
        )

    def _receive(self, kind: str, names: list[str], arrays: tuple[np.ndarray, ...]) -> None:
        if self.recorder.wants(kind):
            for name, array in zip(names, arrays, strict=True):
                pattern = None if kind == "gradient" else self.layouts.get(array.ndim)
                self.recorder.add(kind, name, rearrange(array, pattern) if pattern else array)

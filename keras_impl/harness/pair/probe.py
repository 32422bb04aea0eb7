"""The probe of a user's model: records it from outside, in the canonical form of its torch counterpart."""

from collections import Counter
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_impl.harness import kinds, promotion
from keras_impl.harness.pair import layers, values
from keras_impl.harness.pair.calls import Called, watch
from parity.config.pair import Pair
from parity.core.names import INPUT, MODEL
from parity.pairs.activations.counterparts import is_output
from parity.pairs.activations.layouts import given_orders
from parity.runtime.drive import Run
from parity.trace import survey
from parity.trace.mapping import Match


class _Stored(NamedTuple):
    """A tensor recorded in this forward pass, its axis order and shape in the record, and the key of the record."""

    tensor: tf.Tensor
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    key: str


class Probe:
    """Records a built model for as long as it lives.

    Only layers with a counterpart in torch's model are recorded; `modules` holds their kinds, by torch's path.
    """

    def __init__(self, run: Run, model: Any, torch: survey.Survey):
        self.recorder, self.initial = run.recorders[0], run.weights
        self.torch = torch
        self.modules: dict[str, str] = {}
        self._shapes = {seen.key: seen.shape for seen in torch.outputs}
        self._owners = {seen.key: seen.module for seen in torch.outputs}
        matches = run.pair.matching.matches if run.pair and run.pair.matching else []
        self._matches = {match.keras: match for match in matches}
        self._kinds = {path: kinds.computed(layer) for path, layer in layers.called(model).items()}
        self._outputs: Counter[str] = Counter()  # outputs seen in this forward pass, by the path of Keras's layer
        self._inputs: Counter[str] = Counter()  # calls seen in this forward pass, by the path of torch's module
        self._stored: dict[int, _Stored] = {}
        self._axes: dict[tuple[int, ...], list[int]] = {}
        self._usual = usual(run.case.model, matches)
        watch(model, self._see)

    def inputs(self, tensors: list[np.ndarray]) -> None:
        """Begin a forward pass, and record the model's inputs, which are in canonical axis order."""
        self._outputs.clear()
        self._inputs.clear()
        self._stored.clear()
        for array in tensors:
            self._add("input", "input", values.array(array))

    def outputs(self, named: list[tuple[str, tf.Tensor]]) -> None:
        """Record what the whole model returned, in canonical axis order."""
        for name, tensor in named:
            self._add("activation", name, values.array(tensor))

    def loss(self, value: tf.Tensor, target: tf.Tensor | None) -> None:
        """Record the scalar that is differentiated, and the target."""
        if target is not None:
            self._add("input", "target", values.array(target))
        self._add("loss", "loss", values.array(value))

    def gradients(
        self, weights: values.Weights, by_variable: dict[str, tf.Tensor], of_inputs: dict[str, np.ndarray]
    ) -> None:
        """Record the gradients of variables and of inputs, both by name, in canonical axis order."""
        if self.recorder.wants("gradient"):
            for name, array in weights.gradients(by_variable):
                self._add("gradient", name, array)
            for name, array in of_inputs.items():
                self._add("gradient", f"{INPUT}.{name}", array)

    def state(self, weights: values.Weights, optimizer: keras.optimizers.Optimizer | None) -> None:
        """Record parameters, statistics and the optimizer's state."""
        if self.recorder.wants("parameter"):
            for kind, name, array in weights.state(self.initial):
                self._add(kind, name, array)
        if optimizer is not None and self.recorder.wants("optimizer_state"):
            for name, array in weights.slots(optimizer):
                self._add("optimizer_state", name, array)

    def axes(self, shape: tuple[int, ...]) -> list[int] | None:
        """Return the axes in torch's order of a tensor of this shape in the layer that is being called.

        They are those of the layer's matched output, else those of the last matched tensor of this shape, else the most
        common order for that number of axes; None if nothing is known.
        """
        running = promotion.running[-1] if promotion.running else MODEL
        match = self._matches.get(running) if running != MODEL else None
        if match and len(match.axes) == len(shape):
            return match.axes
        return self._axes.get(shape) or self._usual.get(len(shape))

    def _see(self, call: Called) -> None:
        """Record one call of a layer: those outputs and inputs that correspond to something of torch's."""
        first = self._outputs[call.path]
        self._outputs[call.path] += len(call.outputs)
        for number, tensor in enumerate(call.outputs, first):
            match = self._matches.get(f"{call.path}#{number}" if number else call.path)
            if match is None:
                continue
            self.modules[self._owners[match.torch]] = self._kinds[call.path]
            self._axes[tuple(tensor.shape)] = match.axes
            if not self.recorder.wants("activation"):
                continue
            if number == first and match.inputs is not None:
                self._see_inputs(match, call)
            self._put("activation", match.torch, tensor, match.axes, self._shapes[match.torch])

    def _see_inputs(self, match: Match, call: Called) -> None:
        """Record a layer's inputs in torch's order of arguments.

        Inputs whose number of axes or size differs from torch's are left out.
        """
        module = self._owners[match.torch]
        expected = self.torch.arguments.get(module, [])
        first = self._inputs[module] * len(expected)
        self._inputs[module] += 1
        for number, (tensor, shape) in enumerate(zip(call.inputs, expected, strict=False), first):
            if tensor.shape.rank == len(match.inputs) and tensor.shape.num_elements() == np.prod(shape, dtype=np.int64):
                name = f"{module}#{number}" if number else module
                self._put("input", name, tensor, match.inputs, shape)

    def _put(self, kind: str, name: str, tensor: tf.Tensor, axes: list[int], shape: tuple[int, ...]) -> None:
        """Record a tensor in torch's form.

        An input that was recorded in this forward pass already in the same form becomes an alias of that record.
        """
        stored = self._stored.get(id(tensor))
        if stored and kind == "input" and (stored.axes, stored.shape) == (tuple(axes), shape):
            self.recorder.alias(kind, name, stored.key)
            return
        key = self.recorder.add(kind, name, _moved(values.array(tensor), axes, shape))
        if key and not stored:
            self._stored[id(tensor)] = _Stored(tensor, tuple(axes), shape, key)

    def _add(self, kind: str, name: str, array: np.ndarray) -> None:
        if self.recorder.wants(kind):
            self.recorder.add(kind, name, array)


def usual(pair: Pair, matches: list[Match]) -> dict[int, list[int]]:
    """Return, by number of axes, the axis order that most Keras tensors need to become torch's.

    The matched activations count, and the layouts of the pair's inputs.
    """
    orders = [tuple(match.axes) for match in matches if not is_output(match.torch)]
    orders += given_orders(pair)
    return {len(axes): list(axes) for axes, _ in reversed(Counter(orders).most_common())}


def _moved(array: np.ndarray, axes: list[int], shape: tuple[int, ...]) -> np.ndarray:
    return array.transpose(axes).reshape(shape)

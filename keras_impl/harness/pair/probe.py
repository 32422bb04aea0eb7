"""Records what a user's model does, in the canonical form of its torch counterpart, as far as there is one."""

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
from parity.runtime.drive import Run
from parity.trace import survey
from parity.trace.mapping import Match


class _Stored(NamedTuple):
    """A tensor of this forward pass that was recorded, in which form, and the key that it has got."""

    tensor: tf.Tensor
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    key: str


class Probe:
    """Attached to a built model for the rest of its life. `modules`: kinds of the matched ones, by torch's path."""

    def __init__(self, run: Run, model: Any, torch: survey.Survey):
        self.recorder, self.initial = run.recorders[0], run.weights
        self.torch = torch
        self.modules: dict[str, str] = {}
        self._shapes = {seen.key: seen.shape for seen in torch.outputs}
        self._owners = {seen.key: seen.module for seen in torch.outputs}
        matches = run.pair.matching.matches if run.pair and run.pair.matching else []
        self._matches = {match.keras: match for match in matches}
        self._kinds = {path: kinds.computed(layer) for path, layer in layers.called(model).items()}
        self._outputs: Counter[str] = Counter()  # of this forward pass, by the path of Keras's layer
        self._inputs: Counter[str] = Counter()  # calls, by the path of torch's module
        self._stored: dict[int, _Stored] = {}
        self._axes: dict[tuple[int, ...], list[int]] = {}
        self._usual = usual(run.case.model, matches)
        watch(model, self._see)

    def inputs(self, tensors: list[np.ndarray]) -> None:
        """A forward pass begins, with these in canonical axes."""
        self._outputs.clear()
        self._inputs.clear()
        self._stored.clear()
        for array in tensors:
            self._add("input", "input", values.array(array))

    def outputs(self, named: list[tuple[str, tf.Tensor]]) -> None:
        """What the whole model returned, in canonical axes."""
        for name, tensor in named:
            self._add("activation", name, values.array(tensor))

    def loss(self, value: tf.Tensor, target: tf.Tensor | None) -> None:
        """What is differentiated."""
        if target is not None:
            self._add("input", "target", values.array(target))
        self._add("loss", "loss", values.array(value))

    def gradients(self, weights: values.Weights, found: dict[str, tf.Tensor], of_inputs: dict[str, np.ndarray]) -> None:
        """Those of variables, by their names, and those of inputs, by theirs, in canonical axes."""
        if self.recorder.wants("gradient"):
            for name, array in weights.gradients(found):
                self._add("gradient", name, array)
            for name, array in of_inputs.items():
                self._add("gradient", f"{INPUT}.{name}", array)

    def state(self, weights: values.Weights, optimizer: keras.optimizers.Optimizer | None) -> None:
        """Parameters, statistics and the optimizer's state."""
        if self.recorder.wants("parameter"):
            for kind, name, array in weights.state(self.initial):
                self._add(kind, name, array)
        if optimizer is not None and self.recorder.wants("optimizer_state"):
            for name, array in weights.slots(optimizer):
                self._add("optimizer_state", name, array)

    def axes(self, shape: tuple[int, ...]) -> list[int] | None:
        """Of a tensor of this shape in the layer that is being called: its axes in torch's order, if that is known.

        Those of what the layer returns, or else of the last tensor of this shape that corresponds to one of torch's, or
        of most tensors with as many axes.
        """
        running = promotion.running[-1] if promotion.running else MODEL
        match = self._matches.get(running) if running != MODEL else None
        if match and len(match.axes) == len(shape):
            return match.axes
        return self._axes.get(shape) or self._usual.get(len(shape))

    def _see(self, call: Called) -> None:
        """One call of a layer: what corresponds to something of torch's."""
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
        """In torch's order of arguments; those that have its number of axes and its size."""
        module = self._owners[match.torch]
        expected = self.torch.arguments.get(module, [])
        first = self._inputs[module] * len(expected)
        self._inputs[module] += 1
        for number, (tensor, shape) in enumerate(zip(call.inputs, expected, strict=False), first):
            if tensor.shape.rank == len(match.inputs) and tensor.shape.num_elements() == np.prod(shape, dtype=np.int64):
                name = f"{module}#{number}" if number else module
                self._put("input", name, tensor, match.inputs, shape)

    def _put(self, kind: str, name: str, tensor: tf.Tensor, axes: list[int], shape: tuple[int, ...]) -> None:
        """Record a tensor in torch's form, or that it is what was recorded in this forward pass already."""
        known = self._stored.get(id(tensor))
        if known and kind == "input" and (known.axes, known.shape) == (tuple(axes), shape):
            self.recorder.alias(kind, name, known.key)
            return
        key = self.recorder.add(kind, name, _moved(values.array(tensor), axes, shape))
        if key and not known:
            self._stored[id(tensor)] = _Stored(tensor, tuple(axes), shape, key)

    def _add(self, kind: str, name: str, array: np.ndarray) -> None:
        if self.recorder.wants(kind):
            self.recorder.add(kind, name, array)


def usual(pair: Pair, matches: list[Match]) -> dict[int, list[int]]:
    """By the number of axes of a tensor of Keras's the order that makes most of them torch's; the inputs' count too."""
    seen = [tuple(match.axes) for match in matches if not is_output(match.torch)]
    for one in pair.inputs.values():
        canonical, _, own = (side.split() for side in one.keras_layout.partition("->"))
        if sorted(own) == sorted(canonical):
            seen.append(tuple(own.index(axis) for axis in canonical))
    return {len(axes): list(axes) for axes, _ in reversed(Counter(seen).most_common())}


def _moved(array: np.ndarray, axes: list[int], shape: tuple[int, ...]) -> np.ndarray:
    return array.transpose(axes).reshape(shape)

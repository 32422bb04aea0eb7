"""What of a user's layers has a counterpart in torch's model: under which name, and in which form, it is recorded."""

from collections import Counter
from typing import Any

import numpy as np
import tensorflow as tf

from keras_impl.record import calls, kinds, tree
from keras_impl.record.calls import Call
from keras_impl.record.canonical import Form, Seen
from keras_impl.record.pair.outputs import flat
from parity.config.pair import Pair
from parity.core.names import MODEL
from parity.pairs.activations.counterparts import is_output
from parity.pairs.activations.layouts import given_orders
from parity.runtime.drive import Run
from parity.trace import survey
from parity.trace.mapping import Match


class Counterparts:
    """The matched activations of one run of a model; `torch` is the survey of its counterpart."""

    def __init__(self, run: Run, model: Any, torch: survey.Survey):
        self.torch, self.wants = torch, run.recorders[0].wants
        self._shapes = {seen.key: seen.shape for seen in torch.outputs}
        self._owners = {seen.key: seen.module for seen in torch.outputs}
        matches = run.pair.matching.matches if run.pair and run.pair.matching else []
        self._matches = {match.keras: match for match in matches}
        self._fed = {each.keras: each for each in run.pair.matching.fed} if run.pair and run.pair.matching else {}
        self._kinds = {path: kinds.computed(layer) for path, layer in tree.called(model).items()}
        self._outputs: Counter[str] = Counter()  # outputs seen in this forward pass, by the path of Keras's layer
        self._inputs: Counter[str] = Counter()  # calls seen in this forward pass, by the path of torch's module
        self._axes: dict[tuple[int, ...], list[int]] = {}
        self._usual = usual(run.case.model, matches)

    def begin(self) -> None:
        """Begin a forward pass."""
        self._outputs.clear()
        self._inputs.clear()

    def axes(self, shape: tuple[int, ...]) -> list[int] | None:
        """Return the axes in torch's order of a tensor of this shape in the layer that is being called.

        They are those of the layer's matched output, else those of the last matched tensor of this shape, else the most
        common order for that number of axes; None if nothing is known.
        """
        path = calls.innermost() or MODEL
        match = self._matches.get(path) if path != MODEL else None
        if match and len(match.axes) == len(shape):
            return match.axes
        return self._axes.get(shape) or self._usual.get(len(shape))

    def seen(self, call: Call, outputs: Any, modules: dict[str, str]) -> list[Seen]:
        """Return those outputs and inputs of a layer's call that correspond to something of torch's.

        The kinds of layers with a counterpart are added to `modules`, by torch's path. While a graph is traced there
        are no values, and nothing is returned.
        """
        if not tf.executing_eagerly():
            return []
        found: list[Seen] = []
        first, tensors = self._outputs[call.path], list(flat(outputs))
        self._outputs[call.path] += len(tensors)
        if (fed := self._fed.get(call.path)) and self.wants("activation"):
            modules.setdefault(fed.torch, self._kinds[call.path])
            found += self._given(fed.torch, fed.axes, call)
        for number, tensor in enumerate(tensors, first):
            match = self._matches.get(f"{call.path}#{number}" if number else call.path)
            if match is None:
                continue
            modules[self._owners[match.torch]] = self._kinds[call.path]
            self._axes[tuple(tensor.shape)] = match.axes
            if not self.wants("activation"):
                continue
            if number == first and match.inputs is not None:
                found += self._given(self._owners[match.torch], match.inputs, call)
            found.append(Seen("activation", match.torch, tensor, _form(tensor, match.axes, self._shapes[match.torch])))
        return found

    def _given(self, module: str, axes: list[int], call: Call) -> list[Seen]:
        """Return a layer's inputs in torch's order of arguments; `module` is torch's.

        Inputs whose number of axes or size differs from torch's are left out.
        """
        expected = self.torch.arguments.get(module, [])
        first = self._inputs[module] * len(expected)
        self._inputs[module] += 1
        return [
            Seen("input", f"{module}#{number}" if number else module, tensor, Form(tuple(axes), shape))
            for number, (tensor, shape) in enumerate(zip(call.tensors, expected, strict=False), first)
            if tensor.shape.rank == len(axes) and tensor.shape.num_elements() == np.prod(shape, dtype=np.int64)
        ]


def _form(tensor: tf.Tensor, axes: list[int], shape: tuple[int, ...]) -> Form:
    """Return the form of an output; a step of the user's own may call the model with a part of the batch."""
    is_other = tensor.shape.num_elements() != np.prod(shape, dtype=np.int64) and tensor.shape.rank == len(axes)
    return Form(tuple(axes), tuple(tensor.shape[axis] for axis in axes) if is_other else shape)


def usual(pair: Pair, matches: list[Match]) -> dict[int, list[int]]:
    """Return, by number of axes, the axis order that most Keras tensors need to become torch's.

    The matched activations count, and the layouts of the pair's inputs.
    """
    orders = [tuple(match.axes) for match in matches if not is_output(match.torch)]
    orders += given_orders(pair)
    return {len(axes): list(axes) for axes, _ in reversed(Counter(orders).most_common())}

"""A user's model that lives, of which one layer can be called again as it was called in the first forward pass."""

import inspect
import math
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import math_ops  # through which TensorFlow's own functions cast their constants

from keras_impl.experiment.call import like, recorded
from keras_impl.experiment.later import Later
from keras_impl.experiment.operations import graph_settings, located, operations
from keras_impl.instruments import source
from keras_impl.record import calls, tree, weights
from keras_impl.record.pair import layers
from keras_impl.record.pair.build import is_overridden
from keras_impl.record.pair.outputs import flat
from keras_impl.record.pair.vary import Instance
from parity.config.pair import Train
from parity.core.arrays import Array
from parity.diagnose.experiment import live
from parity.diagnose.experiment.candidates import known_functions
from parity.diagnose.experiment.knobs import Knob, Owner
from parity.pairs.vary.coverage import Observer
from parity.runtime.experiment import Mask


def _exact_constants(precision: str) -> AbstractContextManager[Any]:
    """Let tf.cast take a Python number at the precision to which it is cast.

    It makes a float32 tensor of it before it casts that, so that functions such as tf.nn.gelu compute with float32
    constants whatever their input is.
    """
    cast = math_ops.cast

    def exact(x: Any, dtype: Any, name: str | None = None) -> Any:
        return tf.constant(x, dtype) if isinstance(x, float) else cast(x, dtype, name)

    return mock.patch.object(math_ops, "cast", exact if precision == "float64" else cast)


class Live(live.Live):
    """A built model; `train`: how it is trained, in its first pass too; `later`: what comes after that."""

    functions = known_functions(
        keras.activations,
        gelu_tanh=lambda x, *_, **__: keras.activations.gelu(x, approximate=True),  # whatever the form asked for
        gelu_exact=lambda x, *_, **__: keras.activations.gelu(x, approximate=False),
    )
    base, called, separator = keras.Model, keras.Layer, "/"  # a model has all that a layer has
    array, like = staticmethod(weights.array), staticmethod(like)
    line, _mapped, _tensors = staticmethod(source.nearest), staticmethod(tf.nest.map_structure), (tf.Tensor, np.ndarray)
    _recorded, _operations, _innermost = staticmethod(recorded), staticmethod(operations), staticmethod(calls.innermost)
    _precisions = (Knob("constants", "tf.cast", "", "float32", "precision", _exact_constants, ("float64",)),)

    def __init__(self, built: Instance, inputs: dict[str, np.ndarray], train: Train | None, later: Later) -> None:
        is_own = train and (train.keras_step or is_overridden(built.model, "train_step"))
        own_step = later.own_step if is_own else None
        super().__init__(
            built, lambda: built.call(inputs, train is not None, Observer()), own_step, later, tree.named(built.model)
        )
        self._observed = tree.inner(built.model)
        calls.observed(self._observed, self._on_call, self._on_return)

    def graph_settings(self, read: Collection[str], theirs: Sequence[Mask]) -> list[Knob]:
        """Return the settings of the operations in functional models' graphs: the code that made them runs no more.

        `read`: the names that the code which is run refers to. `theirs`: the masks of the other side's module.
        """
        return list(graph_settings([owner.module for owner in self.owners()], self._built.lines, read, theirs))

    def _arranged(self, array: Array) -> Array:
        shape, arranged = self._tensor.shape, array.transpose(self._tensor.axes)
        is_part = arranged.size != math.prod(shape)  # of a batch, as a step of the user's own may take it apart
        return arranged.reshape([-1, *shape[1:]] if is_part else shape)

    def _reached(self) -> list[str]:
        return [*self._called, *(path for path in self._modules if path not in self._observed)]

    def _located(self) -> AbstractContextManager[None]:
        """Take the line that made an operation of a graph for the line that is running."""
        return located(self._modules.values(), self._built.lines)

    def _owner(self, path: str) -> Owner:
        layer = self._modules[path]
        sizes = {size for _, variable in layers.variables_of(layer) for size in variable.shape}
        return Owner(path, tree.kind(layer), layer, sizes)

    def _bound(self, call: calls.Call) -> tuple[dict[str, Any], Callable[[], Any]]:
        bound = inspect.signature(call.module.call).bind(*call.args, **call.kwargs)
        bound.apply_defaults()
        return bound.arguments, lambda: call.module.call(*bound.args, **bound.kwargs)

    def _on_call(self, call: calls.Call) -> None:
        self._enter(call, lambda call: call, lambda call: call.tensors[: self._tensor.each or None])

    def _on_return(self, call: calls.Call, outputs: Any) -> None:
        self._leave(call, lambda: list(flat(outputs)))

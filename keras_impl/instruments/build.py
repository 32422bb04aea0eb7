"""What a program does while it is built: the lines that make layers and optimizers, and that use tf.device."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import keras
import msgspec
import tensorflow as tf
from tensorflow.python.eager import context  # both tf.device and keras.device end up here

from keras_impl.instruments import draws, source
from keras_impl.instruments.devices import name
from keras_impl.instruments.names import Variable, named, registered, variables
from parity.core.patches import Original, around
from parity.doctor.evidence import Module, Move, Tensor, Weight, below
from parity.doctor.rewrite import Spot
from parity.trace.keys import MODEL


class Scopes:
    """Watches the tf.device scopes that the user's lines enter: `moves` has all, `open` those open, innermost last."""

    def __init__(self) -> None:
        self.moves: list[Move] = []
        self.open: list[Move] = []

    def watched(self) -> AbstractContextManager[Any]:
        return around(context.Context, "device", self._device)

    def _device(self, device: Original, thread: context.Context, asked: Any) -> AbstractContextManager:
        # What tf.device accepts: a name, a DeviceSpec or a logical device.
        text = asked.to_string() if isinstance(asked, tf.DeviceSpec) else getattr(asked, "name", asked)
        line, wanted = source.direct(), name(text) if isinstance(text, str) else ""
        scope = device(thread, asked)
        return self._entered(scope, Move(device=wanted, source=line)) if line and wanted else scope

    @contextmanager
    def _entered(self, scope: AbstractContextManager, move: Move) -> Iterator[None]:
        self.moves.append(move)
        self.open.append(move)
        try:
            with scope:
                yield
        finally:
            self.open.remove(move)


Optimizer = keras.optimizers.Optimizer


class Building(ExitStack):
    """Notes where layers, optimizers and losses are made, and within which tf.device.

    Enter it before the user's code is imported. A layer made later (at a first call) gets the line of its owner.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: WeakKeyDictionary[keras.Layer, str] = WeakKeyDictionary()
        # Whether each layer was in training mode when it was first called.
        self.trainings: WeakKeyDictionary[keras.Layer, bool] = WeakKeyDictionary()
        self.optimizers: WeakKeyDictionary[Optimizer, str] = WeakKeyDictionary()  # the line that made each
        # The expression within these lines that made each optimizer or loss, or compiled the model.
        self.spots: WeakKeyDictionary[Any, Spot | None] = WeakKeyDictionary()
        self.compiled: WeakKeyDictionary[keras.Model, Spot | None] = WeakKeyDictionary()
        self._within: WeakKeyDictionary[keras.Layer, list[Move]] = WeakKeyDictionary()  # the open tf.device scopes
        self._names: dict[str, keras.Layer] = {}
        self._scopes = Scopes()

    def __enter__(self) -> "Building":
        self.enter_context(self._scopes.watched())
        self.enter_context(draws.wrapped())
        self.enter_context(around(keras.Layer, "__new__", self._make_layer))
        self.enter_context(self.noting_optimizers())
        self.enter_context(around(keras.losses.Loss, "__init__", self._make_loss))
        self.enter_context(around(keras.Model, "compile", self._compile))
        return self

    def noting_optimizers(self) -> AbstractContextManager:
        """Return a patch within which new optimizers are noted."""
        return around(Optimizer, "__init__", self._make_optimizer)

    def _make_optimizer(self, make: Original, optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        make(optimizer, *args, **kwargs)
        self.optimizers[optimizer], self.spots[optimizer] = source.line(optimizer), source.spot(optimizer)

    def _make_loss(self, make: Original, loss: keras.losses.Loss, *args: Any, **kwargs: Any) -> None:
        make(loss, *args, **kwargs)
        self.spots[loss] = source.spot(loss)

    def _compile(self, compile_: Original, model: keras.Model, *args: Any, **kwargs: Any) -> Any:
        self.compiled[model] = source.spot()
        return compile_(model, *args, **kwargs)

    def modules(self, model: Any) -> list[Module]:
        """Return all layers; call it after the first step, because some are made at a first call."""
        self._names, registered_ids = dict(named(model)), registered(model)
        return [self._module(path, layer, id(layer) in registered_ids) for path, layer in self._names.items()]

    def weights(self, model: Any, optimizers: Sequence[Optimizer]) -> list[Weight]:
        """Return what the model and its optimizers hold: parameters, buffers and slots."""
        own_variables, optimizer = list(variables(model)), getattr(model, "optimizer", None)
        compiled = [optimizer] if isinstance(optimizer, Optimizer) else []  # which compile() has attached to the model
        named_by_id = {id(variable.variable): variable for variable in own_variables}
        slots = [
            _weight(named_by_id[id(parameter)], slot._value, "optimizer_state")
            for optimizer in {id(candidate): candidate for candidate in (*optimizers, *compiled)}.values()
            for parameter, slot in _slots(optimizer)
            if id(parameter) in named_by_id
        ]
        return [
            _weight(variable, variable.value, "parameter" if variable.parameter else "buffer")
            for variable in own_variables
        ] + slots

    @property
    def moves(self) -> list[Move]:
        """Return the tf.device scopes, each with the layer that was made in it, if that is one with its sublayers only.

        `modules` must have been called before.
        """
        by_key = {}
        for move in self._scopes.moves:
            # This very move: others of its device and line are equal.
            paths = [path for path, layer in self._names.items() if id(move) in map(id, self._within.get(layer, ()))]
            outermost = [path for path in paths if not any(below(around, path) for around in paths if around != path)]
            whole = outermost == [MODEL]
            module = outermost[0] if len(outermost) == 1 and not whole else ""
            by_key[move.device, move.source, module] = msgspec.structs.replace(move, module=module, whole=whole)
        return list(by_key.values())

    def _make_layer(self, new: Original, kind: type, *args: Any, **kwargs: Any) -> keras.Layer:
        layer = new(kind, *args, **kwargs)
        self.lines[layer], self._within[layer] = source.line(), list(self._scopes.open)
        return layer

    def _module(self, path: str, layer: keras.Layer, is_registered: bool) -> Module:
        line, mode = self._line(path), self.trainings.get(layer, True)
        kind, facts = type(layer).__name__, _facts(layer)
        return Module(name=path, kind=kind, source=line, training=mode, registered=is_registered, facts=facts)

    def _line(self, path: str) -> str:
        """Return the line that made a layer, or else that made the layer it is part of."""
        while path:
            if path in self._names and self._names[path] in self.lines:
                return self.lines[self._names[path]]
            path = path.rpartition(".")[0] or (MODEL if path != MODEL else "")
        return ""


def _facts(layer: keras.Layer) -> dict[str, int | float | bool | str]:
    facts: dict[str, int | float | bool | str] = {}
    if isinstance(layer, keras.layers.Embedding):
        facts["rows"] = layer.input_dim
    if not layer.trainable:
        facts["frozen"] = True
    return facts


def _slots(optimizer: Optimizer) -> Iterator[tuple[keras.Variable, keras.Variable]]:
    """Yield each parameter with each of its slots; an optimizer keeps lists in the order of the parameters."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    parameters = getattr(optimizer, "_trainable_variables", [])
    for held in vars(optimizer).values():
        if isinstance(held, Sequence) and held is not parameters and len(held) == len(parameters):
            for parameter, slot in zip(parameters, held, strict=True):
                if isinstance(slot, keras.Variable):
                    yield parameter, slot


def _weight(of: Variable, value: tf.Variable, kind: Any) -> Weight:
    """Describe a variable, or an optimizer's slot for it, by its `value`: of several copies the first."""
    value = value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value
    origin, shape = "" if kind == "optimizer_state" else f"{kind} {of.name}", value.shape.as_list()
    tensor = Tensor(device=name(value.device), dtype=value.dtype.name, shape=shape, origin=origin)
    return Weight(name=of.name, module=of.module, kind=kind, tensor=tensor, trained=bool(of.variable.trainable))

"""The state of a user's model under canonical names, converted by the mapping of its weights.

It is converted entry by entry, so that no second copy of the model is ever in memory. What the model and the files of
its program keep in Python beside the weights is seen, and given back.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf

from keras_impl.instruments.script_copies import copies, copy_to
from keras_impl.instruments.script_data import fits
from keras_impl.record import tree
from keras_impl.record.pair import layers
from keras_impl.record.pair.optimizers import Joint, rate
from keras_impl.record.weights import OTHER_SLOTS, SLOTS, Value, array
from parity.config.schema import Case
from parity.core import program, random
from parity.core.arrays import Floats
from parity.core.errors import BackendError
from parity.core.precision import dtype
from parity.core.python_state import Framework, PythonState
from parity.pairs.weights import transfer
from parity.runtime import survey
from parity.trace import mapping

Array = np.ndarray


class Placed(NamedTuple):
    """An entry of the mapping with its Keras variables and the shapes of torch's weights."""

    entry: mapping.Entry
    held: list[layers.Held]
    shapes: list[tuple[int, ...]]


class Weights:
    """The weights of a built model and, once it is set, its optimizer's state.

    `torch` is the survey of the model's counterpart, and `initial` holds that model's initial values.
    """

    def __init__(self, model: Any, pairing: mapping.Mapping, torch: survey.Survey, initial: Mapping[str, Floats]):
        self.variables, self.torch, self.initial = layers.variables(model), torch, initial
        self.optimizer: Joint | None = None
        self._normalizing = [
            each for each in tree.named(model).values() if isinstance(each, keras.layers.Normalization)
        ]
        self.torch_weights = {weight.name: weight for weight in torch.weights}
        by_name = {held.description.name: held for held in self.variables}
        self.placed, self.partial = (
            [
                Placed(entry, [by_name[n] for n in entry.keras], [self.torch_weights[n].shape for n in entry.torch])
                for entry in entries
            ]
            for entries in (pairing.entries, [each.entry for each in pairing.partial])
        )
        self._partial = {name: each for each in pairing.partial for name in each.runs}
        self._left_out = pairing.left_out.union(pairing.constants)
        # Layers of a script's model that begin as copies of others, such as a target network, and those.
        layers_of_script = getattr(model, "layers", []) if fits.get(model) else []
        left_out = {id(held.variable) for held in self.variables if held.description.name in self._left_out}
        beside = [each for each in layers_of_script if left_out and left_out.issuperset(map(id, each.weights))]
        self._copies = copies([each for each in layers_of_script if each not in beside], beside) if beside else []

    @classmethod
    def loaded(cls, model: Any, halves: mapping.PairContext, initial: Mapping[str, Floats]) -> Self:
        """Return a model's weights, set to torch's values. Raises BackendError if one would keep its random ones."""
        own = cls(model, halves.mapping, survey.read(Path(halves.survey)), initial)
        covered = {held.description.name for placed in own.placed for held in placed.held} | own._left_out
        names = [held.description.name for held in own.variables]
        if uncovered := [name for name in names if name not in covered]:
            raise BackendError(
                f"Keras's weights {', '.join(uncovered)} have no values, as none of torch's weights is mapped to them; "
                "map them in [[weights]]"
            )
        own.load()
        return own

    def load(self) -> None:
        """Set every mapped variable from torch's values, and those that are mapped in part within their runs."""
        initial = self.initial
        for entry, held, _ in (*self.placed, *self.partial):
            names = entry.torch
            if not all(name in initial for name in names):
                continue
            shapes = [item.description.shape for item in held]
            for item, values in zip(held, transfer.to_keras(entry, [initial[n] for n in names], shapes), strict=True):
                if part := self._partial.get(item.description.name):
                    values = _merged(array(item.variable), part.factor * values, part.runs[item.description.name])
                item.variable.assign(values.astype(item.description.dtype))
        for layer in self._normalizing:
            layer.finalize_state()  # it computes with tensors that it has made of its variables
        copy_to(self._copies)

    def state(self, wants: Callable[[str], bool]) -> Iterator[tuple[str, Value]]:
        """Yield (kind, value) of all state of the kinds that are wanted; buffers are wanted with parameters."""
        if wants("parameter"):
            initial = [each for each in self.placed if all(name in self.initial for name in each.entry.torch)]
            yield from (self._seen(*value) for value in self.values(initial))
        if self.optimizer is not None and wants("optimizer_state"):
            yield from (("optimizer_state", Value(name, None, [array])) for name, array in self.slots())

    def values(self, placed: Iterable[Placed]) -> Iterator[tuple[str, Array]]:
        """Yield (canonical name, value) of what entries of the mapping hold now."""
        for entry, held, shapes in placed:
            start = [self.initial[name] for name in entry.torch] if entry.is_partial else None
            values = transfer.to_torch(entry, [array(item.variable) for item in held], shapes, start)
            yield from zip(entry.torch, values, strict=True)

    def trained(self) -> list[layers.Held]:
        """Return the variables that are trained."""
        return [held for held in self.variables if held.description.trainable]

    def by_name(self) -> dict[str, keras.Variable]:
        """Return the trained variables, the first of several, by torch's names of the weights."""
        trained = [(entry, held[0]) for entry, held, _ in self.placed if held[0].description.trainable]
        return {name: first.variable for entry, first in trained for name in entry.torch}

    def canonical_trained(self) -> list[str]:
        """Return torch's names of the weights that are trained on this side."""
        entries = [entry for entry, held, _ in self.placed if any(item.description.trainable for item in held)]
        names = [(entry, name) for entry in entries for name in entry.torch]
        return [name for entry, name in names if entry.combine != "sum" or self.torch_weights[name].trainable]

    def gradients(self, values: Mapping[int, tf.Tensor]) -> Iterator[tuple[str, Array]]:
        """Yield (canonical name, gradient) from the variables' gradients, which are given by id(variable).

        An entry without any gradient gives zeros for the weights that torch trains. If a variable is the sum of several
        of torch's weights, its gradient is that of each of them; the ones that torch does not train are left out.
        """
        for placed in self.placed:
            entry, held, _ = placed
            only_trained = entry.combine == "sum" or not any(id(item.variable) in values for item in held)
            if any(not only_trained or self.torch_weights[name].trainable for name in entry.torch):
                yield from (
                    (name, gradient)
                    for name, gradient in self.gradients_of(placed, values)
                    if not only_trained or self.torch_weights[name].trainable
                )

    @staticmethod
    def gradients_of(placed: Placed, values: Mapping[int, tf.Tensor]) -> Iterator[tuple[str, Array]]:
        """Return (canonical name, gradient) of an entry of the mapping; zeros for variables that have none."""
        arrays = [
            array(values[id(held.variable)])
            if id(held.variable) in values
            else np.zeros(held.description.shape, held.description.dtype)
            for held in placed.held
        ]
        return zip(placed.entry.torch, transfer.gradients_to_torch(placed.entry, arrays, placed.shapes), strict=True)

    def slots(self) -> Iterator[tuple[str, Array]]:
        """Yield the learning rate of the next step, if there is one, and every slot as `parameter.slot`.

        If a variable is the sum of several of torch's weights, only the first gets its slots.
        """
        rates = {rate(optimizer) for optimizer in self.optimizer.optimizers}
        if len(rates) == 1 and (number := rates.pop()) is not None:
            yield "learning_rate", np.asarray(number, np.float64)
        for optimizer in self.optimizer.optimizers:
            yield from self._slots_of(optimizer)

    def _slots_of(self, optimizer: keras.optimizers.Optimizer) -> Iterator[tuple[str, Array]]:
        attributes = next((own for kind, own in OTHER_SLOTS.items() if isinstance(optimizer, kind)), SLOTS)
        slots = {slot: held for slot, attribute in attributes.items() if (held := getattr(optimizer, attribute, None))}
        for entry, held, shapes in self.placed:
            trained = [item.variable for item in held if item.description.trainable]
            is_held = all(self.optimizer.updates(optimizer, variable) for variable in trained)
            is_trained = any(self.torch_weights[name].trainable for name in entry.torch)
            for slot, variables in slots.items() if is_held and is_trained else ():
                yield from self._slot(entry, slot, [_slot(variables, optimizer, item) for item in held], shapes)

    def _slot(
        self, entry: mapping.Entry, slot: str, arrays: list[Array], shapes: list[tuple[int, ...]]
    ) -> Iterator[tuple[str, Array]]:
        is_sum = entry.combine == "sum"
        zeros = [np.zeros(shape, arrays[0].dtype) for shape in shapes] if entry.is_partial else None
        by_name = zip(entry.torch, transfer.to_torch(entry, arrays, shapes, zeros), strict=True)
        for name, value in [next(by_name)] if is_sum else by_name:
            yield f"{name}.{slot}", value

    def _seen(self, name: str, value: Array) -> tuple[str, Value]:
        """Return kind and value as torch records them: a frozen weight as parameter, integers where torch has them."""
        weight = self.torch_weights[name]
        kind = "buffer" if weight.statistic or weight.constant else "parameter"
        integer_type = np.bool_ if weight.dtype == "bool" else np.int64 if "int" in weight.dtype else None
        if integer_type and np.array_equal(integers := value.astype(integer_type), value):
            value = integers
        return kind, Value(name, None, [value])


def _merged(own: Array, values: Array, runs: Iterable[tuple[int, int]]) -> Array:
    """Return a variable's own values, with others in the given ranges of elements."""
    merged = own.flatten()
    for start, end in runs:
        merged[start:end] = values.reshape(-1)[start:end]
    return merged.reshape(own.shape)


def untrained(model: Any) -> Iterator[tuple[str, Array]]:
    """Yield name and value of what is neither trained nor a statistic, as it is now."""
    for held in layers.variables(model):
        if not held.description.trainable and held.description.role not in layers.STATISTICS:
            yield held.description.name, array(held.variable)


def started(model: Any, case: Case) -> Iterator[tuple[str, Array]]:
    """Yield the initial values of all variables of a model that is compared with itself, as those of torch's are made.

    Those that are trained, and statistics, are the model's own, rounded to the run precision; one in which all values
    are equal is perturbed, so that it shows what becomes of it.
    """
    for held in layers.variables(model):
        values, weight = array(held.variable), held.description
        if (weight.trainable or weight.statistic) and values.dtype.kind == "f" and not case.model.keeps_weights:
            values = random.spread(case.seed, f"start/{weight.name}", values).astype(dtype(case.precision))
            values = values.astype(np.float32)
        yield weight.name, values


def _slot(slots: list[Any], optimizer: keras.optimizers.Optimizer, held: layers.Held) -> Array:
    """Return a variable's slot; zeros for a variable that Keras does not train."""
    if held.description.trainable:
        return array(slots[optimizer._get_variable_index(held.variable)])
    return np.zeros(held.description.shape, held.description.dtype)


def python_state(model: Any, further: Mapping[str, Any] = {}) -> PythonState:
    """Return what the model's layers, further objects, and the files of the program keep now, beside weights."""
    objects = {path: each for path, each in further.items() if hasattr(each, "__dict__")}
    return PythonState(FRAMEWORK, tree.named(model) | objects, program.modules())


def _is_variable(value: Any) -> bool:
    return isinstance(value, (keras.Variable, tf.Variable))


def _is_part(value: Any) -> bool:
    is_trained = _is_variable(value) and value.trainable
    return is_trained or isinstance(value, (keras.Layer, tf.Module, keras.optimizers.Optimizer))


def _numbers(value: Any) -> np.ndarray | None:
    is_tensor = _is_variable(value) or (isinstance(value, tf.Tensor) and hasattr(value, "numpy"))
    return np.asarray(value.numpy()) if is_tensor else None


def _keep(value: Any) -> Callable[[], object]:
    if not _is_variable(value):
        return lambda: None  # a tensor does not change
    before = tf.identity(value)
    return lambda: value.assign(before)


OWN = {*vars(keras.Model()), *vars(keras.Model(_input := keras.Input((1,)), _input)), "call", "build"}
# What an optimizer, a recurrent cell and attention set as they are asked for it.
OWN |= {"_exclude_from_weight_decay_cache", "_dropout_mask", "_recurrent_dropout_mask", "_return_attention_scores"}
FRAMEWORK = Framework(
    is_own=lambda name: name in OWN or name.startswith("_self_"),  # as TensorFlow names what tracks attributes
    is_part=_is_part,
    numbers=_numbers,
    keep=_keep,
    is_state=lambda value: not _is_variable(value),  # a graph keeps variables
)

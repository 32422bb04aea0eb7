"""Where a script's loop takes batches from a dataset: what it makes of each, and what stands in its place.

Many loops make the inputs of their models themselves, of a batch and of random numbers, or train several models. The
steps of those begin where they take a batch, and not where they call a model.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import keras
import numpy as np
import tensorflow as tf
from keras.src import tree
from msgspec.structs import replace
from tensorflow.python.data.ops.iterator_ops import OwnedIterator
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

from keras_impl.instruments import source
from keras_impl.instruments.script_data import Fit, is_array
from parity.core.patches import around
from parity.core.script import Sources
from parity.pairs.script_records import BATCH, GIVEN, INNER, OPTIONS, Called, Fetched, are_rows_of_ids

Trained = tuple[Fetched, dict[str, np.ndarray]]  # how a step is trained, with its arrays


class Calls:
    """How the layers of a model, or of a script, are called first in a step."""

    def __init__(self) -> None:
        self.of: dict[Any, tuple[Any, Any, list[Any]]] = {}  # arguments, and the tensors that are returned
        self.again: list[tuple[Any, Any]] = []  # these, with the arguments of later calls

    def only(self, layers: Collection[Any]) -> "Calls":
        """Return the calls of some layers."""
        part = Calls()
        part.of = {layer: each for layer, each in self.of.items() if layer in layers}
        part.again = [each for each in self.again if each[0] in layers]
        return part

    def note(self, layer: Any, args: Any, kwargs: Mapping[str, Any], outputs: Any) -> None:
        """Note a call of a layer."""
        returned = [each for each in tree.flatten(outputs) if tf.is_tensor(each)]
        given = {name: each for name, each in kwargs.items() if name != "training"}
        if layer in self.of:
            self.again.append((layer, (args, given)))
        self.of.setdefault(layer, (args, given, returned))

    def described(self, numbers: Mapping[Any, int], batch: Fit, is_linked: bool = False) -> "Trained":
        """Return what was called for a batch, given the numbers of the layers, with the arrays of both.

        With `is_linked`, what a call returned before is no such array where it is given to another one.
        """
        tensors = list[Any]()
        outputs = [each for *_, returned in self.of.values() for each in returned] if is_linked else []
        linked = set[int]()

        def noted(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [noted(each) for each in value]
            if isinstance(value, dict):
                return {key: noted(each) for key, each in value.items()}
            if not is_array(value):
                return value.item() if isinstance(value, np.generic) else value
            if (number := next((number for number, each in enumerate(outputs) if each is value), None)) is not None:
                linked.add(number)
                return {"output": number}
            number = next((number for number, each in enumerate(tensors) if is_linked and each is value), len(tensors))
            tensors[number:] = tensors[number:] or [value]
            array = np.asarray(value)
            return {"tensor": number} | ({"classes": array.shape[-1]} if are_rows_of_ids(array) else {})

        calls = [
            Called(layer=numbers[layer], args=noted(args), kwargs=noted(kwargs))
            for layer, (args, kwargs, _) in self.of.items()
        ]
        again = [each for _, given in self.again for each in tree.flatten(given) if is_array(each)]
        arrays = {f"{BATCH}{name}": each for name, each in batch.inputs.items()}
        arrays |= {f"{GIVEN}{number}": np.asarray(each) for number, each in enumerate(tensors)}
        made = (each for *_, returned in self.of.values() for each in returned)
        returned = [list(each.shape) for number, each in enumerate(made) if number not in linked]
        makes = not all(any(np.array_equal(each, own) for own in batch.inputs.values()) for each in again)
        takes = [self._takes(layer, batch.arrays) for layer in self.of]
        return Fetched(returned=returned, calls=calls, makes_more=makes, takes=takes), arrays

    def _takes(self, layer: Any, of_batch: Mapping[str, Any]) -> list[str]:
        """Return what of a batch a layer is given, call by call."""
        args, kwargs, _ = self.of[layer]
        later = [given for each, given in self.again if each is layer]
        given = [each for each in tree.flatten([args, kwargs, later]) if is_array(each)]
        return [name for each in given for name, own in of_batch.items() if np.array_equal(each, own)]


class Fetch(NamedTuple):
    """A batch that was taken, how layers are called for it, and what is differentiated.

    `calls`: those within a tape; `every`: those outside of one as well, up to the first backward pass.
    `is_of_function`: whether it is what a tf.function was given.
    """

    number: int
    batch: Any
    calls: Calls
    every: Calls
    losses: list[Any]
    is_of_function: bool


class Fetches:
    """The batches that one run of a script takes from its datasets."""

    def __init__(
        self,
        known: Fetched | None,  # how the script trains on them, if its steps begin where it takes one
        made: Sequence[Any],  # all layers of the script
        on_step: Callable[[Any], Any],  # returns what stands in the place of a batch with which a step begins
        of_dataset: Callable[[Any, Any], Any],  # returns what stands for any other batch of a dataset
        is_recorded: Callable[[], bool],  # whether a tape records
    ) -> None:
        self._is_recorded, self._has_dataset = is_recorded, False
        self._is_in_function = False  # whether a tf.function runs that was given a batch
        self._placed: list[tuple[Any, Any]] = []  # its arguments in this step, each with what stands for it
        self._known, self._made, self._on_step, self._of_dataset = known, made, on_step, of_dataset
        self._names: dict[Any, str] = {}
        self.links = Calls()  # of the first step, whether it takes a batch or not
        self._all: list[Fetch] = []  # unless it is known how the script trains
        self._taken = 0
        self._sources = Sources()
        self._datasets: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # their numbers, by their iterators
        self._dataset: Any = None  # the number of that on which the script trains

    @property
    def last(self) -> Fetch | None:
        """Return the batch that was taken last."""
        return self._all[-1] if self._all else None

    @property
    def trained_on(self) -> Fetch | None:
        """Return the first batch that was trained on, to the end; None if there is none."""
        return next((each for each in self._all[:-1] if each.losses), None)

    def patches(self) -> Iterator[AbstractContextManager[Any]]:
        """Yield what has to be patched while the script runs."""
        yield around(tf.data.Dataset, "__iter__", self._on_iter)
        yield around(OwnedIterator, "__next__", self._on_next)
        yield around(Function, "__call__", self._on_function)

    def model(self) -> Any:
        """Return the one layer that is known to be trained, or all of them together."""
        assert self._known
        return _together({name: self._made[number] for name, number in self._known.modules.items()})

    def name(self, layer: Any) -> None:
        """Find the name that the running code has for a layer; without one, it is the layer's own."""
        if layer not in self._names:
            spaces = (space for frame in source.frames() for space in (frame.f_locals, frame.f_globals))
            named = (name for space in spaces for name, value in list(space.items()) if value is layer)
            name = next(named, layer.name)
            is_taken = name in self._names.values() or hasattr(keras.Model, name)
            self._names[layer] = f"{name}_{len(self._names)}" if is_taken else name

    def described(self) -> Trained | None:
        """Return how the script trains on what it takes, with the arrays of its first step; None if it does not.

        The step may as well be that of the layers that are called outside of a tape too, as a generator may be.
        """
        fetch = self.trained_on
        if not fetch or not fetch.calls.of:
            return None
        of_step, arrays = self._of_calls(fetch, fetch.calls)
        if fetch.every.of.keys() != fetch.calls.of.keys():
            every, given = self._of_calls(fetch, fetch.every)
            of_step, named = replace(of_step, inner=[every]), given.items()
            arrays |= {f"{INNER}0.{name.removeprefix(GIVEN)}": each for name, each in named if name.startswith(GIVEN)}
        return of_step, arrays

    def note(self, layer: Any, call: tuple[Any, Any, Any], is_taped: bool, is_first: bool) -> None:
        """Note a call of a layer, with its arguments and what it has returned; `is_first`: before a backward pass."""
        self.name(layer)
        every = [self.links] if is_taped and is_first else []
        if (fetch := self.last) and (is_taped or not fetch.losses):
            every += [fetch.every, fetch.calls] if is_taped else [fetch.every]
        for calls in every:
            calls.note(layer, *call)

    def chain(self) -> Fetched | None:
        """Return the layers of a step that are called one by one, each with what those before return.

        Others are its parts, which the loss calls alone: they return a number, or take something beside what others
        return. None if there is only one layer, or they are not one model.
        """
        calls = self.links
        if len(calls.of) < 2:
            return None
        layers = {self._names[layer]: layer for layer in calls.of}
        numbers = {layer: number for number, layer in enumerate(layers_of(_together(layers)))}
        first, *further = calls.of
        links, returned = [first], calls.of[first][2][:]
        for layer in further:
            args, kwargs, outputs = calls.of[layer]
            leaves = tree.flatten([args, kwargs])
            given = list(filter(is_array, leaves))
            are_returned = [any(each is output for output in returned) for each in given]
            can_be_told = all(is_array(each) or isinstance(each, OPTIONS) for each in leaves)
            if given and all(are_returned) and can_be_told:
                links.append(layer)
                returned += outputs
            elif any(each.shape.rank for each in outputs) and (all(are_returned) or not any(are_returned)):
                return None
        of_step, _ = calls.only(links).described(numbers, Fit([]), is_linked=True)
        return replace(of_step, modules=self._numbered(layers))

    def _of_calls(self, fetch: Fetch, calls: Calls) -> Trained:
        """Return how the step of a batch calls its layers, with its arrays."""
        layers = {self._names[layer]: layer for layer in calls.of}
        numbers = {layer: number for number, layer in enumerate(layers_of(_together(layers)))}
        of_step, arrays = calls.described(numbers, Fit(fetch.batch))
        is_several = len(layers) > 1 or len(fetch.losses) > 1
        own = {"first": fetch.number, "function": "tf.function" if fetch.is_of_function else ""}
        return replace(of_step, **own, modules=self._numbered(layers), is_several=is_several), arrays

    def _numbered(self, layers: Mapping[str, Any]) -> dict[str, int]:
        """Return the numbers of layers, by name, among all that the script makes."""
        made = {layer: number for number, layer in enumerate(self._made)}
        return {name: made[layer] for name, layer in layers.items()}

    def _on_iter(self, begin: Callable[..., Any], dataset: Any) -> Any:
        iterator = begin(dataset)
        self._datasets[iterator] = self._sources.number(dataset, source.line())
        return iterator

    def _on_next(self, following: Callable[..., Any], iterator: Any) -> Any:
        dataset = self._datasets.get(iterator, iterator)
        batch = self._of_dataset(following(iterator), dataset)
        if not self._has_dataset:
            self._has_dataset, self._all = True, []
        return self._on_batch(batch, dataset)

    def _on_function(self, call: Callable[..., Any], function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a tf.function, whose arguments may be a batch where the script has no dataset.

        What stands for a batch of the function with which a step begins stands for it in others of the step, too.
        """
        if self._has_dataset or self._is_in_function or self._is_recorded() or kwargs or not _are_rows(args):
            return call(function, *args, **kwargs)
        self._is_in_function = True
        try:
            given = self._on_batch(args, function)
            if given is args:
                given = [next((new for own, new in self._placed if own is each), each) for each in args]
            else:
                self._placed = list(zip(args, given, strict=True))
            return call(function, *given)
        finally:
            self._is_in_function = False

    def _on_batch(self, batch: Any, dataset: Any) -> Any:
        """Note a batch that was taken, or return what stands in its place."""
        self._taken += 1
        if self._known is None:
            self._all.append(Fetch(self._taken, batch, Calls(), Calls(), [], not self._has_dataset))
        elif self._taken == self._known.first:
            self._dataset = dataset
        return self._on_step(batch) if self._dataset == dataset else batch


class Together(keras.Model):
    """Several layers as one model, which has no call of its own."""

    def __init__(self, layers: Mapping[str, Any]) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)


def _are_rows(args: Sequence[Any]) -> bool:
    """Return whether there are several arguments, and all are arrays of as many rows."""
    rows = {each.shape[0] if is_array(each) and len(each.shape) else 0 for each in args}
    return len(args) > 1 and len(rows) == 1 and rows.pop() > 1


def layers_of(model: keras.Model) -> list[Any]:
    """Return a model and all layers in it, each behind the layer that has it: their numbers outlive a first call."""
    layers = [model]
    for layer in layers:
        inner = (each for each in layer._layers if not isinstance(each, keras.layers.InputLayer))
        layers += [each for each in inner if each not in layers]
    return layers


def _together(layers: Mapping[str, Any]) -> Any:
    return Together(layers) if len(layers) > 1 else next(iter(layers.values()))

"""A user's training script in Keras: run up to its call of `fit`, or step by step if it has a loop of its own.

Where it calls `fit` it is left, with the model that it has compiled: the model's own `train_step` then runs, as `fit`
calls it, with the callbacks that change how it trains; what else `fit` does (validation) does not.

A loop runs in a greenlet, which is left and resumed. The model is the layer that is called where a tf.GradientTape
records. A step begins with such a call, and ends before the next one behind its backward pass, or before one outside of
a tape, which is not observed. Or it begins where the loop takes a batch from its dataset, and may call several layers,
which then are one model. It runs op by op. Where gradients are accumulated, several steps make one update.

In place of the script's own batches come those of the pair, in the form that the script's own have.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from greenlet import getcurrent
from keras.src.optimizers.base_optimizer import BaseOptimizer

from keras_impl.instruments.script_copies import Copy, copies, copy_to
from keras_impl.instruments.script_data import Begin, Fit, arguments_of, fits, inputs_of, taken_of
from keras_impl.instruments.script_fetches import Fetches, Together, Trained, layers_of
from keras_impl.instruments.script_run import ByHand, Run
from keras_impl.instruments.script_targets import Targets
from keras_impl.record import calls, precision
from keras_impl.record.pair.layers import share
from parity.core.errors import UsageError
from parity.core.patches import Original, applied, around
from parity.core.wording import count
from parity.pairs.script_records import VALUES, Early, Fetched, Shapes, known, shapes_of

MOST_CALLS = 64  # that end a step, after which no batch is waited for any more


class Script(Run):
    """One run of a script."""

    def __init__(self, text: str, search: Sequence[str]) -> None:
        super().__init__(text, search)
        self.begin: Begin | None = None  # where this run has begun to train, if its user's begins in a graph there
        self.later = list[Fit]()  # what the model of a loop is given behind its first step, as far as it was run
        self._called, self._ahead = 0, -1  # calls of trained layers; and without a tape, before the second step
        self._stands_in: dict[int, Any] = {}  # the model of an earlier run, and its layers, by id() of its own
        self._shared: Mapping[int, Any] = {}  # the variables of that, by id() of its own, which are differentiated
        self._batch: Mapping[str, Any] | None = None
        self._passes = self._backwards = 0  # in the current step
        self.outputs: Shapes = {}  # what the model of a loop returns
        self._has_ended, self.copies = False, list[Copy]()  # the latter beside the trained model, of a loop
        self._given: list[tuple[Any, Any]] = []  # what its calls of the model would be given, and are
        self._accumulates = False  # whether a step has updated nothing
        self._loss: Any = None  # what was differentiated last
        before = known(search)
        self._fetched = before.keras_fetched if before else None
        self._chain = before.keras_chain if before else None
        self._first: Any = None  # the model, or of one whose layers are called one by one the first of these
        self._takes = bool(self._fetched and self._fetched.first)  # whether a step begins where it takes a batch
        self._early, self._keeps_data = (before.keras_early, before.keeps_data) if before else (None, False)
        file = next((each for folder in search if (each := Path(folder) / VALUES).is_file()), None)
        given = dict(np.load(file)) if file and not (self._keeps_data or self._takes) else {}
        alone, self._states = (before.alone, before.keras_states) if before else ([], [])
        given = {key: each for key, each in given.items() if key.partition("@")[0] not in alone}
        self.targets = Targets(given, bool(before and before.is_held), lambda: bool(self._tapes))
        taken = self._fetched if self._takes else None
        self._fetches = Fetches(taken, self._made, self._on_fetch, self.targets.of_dataset, lambda: bool(self._tapes))

    def build(self) -> Any:
        """Run the script until it is about to train, and return its model. Raises UsageError if it does not train."""
        if self._is_left():
            return self._model
        if self._model is None:
            raise UsageError(
                f"{self.name}: ended, and neither called fit or train_on_batch, nor a model where a tf.GradientTape "
                "records; give a script that trains one model"
            )
        parts = self._model.layers if isinstance(self._model, Together) else []
        self.copies = copies([self._model, *parts], self._made)
        return self._model

    def early(self) -> Early | None:
        """Run the first step of a loop; return with which call it begins, if that is before the one within a tape."""
        if not self.is_loop or self.begin:
            return None
        called, self._ahead = self._called, 0
        self._resume()
        return Early(call=called - self._ahead, module=self._number) if 0 < self._ahead < called else None

    def fetched(self) -> Trained | None:
        """Run a loop on, to the end of a batch that it trains on; return how it does, or None if it takes none."""
        for _ in range(MOST_CALLS):
            if self._run.dead or self._fetches.trained_on or not (self.is_loop and self._fetches.last):
                break
            self._resume()
        return self._fetches.described()

    def batches(self, steps: int) -> Iterator[Mapping[str, Any]]:
        """Yield what the model is trained on in so many steps, or fewer, by name; a loop is run on to see it."""
        yield fits[self._model].arrays
        for number in range(steps - 1):
            while self.is_loop and len(self.later) == number and not self._run.dead:
                self._resume()
            later = self.later[number : number + 1] if self.is_loop else itertools.islice(fits[self._model].rest, 1)
            yield from (following.arrays for following in later)

    def step(self, model: Any, optimizer: BaseOptimizer, batch: Mapping[str, Any]) -> Any:
        """Run the loop's next training step, on a batch; or again up to its backward pass, if it was left there.

        Returns what it differentiates; where gradients are accumulated, that is only a part of a loss, and it returns
        nothing. Raises UsageError where the script has no such step.
        """
        if model is not self._stands_in.get(id(self._model), self._model):
            raise UsageError(f"{self.name}: was run anew since this model was built")
        self.copies = copy_to(self.copies)
        if self._run.dead:
            self._again(batch)
        self._batch, self._passes, self._backwards = {} if self._keeps_data else batch, 0, 0
        before = int(optimizer.iterations)
        self._resume()
        self._accumulates |= before == int(optimizer.iterations) and not isinstance(optimizer, ByHand)
        if not self._backwards:
            raise UsageError(f"{self.name}: ended before its backward pass")
        self.targets.check(self.name)
        return None if self._accumulates or (self._takes and self._backwards > 1) else self._loss

    def _again(self, batch: Mapping[str, Any]) -> None:
        """Run the script anew up to the backward pass in which it was left, with this model in the place of its own."""
        if not self._passes or self._has_ended:
            raise UsageError(f"{self.name}: has ended; give fewer --steps")
        again = Script(self._text, self._search)
        again.targets.begun = self.targets.begun - 1
        own, earlier = again.build(), self._model
        pairs = zip(layers_of(own), layers_of(earlier), strict=False)
        again._stands_in = {id(layer): stands_in for layer, stands_in in pairs}
        again._shared = share(own, earlier)
        try:
            again.step(self._model, self._optimizers[0], batch)
        finally:
            again.close()
        raise UsageError(f"{self.name}: was left in this step")

    def _resume(self) -> None:
        of_steps = [
            around(keras.Layer, "__call__", self._on_call),
            around(tf.GradientTape, "gradient", self._on_gradient),
            *(each for patched in (self._tapes, self.targets, self._fetches) for each in patched.patches()),
        ]
        with (
            self.entered(),
            precision.eagerly(not (self._free and self._free.in_graphs)),
            applied(self._patches()),
            applied(() if self._free else of_steps),  # where the steps are run one by one
        ):
            self._run.switch()
            self._has_ended = self._run.dead  # rather than left by what was raised in it

    def _on_fetch(self, batch: Any) -> Any:
        """Suspend the script where it has taken a batch with which a step begins; return the step's own."""
        if self._model is None:
            self.is_loop, self._model = True, self._fetches.model()
            assert self._fetched
            fits[self._model] = Fit(batch, calls=self._fetched.calls)
            self._suspend()
        elif self._backwards:
            self._suspend()
        return Fit(batch).structured(taken_of(self._batch or {}))

    def _on_call(self, call: Original, layer: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a call of a layer; suspend the script before one that ends a step."""
        is_trained = not layer.built or bool(layer.trainable_variables)
        is_built = keras.KerasTensor in map(type, keras.tree.flatten([args, kwargs]))  # a model is, of its layers
        if self._depth or getcurrent() is not self._run or not is_trained or is_built:
            return self.within(call, layer, args, kwargs)
        if self._takes:  # a step begins with a batch
            if self._tapes:
                self._passes += 1
                self._begin_here()
                return self.within(call, self._stands_in.get(id(layer), layer), args, kwargs)
            with calls.unobserved():
                return self.within(call, layer, args, kwargs)
        if layer is not self._first and self._is_part(layer):
            return self.within(call, self._stands_in.get(id(layer), layer), args, kwargs)
        self._called += 1
        early = self._early if self._early and self._called == self._early.call else None
        if not (self._tapes or self._model or early):
            return self._noted(call, layer, args, kwargs)
        if self._backwards and not self._tapes and self._ahead >= 0:
            self._ahead += 1
        elif self._backwards or self._model is None:
            self._end_step(layer, self._called_with(layer, args, kwargs), early)
        if not self._tapes:
            with calls.unobserved():
                return self._noted(call, layer, args, kwargs)
        if self._fetches.last and self._batch is None:
            return self._noted(call, layer, args, kwargs)
        if layer is not self._first:
            if self._batch is not None and not self._chain:
                names = f"{self._model.name} and {layer.name}"
                raise UsageError(f"{self.name}: trains two models that it calls one by one, {names}")
            return self._noted(call, self._stands_in.get(id(layer), layer), args, kwargs)
        self._passes += 1
        if self._passes == 1:
            self.targets.begin_step(keras.tree.flatten(self._called_with(layer, args, kwargs).x))
            self._given = []
        args, kwargs = self._replaced(layer, args, kwargs)
        return self._noted(call, self._stands_in.get(id(layer), layer), args, kwargs)

    def _noted(self, call: Original, layer: Any, args: Any, kwargs: Any) -> Any:
        """Run a call, and note it if the script is seen for the first time."""
        outputs = self.within(call, layer, args, kwargs)
        if layer is self._first and self._tapes:
            self.outputs = shapes_of(outputs, tf.is_tensor)
        if self._batch is None:
            self._fetches.note(layer, (args, kwargs, outputs), bool(self._tapes), is_first=not self._backwards)
        return outputs

    def chain(self) -> Fetched | None:
        """Return the layers of the first step that are called one by one; None if it is only one, or batches tell more.

        Raises UsageError if they are several models.
        """
        chain, links = self._fetches.chain(), self._fetches.links.of
        if len(links) > 1 and not (chain or self._fetches.last):
            names = " and ".join(layer.name for layer in links)
            raise UsageError(
                f"{self.name}: trains models that it calls one by one, {names}; expected one, or each to be given what "
                "those before it return, or batches of a tf.data.Dataset"
            )
        return chain

    def _end_step(self, layer: Any, given: Fit, early: Early | None) -> None:
        """Suspend the script before a call that ends a step, or begins the first."""
        if self._model is None:
            self.is_loop, self._model = True, self._made[early.module] if early else layer
            self._first = self._model
            if self._chain:
                self._model = Together({name: self._made[number] for name, number in self._chain.modules.items()})
                given = given._replace(calls=self._chain.calls)
            fits[self._model] = given
            self._begin_here()
        elif self._batch is None:
            self.later.append(given)
        self._suspend()

    def _begin_here(self) -> None:
        """Note that the script has begun to train here, unless it has before, or trains op by op, or several models."""
        is_in_graph = self._in_function and not self._runs_eagerly
        if is_in_graph and not self.begin and not isinstance(self._model, Together):
            self.begin = Begin(self._functions, self._number, fits[self._model])

    def _replaced(
        self, layer: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return what a call of the model is given: the batch's inputs; what PyTorch's call is not given stays."""
        fit = self._called_with(layer, args, kwargs)
        if inputs := inputs_of(self._batch or {}, self._passes):
            self._given.append((fit.x, fit.structured(inputs)))
        given = next((given for before, given in self._given if _is_same(before, fit.x)), fit.x)
        if len(self._tapes) > 1:
            given = tf.nest.map_structure(_in_place_of, fit.x, given)
        if fit.is_named:
            return (), {**kwargs, **arguments_of(layer, args, kwargs), **given}
        return (given,), kwargs

    def _on_gradient(
        self, gradient: Original, tape: tf.GradientTape, target: Any, sources: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Run a backward pass; if a model stands in, by the variables of that. One by data alone ends no step."""
        if not any(isinstance(each, (tf.Variable, keras.Variable)) for each in tf.nest.flatten(sources)):
            return gradient(tape, target, sources, *args, **kwargs)
        self._loss = target
        sources = tf.nest.map_structure(lambda each: self._shared.get(id(each), each), sources)
        result = gradient(tape, target, sources, *args, **kwargs)
        self._backwards += 1
        if self._fetches.last:
            self._fetches.last.losses.append(target)
        return result

    def _called_with(self, layer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Fit:
        """Return what a call gives to its model; all, where the script may be run from batch to batch."""
        states = fits[self._model].states if self._model in fits else self._states
        fit = Fit.of_call(layer, args, kwargs, states)
        if len(args) == 1 or fit.is_named:
            return fit
        if self._fetches.last and self._batch is None:
            return Fit(args)
        number = count(len(args), "positional argument")
        raise UsageError(f"{self.name}: calls its model with {number} that are no tensors, expected tensors")


def _in_place_of(own: Any, given: Any) -> Any:
    """Return a tensor with a gradient by the script's own: it may differentiate by its model's input."""
    if not (tf.is_tensor(own) and own.dtype.is_floating):
        return given
    return tf.custom_gradient(lambda _: (tf.identity(given), lambda gradient: gradient))(own)


def _is_same(given: Any, before: Any) -> bool:
    """Return whether a call is given the same tensors as one before."""
    if isinstance(given, dict) and isinstance(before, dict):
        return given.keys() == before.keys() and all(given[name] is before[name] for name in given)
    return given is before

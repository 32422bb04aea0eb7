"""The layers of a user's model and its variables: described for the survey, and their counterparts in torch's model.

Where Keras numbered a name (dense_1), the attribute that holds the layer or variable is given as well. Calls within a
recurrent layer cannot be observed, and the variables of its cell count as the layer's own. A counterpart says under
which name, and in which form, a layer is recorded.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from msgspec.structs import replace

from keras_impl.record import calls, tree
from keras_impl.record.canonical import Form, Seen
from keras_impl.record.masks import Order
from keras_impl.record.pair.outputs import flat
from keras_impl.record.pair.sources import Sources
from parity.config.pair import Pair
from parity.pairs.activations.counterparts import is_output
from parity.pairs.activations.layouts import given_orders
from parity.pairs.weights.layouts import unfolded
from parity.runtime import survey
from parity.runtime.drive import Run
from parity.trace import keys
from parity.trace.mapping import PairContext

STATISTICS = ("moving_mean", "moving_variance")


class Held(NamedTuple):
    """A variable of a model, and its description."""

    description: survey.Weight
    variable: Any


def modules(model: Any, sources: Sources) -> list[survey.Module]:
    """Return the descriptions of all layers, with the lines that made them."""
    return [
        survey.Module(
            path=node.path,
            kind=tree.kind(node.layer),
            facts=tree.facts(node.layer),
            label=node.label,
            chosen=node.chosen,
            made=sources.of(node.layer),
        )
        for node in tree.nodes(model)
    ]


def variables(model: Any, sources: Sources | None = None) -> list[Held]:
    """Return every weight once, no random states or metrics; `sources` say which values the user's code has chosen."""
    by_id: dict[int, Held] = {}
    layers, trained = tree.named(model), set(map(id, model.trainable_variables))
    for path, layer in layers.items():
        names: Counter[str] = Counter()
        held = tree.attributes(layer)
        for role, variable in variables_of(layer):
            names[role] += 1
            name = role if names[role] == 1 else f"{role}_{names[role] - 1}"
            description = _described(layers, path, name, variable, id(variable) in trained)
            # With other values than a layer begins with by default, as was recorded.
            chosen = bool(sources) and not variable.trainable and sources.is_changed(variable) is not False
            described = replace(description, role=tree.role_of(variable, name, held), chosen=chosen)
            by_id.setdefault(id(variable), Held(described, variable))
    return list(by_id.values())


def tied(model: Any) -> dict[str, str]:
    """Map each further name of a shared variable (or of a variable of a shared layer) to its first name."""
    first = {id(held.variable): held.description.name for held in variables(model)}
    further = {}
    for node in tree.nodes(model, repeated=True):
        for role, variable in variables_of(node.layer):
            name = tree.joined(node.path, role)
            if (first_name := first[id(variable)]) != name and not first_name.startswith(f"{name}_"):
                further[name] = first_name
    return further


def _described(layers: dict[str, Any], path: str, role: str, variable: Any, trained: bool) -> survey.Weight:
    """Describe a variable; the weights of a cell belong to its recurrent layer."""
    outer, _, _ = path.rpartition("/")
    owner = layers.get(outer)
    is_cell = path and isinstance(owner, keras.layers.RNN) and owner.cell is layers[path]
    own = getattr(variable, "path", variable.name)
    name = tree.joined(path, role)
    return survey.Weight(
        name=name,
        shape=tuple(variable.shape),
        dtype=tf.as_dtype(variable.dtype).name,
        module=outer if is_cell else path,
        role=role,
        trainable=trained,
        # A layer that is not trainable keeps its statistics unchanged.
        statistic=role in STATISTICS and getattr(layers[path], "trainable", True),
        fixed=role not in STATISTICS and _is_made_untrained(layers[path], variable),
        also=[own] if own != name else [],
    )


def _is_made_untrained(layer: Any, variable: Any) -> bool:
    """Return whether a variable was untrained before its layer was frozen: Keras lists it where it was when made."""
    if not isinstance(layer, keras.Layer) or isinstance(variable, tf.Variable):  # which Keras does not know of
        return not variable.trainable
    return any(variable is one for one in layer._non_trainable_variables)


def variables_of(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, variable) for the variables that a layer itself holds, including plain tf.Variables."""
    if isinstance(layer, keras.Layer):
        tracked = (*layer._trainable_variables, *layer._non_trainable_variables)
        yield from ((str(variable.name), variable) for variable in tracked)
        tracked_ids = {id(getattr(variable, "value", variable)) for variable in tracked}
        for name, value in vars(layer).items():
            if isinstance(value, tf.Variable) and id(value) not in tracked_ids:
                yield name, value
    elif isinstance(layer, tf.Module):
        yield from tree.held_by(layer, (tf.Variable, keras.Variable))


def share(model: Any, earlier: Any) -> dict[int, Any]:
    """Let a model, and all in it, be those of an earlier run, also where the script's own names stand for them.

    A loss may be a method of the model, and read its weights. Return the variables of the earlier run, by id() of the
    model's own, which the script may hold.
    """
    before, pairs = tree.named(earlier), list[tuple[Any, Any]]()
    for path, layer in tree.named(model).items():
        if path in before:
            theirs = dict(variables_of(before[path]))
            pairs += [(own, theirs[name]) for name, own in variables_of(layer) if name in theirs]
            object.__setattr__(layer, "__class__", type(before[path]))
            object.__setattr__(layer, "__dict__", vars(before[path]))
    return {id(each): theirs for own, theirs in pairs for each in (own, getattr(own, "_value", own))}


class _Pass(threading.local):
    """What a thread has seen of a step's forward passes; each replica of tf.distribute has a thread of its own.

    `outputs`: of each of Keras's layers in this pass, by path. `inputs`: the calls of each of torch's modules.
    `earlier`: those before this pass. `before`: the outputs of torch's modules before it. `found`: in it.
    """

    def __init__(self) -> None:
        self.outputs, self.inputs = Counter[str](), Counter[str]()
        self.earlier, self.before = Counter[str](), Counter[str]()
        self.found = set[str]()


class Counterparts:
    """The matched activations of one run of a model; `torch` is the survey of its counterpart."""

    def __init__(self, run: Run, model: Any, torch: survey.Survey):
        self.torch, self.wants = torch, run.recorders[0].wants
        self._shapes = {seen.key: seen.shape for seen in torch.outputs}
        self._owners = {seen.key: seen.module for seen in torch.outputs}
        self._numbers = Counter(key.partition("#")[0] for key in self._shapes)  # of outputs in a forward pass
        self._matches = {match.keras: match for match in run.pair.matches}
        self._fed = {each.keras: each for each in run.pair.matching.fed} if run.pair.matching else {}
        self._kinds = {path: tree.computed(layer) for path, layer in tree.called(model).items()}
        self._passing = _Pass()
        self._axes: dict[tuple[int, ...], list[int]] = {}
        self._usual = usual(run.pair, run.case.model, torch)

    def begin(self) -> None:
        """Begin a forward pass."""
        passing = self._passing
        passing.outputs.clear()
        passing.earlier = passing.inputs.copy()
        passing.before.update({module: self._numbers[module] for module in passing.found})
        passing.found.clear()

    def has_seen(self, path: str) -> bool:
        """Return whether a layer was called in this forward pass."""
        return self._passing.outputs[path] > 0

    def begin_part(self) -> None:
        """Begin a part of a batch: its tensors are numbered as those of the first."""
        for numbers in (self._passing.before, self._passing.inputs, self._passing.earlier):
            numbers.clear()

    def end_step(self) -> None:
        """End a step: its tensors are numbered anew."""
        self._passing = _Pass()

    def axes(self, shape: tuple[int, ...]) -> Order | None:
        """Return the axes in torch's order of a tensor of this shape in the layer that is being called.

        They are those of the layer's matched output, else those of the last matched tensor of this shape, else those
        that are usual; None if nothing is known.
        """
        path = calls.innermost() or keys.MODEL
        match = self._matches.get(path) if path != keys.MODEL else None
        if match and len(match.axes) == len(shape):
            return match.axes
        return self._axes.get(shape) or self._usual(shape)

    def seen(self, call: calls.Call, outputs: Any, modules: dict[str, str]) -> list[Seen]:
        """Return those outputs and inputs of a layer's call that correspond to something of torch's.

        The kinds of layers with a counterpart are added to `modules`, by torch's path. While a graph is traced there
        are no values, and nothing is returned.
        """
        if not tf.executing_eagerly():
            return []
        found: list[Seen] = []
        first, tensors = self._passing.outputs[call.path], list(flat(outputs))
        self._passing.outputs[call.path] += len(tensors)
        fed = self._fed.get(call.path)
        # It is called once in a forward pass.
        if fed and self.wants("activation") and self._passing.inputs[fed.torch] == self._passing.earlier[fed.torch]:
            modules.setdefault(fed.torch, self._kinds[call.path])
            found += self._given(fed.torch, fed.axes, call)
        for number, tensor in enumerate(tensors, first):
            match = self._matches.get(keys.numbered(call.path, number))
            if match is None:
                continue
            modules[self._owners[match.torch]] = self._kinds[call.path]
            self._axes[tuple(tensor.shape)] = match.axes
            if not self.wants("activation"):
                continue
            if number == first and match.inputs is not None:
                found += self._given(self._owners[match.torch], match.inputs, call)
            form = _form(tensor, match.axes, self._shapes[match.torch])
            found.append(Seen("activation", self._numbered(match.torch), tensor, form))
        return found

    def _numbered(self, key: str) -> str:
        """Return the name of an output among those of the step, of which a forward pass knows only its own."""
        module = key.partition("#")[0]
        self._passing.found.add(module)
        return keys.numbered(module, self._passing.before[module] + keys.number(key))

    def _given(self, module: str, axes: list[int], call: calls.Call) -> list[Seen]:
        """Return a layer's inputs in torch's order, without those of other axes or sizes; `module` is torch's."""
        expected = self.torch.arguments.get(module, [])
        first = self._passing.inputs[module] * len(expected)
        self._passing.inputs[module] += 1
        return [
            Seen("input", keys.numbered(module, number), tensor, form)
            for number, (tensor, shape) in enumerate(zip(call.tensors, expected, strict=False), first)
            if tensor.shape.rank == len(axes) and (form := _form(tensor, axes, shape)).shape[1:] == tuple(shape)[1:]
        ]


def _form(tensor: tf.Tensor, axes: list[int], shape: tuple[int, ...]) -> Form:
    """Return the form of an output; a step of the user's own may call the model with a part of the batch."""
    is_other = tensor.shape.num_elements() != np.prod(shape, dtype=np.int64) and tensor.shape.rank == len(axes)
    return Form(tuple(axes), tuple(tensor.shape[axis] for axis in axes) if is_other else shape)


def usual(halves: PairContext, pair: Pair, torch: survey.Survey) -> Callable[[tuple[int, ...]], Order | None]:
    """Return what gives the order that a tensor of a shape most likely needs to become torch's.

    That is the order of most matched activations, and laid-out inputs, with so many axes; or that of a flattened image.
    A tensor that is no square is none of these if they all are squares, such as the weights of an attention.
    """
    orders = [tuple(match.axes) for match in halves.matches if not is_output(match.torch)]
    orders += given_orders(pair)
    by_rank = {len(axes): list(axes) for axes, _ in reversed(Counter(orders).most_common())}
    entries = halves.mapping.entries if halves.mapping else []
    flat = unfolded(entries, {weight.name: weight.shape for weight in torch.weights})
    keys = {match.torch for match in halves.matches if list(match.axes) == by_rank.get(len(match.axes))}
    shapes = [seen.shape for seen in torch.outputs if seen.key in keys]
    shapes += [tuple(each.shape) for each in pair.inputs.values() if each.keras_layout]
    oblong = {len(shape) for shape in shapes if len(set(shape[2:])) > 1}

    def order(shape: tuple[int, ...]) -> Order | None:
        axes = (flat.get(shape[1]) if len(shape) == 2 else None) or by_rank.get(len(shape))
        is_other = isinstance(axes, list) and len({shape[axis] for axis in axes[2:]}) > 1 and len(shape) not in oblong
        return None if is_other else axes

    return order

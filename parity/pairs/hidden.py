"""Hide tensors that only one side of a pair happens to record, or that mean something else on each side.

A layer that is called inside a graph, or twice where the other framework's layer is called once and a function does
the rest, records other tensors than its counterpart. That is no difference of the computation: the tensors before and
after it are compared, and the report lists what only one side has. The same holds for the gradient of a variable of
Keras's that is a buffer in torch, where nothing is trained, and for two kinds that only a comparison tells.

What an optimizer of one's own keeps between two steps has no form that the sides would share: a flat array, a sum where
the other keeps a mean, a learning rate that is set before an update or behind the one before it. If a slot differs
after a step, and the updates that are made of it are the same nevertheless, it is in another form. A slot that only
begins to differ after the last step has no update that tells.

And modules' outputs may be compared with the wrong tensor. One side's embedding scales what it returns, the other's
leaves that to the model. Behind a fault no values tell that the two outputs do not correspond, though the next module
is given the same on both sides. And two tensors may be equal by chance: the last state of a recurrent layer is that of
the last step, as long as no sequence ends in padding.
"""

import math
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from parity.config.pair import Pair
from parity.core.script import is_script
from parity.diagnose.diagnosis import Examined
from parity.diagnose.optimizer_steps import SAME_RATE
from parity.diagnose.optimizers import RATE
from parity.pairs.activations.counterparts import is_output
from parity.trace import keys
from parity.trace.keys import MODEL
from parity.trace.manifest import Tensors, Trace
from parity.trace.mapping import Mapping, comparable
from parity.trace.recorder import STATE

INNER = ("activation", "input")
FLATTEN = "flatten"  # the kind of such layers
LOSS, RETURNED = keys.key("loss", ""), keys.key("activation", MODEL)  # how their keys begin
LOW, HIGH = keys.RUNS[:2]


class ComparedTraces(NamedTuple):
    """Both traces without the tensors that have no counterpart.

    `alone` holds, by side, the names of modules' tensors that only this side has. `notes` are sentences for the
    report that say what else is not compared.
    """

    reference: Trace
    candidate: Trace
    alone: dict[str, list[str]]
    notes: list[str]


def without_one_sided(
    reference: Trace, candidate: Trace, pair: Pair, other_form: Collection[str] = (), elsewhere: Collection[str] = ()
) -> ComparedTraces:
    """Hide the modules' tensors, and the slots of the user's own optimizers, that only one of a pair's traces has.

    `other_form` are slots that both have, in another form (`slots_in_another_form`); `elsewhere` are the keys of
    modules' tensors that do not correspond (`with_counterparts_elsewhere`).
    """
    traces = reference, candidate
    is_comparable = comparable(candidate.manifest.mapping, candidate.manifest.matching)
    slots = [_slots(trace) if has_own_optimizer(pair) else set() for trace in traces]
    untrained = [] if pair.train else _buffers_with_gradients(reference, candidate)
    hidden_slots = (slots[0] ^ slots[1]).union(other_form)
    stems = reference.stems(HIGH)
    other_calls, waiting = ({stem: of(traces, stem) for stem in stems} for of in (_other_calls, _waiting))
    alone: dict[str, dict[str, None]] = {trace.backend: {} for trace in traces}
    hidden: dict[str, set[str]] = {}
    for stem in stems:
        hidden[stem] = other_calls[stem] | waiting[stem] | {keys.key("gradient", name) for name in untrained}
        hidden[stem] |= {key for trace in traces for key in _listed(trace, HIGH, stem) if slot(key) in hidden_slots}
        apart = ((trace.backend, key) for key in elsewhere for trace in traces)
        for side, key in (*_one_sided(reference, candidate, stem, is_comparable), *apart):
            hidden[stem].add(key)
            alone[side].setdefault(keys.split(key)[1])
    shared = reference.manifest.layout.parameters.keys() & candidate.manifest.layout.parameters.keys()
    held = [{name: each.manifest.layout.parameters[name] for name in shared} for each in traces]  # by both: not frozen
    layouts = [replace(each.manifest.layout, parameters=own) for each, own in zip(traces, held, strict=True)]
    reference, candidate = reference.replaced(layout=layouts[0]), candidate.replaced(layout=layouts[1])
    if is_script(pair.torch) and pair.train:
        for step in _set_later(traces, pair.train.steps):
            hidden.setdefault(keys.step_file(step), set()).add(keys.key("optimizer_state", RATE))
    if any(hidden.values()):
        reference, candidate = without(reference, hidden), without(candidate, hidden)
    listed = {side: list(names) for side, names in alone.items() if names}
    notes = _notes(traces, slots, other_form, any(other_calls.values()), any(waiting.values()), untrained)
    return ComparedTraces(reference, candidate, listed, list(notes))


def _set_later(traces: tuple[Trace, Trace], steps: int) -> Iterator[int]:
    """Yield the steps behind which scripts may have set the next rate or not: it is used then, and is the same."""
    torch, keras = (trace.manifest.training.rates for trace in traces)
    yield steps - 1
    for step, (mine, theirs) in enumerate(zip(torch[1:steps], keras[1:steps], strict=False)):
        if mine is not None and theirs is not None and math.isclose(mine, theirs, rel_tol=SAME_RATE):
            yield step


def _notes(
    traces: tuple[Trace, Trace],
    slots: list[set[str]],
    other_form: Collection[str],
    has_other_calls: bool,
    has_waiting: bool,
    untrained: list[str],
) -> Iterator[str]:
    """Yield a sentence for each kind of tensors that is hidden and that the report does not list elsewhere."""
    for trace, here, there in zip(traces, slots, slots[::-1], strict=True):
        if here - there:
            names = ", ".join(sorted(here - there))
            yield f"{names} of {trace.backend}'s optimizer has no counterpart: every update is compared"
    if other_form:
        names = ", ".join(sorted(other_form))
        yield f"the two optimizers keep {names} in different forms, which are not compared: every update is"
    if has_other_calls:
        yield "the training steps call the model otherwise on each side: what has no counterpart is not compared"
    if has_waiting:
        yield "gradients that wait for an update are not compared: every update is"
    for name in untrained:
        yield f"{name} is a buffer of torch's and a trained variable of Keras's: its gradient is not compared"


def _other_calls(traces: tuple[Trace, Trace], stem: str) -> set[str]:
    """Return the keys of the forward passes of a training step that have no counterpart.

    A step of the user's own may take a batch apart: then none has one. It may call the model again: then those of the
    further calls have none.
    """
    if stem == keys.INITIAL or not any(trace.manifest.training.own_step for trace in traces):
        return set()
    of_sides = [trace.open(HIGH, stem) for trace in traces]
    shapes = [
        {key: array.shape for key, array in tensors.items() if key.startswith(keys.key("activation", MODEL))}
        for tensors in of_sides
    ]
    is_trained = any(keys.split(key)[0] == "gradient" for tensors in of_sides for key in tensors)
    if shapes[0] == shapes[1] or not is_trained:
        return set()
    if not all(shapes):  # a train_step that calls parts of the model
        return shapes[0].keys() | shapes[1].keys()
    shared = shapes[0].keys() & shapes[1].keys()
    if shared and all(shapes[0][key] == shapes[1][key] for key in shared):
        return shapes[0].keys() ^ shapes[1].keys()
    return {key for tensors in of_sides for key in tensors if keys.split(key)[0] in (*INNER, "loss")}


def _waiting(traces: tuple[Trace, Trace], stem: str) -> set[str]:
    """Return the keys of gradients that a step of the user's own accumulates: neither side updates anything yet.

    Before it applies them, a program may keep their sum or their mean. One that never calls an optimizer keeps them as
    they are. With them the slots that one side alone has: torch's optimizers make theirs at the first update.
    """
    waiting = [trace.manifest.training.waiting for trace in traces]
    number, steps = keys.step_of(stem), traces[0].case.steps
    mine, theirs = (set(_listed(trace, HIGH, stem)) for trace in traces)
    if waiting[0] != waiting[1] and number not in (None, 0, steps - 1):  # behind one side's first update alone
        return {key for key in mine ^ theirs if keys.split(key)[0] in STATE}
    if any(number not in numbers or len(numbers) == steps for numbers in waiting):
        return set()
    return {key for key in mine | theirs if keys.split(key)[0] == "gradient"} | set(filter(slot, mine ^ theirs))


def without_all(trace: Trace, beginning: str) -> Trace:
    """Return the trace without the tensors whose keys begin so, as if none had been recorded."""
    files = trace.manifest.files
    left_out = {key for listed in files.values() for key in listed if key.startswith(beginning)}
    stems = {name.rpartition("/")[2] for name in files}
    kept = {name: [key for key in listed if key not in left_out] for name, listed in files.items()}
    return without(trace, dict.fromkeys(stems, left_out)).replaced(files=kept)


def _one_sided(
    reference: Trace, candidate: Trace, stem: str, is_comparable: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Yield side and key of the modules' tensors in a step that are not in every run of both sides."""
    of_reference = [set(filter(is_comparable, inner(reference, run, stem))) for run in (HIGH, LOW)]
    of_all = [*of_reference, *(set(inner(candidate, run, stem)) for run in (HIGH, LOW))]
    for key in sorted(of_all[0].union(*of_all) - of_all[0].intersection(*of_all)):
        yield (reference if any(key in of_run for of_run in of_reference) else candidate).backend, key


def without(trace: Trace, hidden: dict[str, set[str]]) -> Trace:
    """Return the trace without some of its tensors; `hidden` are their keys, by the stem of the step."""

    def left(tensors: Tensors, run: str, stem: str, replica: int) -> Tensors:
        return {key: array for key, array in tensors.items() if key not in hidden.get(stem, ())}

    return trace.changed(left)


def _listed(trace: Trace, run: str, stem: str) -> list[str]:
    return trace.manifest.files.get(f"{run}/rank-0/{stem}", [])


def inner(trace: Trace, run: str, stem: str) -> Iterator[str]:
    """Yield the keys of what modules were given and returned."""
    for key in _listed(trace, run, stem):
        kind, name = keys.split(key)
        if kind in INNER and not is_output(name) and name.partition("#")[0] not in keys.MODEL_INPUTS:
            yield key


def _buffers_with_gradients(reference: Trace, candidate: Trace) -> list[str]:
    """Return the buffers of torch's of which only Keras, whose variable is one to be trained, has a gradient."""
    recorded = (keys.split(key) for file in reference.manifest.files.values() for key in file)
    buffers = {name for kind, name in recorded if kind == "buffer"}
    listed = (keys.split(key) for key in _listed(candidate, HIGH, keys.step_file(0)))
    return sorted(name for kind, name in listed if kind == "gradient" and name in buffers)


def has_own_optimizer(pair: Pair) -> bool:
    """Return whether the user gives the optimizer of a side, or a step that may have some of its own."""
    train = pair.train
    return train is not None and bool(train.torch_optimizer or train.keras_optimizer or train.has_own_step)


def _slots(trace: Trace) -> set[str]:
    """Return the names of the slots that the optimizer keeps for its parameters."""
    return {name for stem in trace.stems(HIGH) for key in _listed(trace, HIGH, stem) if (name := slot(key))}


def slot(key: str) -> str:
    """Return the name of the slot in the key of an optimizer's state; "" for any other tensor."""
    kind, name = keys.split(key)
    return name.rpartition(".")[2] if kind == "optimizer_state" else ""


def with_counterparts_elsewhere(examined: Examined, reference: Trace, candidate: Trace) -> set[str]:
    """Return the keys of unequal activations that torch passes on, as they are, as an input that is equal.

    So Keras has the same tensor at another place. Only the first step is looked at: later on the weights may differ.
    """
    file = f"{keys.RUNS[1]}/rank-0/{keys.step_file(0)}"
    mine, theirs = (trace.manifest.aliases.get(file, {}) for trace in (reference, candidate))
    is_comparable = comparable(candidate.manifest.mapping, candidate.manifest.matching)
    unequal = {keys.key(tensor.kind, tensor.name) for tensor in examined.unequal if tensor.step == 0}
    listed = set(candidate.manifest.files.get(file, ()))
    return {
        source
        for passed, source in mine.items()
        if keys.split(passed)[0] == "input"
        and keys.split(source)[0] == "activation"
        and source in unequal
        and passed not in unequal
        and passed in listed
        and theirs.get(passed) != source
        and is_comparable(passed)
    }


def undone_flattenings(examined: Examined, mapping: Mapping, reference: Trace) -> set[str]:
    """Return the keys of images that are flattened in another order, which the weights behind them undo.

    The mapping takes the flat axis of those weights apart.
    """
    kinds = reference.manifest.modules
    modules = list(kinds)
    apart = (entry for entry in mapping.entries if "(" in entry.rearrange or entry.orders_inputs)
    regrouped = {entry.torch[0].rpartition(".")[0] for entry in apart}
    weighted = {entry.torch[0].rpartition(".")[0] for entry in mapping.entries}

    def is_undone(module: str) -> bool:
        behind = modules[modules.index(module) + 1 :]
        return next((each for each in behind if each in weighted), "") in regrouped

    flat = [each for each in examined.unequal if kinds.get(keys.plain(each.name)) == FLATTEN]
    return {keys.key(each.kind, each.name) for each in flat if is_undone(keys.plain(each.name))}


def equal_by_chance(examined: Examined) -> set[str]:
    """Return the keys of what differs, if that is only what inner modules return, and not in the first step.

    Nothing that follows of it differs then: neither the model's outputs, nor losses, gradients and updates.
    """
    unequal = examined.unequal
    is_inner = all(each.kind == "activation" and each.step and not is_output(each.name) for each in unequal)
    return {keys.key(each.kind, each.name) for each in unequal} if is_inner else set()


def slots_in_another_form(examination: Examined, steps: int) -> set[str]:
    """Return the names of such slots; `steps` is the number of training steps.

    One that differs after the last step is such a slot if both optimizers' formulas say so.
    """
    moved = {
        (tensor.name, tensor.replica) for tensor in examination.unequal if tensor.kind in ("gradient", keys.UPDATE)
    }
    return {
        slot(keys.key(tensor.kind, tensor.name))
        for tensor in examination.unequal
        if tensor.kind == "optimizer_state"
        and tensor.step is not None
        and (tensor.step < steps - 1 or keys.key(keys.UPDATE, tensor.parameter) in examination.same)
        # All updates are made of a slot that belongs to no parameter.
        and not ((tensor.parameter, tensor.replica) in moved if "." in tensor.name else moved)
    }

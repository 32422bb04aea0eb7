"""Say how far the comparison of a pair goes: what was matched, what stands alone, and what is not compared."""

from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Named
from functools import partial

import numpy as np

from parity.config.pair import Pair
from parity.core.arrays import Array
from parity.core.wording import agree, count, listed
from parity.details import BATCHES, Counterpart
from parity.pairs.activations.modules import is_random
from parity.pairs.vary.variations import BATCH_SIZE
from parity.results import CaseResult, Matched
from parity.runtime.survey import Survey
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.mapping import Mapping, Matching, counts
from parity.verdict.steps import is_whole

SIDES = ("torch", "keras")
SINGULAR = {"take": "takes", "are": "is"}
few = partial(listed, most=4)  # names in a sentence


def note_batch_sizes(result: CaseResult, varied: bool) -> None:
    """Note in a pair's result why no other batch size was compared, if none was."""
    sizes = [each for each in result.variations if each.name.startswith(("all", BATCH_SIZE))]
    if result.extent is None or any(each.verdict != "skipped" for each in sizes):
        return
    left_out = next((each.skipped for each in sizes), "the inputs have no batch in common")
    reason = left_out if result.variations else "inputs are varied only where those given match"
    result.extent.not_run[BATCHES] = reason if varied else "--no-vary"


def note_counterparts(result: CaseResult, mapping: Mapping, matching: Matching | None, reference: Trace) -> None:
    """Note in a pair's result how each weight and tensor was matched, and which of them stand alone on a side."""
    matched = result.matched or Matched()
    alone = {"torch": matched.torch_alone, "keras": matched.keras_alone}
    if result.extent:
        recorded = result.extent.alone
        of_torch = {keys.split(key)[1] for key in _initial(reference)}
        weights = [(weight.side, weight.name) for weight in mapping.unplaced]
        weights += [("torch" if name in of_torch else "keras", name) for name in mapping.ignored]
        known = {side: [*recorded.get(side, ()), *alone[side]] for side in SIDES}
        sides = {side: [*known[side], *(name for owner, name in weights if owner == side)] for side in SIDES}
        result.extent.alone = {side: list(dict.fromkeys(names)) for side, names in sides.items() if names}
    if result.details:
        result.details.counterparts = list(_counterparts(alone, mapping, matching))


def _counterparts(alone: Named[str, list[str]], mapping: Mapping, matching: Matching | None) -> Iterator[Counterpart]:
    """Yield the weights that were matched, then the tensors, then the tensors that stand alone."""
    for entry in mapping.entries:
        yield Counterpart(what="weight", torch=", ".join(entry.torch), keras=", ".join(entry.keras), by=entry.by)
    for match in matching.matches if matching else ():
        yield Counterpart(what="activation", torch=match.torch, keras=match.keras, by=match.by)
    for side, names in alone.items():
        for name in names:
            yield Counterpart(what="activation", **{"torch": "", "keras": "", side: name}, by="")


def not_run(pair: Pair, modules: Named[str, str]) -> list[str]:
    """Say what was not tested as no training step was run; `modules` maps torch's paths of modules to their kinds."""
    if pair.train:
        return []
    forward = [] if pair.backward else ["no gradient was compared, as the file has backward = false"]
    kinds = list(modules.values())
    numbers = {"dropout": sum(map(is_random, kinds)), "batch norm's statistics": kinds.count("batch_norm")}
    nor = [f"nor {subject} ({count(number, 'module')})" for subject, number in numbers.items() if number]
    untested = ", ".join(["neither loss nor optimizer", *nor])
    return [*forward, f"no training step was run, as the file has no [train]: {untested}"]


def constants(mapping: Mapping, reference: Trace) -> list[str]:
    """Say which of torch's buffers have no counterpart in Keras's model, except those that are told of elsewhere."""
    buffers_held = [name for kind, name in map(keys.split, _initial(reference)) if kind == "buffer"]
    elsewhere = {name for name in mapping.constants if counts(name) in mapping.assumptions or name in mapping.unlike}
    alone = [name for name in buffers_held if name in mapping.constants and name not in elsewhere]
    if not alone:
        return []
    buffers, have = (agree(len(alone), word) for word in ("buffer", "has"))
    they = "they are" if len(alone) > 1 else "it is"
    which = f"torch's {buffers} {few(alone)}"
    return [f"{which} {have} no counterpart: {they} constant here, other values were not tried"]


def unused(mapping: Mapping) -> list[str]:
    """Say which weights of each side have no counterpart and need none."""
    apart = [
        _alone(side, names, "take part in nothing that the model returns") for side, names in mapping.unused.items()
    ]
    zeros = "are zeros that training cannot move, as before a batch norm"
    return [*apart, *([_alone("keras", mapping.still, zeros)] if mapping.still else [])]


def passed_over(torch: Survey, keras: Survey) -> Iterator[str]:
    """Say which tensors of torch's model [outputs] does not name, and which own methods of Keras's are not run."""
    if torch.unnamed:
        yield f"not named in [outputs], and not compared: {few(torch.unnamed)}"
    if keras.overridden:
        yield f"keras's model has its own {', '.join(keras.overridden)}: not run"


def hiding(weights: Named[str, Array]) -> list[str]:
    """Say which weights that were taken as they are hide differences which other values would show."""
    arrays = {name: array for name, array in weights.items() if array.dtype.kind == "f"}
    equal = [name for name, array in arrays.items() if array.size > 1 and (array == array.flat[0]).all()]
    rows = [
        name for name, array in arrays.items() if array.ndim > 1 and not array.any(tuple(range(1, array.ndim))).all()
    ]
    return [
        f"torch's own weights hide what others would show: {what} in {few(names)}; "
        'run it without weights = "torch" as well'
        for what, names in {"all values are equal": equal, "whole rows are zeros": rows}.items()
        if names
    ]


def schedules(traces: Iterable[Trace]) -> Iterator[str]:
    """Yield whose schedule of the learning rate goes on, or has, as clipping may, changed nothing in these steps."""
    for trace in traces:
        side, training = trace.backend, trace.manifest.training
        if training.is_scheduled and len(set(training.rates)) == 1 and None not in training.rates:
            yield f"{side}'s learning rate follows a schedule that changes it in none of these steps"
        elif training.is_scheduled:
            yield f"{side}'s learning rate after {count(trace.case.steps, 'step')}, which follows a schedule"
        if training.unreached:
            yield f"{side}'s optimizer has {training.unreached}, which no gradient reached in these steps"


def unmoved(trace: Trace, torch: Survey) -> list[str]:
    """Say which of torch's trained parameters no step that was run has changed, of those that are held whole."""
    pair = trace.case.model
    if not isinstance(pair, Pair) or not pair.train:
        return []
    before, after = (trace.of_kind("parameter", step) for step in (None, trace.case.steps - 1))
    trained = [weight.name for weight in torch.weights if weight.trainable and not pair.holds(weight.name)]
    names = [name for name in trained if isinstance(before.get(name), np.ndarray) and name in after]
    names = [name for name in names if np.array_equal(before[name], after[name])]
    return [f"what updates do to {few(names)}: no step that was run changes it"] if names else []


def gradients(outputs: Named[str, tuple[Array, Array]]) -> list[str]:
    """Say so where the models return whole numbers alone, which nothing flows back from. `outputs`: of both sides."""
    if not outputs or not all(is_whole(each) for pair in outputs.values() for each in pair):
        return []
    return ["gradients were not compared: the models return whole numbers or truth values alone, which have none"]


def _alone(side: str, names: list[str], what: str) -> str:
    """Say what some weights without a counterpart do; `what` is a phrase with its verb in the plural."""
    verb, _, rest = what.partition(" ")
    if len(names) > 1:
        return f"{len(names)} weights of {side} without a counterpart {what}: {few(names)}"
    return f"1 weight of {side} without a counterpart {SINGULAR[verb]} {rest}: {names[0]}"


def _initial(trace: Trace) -> list[str]:
    return trace.manifest.files.get(f"high/rank-0/{keys.INITIAL}", [])

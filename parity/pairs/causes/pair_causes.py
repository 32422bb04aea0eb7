"""Name the causes that only a pair can have, and report what the weight mapping assumed."""

import math
import re
from collections.abc import Collection

import numpy as np
from msgspec.structs import replace

from parity.config.pair import SEED, SUM, UNKNOWN, Pair
from parity.diagnose import clipping
from parity.diagnose.diagnosis import Examined
from parity.diagnose.experiment.taken import TAKEN, WIRING
from parity.diagnose.layers import dropout
from parity.results import CaseResult, Cause
from parity.trace import keys
from parity.trace.keys import plain
from parity.trace.manifest import Tensors, Trace
from parity.trace.mapping import Mapping

TIED = "weights.tied"  # a torch weight that Keras holds as several
LAYOUT = "output.layout"  # an output's axes stand in another order
VALUES = "buffer.values"  # values that both builders compute and that differ
DEFAULT = "call.default"  # a plain call computes something else than one in inference mode
REPEATED = ("dropout.step", "dropout.order")  # what the formulas say of a mask that was drawn before
UNTOUCHED = "weight_decay.without_gradient"
DECAYED = ("weight_decay.value", "adamw.weight_decay")
SCALED = ("gradient.scale", "clip.scope", "clip.norm")  # causes of gradients that differ by one factor
SAME_NORM = 1e-5  # relative, with what clip_grad_norm_ adds to one
OPEN = re.compile("nothing tells which|this stays open")  # says an assumption that no run confirms
UNMOVED = (UNKNOWN, "update.frozen")  # causes of a parameter that the optimizer leaves as it is on one side


def name_pair_causes(examined: Examined, mapping: Mapping, reference: Trace, candidate: Trace) -> None:
    """Add to a result the assumptions of the weight mapping and the causes that only a pair can have."""
    result = examined.result
    _report_assumptions(result, mapping)
    _name_sums(result, mapping, {tensor.name for tensor in examined.unequal if tensor.kind == keys.UPDATE})
    _name_tied(result, mapping)
    _name_norm(result, mapping, reference, candidate)
    _name_by_mapping(result, mapping)
    _name_decay(result, reference, candidate)


def name_layout(result: CaseResult, key: str, layout: str) -> None:
    """Name the order of axes in which Keras's only output holds torch's numbers; what is unknown follows from it."""
    torch, _, keras = layout.partition(" -> ")
    result.causes = [cause for cause in result.causes if cause.id != UNKNOWN]
    evidence = f'the same numbers in another order of axes: say keras_layout = "{layout}" in [outputs], or transpose'
    result.causes.append(Cause(id=LAYOUT, where=key, torch=torch, keras=keras, evidence=evidence))


def question_unfilled(result: CaseResult, mapping: Mapping) -> None:
    """Make a match inconclusive that rests on 0 or 1 from Keras's builder: to be loaded, or wrong, nobody says."""
    if mapping.unfilled and result.verdict in ("match", "subprecision"):
        unlike = next(iter(mapping.unfilled.values()))
        result.verdict = "inconclusive"
        result.reason = (
            f"{unlike.said}: a match with torch's values; if keras's are loaded later, say so in [[weights]]"
        )


def question_wiring(result: CaseResult, mapping: Mapping) -> None:
    """Take no weights that nothing told apart, within the module or around it, for others that the port has taken."""
    open_ = " ".join(each for each in mapping.assumptions if OPEN.search(each))
    for number, cause in enumerate(result.causes):
        owner = plain(cause.where).rpartition(".")[0] or cause.where
        if cause.id == WIRING and TAKEN in cause.evidence and f"{owner}." in open_:
            evidence = f"{cause.evidence}; it may follow from weights that nothing tells apart"
            result.causes[number] = Cause(id=UNKNOWN, where=cause.where, evidence=evidence)


def _report_assumptions(result: CaseResult, mapping: Mapping) -> None:
    """Report what the mapping took for granted.

    If an assumption contradicts the order in which both sides create their layers, nothing says which layer is which:
    a pair that matches is then `inconclusive`.
    """
    result.assumptions = [*mapping.assumptions, *result.assumptions]
    if mapping.contradicted and result.verdict in ("match", "subprecision"):
        result.verdict = "inconclusive"
        result.reason = f"{mapping.contradicted[0]}; name the layers, or say in [[weights]] which is which"


def _name_sums(result: CaseResult, mapping: Mapping, moved: Collection[str]) -> None:
    """Name the cause at each torch weight that Keras holds only in a sum, such as the second bias of a recurrent layer.

    The mapping gives all movement of the sum to the first weight, so that the others never move on Keras's side. The
    diagnosis tells of one parameter; `moved` are all whose updates differ.
    """
    sums = {name: entry for entry in mapping.entries if entry.combine == "sum" for name in entry.torch[1:]}
    told = [cause.where for cause in result.causes if cause.where in sums and cause.id in UNMOVED]
    if not (told or sums.keys() & moved):
        return
    places = [cause.where for cause in result.causes]
    first = places.index(told[0]) if told else len(places)
    said = {name: f"Keras has {' + '.join(entry.torch)} in one weight" for name, entry in sums.items()}
    named = [
        Cause(id=SUM, where=name, torch="moves each", keras="moves their sum", evidence=evidence)
        for name, evidence in said.items()
        if name in moved or name in told
    ]
    kept = [cause for cause in result.causes if not (cause.where in sums and cause.id in UNMOVED)]
    result.causes = [*kept[:first], *named, *kept[first:]]


def name_seeds(result: CaseResult, *traces: Trace) -> None:
    """Name the seed as the cause of numbers that were drawn before, where the draws of one side alone repeat.

    If no mask is found to be one, but something differs, the seed is named where the last draw repeats.
    """
    repeated = {trace.backend: trace.manifest.training.repeated for trace in traces}
    sides = [side for side, places in repeated.items() if places]
    model = traces[0].case.model
    if len(sides) != 1 or not result.causes or (isinstance(model, Pair) and model.accepts(SEED)):
        return
    evidence = f"{sides[0]}: a seed in the code draws earlier numbers again at {', '.join(repeated[sides[0]])}"
    values = {side: "repeats earlier numbers" if side in sides else "draws anew" for side in repeated}
    matching = next((trace.manifest.matching for trace in traces if trace.manifest.matching), None)
    names = {match.keras: match.torch for match in matching.matches} if matching and sides == ["keras"] else {}
    places = {names.get(place, place) for place in repeated[sides[0]]}
    is_named = [
        _is_repeated(cause, sides[0]) or (cause.id == UNKNOWN and cause.where in places) for cause in result.causes
    ]
    unknown = next((number for number, cause in enumerate(result.causes) if cause.id == UNKNOWN), None)
    if not any(is_named) and unknown is not None:
        is_named[unknown] = True
    result.causes = [
        replace(cause, id=SEED, **values, evidence=evidence) if named else cause
        for cause, named in zip(result.causes, is_named, strict=True)
    ]


def _is_repeated(cause: Cause, side: str) -> bool:
    """Return whether a cause may be that a side has a mask which was drawn before."""
    return (cause.id in REPEATED and not _is_ahead(cause, side)) or (cause.id, cause.where) == (UNKNOWN, "loss")


def _is_ahead(cause: Cause, side: str) -> bool:
    """Return whether a side has a later mask of the step than the other: it is none that was drawn before."""
    here = dropout.mask_number(cause.sides[side])
    there = dropout.mask_number(cause.sides["keras" if side == "torch" else "torch"])
    return here is not None and there is not None and here > there


def _name_tied(result: CaseResult, mapping: Mapping) -> None:
    """Name the cause at a torch weight that Keras holds as several, each moved by the gradient of its own use."""
    copies = {entry.torch[0]: entry for entry in mapping.entries if entry.combine == "copy"}
    for number, cause in enumerate(result.causes):
        if (entry := copies.get(cause.where)) and cause.id == UNKNOWN:
            evidence = f"Keras trains {' and '.join(entry.keras)}, each by a gradient of its own"
            sides = {"torch": "one weight", "keras": f"{len(entry.keras)} weights"}
            result.causes[number] = replace(cause, id=TIED, **sides, evidence=evidence)


def _name_norm(result: CaseResult, mapping: Mapping, reference: Trace, candidate: Trace) -> None:
    """Name what two norms count otherwise, where all gradients were clipped by them and so differ by one factor.

    That is a weight of the one side's that the other holds as several. What Keras holds as a sum has its gradient at
    each of torch's weights.
    """
    joined = [entry for entry in mapping.entries if entry.combine in ("sum", "copy")]
    scaled = [number for number, cause in enumerate(result.causes) if cause.id in SCALED]
    if not (joined and scaled):
        return
    trained = reference.manifest.layout.parameters.keys()
    torch, keras = (trace.of_kind("gradient", 0) for trace in (reference, candidate))
    repeated = {name for entry in joined if entry.combine == "sum" for name in entry.torch[1:]}
    counted = (torch, torch.keys() & trained), (keras, (keras.keys() & trained) - repeated)
    norms = [
        math.sqrt(sum(float(np.sum(clipping.squares(gradients, name))) for name in names))
        for gradients, names in counted
    ]
    for entry in joined if repeated.isdisjoint(torch) or math.isclose(*norms, rel_tol=SAME_NORM) else ():
        if torch.keys() >= set(entry.torch):
            sides = {"torch": " and ".join(entry.torch), "keras": " and ".join(entry.keras)}
            first = result.causes[scaled[0]]
            evidence = f"the norm by which all gradients are clipped counts them so; {first.evidence}"
            cause, where = (SUM, entry.torch[1]) if entry.combine == "sum" else (TIED, entry.torch[0])
            result.causes[scaled[0]] = replace(first, id=cause, where=where, **sides, evidence=evidence)
            others = enumerate(result.causes)
            result.causes = [each for n, each in others if n == scaled[0] or (each.id, each.where) != (cause, where)]
            return


def _name_by_mapping(result: CaseResult, mapping: Mapping) -> None:
    """Name buffers that Keras does not have; and, where the models differ, exchanged layers and builders' values.

    Unknown causes follow from layers that the port has exchanged by their names, and from tables of both builders that
    differ: computed ones that decide, and random ones that are not alike. Of a table that Keras's builder leaves at 0
    or 1 nobody says whether it is loaded later.
    """
    result.causes = [cause for cause in result.causes if cause.where not in mapping.changing]
    evidence = "a forward pass in training mode changes it; a constant would need no counterpart"
    result.causes += [
        Cause(id="buffer.missing", where=name, torch="changes in training", keras="has none", evidence=evidence)
        for name in mapping.changing
    ]
    if result.verdict != "diverged":
        return
    if mapping.exchanged or mapping.unlike:
        result.causes = [cause for cause in result.causes if cause.id != UNKNOWN]
    for module, sentence in mapping.exchanged.items():
        evidence = f"with {re.sub(' (was|were) taken to be ', ' as ', sentence)} both models return the same"
        names, port = "as their names say", "exchanged"
        result.causes.append(Cause(id="weights.exchanged", where=module, torch=names, keras=port, evidence=evidence))
    for name, how in mapping.unlike.items():
        same = "with torch's values in it both models return the same"
        evidence = same if how.cause == VALUES else how.said
        evidence += "; to load torch's values, say so in [[weights]]" if how.entry else ""
        result.causes.append(Cause(id=how.cause, where=name, torch=how.torch, keras=how.keras, evidence=evidence))
    evidence = "torch's values were loaded; if the port loads them later, say so in [[weights]]"
    for name, how in mapping.unfilled.items():
        result.causes.append(Cause(id=VALUES, where=name, torch=how.torch, keras=how.keras, evidence=evidence))


def _name_decay(result: CaseResult, reference: Trace, candidate: Trace) -> None:
    """Name what the optimizers do to weights of zero gradient: decay moves those, but not where it is None."""
    candidates = [number for number, cause in enumerate(result.causes) if cause.id in ("update.frozen", *DECAYED)]
    if not candidates:
        return
    sides = {trace.backend: _first_step(trace) for trace in (reference, candidate)}
    decayed = _moves_alike(list(sides.values()))
    for number in candidates:
        cause = result.causes[number]
        name = cause.where
        gradients = [step.get(keys.key("gradient", name)) for _, step in sides.values()]
        is_of_decay = cause.id in DECAYED and not decayed
        if is_of_decay or any(gradient is None or gradient.any() for gradient in gradients):
            continue
        values = {}
        for side, (before, after) in sides.items():
            key = keys.key("parameter", name)
            has_moved = key in before and key in after and bool((before[key] != after[key]).any())
            values[side] = "moves it by weight decay" if has_moved else "leaves it"
        evidence = "its gradient is zero on both sides; an optimizer passes over a weight whose gradient is None"
        result.causes[number] = replace(cause, id=UNTOUCHED, **values, evidence=evidence)


def _moves_alike(sides: list[tuple[Tensors, Tensors]]) -> bool:
    """Return whether the first step moves all weights with a gradient alike, so that the weight decay is the same."""
    (before, after), (other_before, other_after) = sides
    alike = []
    for key in after:
        kind, name = keys.split(key)
        gradient = after.get(keys.key("gradient", name))
        if kind == "parameter" and gradient is not None and gradient.any() and key in before:
            if key not in other_before or key not in other_after:
                return False
            moved, other_moved = after[key] - before[key], other_after[key] - other_before[key]
            alike.append(moved.shape == other_moved.shape and np.allclose(moved, other_moved, rtol=1e-6, atol=0.0))
    return bool(alike) and all(alike)


def _first_step(trace: Trace) -> tuple[Tensors, Tensors]:
    """Return the state before the first step, and what the first step recorded."""
    before, step = trace.stems("high")[:2]
    return trace.open("high", before), trace.open("high", step)

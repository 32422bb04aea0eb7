"""What the comparison of a pair says beside the verdict: what was assumed, and what the differences of a pair mean."""

import numpy as np

from parity.config.pair import UNKNOWN
from parity.results import CaseResult
from parity.trace import keys
from parity.trace.manifest import Tensors, Trace
from parity.trace.mapping import Mapping

SUM = "weights.sum"  # the cause of a torch weight that Keras holds only in a sum
VALUES = "buffer.values"  # the cause of what both builders compute, and differ in
UNTOUCHED = "weight_decay.without_gradient"
DECAYED = ("weight_decay.value", "adamw.weight_decay")
UNMOVED = (UNKNOWN, "update.frozen")  # causes of a parameter that the optimizer leaves as it is on one side


def tell(result: CaseResult, mapping: Mapping, reference: Trace, candidate: Trace) -> None:
    """Add it to a result."""
    _tell_assumptions(result, mapping)
    _name_sums(result, mapping)
    _name_buffers(result, mapping)
    _name_exchange(result, mapping)
    _name_values(result, mapping)
    _name_decay(result, reference, candidate)


def question_unfilled(result: CaseResult, mapping: Mapping) -> None:
    """Make a match inconclusive that rests on values which Keras's builder leaves at 0 or 1.

    They may be meant to be loaded, or be wrong: nobody says which.
    """
    if mapping.unfilled and result.verdict in ("match", "subprecision"):
        how = next(iter(mapping.unfilled.values()))
        result.verdict = "inconclusive"
        result.reason = f"{how.said}: a match with torch's values; if keras's are loaded later, say so in [[weights]]"


def _tell_assumptions(result: CaseResult, mapping: Mapping) -> None:
    """What the mapping took for granted; where the order of creation says otherwise, nobody said which is which."""
    result.assumptions = [*mapping.assumptions, *result.assumptions]
    if mapping.contradicted and result.verdict in ("match", "subprecision"):
        result.verdict = "inconclusive"
        result.reason = f"{mapping.contradicted[0]}; name the layers, or say in [[weights]] which is which"


def _name_sums(result: CaseResult, mapping: Mapping) -> None:
    """What becomes of a torch weight that Keras holds only in a sum, as of a recurrent layer's two biases.

    By the map of weights all that the sum has moved is the first weight's: the others never move on Keras's side.
    """
    sums = {name: entry for entry in mapping.entries if entry.combine == "sum" for name in entry.torch[1:]}
    for cause in result.causes:
        if (entry := sums.get(str(cause["where"]))) and cause["id"] in UNMOVED:
            cause |= {"id": SUM, "torch": "moves each", "keras": "moves their sum"}
            cause["evidence"] = f"Keras has {' + '.join(entry.torch)} in one weight"


def _name_buffers(result: CaseResult, mapping: Mapping) -> None:
    """What torch's training changes and Keras does not have."""
    if not mapping.changing:
        return
    result.causes = [cause for cause in result.causes if cause["where"] not in mapping.changing]
    result.causes += [
        {
            "id": "buffer.missing",
            "where": name,
            "torch": "changes in training",
            "keras": "has none",
            "evidence": "a forward pass in training mode changes it; a constant would need no counterpart",
        }
        for name in mapping.changing
    ]


def _name_exchange(result: CaseResult, mapping: Mapping) -> None:
    """Layers that the port has exchanged, by their names: what else is unknown follows from that."""
    if mapping.exchanged and result.verdict == "diverged":
        result.causes = [cause for cause in result.causes if cause["id"] != "unknown"]
    for place, sentence in mapping.exchanged.items() if result.verdict == "diverged" else ():
        evidence = f"with {sentence.replace(' were taken to be ', ' as ')} both models return the same"
        told = {"torch": "as their names say", "keras": "exchanged", "evidence": evidence}
        result.causes.append({"id": "weights.exchanged", "where": place, **told})


def _name_values(result: CaseResult, mapping: Mapping) -> None:
    """What both builders compute and differ in: with torch's values both models return the same."""
    if mapping.unlike and result.verdict == "diverged":
        result.causes = [cause for cause in result.causes if cause["id"] != "unknown"]
        evidence = "with torch's values in it both models return the same; to load them, say so in [[weights]]"
        result.causes += [
            {"id": VALUES, "where": name, "torch": how.torch, "keras": how.keras, "evidence": evidence}
            for name, how in mapping.unlike.items()
        ]


def _name_decay(result: CaseResult, reference: Trace, candidate: Trace) -> None:
    """What optimizers do to weights without a gradient: weight decay moves those of zero, and none of None."""
    named = [cause for cause in result.causes if cause["id"] in ("update.frozen", *DECAYED)]
    if not named:
        return
    sides = {trace.backend: _first_step(trace) for trace in (reference, candidate)}
    decayed = _moves_alike(list(sides.values()))
    frozen = [cause for cause in named if decayed or cause["id"] not in DECAYED]
    for cause in frozen:
        name = str(cause["where"])
        gradients = [step.get(keys.key("gradient", name)) for _, step in sides.values()]
        if any(one is None or one.any() for one in gradients):
            continue
        cause["id"] = UNTOUCHED
        for side, (before, after) in sides.items():
            key = keys.key("parameter", name)
            moved = key in before and key in after and bool((before[key] != after[key]).any())
            cause[side] = "moves it by weight decay" if moved else "leaves it"
        cause["evidence"] = (
            "its gradient is zero on both sides; an optimizer passes over a weight whose gradient is None"
        )


def _moves_alike(sides: list[tuple[Tensors, Tensors]]) -> bool:
    """Whether the first step moves the weights with a gradient alike: then both sides have the same weight decay."""
    (before, after), (other_before, other_after) = sides
    alike = []
    for key in after:
        kind, name = keys.split(key)
        gradient = after.get(keys.key("gradient", name))
        if kind == "parameter" and gradient is not None and gradient.any() and key in before:
            if key not in other_before or key not in other_after:
                return False
            moved, theirs = after[key] - before[key], other_after[key] - other_before[key]
            alike.append(moved.shape == theirs.shape and np.allclose(moved, theirs, rtol=1e-6, atol=0.0))
    return bool(alike) and all(alike)


def _first_step(trace: Trace) -> tuple[Tensors, Tensors]:
    """The state before it, and what it recorded."""
    before, step = trace.stems("high")[:2]
    return trace.open("high", before), trace.open("high", step)

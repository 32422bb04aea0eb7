"""Compare two traces and attach the diagnosis: the first module that differs, and every cause that can be named.

All topics are asked in the order in which things happen in a step, about each tensor that differs separately: one fault
in the model does not hide the next, as each computation is recomputed from its own recorded inputs.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace
from threadpoolctl import threadpool_limits

from parity.config.pair import UNKNOWN
from parity.core.groups import by_key
from parity.diagnose import (
    clipping,
    entries,
    explain,
    forward,
    gradients,
    initial_parameters,
    inputs,
    losses,
    optimizers,
    place,
    reductions,
    samples,
)
from parity.diagnose.entries import COMMON
from parity.diagnose.explain import Explained
from parity.diagnose.forward import Answer, without_moved
from parity.diagnose.layers.rounding import at_run_precision, low_runs
from parity.diagnose.topic import Question, Side, Sides
from parity.diagnose.updates import Both, Replayed, explains
from parity.results import CaseResult, Cause, Divergence, LayoutCheck, Verdict
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.mapping import comparable
from parity.trace.summary import Summary
from parity.verdict.traces import Comparison, Unequal, compare_traces, side_names

TOPICS: Final = (initial_parameters, samples, inputs, forward, losses, reductions, gradients, optimizers)
CauseKeys = frozenset[tuple[str, str]]  # causes that are known already, by id and place


class Examined(NamedTuple):
    """The verdict on a case with its causes, and the evidence behind them, by tensors' keys without call numbers."""

    result: CaseResult  # the verdict, with `first_divergence` and `causes` filled in
    unequal: list[Unequal]  # every tensor that is not a match, in execution order
    places: Mapping[str, str] = {}  # from a tensor's key to the module or tensor at which its cause would be reported
    # Keys of tensors that both sides compute alike from their own inputs; they differ only because those do.
    same: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()  # of tensors that no cause explains although the formula fits the reference
    first: str = ""  # the key of the first tensor that differs; a module around it may be what is responsible
    replayed: Replayed | None = None  # replays the optimizer with the settings that explain the updates, if diagnosed
    # By side, the tensors of step 0 whose low runs are noisier than they should be.
    noisier: Mapping[str, list[str]] = {}


def examined(reference: Trace, candidate: Trace) -> Examined:
    """Return the verdict on a case; unless it is a match, with the first module that differs and the causes."""
    compared = compare_traces(reference, candidate)
    if compared.result.verdict == "match" and not compared.result.findings:
        return Examined(compared.result, compared.unequal)
    return _diagnose(compared, reference, candidate)


def examined_beyond(
    known: Examined, verdict: Verdict, first: Divergence, reference: Trace, candidate: Trace
) -> Examined:
    """Return the diagnosis of a case in which all causes found so far are accepted, and something differs all the same.

    The result of `known` keeps its causes, and gets those that a first divergence hides which is accepted by now.
    `verdict` is that on what differs all the same, and `first` the first such difference.
    """
    result = known.result
    reported = frozenset(map(_name, result.causes))
    beyond = replace(result, verdict=verdict, first_divergence=first, causes=[])
    examination = _diagnose(Comparison(beyond, known.unequal, dict(known.noisier)), reference, candidate, reported)
    result.verdict, result.first_divergence = verdict, beyond.first_divergence
    result.reason = beyond.first_divergence.reason if beyond.first_divergence else ""
    places = {where for _, where in reported}
    new = [cause for cause in beyond.causes if _name(cause) not in reported]
    result.causes += [cause for cause in new if cause.id != UNKNOWN or cause.where not in places]
    return examination._replace(result=result)


def _diagnose(compared: Comparison, reference: Trace, candidate: Trace, reported: CauseKeys = frozenset()) -> Examined:
    """Complete a comparison's result (in place); `reported` are causes that do not explain the first divergence."""
    result, layout = compared.result, compared.result.layout
    assert layout
    is_comparable = comparable(candidate.manifest.mapping, candidate.manifest.matching)
    aliases = reference.manifest.aliases if candidate.manifest.matching else None
    traces = zip(side_names(reference, candidate), (reference, candidate), strict=True)
    # Without the tensors that have no counterpart on the other side.
    mine, theirs = (Side(name, trace, is_comparable, aliases) for name, trace in traces)
    sides = Sides(mine, theirs, compared.unequal, compared.noisier)
    first = keys.key(divergence.kind, divergence.name) if (divergence := result.first_divergence) else ""
    # The matrix products are small: BLAS threads would mostly wait for each other, and on a busy machine that takes
    # ten times as long as one thread.
    with threadpool_limits(1, "blas"), np.errstate(all="ignore"):
        result.first_divergence = _first_divergence(result.first_divergence, layout, sides)
        asked = (ask for topic in TOPICS for ask in topic.questions(sides) if None not in ask.both)
        answers = without_moved([(ask, _answer(ask)) for ask in asked])
        # What float32 cannot see comes after what it can.
        visible = [each for each in answers if not (each[1].hidden and result.verdict == "diverged")]
        result.first_divergence = _behind_update(result.first_divergence, compared.update, visible, sides)
        result.causes = list(_causes(visible, sides, layout, result.first_divergence, reported))
    failed = (ask for ask, answer in answers if answer.known and not (answer.same or answer.changes or ask.is_later))
    return Examined(
        result,
        compared.unequal,
        places={ask.tensor: ask.where for ask, _ in answers},
        same=frozenset(ask.tensor for ask, answer in answers if answer.same),
        failed=frozenset(ask.tensor for ask in failed),
        first=first,
        replayed=Replayed(sides, [(ask, answer.settings) for ask, answer in answers if ask.kind == keys.UPDATE]),
        noisier=compared.noisier,
    )


def _answer(question: Question) -> Explained:
    return explain.guarded(lambda: question.answer or explain.compare(question.formula, *question.both))


def _causes(
    answers: list[Answer], sides: Sides, layout: LayoutCheck, first: Divergence | None, reported: CauseKeys
) -> Iterator[Cause]:
    """Yield all causes: those that have a name, then those that are unknown, then mistakes in formulas."""
    names = sides.names
    named, unknown = by_key(_named(answers, sides)), by_key(_unknown(answers, first, names))
    failed = ((ask, answer.error) for ask, answer in answers if answer.error)
    errors = by_key((ask.kind, entries.internal_error(ask.where, names, error)) for ask, error in failed)
    if placements := list(entries.layout_causes(layout, names, bool(named))):
        named["layout"] = placements
    new = [kind for kind, causes in named.items() if not reported.issuperset(map(_name, causes))]
    if first and _phase(first) not in (*new, *unknown, *errors):
        tensor = sides.reference.file(first.step, first.replica).compared.get(keys.key(first.kind, first.name))
        why = entries.SUMMARISED if isinstance(tensor, Summary) else entries.UNCOVERED
        unknown[_phase(first)] = [entries.unknown(first.name, names, why=why)]
    for kind, causes in named.items():
        yield from entries.without_repeats(kind, causes)
    # A cause named for one parameter holds for all of them, so the others do not need an "unknown" of their own.
    unexplained = (causes for kind, causes in unknown.items() if kind not in COMMON or kind not in named)
    for causes in (*unexplained, *errors.values()):
        yield from causes


def _name(cause: Cause) -> tuple[str, str]:
    return cause.id, cause.where


def _named(answers: list[Answer], sides: Sides) -> Iterator[tuple[str, Cause]]:
    """Yield the causes that have a name, with the kinds of their questions."""
    clipped, common = list(clipping.causes(sides)), _fitting_all(answers)
    for ask, answer in answers:
        if clipped and ask.kind == "gradient":
            continue  # for itself each gradient is only scaled, by another number than the next
        fitting = common.get(id(ask.formula)) if ask.kind in COMMON else None
        if answer.changes and (not fitting or answer.settings in fitting):
            yield from ((ask.kind, entries.cause(ask, change, sides.names)) for change in answer.changes)
    yield from clipped
    yield from (("gradient", cause) for cause in gradients.missing(sides))
    yield from (("activation", cause) for cause in _low_causes(sides))


def _low_causes(sides: Sides) -> Iterator[Cause]:
    """Yield what the low run of a side does and its own high run does not."""
    for side, where, formula, high, low in low_runs(sides):
        change = explain.guarded(partial(at_run_precision, formula, high, low))
        if isinstance(change, Explained):
            assert change.error is not None
            yield entries.internal_error(where, sides.names, change.error)
        elif change:
            yield entries.low_cause(side.name, where, change, sides.names)


def _unknown(answers: list[Answer], first: Divergence | None, names: tuple[str, str]) -> Iterator[tuple[str, Cause]]:
    """Yield an entry for each question that nothing explains: whose formula fits the reference, or that comes first."""
    for ask, answer in answers:
        is_first = first is not None and first.name == ask.where
        explained = answer.same or answer.changes or answer.error
        if not explained and (is_first or (answer.known and not ask.is_later)):
            yield ask.kind, entries.unknown(ask.where, names, answer.tried)


def _fitting_all(answers: list[Answer]) -> dict[int, list[Both]]:
    """Return, by the id() of a formula, the settings of an answer that explain all that it is asked about.

    One optimizer or reduction treats all parameters alike, but the data of a single parameter may fit a wrong
    explanation by chance. So if some explanation fits all parameters, only that one is reported; if none does, each
    keeps its own.
    """
    fitting: dict[int, list[Both]] = {}
    asked = by_key((id(ask.formula), (ask, answer)) for ask, answer in answers if ask.kind in COMMON)
    for formula, alike in asked.items():
        known = [(ask, answer) for ask, answer in alike if not answer.error]
        tried: list[Both] = []
        for settings in (answer.settings for _, answer in known if answer.changes and answer.settings):
            if settings not in tried:
                tried.append(settings)
        fitting[formula] = [each for each in tried if all(explains(ask, each) for ask, _ in known)]
    return fitting


def _first_divergence(first: Divergence | None, layout: LayoutCheck, sides: Sides) -> Divergence | None:
    """Return the first divergence moved to the module that is responsible, or else the first layout difference."""
    if first is not None:
        modules = sides.reference.modules
        first = place.responsible_module(place.start_of_noise(first, sides.noisier), sides.unequal, modules)
        file = sides.reference.file(first.step, first.replica)
        unshared = sides.reference.made_by_functions(first.step, first.replica) - file.compared.keys()
        first = place.module_around_functions(first, unshared, file.recorded, modules)
        return place.with_module(first, sides.reference.classes)
    return place.by_layout(layout.differences[0]) if layout.differences else None


def _behind_update(
    first: Divergence | None, update: Divergence | None, answers: list[Answer], sides: Sides
) -> Divergence | None:
    """Return the first update, where the forward pass differs behind a step whose parameters were not recorded.

    So it is if an optimizer does otherwise with its own gradients.
    """
    if first is None or update is None or not first.step or first.kind not in gradients.FORWARD_PASS:
        return first
    before = sides.reference.file(first.step - 1, first.replica).recorded
    is_recorded = any(key.startswith("parameter/") for key in before)
    does_otherwise = any(ask.kind == keys.UPDATE and answer.changes for ask, answer in answers)
    return update if does_otherwise and not is_recorded else first


def _phase(first: Divergence) -> str:
    """Return the kind of question that explains the first divergence."""
    if first.kind == "parameter" and first.step is not None:
        return keys.UPDATE
    return {"buffer": "activation", "optimizer_state": keys.UPDATE}.get(first.kind, first.kind)

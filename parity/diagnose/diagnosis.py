"""Compare two traces and attach the diagnosis: the first module that differs, and every cause that can be named.

Each tensor that differs is asked about separately, so that one fault in the model does not hide the next.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from parity.config.pair import UNKNOWN
from parity.diagnose import explain, place
from parity.diagnose.explain import Change, Explained
from parity.diagnose.layers.rounding import at_run_precision
from parity.diagnose.questions import LowRun, Question, Sides, low_runs, one_sided, questions
from parity.diagnose.replayed import Replayed, explains
from parity.diagnose.sides import Side
from parity.results import CaseResult, Divergence, LayoutCheck
from parity.trace import keys
from parity.trace.comparable import comparable
from parity.trace.manifest import Trace
from parity.verdict.traces import Comparison, Unequal, compare_traces, side_names

Cause = dict[str, Any]
# Cause id by the aspect of the layout that differs, the most important aspect first.
PLACEMENTS = {
    "replicas": "placement.replicas",
    "compute": "placement.layer",
    "parameters": "placement.parameters",
    "backward": "placement.backward",
    "optimizer_state": "placement.optimizer_state",
}
# Word in a layout difference for an event or object that one side lacks: another cause explains that it is absent.
NOWHERE = "nowhere"
COMMON = ("gradient", keys.UPDATE)  # kinds of questions with one answer for all parameters
TRANSFERS = "placement.transfers"  # differences in any other aspect


class Examined(NamedTuple):
    """The verdict on a case with its causes, and the evidence behind them, for checks that look at single tensors.

    Attributes:
        result: the verdict, with `first_divergence` and `causes` filled in.
        unequal: every tensor that is not a match, in execution order.
        places: from a tensor's key to the module or tensor at which its cause would be reported.
        same: keys of tensors that both sides compute alike from their own inputs; they differ only because those do.
        failed: keys of tensors that no cause explains although the formula reproduces the reference.
        replayed: replays the optimizer with the settings that explain the updates; None unless a diagnosis was made.

    Keys carry no call number: all calls of a module share one.
    """

    result: CaseResult
    unequal: list[Unequal]
    places: Mapping[str, str] = {}
    same: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    replayed: Replayed | None = None


def explained(reference: Trace, candidate: Trace) -> CaseResult:
    """Return the verdict on a case; unless it is a match, with the first module that differs and the causes."""
    return examined(reference, candidate).result


def examined(reference: Trace, candidate: Trace) -> Examined:
    """Return the verdict on a case as `explained` does, with the evidence for every tensor that differs."""
    compared = compare_traces(reference, candidate)
    if compared.result.verdict == "match" and not compared.result.findings:
        return Examined(compared.result, compared.unequal)
    # The matrix products are small: BLAS threads would mostly wait for each other, and on a busy machine that takes
    # ten times as long as one thread.
    with threadpool_limits(1, "blas"), np.errstate(all="ignore"):
        return _diagnose(compared, reference, candidate)


def _diagnose(compared: Comparison, reference: Trace, candidate: Trace) -> Examined:
    """Complete the result of a comparison (in place) with its first divergence and its causes."""
    result, layout = compared.result, compared.result.checks["layout"]
    assert isinstance(layout, LayoutCheck)
    names = side_names(reference, candidate)
    is_comparable = comparable(candidate.manifest.mapping, candidate.manifest.matching)
    aliases = reference.manifest.aliases if candidate.manifest.matching else None
    reference_side, candidate_side = (
        Side(name, trace, is_comparable, aliases) for name, trace in zip(names, (reference, candidate), strict=True)
    )
    sides = Sides(reference_side, candidate_side, compared.unequal, compared.noisier)
    first = result.first_divergence = _first_divergence(result.first_divergence, layout, sides)
    named_causes: dict[str, list[Cause]] = {}
    unknown_causes: dict[str, list[Cause]] = {}
    answers = [(ask, explain.compare(ask.formula, ask.reference, ask.candidate)) for ask in questions(sides)]
    for question, answer in answers:
        if _is_reported(question, answer, answers):
            named_causes.setdefault(question.kind, []).extend(_cause(question, each, names) for each in answer.changes)
        is_first = first is not None and first.name == question.where
        if not (answer.same or answer.changes) and (answer.known or is_first):
            unknown_causes.setdefault(question.kind, []).append(_unknown_cause(question.where, names, answer.tried))
    if missing := [_missing_gradient(each, sides) for each in one_sided(sides)]:
        named_causes.setdefault("gradient", []).extend(missing)
    for run in low_runs(sides):
        if change := at_run_precision(run.formula, run.high, run.low):
            named_causes.setdefault("activation", []).append(_low_cause(run, change, names))
    if placements := list(_placements(layout, names, bool(named_causes))):
        named_causes["layout"] = placements
    if first and _phase(first) not in (*named_causes, *unknown_causes):
        unknown_causes[_phase(first)] = [_unknown_cause(first.name, names)]
    result.causes = [cause for kind, causes in named_causes.items() for cause in _without_repeats(kind, causes)]
    # A cause named for one parameter holds for all of them, so the others do not need an "unknown" of their own.
    unexplained = (causes for kind, causes in unknown_causes.items() if kind not in COMMON or kind not in named_causes)
    result.causes += [cause for causes in unexplained for cause in causes]
    failed = (ask for ask, answer in answers if answer.known and not (answer.same or answer.changes))
    return Examined(
        result,
        compared.unequal,
        places={ask.tensor: ask.where for ask, _ in answers},
        same=frozenset(ask.tensor for ask, answer in answers if answer.same),
        failed=frozenset(ask.tensor for ask in failed),
        replayed=Replayed(sides, answers),
    )


def _is_reported(question: Question, answer: Explained, answers: list[tuple[Question, Explained]]) -> bool:
    """Return whether an answer is to be reported.

    One optimizer or reduction treats all parameters alike, but the data of a single parameter may fit a wrong
    explanation by chance. So if some explanation fits all parameters, only that one is reported; if none does, each
    keeps its own.
    """
    if not answer.changes or question.kind not in COMMON:
        return bool(answer.changes)
    same_formula = [ask for ask, _ in answers if ask.formula is question.formula]
    explained_answers = (each for ask, each in answers if ask.formula is question.formula and each.changes)
    settings = [each.settings for each in explained_answers if each.settings]
    common = [each for each in settings if all(explains(ask, each) for ask in same_formula)]
    return not common or answer.settings in common


def _missing_gradient(tensor: Unequal, sides: Sides) -> Cause:
    """Return the cause for a gradient that exists on one side only."""
    status = {side.name: "no gradient" if side.lacks(tensor) else "has a gradient" for side in sides[:2]}
    cause = "send_recv.gradient" if sides.reference.case.distribution.is_staged else "gradient.missing"
    return {
        "id": cause,
        "where": tensor.name,
        **status,
        "evidence": "only one side's backward pass reaches this parameter",
    }


def _first_divergence(first: Divergence | None, layout: LayoutCheck, sides: Sides) -> Divergence | None:
    """Return the first divergence moved to the module that is responsible, or else the first layout difference."""
    if first is not None:
        return place.responsible_module(
            place.start_of_noise(first, sides.noisier), sides.unequal, sides.reference.modules
        )
    return place.by_layout(layout.differences[0]) if layout.differences else None


def _phase(first: Divergence) -> str:
    """Return the kind of question that explains the first divergence."""
    if first.kind == "buffer":
        return "activation"
    if first.kind == "optimizer_state" or (first.kind == "parameter" and first.step is not None):
        return keys.UPDATE
    return first.kind


def _cause(question: Question, change: Change, names: tuple[str, str]) -> Cause:
    """Return the report's entry for a setting in which the candidate differs from the reference."""
    reference_value, candidate_value = _as_json(change.reference), _as_json(change.candidate)
    evidence = (
        f"recomputed with {change.trait} = {candidate_value}, {names[1]} is reproduced to {change.bits:.0f} bits; "
        f"with {reference_value}, to {change.before:.0f} bits"
    )
    return {
        "id": change.cause,
        "where": question.where,
        names[0]: reference_value,
        names[1]: candidate_value,
        "evidence": evidence,
    }


def _low_cause(run: LowRun, change: Change, names: tuple[str, str]) -> Cause:
    """Return the report's entry for what one side's low run does and its own high run does not."""
    said = {name: _as_json(change.candidate if name == run.side.name else change.reference) for name in names}
    evidence = (
        f"recomputed with {change.trait} = {_as_json(change.candidate)}, the low-precision run of {run.side.name} is "
        f"reproduced to {change.bits:.0f} bits; with {_as_json(change.reference)}, to {change.before:.0f} bits"
    )
    return {"id": change.cause, "where": run.where, **said, "evidence": evidence}


def _as_json(value: Any) -> Any:
    """Return a setting as a JSON value."""
    return list(value) if isinstance(value, tuple) else value


def _unknown_cause(where: str, names: tuple[str, str], tried: tuple[str, ...] = ()) -> Cause:
    """Return the report's entry for a tensor whose difference no formula explains."""
    evidence = f"ruled out: {', '.join(tried)}" if tried else "no formula in the catalogue covers this tensor"
    return {"id": UNKNOWN, "where": where, names[0]: None, names[1]: None, "evidence": evidence}


def _placements(layout: LayoutCheck, names: tuple[str, str], is_explained: bool) -> Iterator[Cause]:
    """Yield the causes behind the differences of the layouts, of the most important aspect only.

    An unexpected transfer is reported only if nothing else was: misplaced modules or parameters imply transfers.
    """
    lines = [line.split(": ", 2) for line in layout.differences if not (is_explained and NOWHERE in line)]
    for aspect, cause in PLACEMENTS.items():
        if of_aspect := [line for line in lines if line[0] == aspect]:
            yield from (_placement(cause, line[1], line[-1], names) for line in of_aspect)
            return
    if lines and not is_explained:
        yield _placement(TRANSFERS, lines[0][1], lines[0][-1], names)


def _placement(cause: str, where: str, difference: str, names: tuple[str, str]) -> Cause:
    """Return the report's entry for one line of the layout's differences."""
    values = [
        part.strip().removeprefix(f"{name} ") for name, part in zip(names, difference.rsplit(", ", 1), strict=False)
    ]
    reference_value, candidate_value = [*values, None, None][:2]
    return {"id": cause, "where": where, names[0]: reference_value, names[1]: candidate_value, "evidence": difference}


def _without_repeats(kind: str, causes: list[Cause]) -> Iterator[Cause]:
    """Yield each cause once; of an optimizer or a reduction once for all parameters, whichever showed it first."""
    reported = set()
    ignored = {"evidence", "where"} if kind in COMMON else {"evidence"}
    for cause in causes:
        signature = tuple(str(value) for key, value in cause.items() if key not in ignored)
        if signature not in reported:
            reported.add(signature)
            yield cause

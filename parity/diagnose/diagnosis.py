"""A comparison with its guilty place and its causes: every fault that the traces show, not only the first."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from parity.config.pair import UNKNOWN
from parity.config.schema import STAGED
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
# The aspect of a layout to what it means that it differs, the weightiest first.
PLACEMENTS = {
    "replicas": "placement.replicas",
    "compute": "placement.layer",
    "parameters": "placement.parameters",
    "backward": "placement.backward",
    "optimizer_state": "placement.optimizer_state",
}
NOWHERE = "nowhere"  # what a layout says of what did not happen or is not there: something else explains that
COMMON = ("gradient", keys.UPDATE)  # kinds of questions whose answer is the same for all parameters
TRANSFERS = "placement.transfers"  # any other aspect


class Examined(NamedTuple):
    """The verdict on a case with its causes, and what it was passed on.

    `unequal`: every tensor that is not a match, in execution order. By key, without the number of the call: `places`,
    where a cause of a tensor would be named; `same`, the tensors that both sides make alike of their own inputs;
    `failed`, those that neither that nor a cause explains, though the reference is understood. `replayed`: of the
    optimizer, if something was asked of it.
    """

    result: CaseResult
    unequal: list[Unequal]
    places: Mapping[str, str] = {}
    same: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    replayed: Replayed | None = None


def explained(reference: Trace, candidate: Trace) -> CaseResult:
    """The verdict on a case; unless it is a match, with the guilty place and the causes."""
    return examined(reference, candidate).result


def examined(reference: Trace, candidate: Trace) -> Examined:
    """The same, with the tensors that are not a match and what is known of each."""
    compared = compare_traces(reference, candidate)
    if compared.result.verdict == "match" and not compared.result.findings:
        return Examined(compared.result, compared.unequal)
    # The products are small: several threads would only wait for each other, ten times as long if others compute.
    with threadpool_limits(1, "blas"), np.errstate(all="ignore"):
        return _diagnose(compared, reference, candidate)


def _diagnose(compared: Comparison, reference: Trace, candidate: Trace) -> Examined:
    result, layout = compared.result, compared.result.checks["layout"]
    assert isinstance(layout, LayoutCheck)
    names = side_names(reference, candidate)
    is_comparable = comparable(candidate.manifest.mapping, candidate.manifest.matching)
    same = reference.manifest.aliases if candidate.manifest.matching else None
    mine, theirs = (
        Side(name, trace, is_comparable, same) for name, trace in zip(names, (reference, candidate), strict=True)
    )
    sides = Sides(mine, theirs, compared.unequal, compared.noisier)
    first = result.first_divergence = _place(result.first_divergence, layout, sides)
    named: dict[str, list[Cause]] = {}
    unknown: dict[str, list[Cause]] = {}
    answers = [(ask, explain.compare(ask.formula, ask.reference, ask.candidate)) for ask in questions(sides)]
    for question, answer in answers:
        if _holds(question, answer, answers):
            named.setdefault(question.kind, []).extend(_cause(question, each, names) for each in answer.changes)
        guilty = first is not None and first.name == question.where
        if not (answer.same or answer.changes) and (answer.known or guilty):
            unknown.setdefault(question.kind, []).append(_unknown(question.where, names, answer.tried))
    if missing := [_missing(each, sides) for each in one_sided(sides)]:
        named.setdefault("gradient", []).extend(missing)
    for run in low_runs(sides):
        if done := at_run_precision(run.formula, run.high, run.low):
            named.setdefault("activation", []).append(_low_cause(run, done, names))
    if placed := list(_placements(layout, names, bool(named))):
        named["layout"] = placed
    if first and _phase(first) not in (*named, *unknown):
        unknown[_phase(first)] = [_unknown(first.name, names)]
    result.causes = [cause for kind, causes in named.items() for cause in _once(kind, causes)]
    # Of a parameter alone nothing may be known; what happens to all of them is told by another.
    left = (causes for kind, causes in unknown.items() if kind not in COMMON or kind not in named)
    result.causes += [cause for causes in left for cause in causes]
    failed = (ask for ask, answer in answers if answer.known and not (answer.same or answer.changes))
    return Examined(
        result,
        compared.unequal,
        places={ask.tensor: ask.where for ask, _ in answers},
        same=frozenset(ask.tensor for ask, answer in answers if answer.same),
        failed=frozenset(ask.tensor for ask in failed),
        replayed=Replayed(sides, answers),
    )


def _holds(question: Question, answer: Explained, answers: list[tuple[Question, Explained]]) -> bool:
    """Whether what explains one parameter is to be told: all that was done to it was done to the others alike.

    Unless nothing explains all of them: then each has its own cause.
    """
    if not answer.changes or question.kind not in COMMON:
        return bool(answer.changes)
    alike = [ask for ask, _ in answers if ask.formula is question.formula]
    others = (each for ask, each in answers if ask.formula is question.formula and each.changes)
    settings = [each.settings for each in others if each.settings]
    common = [each for each in settings if all(explains(ask, each) for ask in alike)]
    return not common or answer.settings in common


def _missing(each: Unequal, sides: Sides) -> Cause:
    """A gradient that only one side has."""
    told = {side.name: "has none" if side.lacks(each) else "has it" for side in sides[:2]}
    cause = "send_recv.gradient" if sides.reference.case.strategy in STAGED else "gradient.missing"
    return {"id": cause, "where": each.name, **told, "evidence": "the backward pass of one side does not reach it"}


def _place(first: Divergence | None, layout: LayoutCheck, sides: Sides) -> Divergence | None:
    if first is not None:
        return place.guilty(place.noisy(first, sides.noisier), sides.unequal, sides.reference.modules)
    return place.by_layout(layout.differences[0]) if layout.differences else None


def _phase(first: Divergence) -> str:
    """The kind of question that explains a tensor."""
    if first.kind == "buffer":
        return "activation"
    if first.kind == "optimizer_state" or (first.kind == "parameter" and first.step is not None):
        return keys.UPDATE
    return first.kind


def _cause(question: Question, change: Change, names: tuple[str, str]) -> Cause:
    """What the candidate does otherwise, in the shape of the report."""
    mine, theirs = _said(change.reference), _said(change.candidate)
    evidence = (
        f"with {change.trait} {theirs} {names[1]} is reproduced to {change.bits:.0f} bits, "
        f"with {mine} to {change.before:.0f}"
    )
    return {"id": change.cause, "where": question.where, names[0]: mine, names[1]: theirs, "evidence": evidence}


def _low_cause(run: LowRun, change: Change, names: tuple[str, str]) -> Cause:
    """What a side's low run does otherwise than its high run, which is the other side's too."""
    said = {name: _said(change.candidate if name == run.side.name else change.reference) for name in names}
    evidence = (
        f"with {change.trait} {_said(change.candidate)} the low run of {run.side.name} is reproduced to "
        f"{change.bits:.0f} bits, with {_said(change.reference)} to {change.before:.0f}"
    )
    return {"id": change.cause, "where": run.where, **said, "evidence": evidence}


def _said(value: Any) -> Any:
    """A setting as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def _unknown(where: str, names: tuple[str, str], tried: tuple[str, ...] = ()) -> Cause:
    evidence = f"ruled out: {', '.join(tried)}" if tried else "nothing in the catalogue says what belongs here"
    return {"id": UNKNOWN, "where": where, names[0]: None, names[1]: None, "evidence": evidence}


def _placements(layout: LayoutCheck, names: tuple[str, str], explained: bool) -> Iterator[Cause]:
    """Modules and parameters on other devices, by the weightiest aspect; else what was moved for no other reason."""
    lines = [line.split(": ", 2) for line in layout.differences if not (explained and NOWHERE in line)]
    for aspect, cause in PLACEMENTS.items():
        if found := [line for line in lines if line[0] == aspect]:
            yield from (_placement(cause, line[1], line[-1], names) for line in found)
            return
    if lines and not explained:
        yield _placement(TRANSFERS, lines[0][1], lines[0][-1], names)


def _placement(cause: str, where: str, said: str, names: tuple[str, str]) -> Cause:
    """From a line of the layout's differences: what each side did."""
    sides = [part.strip().removeprefix(f"{name} ") for name, part in zip(names, said.rsplit(", ", 1), strict=False)]
    mine, theirs = [*sides, None, None][:2]
    return {"id": cause, "where": where, names[0]: mine, names[1]: theirs, "evidence": said}


def _once(kind: str, causes: list[Cause]) -> Iterator[Cause]:
    """Each cause once; that of an optimizer or a reduction for all the parameters that showed it."""
    told = set()
    ignored = {"evidence", "where"} if kind in COMMON else {"evidence"}
    for cause in causes:
        alike = tuple(str(value) for key, value in cause.items() if key not in ignored)
        if alike not in told:
            told.add(alike)
            yield cause

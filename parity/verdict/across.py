"""The comparison of two traces of one framework whose cases differ only in how the training is distributed.

One is a distributed training; the other is the same training on a single device, or distributed in another way.
"""

import msgspec

from parity.config.devices import baseline, why_no_baseline
from parity.config.schema import Case
from parity.core.errors import TraceError
from parity.results import CaseResult
from parity.trace.manifest import Trace
from parity.verdict.against import against_single
from parity.verdict.traces import difference


def across(reference: Trace, candidate: Trace) -> CaseResult:
    """Compare two traces whose cases differ in strategy or devices; the result's `against_single` has the details.

    Raises TraceError if the two trainings are not the same mathematics.
    """
    single, trace = sorted((reference, candidate), key=lambda trace: trace.case.distribution.is_distributed)
    _check(single, trace)
    witness = single if "witness" in single.manifest.runs else None
    found = against_single(single, trace, witness)
    return CaseResult(
        case=f"{_spread(trace.case)} against {_spread(single.case)}",
        verdict=found.verdict,
        reason=found.reason,
        against_single={trace.backend: found},
        devices={"reference": single.manifest.layout.devices, "candidate": trace.manifest.layout.devices},
    )


def _check(single: Trace, trace: Trace) -> None:
    folders = f"({single.folder}, {trace.folder})"
    precisions = single.case.precision, trace.case.precision
    if precisions[0] != precisions[1]:
        raise TraceError(
            f"the traces are of {precisions[0]} and {precisions[1]}: weights and data are rounded to the run "
            f"precision, so that the float64 runs differ too {folders}; record both with the same --precision"
        )
    one, other = _alone(single.case), _alone(trace.case)
    if one != other:
        raise TraceError(
            f"the traces are of different cases: {difference(one, other)} {folders}; those of one framework may "
            "differ in strategy, devices and accumulate"
        )
    for each in (single, trace):
        if each.case.distribution.is_distributed and (reason := why_no_baseline(each.case)):
            raise TraceError(f"{_spread(each.case)} is another computation than the other trace: {reason} {folders}")
    if single.manifest.data != trace.manifest.data:
        raise TraceError(
            f"the traces are of different data: {difference(single.manifest.data, trace.manifest.data)} {folders}"
        )


def _alone(case: Case) -> Case:
    """Return the case without the fields in which the two may differ."""
    return msgspec.structs.replace(baseline(case), name="", devices=1)


def _spread(case: Case) -> str:
    """Return a case's name together with its number of devices and micro-batches."""
    if not case.distribution.is_distributed:
        return case.name
    parts = f", {case.accumulate} micro-batches" if case.accumulate > 1 else ""
    return f"{case.name} on {case.devices}{parts}"

"""Two folders of traces that were recorded earlier, compared case by case."""

from collections.abc import Iterator
from pathlib import Path

from parity.config import cases
from parity.core.errors import UsageError
from parity.pairs.compare import judged
from parity.results import CaseResult, Report, failed
from parity.subjects.subject import note_environment
from parity.trace.manifest import Trace, find
from parity.trace.whole import check_steps
from parity.verdict.distributed import across


def compared(first: Path, second: Path, report: Report) -> Iterator[CaseResult]:
    """Compare the traces in two folders case by case. Raises UsageError if a case is in one folder only."""
    left, right = _by_case(first), _by_case(second)
    if len(left) == len(right) == 1:  # pair them even if their cases differ: the comparison then says in what
        right = dict(zip(left, right.values(), strict=True))
    if missing := sorted(left.keys() ^ right.keys()):
        raise UsageError(f"only one of {first} and {second} holds a trace of {', '.join(missing)}")
    order = {name: number for number, name in enumerate(cases.names())}
    for name, trace in sorted(left.items(), key=lambda item: order.get(item[0], len(order))):
        try:
            yield _compare(trace, right[name], report)
        except UsageError as error:
            if len(left) == 1:
                raise
            yield failed(name, error)


def _by_case(folder: Path) -> dict[str, Trace]:
    traces: dict[str, Trace] = {}
    for path in find(folder):
        trace = Trace(path)
        if trace.case.name in traces:
            raise UsageError(
                f"{folder}: holds two traces of {trace.case.name} ({traces[trace.case.name].folder}, {path}); "
                "name a folder that holds one trace of each case"
            )
        traces[trace.case.name] = trace
    return traces


def _compare(first: Trace, second: Trace, report: Report) -> CaseResult:
    """Compare two traces; PyTorch is the reference, whichever is named first. Raises TraceError."""
    swapped = (first.backend, second.backend) == ("keras", "torch")
    reference, candidate = (second, first) if swapped else (first, second)
    for trace in (reference, candidate):
        check_steps(trace)
    note_environment([reference, candidate], report)
    if reference.backend == candidate.backend and reference.case != candidate.case:
        return across(reference, candidate)
    return judged(reference, candidate)

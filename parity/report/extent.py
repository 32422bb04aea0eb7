"""The line of the report that says how much was compared, and what was not."""

from collections import Counter
from collections.abc import Iterator

from parity.core import wording
from parity.core.names import STAY_ROUNDED
from parity.details import Extent
from parity.results import CaseResult, Report


def line(report: Report) -> str:
    """Return the line for all cases that were compared; "" if there are none."""
    extents = [case.extent for case in report.cases if case.extent]
    if not extents:
        return ""
    modes = Counter(mode for extent in extents for mode in extent.not_run)
    parts = [
        f"compared: {_least('parameters', report)}, {_least('activations', report)}",
        *_alone(extents),
        *_not_promoted(extents),
        *(f"{mode} not run in {wording.count(count, 'case')}" for mode, count in modes.items()),
    ]
    return "; ".join(parts)


def _least(of: str, report: Report) -> str:
    """Return the smallest share of any case, with the case's name where it is not all."""
    known = [(getattr(case.extent, of).percent, case.case) for case in report.cases if case.extent]
    shares = [(share, case) for share, case in known if share is not None]
    if not shares:
        return f"no {of}"
    least, case = min(shares)
    return f"{least:g}% of the {of}" if least == 100 else f"at least {least:g}% of the {of} ({case})"


def _alone(extents: list[Extent]) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for extent in extents:
        counts.update({side: len(names) for side, names in extent.alone.items()})
    for side, count in counts.items():
        yield f"{wording.count(count, 'tensor')} only in {side}"


def _not_promoted(extents: list[Extent]) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for extent in extents:
        counts.update({side: len(names) for side, names in extent.not_promoted.items()})
    for side, count in counts.items():
        yield f"{wording.count(count, 'module')} of {side} not in float64"


def sentences(case: CaseResult) -> list[str]:
    """Return what was not compared of one case, in sentences, each with its reason."""
    extent = case.extent
    if extent is None:
        nothing = case.verdict in ("error", "skipped")
        return [f"nothing was compared: {case.reason}"] if nothing else case.not_compared
    found = [f"not run: {mode} ({reason})" for mode, reason in extent.not_run.items()]
    for side, names in extent.not_promoted.items():
        found.append(f"{side} computed less than float64 in its high run in {', '.join(names)}")
    found += [f"not promoted to float64: {note}" for note in case.lifted if STAY_ROUNDED in note]
    return [*found, *case.not_compared]

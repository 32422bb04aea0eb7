"""Causes in the layout: modules, parameters or states that lie on other devices than on the other side."""

from collections.abc import Iterator

from parity.results import Cause, LayoutCheck

# Cause id by the aspect of the layout that differs, the most important aspect first.
PLACEMENTS = {
    "replicas": "placement.replicas",
    "compute": "placement.layer",
    "parameters": "placement.parameters",
    "shards": "placement.parameters",
    "backward": "placement.backward",
    "optimizer_state": "placement.optimizer_state",
}
TRANSFERS = "placement.transfers"  # differences in any other aspect
# Word in a layout difference for an event or object that one side lacks: another cause explains that it is absent.
NOWHERE = "nowhere"


def causes(layout: LayoutCheck, names: tuple[str, str], is_explained: bool) -> Iterator[Cause]:
    """Yield the causes behind the differences of the layouts, of the most important aspect only.

    An unexpected transfer is reported only if nothing else was: misplaced modules or parameters imply transfers.
    """
    lines = [line.split(": ", 2) for line in layout.differences if not (is_explained and NOWHERE in line)]
    for aspect, cause in PLACEMENTS.items():
        if of_aspect := [line for line in lines if line[0] == aspect]:
            yield from (_cause(cause, line[1], line[-1], names) for line in of_aspect)
            return
    if lines and not is_explained:
        yield _cause(TRANSFERS, lines[0][1], lines[0][-1], names)


def _cause(cause: str, where: str, difference: str, names: tuple[str, str]) -> Cause:
    """Return the report's entry for one line of the layout's differences."""
    values = [
        part.strip().removeprefix(f"{name} ") for name, part in zip(names, difference.rsplit(", ", 1), strict=False)
    ]
    reference_value, candidate_value = [*values, None, None][:2]
    both = {names[0]: reference_value, names[1]: candidate_value}
    return Cause(id=cause, where=where, **both, evidence=difference)

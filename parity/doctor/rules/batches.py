"""Rules about the batch on its way to the devices: copied repeatedly, not contiguous, not pinned."""

from collections.abc import Iterator

from parity.doctor.evidence import Evidence
from parity.doctor.evidence.ops import Copy
from parity.doctor.finding import Finding
from parity.doctor.rules import words
from parity.doctor.rules.facts import is_host, is_input, last, make_finding

STRIDED = 64 * 1024  # bytes from which it matters whether a batch is contiguous
PAGEABLE = 1024 * 1024  # bytes from which it matters whether it is in pinned memory


def copied_again(evidence: Evidence) -> Iterator[Finding]:
    """Report inputs that are copied to the same device more than once in a step."""
    copies = [copy for copy in last(evidence).copies if copy.what in ("to", "implicit") and is_input(copy.tensor)]
    groups: dict[tuple[str, str], list[Copy]] = {}
    for copy in copies:
        groups.setdefault((copy.tensor.origin, copy.target), []).append(copy)
    for (origin, device), group in groups.items():
        again = [copy for copy in group if copy.again]
        if again and not is_host(device):
            copied, needless = sum(copy.count for copy in group), sum(copy.again for copy in group)
            size = words.size(sum(copy.bytes for copy in group))
            message = (
                f"The {origin} is copied to {device} {words.times(copied)} in a step ({size}), {needless} of them "
                "needless."
            )
            name = words.variable(again[0].tensor)
            fix = f"{words.moved(evidence.side, name, device)}  # once, before the model is called"
            yield make_finding(
                "warning", "input.copied_again", again[0].place.module, again[0].place.source, message, fix
            )


def not_contiguous(evidence: Evidence) -> Iterator[Finding]:
    """Report large batches that are not contiguous in memory when they are copied to a GPU."""
    for copy in _sent(evidence):
        if not copy.contiguous and copy.tensor.bytes >= STRIDED:
            message = (
                f"{words.tensor(copy.tensor)} is not contiguous{words.made(copy.tensor)}: the host makes its "
                f"{words.size(copy.tensor.bytes)} contiguous before each copy to {copy.target}."
            )
            name = words.variable(copy.tensor)
            fix = f"{name} = {name}.contiguous()  # in the data loader's workers"
            yield make_finding("warning", "input.not_contiguous", copy.place.module, copy.place.source, message, fix)


def not_pinned(evidence: Evidence) -> Iterator[Finding]:
    """Report large batches that are copied to a GPU from memory that is not pinned."""
    for copy in _sent(evidence):
        if is_input(copy.tensor) and not copy.pinned and copy.tensor.bytes >= PAGEABLE:
            message = (
                f"{words.tensor(copy.tensor)} is not in pinned memory: its {words.size(copy.tensor.bytes)} go to "
                f"{copy.target} through another buffer, while the host waits."
            )
            fix = "loader = DataLoader(dataset, pin_memory=True)  # and .to(device, non_blocking=True)"
            yield make_finding("note", "input.not_pinned", copy.place.module, copy.place.source, message, fix)


def _sent(evidence: Evidence) -> list[Copy]:
    """Return what the program copies from the host to a GPU in each step."""
    copies = last(evidence).copies
    return [copy for copy in copies if copy.what == "to" and is_host(copy.source) and not is_host(copy.target)]

"""The batch on its way to the devices: copied again and again, not contiguous, not pinned."""

from collections.abc import Iterator

from parity.doctor.evidence import Copy, Evidence
from parity.doctor.finding import Finding
from parity.doctor.rules import words
from parity.doctor.rules.facts import found, host, is_input, last

STRIDED = 64 * 1024  # bytes from which it matters that a batch is not contiguous
PAGEABLE = 1024 * 1024  # and that it is not in pinned memory


def copied_again(evidence: Evidence) -> Iterator[Finding]:
    """An input that goes to the same device more than once in a step."""
    copies = [copy for copy in last(evidence).copies if copy.what in ("to", "implicit") and is_input(copy.tensor)]
    groups: dict[tuple[str, str], list[Copy]] = {}
    for copy in copies:
        groups.setdefault((copy.tensor.origin, copy.target), []).append(copy)
    for (origin, device), group in groups.items():
        again = [copy for copy in group if copy.again]
        if again and not host(device):
            every, needless = sum(copy.count for copy in group), sum(copy.again for copy in group)
            size = words.size(sum(copy.bytes for copy in group))
            message = (
                f"The {origin} is copied to {device} {words.times(every)} in a step ({size}), {needless} of them "
                "needless."
            )
            name = words.variable(again[0].tensor)
            fix = f"{words.moved(evidence.side, name, device)}  # once, before the model is called"
            yield found("warning", "input.copied_again", again[0].place.module, again[0].place.source, message, fix)


def not_contiguous(evidence: Evidence) -> Iterator[Finding]:
    """A large batch whose numbers are not in a row in memory, on its way to a GPU."""
    for copy in _sent(evidence):
        if not copy.contiguous and copy.tensor.bytes >= STRIDED:
            message = (
                f"{words.tensor(copy.tensor)} is not contiguous{words.made(copy.tensor)}: the host puts its "
                f"{words.size(copy.tensor.bytes)} in a row before each copy to {copy.target}."
            )
            name = words.variable(copy.tensor)
            fix = f"{name} = {name}.contiguous()  # in the data loader's workers"
            yield found("warning", "input.not_contiguous", copy.place.module, copy.place.source, message, fix)


def not_pinned(evidence: Evidence) -> Iterator[Finding]:
    """A large batch in memory that a GPU cannot read by itself."""
    for copy in _sent(evidence):
        if is_input(copy.tensor) and not copy.pinned and copy.tensor.bytes >= PAGEABLE:
            message = (
                f"{words.tensor(copy.tensor)} is not in pinned memory: its {words.size(copy.tensor.bytes)} go to "
                f"{copy.target} by way of a buffer, and the host waits."
            )
            fix = "loader = DataLoader(dataset, pin_memory=True)  # and .to(device, non_blocking=True)"
            yield found("note", "input.not_pinned", copy.place.module, copy.place.source, message, fix)


def _sent(evidence: Evidence) -> list[Copy]:
    """What the program sends from the host to a GPU in each step."""
    copies = last(evidence).copies
    return [copy for copy in copies if copy.what == "to" and host(copy.source) and not host(copy.target)]

"""Ranks that wait for each other: whose calls do not meet, and where each rank waits.

Calls of one group meet in order, the first of each rank with the first of the others; sends meet receives.
"""

from collections import Counter
from collections.abc import Sequence

from parity.doctor.evidence import Collective, Waiting
from parity.doctor.finding import Finding
from parity.doctor.rules import stacks, words
from parity.doctor.rules.facts import found

SENDS, RECEIVES = ("send",), ("recv",)
# Where each rank may give something else.
SHAPELESS = ("barrier", "gather", "scatter", "all_to_all", "all_to_all_single")

Logs = Sequence[Sequence[Collective]]


def hanging(logs: Logs, waiting: Sequence[Waiting]) -> list[Finding]:
    """Why the ranks wait for each other; of a program that ended, where no rank has a stack, what did not meet."""
    waiting = waiting if any(known.stack for known in waiting) else []
    finding = _unlike(logs) or _unmet(logs, waiting) or _short(logs, waiting)
    if not finding and waiting:
        finding = _silent(waiting)
    if not finding:
        return []
    finding.message += stacks.stacks(waiting)
    return [finding]


def _groups(logs: Logs) -> dict[tuple[int, ...], dict[int, list[Collective]]]:
    """The calls of each group, rank by rank."""
    groups: dict[tuple[int, ...], dict[int, list[Collective]]] = {}
    for rank, log in enumerate(logs):
        for call in log:
            if call.operation not in SENDS + RECEIVES:
                members = tuple(call.group) or tuple(range(len(logs)))
                groups.setdefault(members, {member: [] for member in members})[rank].append(call)
    return groups


def _unlike(logs: Logs) -> Finding | None:
    """The first call of some rank that is another one than that of the others, or of another shape."""
    for calls in _groups(logs).values():
        for number in range(max(map(len, calls.values()))):
            here = {rank: log[number] for rank, log in calls.items() if number < len(log)}
            for name, kind in (("collective.order", _operation), ("collective.shape", _shape)):
                kinds = Counter(kind(call) for call in here.values())
                if len(kinds) > 1:
                    return _odd_one(name, number, here, kinds.most_common()[0][0], kind)
    return None


def _operation(call: Collective) -> str:
    return call.operation


def _shape(call: Collective) -> str:
    return "" if call.operation in SHAPELESS else f"{call.dtype}{call.shape}"


def _odd_one(name: str, number: int, here: dict[int, Collective], usual: str, kind: object) -> Finding:
    """The rank that differs from most, beside one of those."""
    describe = _operation if kind is _operation else _shape
    odd = next(rank for rank in here if describe(here[rank]) != usual)
    other = next(rank for rank in here if describe(here[rank]) == usual)
    calls = f"rank {odd} calls {_said(here[odd])}, rank {other} {_said(here[other])}"
    message = f"The ranks' calls differ from number {number + 1} on: {calls}."
    return found("error", name, "", here[odd].source, message, _like(here[other]))


def _like(call: Collective) -> str:
    return f"dist.{call.operation}(tensor)  # {call.dtype}{call.shape}, on each rank"


def _unmet(logs: Logs, waiting: Sequence[Waiting]) -> Finding | None:
    """A send without its receive, a receive without its send, or a pair of other shapes."""
    for one in range(len(logs)):
        for other in range(len(logs)):
            sent = [call for call in logs[one] if call.operation in SENDS and call.peer == other]
            due = [call for call in logs[other] if call.operation in RECEIVES and call.peer == one]
            for send, receive in zip(sent, due, strict=False):
                if _shape(send) != _shape(receive):
                    message = f"Rank {one} calls {_said(send)}, rank {other} receives {_said(receive)}."
                    fix = f"buffer = torch.empty({send.shape}, dtype=torch.{send.dtype}); dist.recv(buffer, src={one})"
                    return found("error", "collective.shape", "", receive.source, message, fix)
            if len(sent) > len(due) and not _any_source(logs[other]):
                fix = f"dist.recv(buffer, src={one})  # on rank {other}"
                return _alone(one, other, sent[len(due)], logs, waiting, fix)
            if len(due) > len(sent):
                fix = f"dist.send(tensor, dst={other})  # on rank {one}"
                return _alone(other, one, due[len(sent)], logs, waiting, fix)
    return None


def _any_source(log: Sequence[Collective]) -> bool:
    return any(call.operation in RECEIVES and call.peer is None for call in log)


def _alone(rank: int, peer: int, call: Collective, logs: Logs, waiting: Sequence[Waiting], fix: str) -> Finding:
    """A call whose peer does something else, or has left."""
    gone = stacks.ended(peer, waiting)
    instead = "has ended its step" if gone else _instead(peer, logs, waiting)
    message = f"Rank {rank} waits in {_said(call)}, which rank {peer} does not meet: it {instead}."
    return found("error", "collective.left" if gone else "collective.order", "", call.source, message, fix)


def _short(logs: Logs, waiting: Sequence[Waiting]) -> Finding | None:
    """A rank that made fewer calls than the others: it left early, or is held up elsewhere."""
    for calls in _groups(logs).values():
        most = max(calls, key=lambda rank: len(calls[rank]))
        least = min(calls, key=lambda rank: len(calls[rank]))
        if len(calls[most]) > len(calls[least]):
            call = calls[most][len(calls[least])]
            gone = not waiting or stacks.ended(least, waiting)
            instead = (
                f"has left after {words.count(len(calls[least]), 'call')}" if gone else _instead(least, [], waiting)
            )
            verb = "waits in" if waiting else "makes"
            message = f"Rank {most} {verb} {_said(call)}, which rank {least} does not reach: it {instead}."
            if gone:
                return found("error", "collective.left", "", call.source, message, _like(call))
            return found("error", "step.hangs", "", stacks.line(least, waiting), message, "")
    return None


def _silent(waiting: Sequence[Waiting]) -> Finding:
    """Nothing that was noted says why."""
    held = next((rank for rank in waiting if not rank.ended), waiting[0])
    at = f" at {line}" if (line := stacks.line(held.rank, waiting)) else ""
    message = f"The step did not end within the time limit: rank {held.rank} is still{at}."
    return found("error", "step.hangs", "", stacks.line(held.rank, waiting), message, "")


def _instead(rank: int, logs: Logs, waiting: Sequence[Waiting]) -> str:
    """What a rank does in place of the call that it should make."""
    if rank < len(logs) and logs[rank] and (waiting or logs[rank][-1].operation not in SENDS + RECEIVES):
        return f"{'is in' if waiting else 'ends with'} {_said(logs[rank][-1])}"
    line = stacks.line(rank, waiting)
    return f"is at {line}" if line else "makes no such call"


def _said(call: Collective) -> str:
    """A call in words: "all_reduce of float32[8] at train.py:12"."""
    peer = ""
    if call.peer is not None:
        peer = f" {'to' if call.operation in SENDS else 'from'} rank {call.peer}"
    what = "" if call.operation in SHAPELESS else f" of {call.dtype}{call.shape}"
    return f"{call.operation}{what}{peer}{' at ' + call.source if call.source else ''}"

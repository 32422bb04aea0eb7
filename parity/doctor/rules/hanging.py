"""Rules about ranks that wait for each other: whose calls do not match, and where each rank waits.

Collective calls of a group match in order: the first of each rank, the second, and so on. A send matches a receive.
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from parity.core import ownership
from parity.doctor.evidence import PEERS, Collective, Waiting
from parity.doctor.finding import Finding, make_finding
from parity.doctor.rewrite import shown
from parity.doctor.rules import words

# Operations whose tensors may differ in shape between the ranks.
SHAPELESS = ("barrier", "gather", "scatter", "all_to_all", "all_to_all_single")
FRAMES = 4  # number of frames that are shown
FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+),? in (?P<function>.*)')
Logs = Sequence[Sequence[Collective]]


def hanging(logs: Logs, waiting: Sequence[Waiting]) -> list[Finding]:
    """Return a finding about why the ranks wait for each other, or an empty list.

    Of a program that came to an end, where no rank has a stack, only calls that do not match are reported.
    """
    waiting = waiting if any(rank.stack for rank in waiting) else []
    finding = _different(logs) or _unmatched(logs, waiting) or _fewer_calls(logs, waiting)
    if finding is None and waiting:
        rank = next((state.rank for state in waiting if not state.ended), waiting[0].rank)
        line = _innermost(rank, waiting)
        at = f" at {line}" if line else ""
        message = f"The step did not end within the time limit: rank {rank} is still running{at}."
        finding = make_finding("error", "step.hangs", "", line, message, "")
    if finding is None:
        return []
    for state in waiting:
        ended = ", which has ended its step" if _ended(state.rank, waiting) else ""
        finding.message += "".join([f"\nrank {state.rank}{ended}:", *(f"\n  {frame}" for frame in _stack(state))])
    return [finding]


def _groups(logs: Logs) -> dict[tuple[int, ...], dict[int, list[Collective]]]:
    groups: dict[tuple[int, ...], dict[int, list[Collective]]] = {}
    for rank, log in enumerate(logs):
        for call in log:
            if call.operation not in PEERS:
                members = tuple(call.group) or tuple(range(len(logs)))
                groups.setdefault(members, {member: [] for member in members})[rank].append(call)
    return groups


def _different(logs: Logs) -> Finding | None:
    """Return the first call in which a rank's operation, or else its shape or type, differs from that of the others."""
    for calls in _groups(logs).values():
        for number in range(max(map(len, calls.values()))):
            by_rank = {rank: log[number] for rank, log in calls.items() if number < len(log)}
            for name, kind in (("collective.order", attrgetter("operation")), ("collective.shape", _shape)):
                kinds = {rank: kind(call) for rank, call in by_rank.items()}
                if len(set(kinds.values())) > 1:
                    return _odd_one(name, number, by_rank, kinds)
    return None


def _shape(call: Collective) -> str:
    return "" if call.operation in SHAPELESS else f"{call.dtype}{call.shape}"


def _odd_one(name: str, number: int, by_rank: dict[int, Collective], kinds: dict[int, str]) -> Finding:
    """Return the finding for the rank whose kind of call differs from most, compared with one of those."""
    ((most, _),) = Counter(kinds.values()).most_common(1)
    odd = next(rank for rank, kind in kinds.items() if kind != most)
    usual = next(rank for rank, kind in kinds.items() if kind == most)
    calls = f"rank {odd} calls {_in_words(by_rank[odd])}, rank {usual} calls {_in_words(by_rank[usual])}"
    message = f"The ranks' calls differ from call number {number + 1} on: {calls}."
    return make_finding("error", name, "", by_rank[odd].source, message, _same_call(by_rank[usual]))


def _same_call(call: Collective) -> str:
    return f"dist.{call.operation}(tensor)  # {call.dtype}{call.shape}, on each rank"


def _unmatched(logs: Logs, waiting: Sequence[Waiting]) -> Finding | None:
    """Return the first send without a receive, receive without a send, or pair of the two with different shapes."""
    for sender, receiver in itertools.product(range(len(logs)), repeat=2):
        sent = [call for call in logs[sender] if call.operation == "send" and call.peer == receiver]
        received = [call for call in logs[receiver] if call.operation == "recv" and call.peer == sender]
        for send, receive in zip(sent, received, strict=False):
            if _shape(send) != _shape(receive):
                calls = f"Rank {sender} calls {_in_words(send)}, but rank {receiver} calls {_in_words(receive)}"
                message = f"{calls}: shape and type must be the same."
                buffer = f"torch.empty({send.shape}, dtype=torch.{send.dtype})"
                fix = f"buffer = {buffer}; dist.recv(buffer, src={sender})"
                return make_finding("error", "collective.shape", "", receive.source, message, fix)
        from_anyone = any(call.operation == "recv" and call.peer is None for call in logs[receiver])
        if len(sent) > len(received) and not from_anyone:
            fix = f"dist.recv(buffer, src={sender})  # on rank {receiver}"
            return _without_match(sender, receiver, sent[len(received)], logs, waiting, fix)
        if len(received) > len(sent):
            fix = f"dist.send(tensor, dst={receiver})  # on rank {sender}"
            return _without_match(receiver, sender, received[len(sent)], logs, waiting, fix)
    return None


def _without_match(rank: int, peer: int, call: Collective, logs: Logs, waiting: Sequence[Waiting], fix: str) -> Finding:
    has_ended = _ended(peer, waiting)
    instead = "has ended its step" if has_ended else _instead(peer, logs, waiting)
    message = f"Rank {rank} waits in {_in_words(call)}, for which rank {peer} makes no matching call: it {instead}."
    return make_finding("error", "collective.left" if has_ended else "collective.order", "", call.source, message, fix)


def _fewer_calls(logs: Logs, waiting: Sequence[Waiting]) -> Finding | None:
    """Return the finding for a rank that made fewer calls than the others: it ended early, or waits elsewhere."""
    for calls in _groups(logs).values():
        most = max(calls, key=lambda rank: len(calls[rank]))
        least = min(calls, key=lambda rank: len(calls[rank]))
        if len(calls[most]) > len(calls[least]):
            call = calls[most][len(calls[least])]
            has_ended = not waiting or _ended(least, waiting)
            ended = f"has ended after {words.count(len(calls[least]), 'call')}"
            instead = ended if has_ended else _instead(least, [], waiting)
            verb = "waits in" if waiting else "makes"
            message = f"Rank {most} {verb} {_in_words(call)}, which rank {least} does not reach: it {instead}."
            if has_ended:
                return make_finding("error", "collective.left", "", call.source, message, _same_call(call))
            return make_finding("error", "step.hangs", "", _innermost(least, waiting), message, "")
    return None


def _instead(rank: int, logs: Logs, waiting: Sequence[Waiting]) -> str:
    """Return what a rank does instead of the call that it should make."""
    if rank < len(logs) and logs[rank] and (waiting or logs[rank][-1].operation not in PEERS):
        return f"{'is in' if waiting else 'ends with'} {_in_words(logs[rank][-1])}"
    line = _innermost(rank, waiting)
    return f"is at {line}" if line else "makes no such call"


def _in_words(call: Collective) -> str:
    """Return a call in words: "all_reduce of float32[8] at train.py:12"."""
    peer = "" if call.peer is None else f" {'to' if call.operation == 'send' else 'from'} rank {call.peer}"
    what = "" if call.operation in SHAPELESS else f" of {call.dtype}{call.shape}"
    return f"{call.operation}{what}{peer}{' at ' + call.source if call.source else ''}"


def _ended(rank: int, waiting: Sequence[Waiting]) -> bool:
    """Return whether a rank had ended its step; not if a lost connection ended it while the user's code was running."""
    return any(rank_state.ended and not _user_frames(rank_state) for rank_state in waiting if rank_state.rank == rank)


def _stack(rank_state: Waiting) -> list[str]:
    """Return the user's frames as "file:line in function", the innermost first; all frames if none is the user's."""
    frames = _user_frames(rank_state)
    if not frames and not rank_state.ended:
        frames = list(filter(None, map(FRAME.match, rank_state.stack)))
    return [f"{shown(frame['file'], int(frame['line']))} in {frame['function']}" for frame in frames[:FRAMES]]


def _user_frames(rank_state: Waiting) -> list[re.Match[str]]:
    homes = rank_state.homes or ownership.here()  # its process may run another interpreter, with other paths
    frames = map(FRAME.match, rank_state.stack)
    return [frame for frame in frames if frame and homes.owner(frame["file"]) == "user"]


def _innermost(rank: int, waiting: Sequence[Waiting]) -> str:
    frames = (frame for rank_state in waiting if rank_state.rank == rank for frame in _stack(rank_state))
    return next(frames, "").partition(" in ")[0]

"""Knobs for the order of a function's statements: a state that is read before it is updated, a norm that comes late."""

import dis
import linecache
import types
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from parity.diagnose.experiment.executed import Executed
from parity.diagnose.experiment.knobs import Knob, attribute

KIND: Final = "statement"
FARTHEST: Final = 3  # statements over which one is moved
LONGEST: Final = 40  # characters of a statement that are shown
ENDS: Final = ("STORE_", "POP_TOP")  # how the instructions begin with which a statement ends
KINDS: Final = ("FAST", "NAME", "DEREF", "GLOBAL", "ATTR")
VARIABLES: Final = tuple(f"{how}_{what}" for how in ("LOAD", "STORE") for what in KINDS)
# Instructions that stay where they are, beside jumps.
FIXED: Final = (
    "RESUME",
    "COPY_FREE_VARS",
    "MAKE_CELL",
    "NOP",
    "BEFORE_WITH",
    "RETURN_",
    "RAISE_",
    "PUSH_EXC",
    "RERAISE",
)


class Statement(NamedTuple):
    """A statement without jumps: where its instructions begin and end, its line, and the variables that it names."""

    start: int
    end: int
    line: int
    read: frozenset[str]
    written: frozenset[str]  # "" stands for whatever a call changes whose result nobody takes

    def must_follow(self, other: "Statement") -> bool:
        """Return whether it matters which of the two comes first."""
        return bool(self.written & (other.read | other.written) or self.read & other.written)


def moved(run: Executed) -> Iterator[Knob]:
    """Yield each statement of a function, to be moved behind or before one that stands near it."""
    statements = list(_statements(run.function.__code__))
    for at, statement in enumerate(statements):
        block: tuple[Statement, ...] = (statement,)
        for further in statements[at + 1 : at + 1 + FARTHEST]:
            if further.start != block[-1].end:
                break
            block = (*block, further)
            if any(map(statement.must_follow, block[1:])):
                yield _knob(run, block, block[1:] + block[:1])
            if len(block) > 2 and any(map(further.must_follow, block[:-1])):
                yield _knob(run, block, block[-1:] + block[:-1])


def _knob(run: Executed, block: Sequence[Statement], order: Sequence[Statement]) -> Knob:
    def replaced(code: types.CodeType, _: Any) -> types.CodeType:
        own = code.co_code
        there = b"".join(own[each.start : each.end] for each in order)
        return code.replace(co_code=own[: block[0].start] + there + own[block[-1].end :])

    which, to = (block[0], "behind") if order[-1] is block[0] else (block[-1], "before")
    other = block[-1] if which is block[0] else block[0]
    here = "before" if to == "behind" else "behind"
    texts = [f"`{_text(run, which)}` {how} `{_text(run, other)}`" for how in (here, to)]
    change = attribute(run.function, "__code__", replaced)
    return Knob("order", run.name, f"{run.file}:{which.line}", texts[0], KIND, change, (texts[1],))


def _text(run: Executed, statement: Statement) -> str:
    text = linecache.getline(run.file, statement.line).strip()
    return text if len(text) <= LONGEST else text[: LONGEST - 3].rstrip() + "..."


def _statements(code: types.CodeType) -> Iterator[Statement]:
    """Yield the statements that take nothing from the stack but what they have put there, and jump nowhere."""
    instructions = list(dis.get_instructions(code))
    ends = [each.offset for each in instructions[1:]] + [len(code.co_code)]
    start, depth, line = 0, 0, 0
    names: dict[bool, set[str]] = {False: set(), True: set()}  # those that are written by True
    for each, end in zip(instructions, ends, strict=True):
        if each.is_jump_target:
            start, depth = each.offset, 0
        if each.offset == start:
            line = (each.positions and each.positions.lineno) or line
            names = {False: set(), True: set()}
        if isinstance(each.argval, str) and each.opname.startswith(VARIABLES):
            names[each.opname.startswith("STORE_")].add(each.argval)
        jumps = each.opcode in dis.hasjrel or each.opcode in dis.hasjabs
        depth += dis.stack_effect(each.opcode, each.arg if each.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
        if jumps or depth < 0 or each.opname.startswith(FIXED):
            start, depth = end, 0
        elif not depth and each.opname.startswith(ENDS):
            names[True] |= {""} if each.opname == "POP_TOP" else set()
            yield Statement(start, end, line, frozenset(names[False]), frozenset(names[True]))
            start = end

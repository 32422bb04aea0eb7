"""Knobs for the order of a function's arguments and statements: a state that is read before it is updated."""

import dis
import linecache
import re
import types
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from parity.diagnose.experiment.executed import Executed
from parity.diagnose.experiment.knobs import Knob, attribute

KIND, VARIABLE = "statement", "local"
FARTHEST: Final = 3  # statements over which one is moved
LONGEST: Final = 40  # characters of a statement that are shown
ENDS: Final = ("STORE_", "POP_TOP")  # how the instructions begin with which a statement ends
KINDS: Final = ("FAST", "NAME", "DEREF", "GLOBAL", "ATTR")
VARIABLES: Final = tuple(f"{how}_{what}" for how in ("LOAD", "STORE") for what in KINDS)
# Instructions that stay where they are, beside jumps.
FIXED: Final = (
    "RESUME", "COPY_FREE_VARS", "MAKE_CELL", "NOP", "BEFORE_WITH", "RETURN_", "RAISE_", "PUSH_EXC", "RERAISE"
)  # fmt: skip


class Statement(NamedTuple):
    """A statement without jumps: where its instructions begin and end, its line, and the variables that it names."""

    start: int
    end: int
    line: int
    read: frozenset[str]
    written: frozenset[str]  # "" stands for whatever a call changes whose result nobody takes
    is_target: bool  # whether a jump ends there, such as behind an `if`

    def order_matters(self, other: "Statement") -> bool:
        """Return whether it matters which of the two comes first."""
        return bool(self.written & (other.read | other.written) or self.read & other.written)


def moved(run: Executed) -> Iterator[Knob]:
    """Yield each statement of a function, to be moved behind or before one that stands near it."""
    statements = list(_statements(run.function.__code__))
    for at, statement in enumerate(statements):
        block: tuple[Statement, ...] = (statement,)
        for further in statements[at + 1 : at + 1 + FARTHEST]:
            if further.start != block[-1].end or further.is_target:
                break
            block = (*block, further)
            if any(map(statement.order_matters, block[1:])):
                yield _knob(run, block, block[1:] + block[:1])
            if len(block) > 2 and any(map(further.order_matters, block[:-1])):
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
    start, depth, line, target = 0, 0, 0, -1
    names: dict[bool, set[str]] = {}  # whether they are written, and those that are
    for each, end in zip(instructions, ends, strict=True):
        if each.is_jump_target:
            start, depth, target = each.offset, 0, each.offset
        if each.offset == start:
            line = (each.positions and each.positions.lineno) or line
            names = {False: set(), True: set()}
        if each.opname.startswith(VARIABLES):  # of two variables in Python 3.13, as in STORE_FAST_LOAD_FAST
            both = each.argval if isinstance(each.argval, tuple) else (each.argval,)
            for how, name in zip(re.findall("LOAD|STORE", each.opname), both, strict=False):
                names[how == "STORE"].add(name)
        jumps = each.opcode in dis.hasjrel or each.opcode in dis.hasjabs
        depth += dis.stack_effect(each.opcode, each.arg if each.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
        if jumps or depth < 0 or each.opname.startswith(FIXED):
            start, depth = end, 0
        elif not depth and each.opname.startswith(ENDS):
            names[True] |= {""} if each.opname == "POP_TOP" else set()
            yield Statement(start, end, line, frozenset(names[False]), frozenset(names[True]), start == target)
            start = end


def exchanged(run: Executed) -> Iterator[Knob]:
    """Yield the exchange of the first two arguments that are given to a function, as of prediction and target."""
    function, code = run.function, run.function.__code__
    given = code.co_varnames[: code.co_argcount]
    given = given[1:] if given[:1] == ("self",) else given
    if len(given) < 2 or set(given[:2]) & set(code.co_cellvars):
        return
    before, after = (f"({', '.join(names)})" for names in (given[:2], given[1::-1]))
    change = attribute(function, "__code__", lambda code, _: _with_exchanged(code, code.co_varnames.index(given[0])))
    yield Knob("arguments", run.name, run.source, before, "operation", change, (after,), "function")


def variables(run: Executed) -> Iterator[Knob]:
    """Yield each use of a local variable that holds a tensor, to be one of another that holds one of its shape."""
    code = run.function.__code__
    written = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    for each in dis.get_instructions(code):
        if each.opname == "STORE_FAST":
            written.add(each.argval)
        if each.opname != "LOAD_FAST" or each.argval not in run.tensors or not (each.positions and run.tensors):
            continue
        others = [name for name, held in run.tensors.items() if held == run.tensors[each.argval]]
        texts = tuple(f"`{name}`" for name in others if name in written and name != each.argval)
        if texts:
            change = attribute(run.function, "__code__", partial(_with_other, each.offset))
            source = f"{run.file}:{each.positions.lineno}"
            yield Knob(each.argval, run.name, source, f"`{each.argval}`", VARIABLE, change, texts)


def _with_other(offset: int, code: types.CodeType, text: Any) -> types.CodeType:
    """Return the code whose instruction there takes the local variable that a text names."""
    instructions = bytearray(code.co_code)
    instructions[offset + 1] = code.co_varnames.index(text.strip("`"))
    return code.replace(co_code=bytes(instructions))


def _with_exchanged(code: types.CodeType, first: int) -> types.CodeType:
    """Return the code that takes each of two neighbouring local variables for the other."""
    neighbours, instructions = {first: first + 1, first + 1: first}, bytearray(code.co_code)
    for instruction in dis.get_instructions(code):
        if instruction.arg is not None and "_FAST" in instruction.opname:
            is_double = instruction.opname.count("_FAST") > 1  # in Python 3.13, of four bits each
            high, low = divmod(instruction.arg, 16) if is_double else (0, instruction.arg)
            numbers = neighbours.get(high, high), neighbours.get(low, low)
            instructions[instruction.offset + 1] = 16 * numbers[0] * is_double + numbers[1]
    return code.replace(co_code=bytes(instructions))

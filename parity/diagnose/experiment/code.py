"""Knobs in the code that a call runs through: constants, defaults of arguments, variables, operators, functions."""

import contextlib
import dis
import itertools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from parity.core.script import Main
from parity.diagnose.experiment.candidates import ACTIVATIONS, EQUATION, FUNCTIONS, IDENTITIES, alternatives, are_axes
from parity.diagnose.experiment.executed import Executed, Lookup, lookups_of
from parity.diagnose.experiment.knobs import WORD, Changed, Knob, assignment, attribute, is_setting, together
from parity.diagnose.experiment.operations import FIRST, LEFT_OUT, SECOND

ARGUMENTS: Final = ("KW_NAMES", "PRECALL", "CALL", "LOAD_CONST")  # what follows where an argument of a call is loaded
Replaced = Callable[[types.CodeType, Any], types.CodeType]


def constants(run: Executed) -> Iterator[Knob]:
    """Yield the constants that are written in a function's code, each place of a constant by itself.

    A float that stands at several places, such as one that keeps both terms of a quotient from zero, is then changed at
    all of them; so is an integer that is an operand, or is given to several calls, such as the axis of two sums. A
    truth value that a function returns is no constant: it says which way the code around goes.
    """
    instructions = list(dis.get_instructions(run.function.__code__))
    repeated: dict[tuple[Any, bool], list[Knob]] = {}
    for instruction, following in zip(instructions, [*instructions[1:], None], strict=True):
        value, place = instruction.argval, instruction.positions
        is_returned = instruction.opname == "RETURN_CONST" or (following and following.opname == "RETURN_VALUE")
        if type(value) is bool and is_returned:
            continue
        is_word = type(value) is str and (WORD.fullmatch(value) or EQUATION.fullmatch(value))
        is_plain = type(value) in (bool, int, float) or is_word or are_axes(value)
        if instruction.opname in ("LOAD_CONST", "RETURN_CONST") and is_plain and place and place.lineno:
            source, change = f"{run.file}:{place.lineno}", _constant(run.function, instruction)
            knob = Knob(repr(value), run.name, source, value, "constant", change)
            is_operand = bool(following and following.opname == "BINARY_OP")
            is_given = type(value) is int and following and (is_operand or following.opname in ARGUMENTS)
            if is_given or type(value) is float:
                repeated.setdefault((value, is_operand and type(value) is int), []).append(knob)
            yield knob
    for alike in repeated.values():
        if len(alike) > 1:
            yield alike[0]._replace(owner=f"{run.name} ({len(alike)} of them)", changed=together(alike))


def defaults(run: Executed) -> Iterator[Knob]:
    """Yield the defaults of a function's arguments, but for the name that an op gets."""
    function, code = run.function, run.function.__code__
    positional = code.co_varnames[: code.co_argcount]
    values = function.__defaults__ or ()
    for number, (name, value) in enumerate(zip(positional[len(positional) - len(values) :], values, strict=True)):
        if is_setting(value) and name != "name":
            change = attribute(function, "__defaults__", _with(number))
            yield Knob(name, run.name, run.source, value, "default", change)
    for name, value in (function.__kwdefaults__ or {}).items():
        if is_setting(value):
            yield Knob(name, run.name, run.source, value, "default", assignment(function.__kwdefaults__, name))


def variables(run: Executed) -> Iterator[Knob]:
    """Yield the global and enclosing variables that a function reads; a script's are constants in its own code."""
    function, code = run.function, run.function.__code__
    if run.main:
        yield from (knob for knob in _stored(run.main) if knob.name in code.co_names)
        return
    for name in code.co_names:
        value = function.__globals__.get(name)
        if value is not None and is_setting(value):
            yield Knob(name, run.name, run.source, value, "variable", assignment(function.__globals__, name))
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):  # a local one has no cells yet
        with contextlib.suppress(ValueError):  # an empty cell
            if cell.cell_contents is not None and is_setting(cell.cell_contents):
                yield Knob(name, run.name, run.source, cell.cell_contents, "variable", attribute(cell, "cell_contents"))


def _stored(main: Main) -> Iterator[Knob]:
    """Yield the constants to which a script gives names, each by itself or several in a line."""
    instructions = list(dis.get_instructions(main.__code__))
    for at, (load, following) in enumerate(itertools.pairwise(instructions)):
        if load.opname != "LOAD_CONST" or not (load.positions and load.positions.lineno):
            continue
        change, is_of_several = _constant(main, load), following.opname == "UNPACK_SEQUENCE"
        parts = load.argval if is_of_several and isinstance(load.argval, tuple) else (load.argval,)
        stores = instructions[at + 1 + is_of_several :][: len(parts)]
        for number, (value, store) in enumerate(zip(parts, stores, strict=False)):
            changed = partial(_with_part, change, parts, number) if is_of_several else change
            if store.opname == "STORE_NAME" and is_setting(value):
                source = f"{main.path}:{load.positions.lineno}"
                yield Knob(store.argval, main.__qualname__, source, value, "variable", changed)


def _with_part(change: Changed, parts: tuple[Any, ...], number: int, value: Any) -> AbstractContextManager[Any]:
    """Return a context in which one of several constants is another one."""
    return change((*parts[:number], value, *parts[number + 1 :]))


def functions(run: Executed) -> Iterator[Knob]:
    """Yield the names of those functions that a function calls for which there are alternatives.

    An activation can also be left out. A name that stands at several places is changed at all of them, and at each.
    Of the alternatives those are tried that stand where the function does: tf.reduce_sum has no `mean` beside it.
    """
    code, spaces = run.function.__code__, [run.function.__globals__, *map(vars, _modules(run.function))]
    for number, name in enumerate(code.co_names):
        if name in FUNCTIONS and name not in IDENTITIES and (lookups := list(lookups_of(code, name))):
            beside = [space for space in spaces if name in space]
            others = (other for other in alternatives(name) if not beside or any(other in space for space in beside))
            words = (*([LEFT_OUT] if name in ACTIVATIONS else []), *others)
            alone = [(each.line, _renamed_at(each)) for each in lookups if each.can_change]
            changes = [(lookups[0].line, _renamed(number)), *(alone if len(lookups) > 1 else [])]
            for line, replaced in changes:
                change = _name(run.function, replaced)
                yield Knob(name, run.name, f"{run.file}:{line}", name, "function", change, words)


def operators(run: Executed) -> Iterator[Knob]:
    """Yield a function's comparisons and binary operators, in place of which either operand can stand alone."""
    function = run.function
    for instruction in dis.get_instructions(function.__code__):
        group = BINARY if instruction.opname == "BINARY_OP" else COMPARED if instruction.opname == "COMPARE_OP" else {}
        sign = next((sign for sign, argument in group.items() if argument == instruction.arg), "")
        if sign:
            line = instruction.positions.lineno if instruction.positions else None
            change = _operator(function, instruction.offset + 1, group)
            yield Knob(sign, run.name, f"{run.file}:{line}", sign, "operator", change)


def slices(run: Executed) -> Iterator[Knob]:
    """Yield the slices with written ends, such as 1: and :-1, at all places and at each: they shift an axis."""
    instructions = list(dis.get_instructions(run.function.__code__))
    by_text: dict[str, list[tuple[dis.Instruction, dis.Instruction, int | None]]] = {}
    for start, stop, made in zip(instructions, instructions[1:], instructions[2:], strict=False):
        ends = [each.argval for each in (start, stop) if each.opname == "LOAD_CONST"]
        if made.opname in ("BUILD_SLICE", "BINARY_SLICE") and made.arg != 3 and len(ends) == 2:
            text = ":".join("" if end is None else str(end) for end in ends)
            by_text.setdefault(text, []).append((start, stop, made.positions and made.positions.lineno))
    for text, several in by_text.items():
        for each in (several, *([one] for one in several if len(several) > 1)):
            change = _ends(run.function, [load for start, stop, _ in each for load in (start, stop)])
            yield Knob(text, run.name, f"{run.file}:{each[0][2]}", text, "slice", change)


def exchanged(run: Executed) -> Iterator[Knob]:
    """Yield the exchange of the first two arguments that are given to a function, as of prediction and target."""
    function, code = run.function, run.function.__code__
    given = code.co_varnames[: code.co_argcount]
    given = given[1:] if given[:1] == ("self",) else given
    if len(given) < 2 or set(given[:2]) & set(code.co_cellvars):
        return
    before, after = (f"({one}, {other})" for one, other in (given[:2], given[1::-1]))
    first = code.co_varnames.index(given[0])
    change = attribute(function, "__code__", lambda code, _: _with_exchanged(code, first))
    yield Knob("arguments", run.name, run.source, before, "operation", change, (after,), "function")


def _with_exchanged(code: types.CodeType, first: int) -> types.CodeType:
    """Return the code that takes each of two neighbouring local variables for the other."""
    other, instructions = {first: first + 1, first + 1: first}, bytearray(code.co_code)
    for instruction in dis.get_instructions(code):
        if instruction.arg is not None and "_FAST" in instruction.opname:
            is_double = instruction.opname.count("_FAST") > 1  # in Python 3.13, of four bits each
            high, low = divmod(instruction.arg, 16) if is_double else (0, instruction.arg)
            instructions[instruction.offset + 1] = 16 * other.get(high, high) * is_double + other.get(low, low)
    return code.replace(co_code=bytes(instructions))


def _ends(function: types.FunctionType, loads: Sequence[dis.Instruction]) -> Changed:
    """Return the change of the ends of slices, which these instructions load in turn."""

    def replaced(code: types.CodeType, text: str) -> types.CodeType:
        ends = [int(end) if end else None for end in text.split(":")]
        instructions, first = bytearray(code.co_code), len(code.co_consts)
        if first + 1 >= 1 << 8:
            raise LookupError("no room for another constant")
        for number, load in enumerate(loads):
            instructions[load.offset + 1] = first + number % 2
        return code.replace(co_consts=(*code.co_consts, *ends), co_code=bytes(instructions))

    return attribute(function, "__code__", replaced)


def signs(sign: str) -> list[str]:
    """Return what can stand in place of a binary operator or a comparison, the likeliest first."""
    others = [*ALONE, *MISTAKEN.get(sign, ()), *BINARY] if sign in BINARY else COMPARED
    return [other for other in dict.fromkeys(others) if other != sign]


def _arguments(*signs: str) -> dict[str, int]:
    """Return the argument of the instruction to which each sign is compiled by this Python."""
    arguments: dict[str, int] = {}
    for sign in signs:
        code = compile(f"a {sign} b", "", "eval")
        operation = next(each for each in dis.get_instructions(code) if each.opname in ("BINARY_OP", "COMPARE_OP"))
        assert operation.arg is not None
        arguments[sign] = operation.arg
    return arguments


BINARY: Mapping[str, int] = _arguments("+", "-", "*", "/", "//", "**", "@", "%")
# Instructions that leave one of the two operands on the stack.
ALONE: Mapping[str, bytes] = {
    FIRST: bytes([dis.opmap["POP_TOP"], 0, dis.opmap["NOP"], 0]),
    SECOND: bytes([dis.opmap["SWAP"], 2, dis.opmap["POP_TOP"], 0]),
}
# What is written by mistake in place of an operator, the likeliest first.
MISTAKEN: Mapping[str, tuple[str, ...]] = {
    "+": ("-", "*"),
    "-": ("+",),
    "*": ("/", "+", "**"),
    "/": ("*", "//"),
    "//": ("/",),
    "**": ("*",),
    "@": ("*",),
}
COMPARED: Mapping[str, int] = _arguments("<", "<=", ">", ">=", "==", "!=")


def _with(number: int) -> Callable[[tuple[Any, ...], Any], tuple[Any, ...]]:
    """Return the change of one entry of a tuple."""
    return lambda before, value: (*before[:number], value, *before[number + 1 :])


def _with_byte(code: types.CodeType, place: int, byte: int) -> bytes:
    """Return the instructions of a code object with another byte at a place."""
    return code.co_code[:place] + bytes([byte]) + code.co_code[place + 1 :]


def _constant(function: Any, instruction: dis.Instruction) -> Changed:
    """Return the change of a constant where one instruction takes it; everywhere, where that cannot be written."""
    number, place = instruction.arg or 0, instruction.offset + 1

    def replaced(code: types.CodeType, value: Any) -> types.CodeType:
        consts = code.co_consts
        if max(number, len(consts)) >= 1 << 8:  # an instruction's argument is a byte
            return code.replace(co_consts=_with(number)(consts, value))
        return code.replace(co_consts=(*consts, value), co_code=_with_byte(code, place, len(consts)))

    return attribute(function, "__code__", replaced)


def _renamed(number: int) -> Replaced:
    """Return the change of a name, wherever it stands."""
    return lambda code, name: code.replace(co_names=_with(number)(code.co_names, name))


def _renamed_at(lookup: Lookup) -> Replaced:
    """Return the change of a name where one instruction looks it up."""

    def replaced(code: types.CodeType, name: str) -> types.CodeType:
        instructions = _with_byte(code, lookup.offset + 1, lookup.argument)
        return code.replace(co_names=(*code.co_names, name), co_code=instructions)

    return replaced


def _name(function: types.FunctionType, renamed: Replaced) -> Changed:
    """Return the change of the name of what is called; left out, it stands for a function that does nothing."""

    def replaced(code: types.CodeType, value: Any) -> types.CodeType:
        return renamed(code, _STAND_IN if callable(value) else value)

    @contextlib.contextmanager
    def changed(value: Any) -> Iterator[None]:
        value = _left_out if value == LEFT_OUT else value
        named = [function.__globals__, *map(vars, _modules(function))] if callable(value) else []
        spaces = [space for space in named if _STAND_IN not in space]
        for space in spaces:
            space[_STAND_IN] = value
        try:
            with attribute(function, "__code__", replaced)(value):
                yield
        finally:
            for space in spaces:
                space.pop(_STAND_IN, None)

    return changed


_STAND_IN: Final = "_parity_stand_in"  # a name that no module has


def _left_out(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the first argument: what a call is replaced by that is left out."""
    return x


def _modules(function: types.FunctionType) -> list[types.ModuleType]:
    """Return the modules that a function's code may name, such as tf and tf.nn."""
    found: dict[int, types.ModuleType] = {}
    open_ = list(function.__globals__.values())
    while open_:
        value = open_.pop()
        if isinstance(value, types.ModuleType) and id(value) not in found:
            found[id(value)] = value
            open_ += [vars(value)[name] for name in function.__code__.co_names if name in vars(value)]
    return list(found.values())


def _operator(function: types.FunctionType, place: int, group: Mapping[str, int]) -> Changed:
    def replaced(code: types.CodeType, value: Any) -> types.CodeType:
        if value in ALONE:
            return code.replace(co_code=code.co_code[: place - 1] + ALONE[value] + _unused(code.co_code, place + 3))
        return code.replace(co_code=_with_byte(code, place, group[value]))

    return attribute(function, "__code__", replaced)


def _unused(instructions: bytes, start: int) -> bytes:
    """Return the instructions from an offset on, with nothing to do in place of the caches there."""
    end = start
    while instructions[end] == dis.opmap["CACHE"]:
        end += 2
    return bytes([dis.opmap["NOP"], 0]) * ((end - start) // 2) + instructions[end:]

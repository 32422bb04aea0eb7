"""Knobs in the code that a call runs through: constants, defaults of arguments, variables, operators, functions."""

import contextlib
import dis
import itertools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from parity.core.script import Main
from parity.diagnose.experiment.candidates import ACTIVATIONS, EQUATION, FUNCTIONS, IDENTITIES, alternatives, are_axes
from parity.diagnose.experiment.executed import Executed, Lookup, lookups_of
from parity.diagnose.experiment.knobs import WORD, Changed, Knob, assignment, attribute, is_setting, together
from parity.diagnose.experiment.operations import FIRST, LEFT_OUT, SECOND

ARGUMENTS: Final = ("KW_NAMES", "PRECALL", "CALL", "LOAD_CONST")  # what follows where an argument of a call is loaded
Replaced = Callable[[types.CodeType, Any], types.CodeType]
NOTHING: Final = bytes([dis.opmap["NOP"], 0])  # an instruction that does nothing


def constants(run: Executed) -> Iterator[Knob]:
    """Yield the constants that are written in a function's code, each place of a constant by itself.

    A float that stands at several places, such as one that keeps both terms of a quotient from zero, is then changed at
    all of them; so is an integer that is an operand, or is given to several calls, such as the axis of two sums. A
    truth value that a function returns is no constant: it says which way the code around goes.
    """
    instructions = list(dis.get_instructions(run.function.__code__))
    repeated: dict[tuple[Any, bool], list[Knob]] = {}
    for instruction, following in zip(instructions, [*instructions[1:], None], strict=True):
        value, position = instruction.argval, instruction.positions
        next_name = following.opname if following else ""
        if type(value) is bool and (instruction.opname == "RETURN_CONST" or next_name == "RETURN_VALUE"):
            continue
        is_word = type(value) is str and (WORD.fullmatch(value) or EQUATION.fullmatch(value))
        is_plain = type(value) in (bool, int, float) or is_word or are_axes(value)
        if instruction.opname in ("LOAD_CONST", "RETURN_CONST") and is_plain and position and position.lineno:
            source, change = f"{run.file}:{position.lineno}", _constant(run.function, instruction)
            knob = Knob(repr(value), run.name, source, value, "constant", change)
            is_operand = type(value) is int and next_name == "BINARY_OP"
            if is_operand or type(value) is float or (type(value) is int and next_name in ARGUMENTS):
                repeated.setdefault((value, is_operand), []).append(knob)
            yield knob
    for alike in repeated.values():
        if len(alike) > 1:
            yield alike[0]._replace(owner=f"{run.name} ({len(alike)} of them)", changed=together(alike))


def defaults(run: Executed) -> Iterator[Knob]:
    """Yield the defaults of a function's arguments, but for the name that an op gets."""
    function, code = run.function, run.function.__code__
    values, by_name = function.__defaults__ or (), function.__kwdefaults__ or {}
    positional = zip(code.co_varnames[code.co_argcount - len(values) : code.co_argcount], values, strict=True)
    for number, (name, value) in enumerate(positional):
        if name != "name":
            yield from _setting(run, "default", name, value, attribute(function, "__defaults__", _with(number)))
    for name, value in by_name.items():
        yield from _setting(run, "default", name, value, assignment(by_name, name))


def _setting(run: Executed, kind: str, name: str, value: Any, change: Changed) -> Iterator[Knob]:
    if is_setting(value):
        yield Knob(name, run.name, run.source, value, kind, change)


def variables(run: Executed) -> Iterator[Knob]:
    """Yield the global and enclosing variables that a function reads; a script's are constants in its own code."""
    function, code = run.function, run.function.__code__
    if run.main:
        yield from (knob for knob in _stored(run.main) if knob.name in code.co_names)
    for name in code.co_names if not run.main else ():
        if (value := function.__globals__.get(name)) is not None:
            yield from _setting(run, "variable", name, value, assignment(function.__globals__, name))
    closures = [each.__closure__ or () for each in getattr(function, "made", [function])]
    for name, *cells in zip(code.co_freevars, *closures, strict=False):
        with contextlib.suppress(ValueError):  # an empty cell
            knobs = [
                Knob(name, run.name, run.source, cell.cell_contents, "variable", attribute(cell, "cell_contents"))
                for cell in cells
            ]
            if knobs and is_setting(knobs[-1].value) and knobs[-1].value is not None:
                yield knobs[-1]._replace(changed=together(knobs))


def _stored(main: Main) -> Iterator[Knob]:
    """Yield the constants to which a script gives names, each by itself or several in a line."""
    instructions = list(dis.get_instructions(main.__code__))
    for at, (load, following) in enumerate(itertools.pairwise(instructions)):
        if load.opname != "LOAD_CONST" or not (load.positions and load.positions.lineno):
            continue
        is_of_several = following.opname == "UNPACK_SEQUENCE"
        parts = load.argval if is_of_several and isinstance(load.argval, tuple) else (load.argval,)
        stores = instructions[at + 1 + is_of_several :][: len(parts)]
        for number, (value, store) in enumerate(zip(parts, stores, strict=False)):
            if store.opname == "STORE_NAME" and is_setting(value):
                source, change = f"{main.path}:{load.positions.lineno}", _constant(main, load, number, is_of_several)
                yield Knob(store.argval, main.__qualname__, source, value, "variable", change)


def functions(run: Executed) -> Iterator[Knob]:
    """Yield the names of the functions with alternatives that a function calls.

    An activation can also be left out. A name that stands at several places is changed at all of them, and at each.
    Of the alternatives those are tried that stand where the function does: tf.reduce_sum has no `mean` beside it.
    """
    code, spaces = run.function.__code__, [run.function.__globals__, *map(vars, _modules(run.function))]
    for number, name in enumerate(code.co_names):
        if name in FUNCTIONS and name not in IDENTITIES and (lookups := list(lookups_of(code, name))):
            beside = [space for space in spaces if name in space]
            known = (each for each in alternatives(name) if not beside or any(each in space for space in beside))
            words = (*([LEFT_OUT] if name in ACTIVATIONS else []), *known)
            singly = [(each.line, _renamed_at(each)) for each in lookups if each.can_change]
            changes = [(lookups[0].line, _renamed(number)), *(singly if len(lookups) > 1 else [])]
            for line, replaced in changes:
                change = _name(run.function, replaced)
                yield Knob(name, run.name, f"{run.file}:{line}", name, "function", change, words)


def operators(run: Executed) -> Iterator[Knob]:
    """Yield a function's comparisons and binary operators, in place of which either operand can stand alone."""
    function = run.function
    for instruction in dis.get_instructions(function.__code__):
        group = {"BINARY_OP": BINARY, "COMPARE_OP": COMPARED}.get(instruction.opname, {})
        for sign in (sign for sign, argument in group.items() if argument == instruction.arg):
            line = instruction.positions.lineno if instruction.positions else None
            change = _operator(function, instruction.offset, group)
            yield Knob(sign, run.name, f"{run.file}:{line}", sign, "operator", change)


def slices(run: Executed) -> Iterator[Knob]:
    """Yield the slices with written ends, such as 1: and :-1, at all places and at each: they shift an axis."""
    instructions = list(dis.get_instructions(run.function.__code__))
    by_text: dict[str, list[tuple[dis.Instruction, ...]]] = {}
    for *ends, made in zip(instructions, instructions[1:], instructions[2:], strict=False):
        is_written = all(end.opname == "LOAD_CONST" for end in ends)
        if made.opname in ("BUILD_SLICE", "BINARY_SLICE") and made.arg != 3 and is_written:
            text = ":".join("" if end.argval is None else str(end.argval) for end in ends)
            by_text.setdefault(text, []).append((*ends, made))
    for text, several in by_text.items():
        for cuts in (several, *([cut] for cut in several if len(several) > 1)):
            change, position = _ends(run.function, [load for cut in cuts for load in cut[:2]]), cuts[0][2].positions
            yield Knob(text, run.name, f"{run.file}:{position and position.lineno}", text, "slice", change)


def _ends(function: types.FunctionType, loads: Sequence[dis.Instruction]) -> Changed:
    """Return the change of the ends of slices, which these instructions load in turn."""

    def replaced(code: types.CodeType, text: str) -> types.CodeType:
        ends = [int(end) if end else None for end in text.split(":")]
        instructions, first = bytearray(code.co_code), len(code.co_consts)
        for number, load in enumerate(loads):  # a ValueError where the number fits no byte
            instructions[load.offset + 1] = first + number % 2
        return code.replace(co_consts=(*code.co_consts, *ends), co_code=bytes(instructions))

    return attribute(function, "__code__", replaced)


def signs(sign: str) -> list[str]:
    """Return what can stand in place of a binary operator or a comparison, the likeliest first."""
    likely = [*ALONE, *MISTAKEN.get(sign, ()), *BINARY] if sign in BINARY else COMPARED
    return [each for each in dict.fromkeys(likely) if each != sign]


def _arguments(*signs: str) -> dict[str, int]:
    """Return the argument of the instruction to which each sign is compiled by this Python."""
    kinds = ("BINARY_OP", "COMPARE_OP")
    instructions = {sign: dis.get_instructions(compile(f"a {sign} b", "", "eval")) for sign in signs}
    return {sign: next(each.arg or 0 for each in instructions[sign] if each.opname in kinds) for sign in signs}


BINARY: Mapping[str, int] = _arguments("+", "-", "*", "/", "//", "**", "@", "%")
# Instructions that leave one of the two operands on the stack.
ALONE: Mapping[str, bytes] = {
    FIRST: bytes([dis.opmap["POP_TOP"], 0, *NOTHING]),
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


def _with_byte(code: types.CodeType, offset: int, argument: int) -> bytes:
    """Return the instructions of a code object, of which the one at an offset has another argument."""
    return code.co_code[: offset + 1] + bytes([argument]) + code.co_code[offset + 2 :]


def _constant(function: Any, instruction: dis.Instruction, part: int = 0, is_of_several: bool = False) -> Changed:
    """Return the change of a constant where one instruction takes it; everywhere, where that cannot be written.

    `part`: the number of the entry that is changed, where it is a tuple of several constants.
    """
    number = instruction.arg or 0

    def replaced(code: types.CodeType, value: Any) -> types.CodeType:
        consts, value = code.co_consts, _with(part)(instruction.argval, value) if is_of_several else value
        if max(number, len(consts)) >= 1 << 8:  # an instruction's argument is a byte
            return code.replace(co_consts=_with(number)(consts, value))
        return code.replace(co_consts=(*consts, value), co_code=_with_byte(code, instruction.offset, len(consts)))

    return attribute(function, "__code__", replaced)


def _renamed(number: int) -> Replaced:
    """Return the change of a name, wherever it stands."""
    return lambda code, name: code.replace(co_names=_with(number)(code.co_names, name))


def _renamed_at(lookup: Lookup) -> Replaced:
    """Return the change of a name where one instruction looks it up."""
    return lambda code, name: code.replace(
        co_names=(*code.co_names, name), co_code=_with_byte(code, lookup.offset, lookup.argument)
    )


def _name(function: types.FunctionType, renamed: Replaced) -> Changed:
    """Return the change of the name of what is called; left out, it stands for a function that does nothing."""

    def replaced(code: types.CodeType, value: Any) -> types.CodeType:
        return renamed(code, _STAND_IN if callable(value) else value)

    @contextlib.contextmanager
    def changed(value: Any) -> Iterator[None]:
        value = _left_out if value == LEFT_OUT else value
        spaces = [function.__globals__, *map(vars, _modules(function))] if callable(value) else []
        for space in (spaces := [space for space in spaces if _STAND_IN not in space]):
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
    modules: dict[int, types.ModuleType] = {}
    open_ = list(function.__globals__.values())
    while open_:
        value = open_.pop()
        if isinstance(value, types.ModuleType) and id(value) not in modules:
            modules[id(value)] = value
            open_ += [vars(value)[name] for name in function.__code__.co_names if name in vars(value)]
    return list(modules.values())


def _operator(function: types.FunctionType, offset: int, group: Mapping[str, int]) -> Changed:
    def replaced(code: types.CodeType, value: Any) -> types.CodeType:
        if value not in ALONE:
            return code.replace(co_code=_with_byte(code, offset, group[value]))
        before, behind = code.co_code[:offset], code.co_code[offset + len(ALONE[value]) :]
        # The first of the operator's caches makes room for the second instruction; the others would follow nothing.
        caches = sum(1 for _ in itertools.takewhile(dis.opmap["CACHE"].__eq__, behind[::2]))
        return code.replace(co_code=before + ALONE[value] + caches * NOTHING + behind[2 * caches :])

    return attribute(function, "__code__", replaced)

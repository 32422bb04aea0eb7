"""Knobs: the settings of a live module that can be changed for one call, wherever its code keeps them.

A knob is an attribute of the module or of a layer in it, a constant in the code that the call runs through, the default
of an argument, a global constant, or the name of a function that the code calls. Each is changed in the running
process, never in a file, and is put back after the call.
"""

import contextlib
import dis
import enum
import re
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from parity.diagnose.experiment.executed import Executed

Scalar = bool | int | float | str
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
QUOTED = re.compile(r"""["'`]([A-Za-z_]\w{0,23})["'`]""")  # in a docstring
WORD = re.compile(r"[A-Za-z_]\w{0,23}")
AS_GIVEN, INVERTED, LEFT_OUT = "as given", "inverted", "left out"  # what a mask can be
FEW = 8  # entries of a tuple that is a setting, such as a padding; longer ones are data


class Owner(NamedTuple):
    """A module that has settings, with its path and its kind."""

    path: str
    kind: str
    module: Any


class Knob(NamedTuple):
    """A setting that can be changed.

    Attributes:
        name: what the user calls it: an argument's or attribute's name, or a constant as it is written.
        owner: the class or function that has it.
        source: "file:line" of the user's code where it stands, "" where that is not known.
        value: its present value.
        kind: where it was found.
        changed: a context manager within which it has another value.
        words: texts that its class compares settings with, or the only ones to try.
        of: the kind of the module that has it, "" where it is in the code.
        path: the path of that module.
    """

    name: str
    owner: str
    source: str
    value: Any
    kind: str
    changed: Callable[[Any], AbstractContextManager[None]]
    words: tuple[str, ...] = ()
    of: str = ""
    path: str = ""


def is_setting(value: Any) -> bool:
    """Return whether a value is a setting that can be changed: a scalar, an enum's member, None, or a short tuple."""
    if isinstance(value, (list, tuple)):
        return 0 < len(value) <= FEW and all(map(is_setting, value))
    return value is None or isinstance(value, (bool, int, float, str, enum.Enum))


def attributes(owner: Owner, read: Collection[str], base: type) -> Iterator[Knob]:
    """Yield the settings and functions that a module holds.

    Args:
        owner: the module.
        read: the names that the code which was run refers to; attributes of other names cannot matter.
        base: the framework's class of all modules, whose own attributes are no settings.
    """
    own, kind = vars(owner.module), type(owner.module)
    usual, class_words = getattr(base(), "__dict__", {}), tuple(_class_words(kind, base))
    for name, value in list(own.items()):
        if name in read and name not in usual and (is_setting(value) or isinstance(value, FUNCTIONS)):
            change = _assignment(own, name)
            what = "callable" if isinstance(value, FUNCTIONS) else "attribute"
            setting = name.lstrip("_")
            yield Knob(setting, kind.__name__, "", value, what, change, class_words, owner.kind, owner.path)


def arguments(given: dict[str, Any], owner: Owner) -> Iterator[Knob]:
    """Yield the arguments of the call that are settings, and masks, which can be inverted or left out.

    Args:
        given: the arguments by name, which the next call takes from here.
        owner: the module that is called.
    """
    of = type(owner.module).__name__
    for name, value in given.items():
        if is_setting(value):
            change = _assignment(given, name)
            yield Knob(name, of, "", value, "argument", change, (), owner.kind, owner.path)
        elif "bool" in str(getattr(value, "dtype", "")):
            ways = (INVERTED, LEFT_OUT)
            yield Knob(name, of, "", AS_GIVEN, "argument", _mask(given, name), ways, owner.kind, owner.path)


def _mask(given: dict[str, Any], name: str) -> Callable[[Any], AbstractContextManager[None]]:
    mask = given[name]

    def changed(how: Any) -> AbstractContextManager[None]:
        values = {AS_GIVEN: mask, INVERTED: ~mask, LEFT_OUT: None}
        return _assignment(given, name)(values[how])

    return changed


def joint(found: Iterable[Knob]) -> Iterator[Knob]:
    """Yield, for attributes that several modules of one class have alike, the change of all of them at once."""
    alike: dict[tuple[Any, ...], list[Knob]] = {}
    for knob in found:
        if knob.of:
            alike.setdefault((knob.owner, knob.of, knob.name, knob.kind, repr(knob.value)), []).append(knob)
    for several in alike.values():
        if len(several) > 1:
            yield several[0]._replace(owner=f"{several[0].owner} ({len(several)} of them)", changed=_together(several))


def _together(several: Sequence[Knob]) -> Callable[[Any], AbstractContextManager[None]]:
    @contextlib.contextmanager
    def changed(value: Any) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for knob in several:
                stack.enter_context(knob.changed(value))
            yield

    return changed


def constants(run: Executed) -> Iterator[Knob]:
    """Yield the constants that are written in a function's code."""
    code = run.function.__code__
    lines = _lines(code, "LOAD_CONST", "RETURN_CONST")
    for number, value in enumerate(code.co_consts):
        is_text = isinstance(value, str) and value == run.function.__doc__
        if number in lines and type(value) in (bool, int, float, str) and not is_text:
            source = f"{run.file}:{lines[number]}"
            yield Knob(repr(value), run.name, source, value, "constant", _constant(run.function, number))


def defaults(run: Executed) -> Iterator[Knob]:
    """Yield the defaults of a function's arguments."""
    function, code = run.function, run.function.__code__
    positional = code.co_varnames[: code.co_argcount]
    values = function.__defaults__ or ()
    for number, (name, value) in enumerate(zip(positional[len(positional) - len(values) :], values, strict=True)):
        if is_setting(value):
            yield Knob(name, run.name, run.source, value, "default", _default(function, number))
    for name, value in (function.__kwdefaults__ or {}).items():
        if is_setting(value):
            yield Knob(name, run.name, run.source, value, "default", _assignment(function.__kwdefaults__, name))


def variables(run: Executed) -> Iterator[Knob]:
    """Yield the global constants and the variables of an enclosing function that a function reads."""
    function, code = run.function, run.function.__code__
    for name in code.co_names:
        value = function.__globals__.get(name)
        if value is not None and is_setting(value):
            yield Knob(name, run.name, run.source, value, "variable", _assignment(function.__globals__, name))
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            if cell.cell_contents is not None and is_setting(cell.cell_contents):
                yield Knob(name, run.name, run.source, cell.cell_contents, "variable", _cell(cell))


def functions(run: Executed, alternatives: Collection[str]) -> Iterator[Knob]:
    """Yield the names of those functions that a function calls for which there are alternatives."""
    code = run.function.__code__
    lines = _lines(code, "LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL")
    for number, name in enumerate(code.co_names):
        if name in alternatives and number in lines:
            yield Knob(name, run.name, f"{run.file}:{lines[number]}", name, "function", _name(run.function, number))


def operators(run: Executed) -> Iterator[Knob]:
    """Yield the binary operators and comparisons in a function's code."""
    function = run.function
    for instruction in dis.get_instructions(function.__code__):
        group = BINARY if instruction.opname == "BINARY_OP" else COMPARED if instruction.opname == "COMPARE_OP" else {}
        sign = next((sign for sign, argument in group.items() if argument == instruction.arg), "")
        if sign:
            line = instruction.positions.lineno if instruction.positions else None
            change = _operator(function, instruction.offset + 1, group)
            yield Knob(sign, run.name, f"{run.file}:{line}", sign, "operator", change)


def words(code: types.CodeType) -> Iterator[str]:
    """Yield the words among the constants of a function's code."""
    for value in code.co_consts:
        for entry in value if isinstance(value, (tuple, frozenset)) else (value,):
            if isinstance(entry, str) and WORD.fullmatch(entry):
                yield entry


def _class_words(kind: type, base: type) -> Iterator[str]:
    """Yield the words in a class's methods and documentation, among them those that it accepts for its settings."""
    for own in kind.__mro__:
        if own in base.__mro__:
            return
        yield from QUOTED.findall(own.__doc__ or "")
        for method in vars(own).values():
            if isinstance(method, types.FunctionType):
                yield from words(method.__code__)


def _lines(code: types.CodeType, *names: str) -> dict[int, int]:
    """Return the line of the first instruction of these names that uses each constant or name, by its number."""
    lines: dict[int, int] = {}
    for instruction in dis.get_instructions(code):
        if instruction.opname in names and instruction.arg is not None and instruction.positions:
            values = code.co_consts if "CONST" in instruction.opname else code.co_names
            number = _number(instruction, values)
            if number is not None and instruction.positions.lineno:
                lines.setdefault(number, instruction.positions.lineno)
    return lines


def _number(instruction: dis.Instruction, values: tuple[Any, ...]) -> int | None:
    """Return the number of an instruction's constant or name: its argument may hold flags in the lowest bits."""
    assert instruction.arg is not None
    for shift in (0, 1, 2):
        number = instruction.arg >> shift
        if number < len(values) and values[number] is instruction.argval:
            return number
    return None


def _arguments(template: str, signs: tuple[str, ...]) -> dict[str, int]:
    """Return the argument of the instruction to which each sign is compiled by this Python."""
    arguments: dict[str, int] = {}
    for sign in signs:
        code = compile(template.format(sign), "", "eval")
        operation = next(each for each in dis.get_instructions(code) if each.opname in ("BINARY_OP", "COMPARE_OP"))
        assert operation.arg is not None
        arguments[sign] = operation.arg
    return arguments


BINARY: Mapping[str, int] = _arguments("a {} b", ("+", "-", "*", "/", "//", "**", "@", "%"))
COMPARED: Mapping[str, int] = _arguments("a {} b", ("<", "<=", ">", ">=", "==", "!="))


def _assignment(names: dict[str, Any], name: str) -> Callable[[Any], AbstractContextManager[None]]:
    @contextlib.contextmanager
    def changed(value: Any) -> Iterator[None]:
        before = names[name]
        names[name] = value
        try:
            yield
        finally:
            names[name] = before

    return changed


def _cell(cell: types.CellType) -> Callable[[Any], AbstractContextManager[None]]:
    @contextlib.contextmanager
    def changed(value: Any) -> Iterator[None]:
        before = cell.cell_contents
        cell.cell_contents = value
        try:
            yield
        finally:
            cell.cell_contents = before

    return changed


def _default(function: types.FunctionType, number: int) -> Callable[[Any], AbstractContextManager[None]]:
    @contextlib.contextmanager
    def changed(value: Any) -> Iterator[None]:
        before = function.__defaults__ or ()
        function.__defaults__ = (*before[:number], value, *before[number + 1 :])
        try:
            yield
        finally:
            function.__defaults__ = before

    return changed


def _constant(function: types.FunctionType, number: int) -> Callable[[Any], AbstractContextManager[None]]:
    def replaced(code: types.CodeType, value: Any) -> types.CodeType:
        return code.replace(co_consts=(*code.co_consts[:number], value, *code.co_consts[number + 1 :]))

    return _recompiled(function, replaced)


def _name(function: types.FunctionType, number: int) -> Callable[[Any], AbstractContextManager[None]]:
    def replaced(code: types.CodeType, value: Any) -> types.CodeType:
        return code.replace(co_names=(*code.co_names[:number], str(value), *code.co_names[number + 1 :]))

    return _recompiled(function, replaced)


def _operator(
    function: types.FunctionType, place: int, group: Mapping[str, int]
) -> Callable[[Any], AbstractContextManager[None]]:
    def replaced(code: types.CodeType, value: Any) -> types.CodeType:
        return code.replace(co_code=code.co_code[:place] + bytes([group[value]]) + code.co_code[place + 1 :])

    return _recompiled(function, replaced)


def _recompiled(
    function: types.FunctionType, replaced: Callable[[types.CodeType, Any], types.CodeType]
) -> Callable[[Any], AbstractContextManager[None]]:
    """Return the change that gives a function another code object."""

    @contextlib.contextmanager
    def changed(value: Any) -> Iterator[None]:
        before = function.__code__
        function.__code__ = replaced(before, value)
        try:
            yield
        finally:
            function.__code__ = before

    return changed

"""The user's line as it should read: the expression that runs is found in its file, and another one put in its place.

Python knows of every instruction which columns of the source it came from. What a finding advises is made of the
user's own line that way, with the user's own names. Nothing is found by looking at sources: only what ran is looked up.
"""

import ast
import contextlib
import linecache
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

from parity.doctor.evidence import Code

ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)


class Spot(NamedTuple):
    """An instruction of a frame, kept without the frame."""

    code: CodeType
    instruction: int
    names: dict[str, Any]  # the globals


class Expression(NamedTuple):
    """An expression or statement of a file."""

    file: str
    node: Any
    names: dict[str, Any]

    @property
    def function(self) -> str:
        """The last name of the function that is called; "" if it is no call."""
        called = getattr(self.node, "func", None)
        return getattr(called, "attr", getattr(called, "id", ""))

    def operand(self) -> Any:
        """The node that a call or an attribute is applied to: x of f(x), x.f() and x.f."""
        function = getattr(self.node, "func", self.node)
        if isinstance(function, ast.Attribute) and not isinstance(self.names.get(_root(function)), ModuleType):
            return function.value
        given = getattr(self.node, "args", ())
        return given[0] if given else None

    def keyword(self, name: str) -> Any:
        """The node of a call's argument by that name."""
        given = getattr(self.node, "keywords", ())
        return next((each.value for each in given if each.arg == name), None)

    def text(self, node: Any = None) -> str:
        """The source of the expression, or of a node of it; "" if it is longer than a line."""
        node = self.node if node is None else node
        line = _bytes(self.file, node.lineno)
        return line[node.col_offset : node.end_col_offset].decode() if node.lineno == node.end_lineno else ""

    def behind(self) -> str:
        """The rest of the expression's last line."""
        return _bytes(self.file, self.node.end_lineno)[self.node.end_col_offset :].decode()

    def atom(self, node: Any) -> str:
        """The same, to be followed by a dot."""
        text = self.text(node)
        return text if isinstance(node, ATOMS) or not text else f"({text})"

    def with_text(self, node: Any, text: str) -> Code | None:
        """The line with this in place of a node; None if that is longer than a line, or there is nothing to put."""
        if node is None or not text or node.lineno != node.end_lineno:
            return None
        line = _bytes(self.file, node.lineno)
        fixed = line[: node.col_offset] + text.encode() + line[node.end_col_offset :]
        return Code(source=shown(self.file, node.lineno), fix=fixed.decode().strip())

    def with_keyword(self, name: str, value: str, place: int | None = None) -> Code | None:
        """The call with an argument of that name, which may be given by its place instead."""
        node = self.keyword(name)
        if node is None and place is not None and len(self.node.args) > place:
            node = self.node.args[place]
        if node is not None:
            return self.with_text(node, value)
        separator = ", " if self.node.args or self.node.keywords else ""
        return self.with_text(self.node, f"{self.text()[:-1]}{separator}{name}={value})" if self.text() else "")

    def squeezed(self, first: bool, template: str) -> Code | None:
        """The line with the first or second operand of an operator or a call put through `template`, {} being it."""
        given = [getattr(self.node, side) for side in ("left", "right") if hasattr(self.node, side)]
        given = given or list(getattr(self.node, "args", ()))
        node = given[0 if first else 1] if len(given) > 1 else None
        return self.with_text(node, template.format(self.atom(node))) if node is not None and self.atom(node) else None

    def unwrapped(self) -> Code | None:
        """The line without the call: f(x), x.f() and x.f become x."""
        return self.with_text(self.node, self.atom(self.operand()) if self.operand() is not None else "")


def spot(frame: FrameType) -> Spot:
    """What a frame is at."""
    imported = {key: value for key, value in frame.f_locals.items() if isinstance(value, ModuleType)}
    return Spot(frame.f_code, frame.f_lasti, {**frame.f_globals, **imported} if imported else frame.f_globals)


def expression(at: Spot | None) -> Expression | None:
    """What runs there; None if its source is not at hand."""
    if at is None:
        return None
    positions = list(at.code.co_positions())[at.instruction // 2]
    found = _nodes(at.code.co_filename).get(positions)
    return Expression(at.code.co_filename, found, at.names) if found is not None else None


def statement(at: Spot | None) -> Expression | None:
    """The statement of one line in which that stands."""
    if at is None:
        return None
    line = list(at.code.co_positions())[at.instruction // 2][0]
    found = _statements(at.code.co_filename).get(line)
    return Expression(at.code.co_filename, found, at.names) if found else None


def name(frame: FrameType | None, wanted: Any) -> str:
    """What the function of a frame calls an object: a variable or an attribute of one; "" if that is unknown."""
    if frame is None:
        return ""
    for names in (frame.f_locals, frame.f_globals):
        found = next((key for key, value in names.items() if value is wanted), "")
        if found := found or next((f"{key}.{part}" for key, part in _attributes(names, wanted)), ""):
            return found
    return ""


def _attributes(names: dict[str, Any], wanted: Any) -> Iterator[tuple[str, str]]:
    """Variables, and those of their attributes that are an object; modules and classes are none of the program's."""
    for key, value in list(names.items()):
        if not isinstance(value, (ModuleType, type)):
            with contextlib.suppress(AttributeError, TypeError):  # objects without attributes, or with odd ones
                held = object.__getattribute__(value, "__dict__")
                yield from ((key, name) for name, part in list(held.items()) if part is wanted)


def call_with(frame: FrameType | None, function: str, argument: str) -> Expression | None:
    """The call of a method with a variable alone, in the function that runs in a frame."""
    for node in _of_function(frame):
        called = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == function
        if called and [getattr(each, "id", "") for each in node.args] == [argument]:
            return _expression(frame, node)
    return None


def assigned(frame: FrameType | None, variable: str) -> Expression | None:
    """What was assigned to a variable last, above the line that a frame is at."""
    found = [
        node.value
        for node in _of_function(frame)
        if isinstance(node, ast.Assign) and frame and node.lineno < frame.f_lineno
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id == variable
    ]
    return _expression(frame, max(found, key=lambda node: node.lineno)) if found else None


def _of_function(frame: FrameType | None) -> list[Any]:
    """The nodes in the lines of the function that runs in a frame."""
    if frame is None:
        return []
    lines = {line for *_, line in frame.f_code.co_lines() if line is not None}
    return [node for node in _nodes(frame.f_code.co_filename).values() if node.lineno in lines]


def _expression(frame: FrameType | None, node: Any) -> Expression | None:
    return Expression(frame.f_code.co_filename, node, spot(frame).names) if frame else None


def code(at: Spot | None, change: Callable[[Expression], Code | None]) -> Code | None:
    """The changed line of what runs there, if its source is at hand."""
    found = expression(at)
    return change(found) if found else None


def shown(file: str, number: int) -> str:
    """Return "file:line", from the working directory where the file is below it."""
    path, here = Path(file).absolute(), Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{number}"


def _root(node: Any) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


@cache
def _nodes(file: str) -> dict[tuple[int | None, ...], Any]:
    """Every statement and expression of a file by its first and last line and column; of equal ones the innermost."""
    return {_position(node): node for node in _walk(file) if not isinstance(node, ast.Expr)}


@cache
def _statements(file: str) -> dict[int | None, Any]:
    """The statements of one line, by that; of several in a line the last."""
    return {node.lineno: node for node in _walk(file) if isinstance(node, ast.stmt) and node.lineno == node.end_lineno}


def _walk(file: str) -> Iterator[Any]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return iter(())
    return (node for node in ast.walk(tree) if isinstance(node, (ast.stmt, ast.expr)))


def _position(node: Any) -> tuple[int | None, ...]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _bytes(file: str, number: int) -> bytes:
    return linecache.getline(file, number).rstrip("\n").encode()

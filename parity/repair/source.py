"""A file of Python source: its syntax tree with positions, what following a value asks of it, and values as source.

All positions are offsets in bytes, as Python's syntax trees and code objects have columns in bytes.
"""

import ast
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from parity.runtime.survey import Frame

NOTHING: Final = object()  # what `literal` returns for an expression that is none
Definition = ast.FunctionDef | ast.AsyncFunctionDef
Function = Definition | ast.Lambda
Scoped = Function | ast.ClassDef  # what has names of its own
Assignment = tuple[ast.expr, ast.expr]  # a target and the value that is assigned to it


class Span(NamedTuple):
    """A part of a file, by offsets in bytes."""

    start: int
    end: int


class Place(NamedTuple):
    """Where a value can be changed: a part of a file, and the text that replaces it, with {} for the new value."""

    path: Path
    span: Span = Span(0, 0)
    template: str = "{}"
    key: str = ""  # for a place in the pair's own file, the entry of keras_kwargs, in place of a span


class Parameter(NamedTuple):
    name: str
    default: ast.expr | None


class Source:
    """A parsed file. Raises OSError, SyntaxError or ValueError if it cannot be read or parsed."""

    def __init__(self, path: Path) -> None:
        self.path, self.bytes = path, path.read_bytes()
        self.module = ast.parse(self.bytes)
        self._starts = [0, *(index + 1 for index, byte in enumerate(self.bytes) if byte == ord("\n"))]  # of the lines
        self._parents = {child: node for node in ast.walk(self.module) for child in ast.iter_child_nodes(node)}

    @cached_property
    def nodes(self) -> list[Any]:
        """Return all statements and expressions as they stand in the file, the outer ones first."""
        nodes: list[Any] = [node for node in ast.walk(self.module) if isinstance(node, ast.stmt | ast.expr)]
        return sorted(nodes, key=lambda node: (node.lineno, node.col_offset, -node.end_lineno, -node.end_col_offset))

    def span(self, node: Any) -> Span:
        """Return where a node stands, without spaces, comments and parentheses around it; a tuple's are its own."""
        start, end = self._starts[node.lineno - 1], self._starts[node.end_lineno - 1]
        return Span(start + node.col_offset, end + node.end_col_offset)

    def text(self, node: ast.AST) -> str:
        return self.bytes[slice(*self.span(node))].decode()

    def line(self, offset: int) -> int:
        """Return the number of the line of an offset, counted from 1."""
        return self.bytes.count(b"\n", 0, offset) + 1

    def call_at(self, frame: Frame) -> ast.Call | None:
        """Return the call that a frame was running; None if the file has none there."""
        at = frame.line, frame.column, frame.end_line, frame.end_column
        calls = (node for node in self.nodes if isinstance(node, ast.Call))
        return next((n for n in calls if (n.lineno, n.col_offset, n.end_lineno, n.end_col_offset) == at), None)

    def end_of_arguments(self, call: ast.Call) -> Span:
        """Return where a call's last argument ends, with parentheses around it, or where the first would stand."""
        closing = self.span(call).end - 1
        end = max((self.span(each).end for each in given_to(call)), default=closing)
        end += self.bytes[end:closing].rfind(b")") + 1
        return Span(end, end)

    def on_line(self, number: int) -> list[Any]:
        """Return the statements and expressions that begin on a line."""
        return [node for node in self.nodes if node.lineno == number]

    def around(self, node: ast.AST, kind: Any) -> Any:
        """Return the innermost node of a kind around a node, as a function or a class; None for the module's own."""
        return next((parent for parent in self.parents(node) if isinstance(parent, kind)), None)

    def is_method(self, function: Function) -> bool:
        """Return whether a function gets an object as its first argument, which calls do not show."""
        static = any(self.text(each) == "staticmethod" for each in getattr(function, "decorator_list", ()))
        has_name = not isinstance(function, ast.Lambda)
        return has_name and not static and isinstance(self.around(function, Scoped), ast.ClassDef)

    def place_of(self, function: Function, name: str) -> int | None:
        """Return the place of a parameter among a call's arguments; None if it can be passed by name alone."""
        names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        return names.index(name) - self.is_method(function) if name in names else None

    def parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, the innermost first."""
        while parent := self._parents.get(node):
            yield (node := parent)

    def assigned(self, name: str, within: ast.AST | None) -> ast.expr | None:
        """Return what is last assigned to a name, or to `self.name`, in a function or class, or in the module."""
        named = (pair for pair in self._assignments if self.text(pair[0]) == name)
        values = [value for target, value in named if self.around(target, Scoped) is within]
        return values[-1] if values else None

    @cached_property
    def _assignments(self) -> list[Assignment]:
        """Return all assignments, those of tuples element by element."""
        assignments: list[Assignment] = []
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                assignments += [pair for target in node.targets for pair in _unpacked(target, node.value)]
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                assignments.append((node.target, node.value))
        return assignments

    def methods(self, kind: ast.ClassDef) -> list[Definition]:
        return [each for each in kind.body if isinstance(each, Definition)]

    def kind(self, name: str) -> ast.ClassDef | None:
        """Return a class of the module by its name."""
        return next((node for node in self.nodes if isinstance(node, ast.ClassDef) and node.name == name), None)

    def imported(self, name: str) -> tuple[str, int, str] | None:
        """Return the module that a name comes from, the number of its dots, and its name there ("": it is a module)."""
        for node in self.nodes:
            for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
                if (alias.asname or alias.name) == name:
                    is_module = isinstance(node, ast.Import)
                    return (alias.name, 0, "") if is_module else (node.module or "", node.level, alias.name)
        return None


def parsed(path: Path, root: Path) -> Source | None:
    """Return a file as source; None if it lies outside of the folder `root`, or cannot be parsed."""
    with suppress(OSError, SyntaxError, ValueError):
        return Source(path) if path.is_relative_to(root) else None
    return None


def literal(node: ast.AST) -> Any:
    """Return the value of an expression that consists of literals alone; NOTHING for any other."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return NOTHING


def parameters(function: Function) -> list[Parameter]:
    """Return the parameters that can be passed by position, and then those that need their names."""
    given = function.args
    by_position = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(by_position) - len(given.defaults)), *given.defaults, *given.kw_defaults]
    return [Parameter(each.arg, value) for each, value in zip([*by_position, *given.kwonlyargs], defaults, strict=True)]


def parameter(function: Function, name: str) -> Parameter | None:
    return next((each for each in parameters(function) if each.name == name), None)


def first_of(function: Function) -> str:
    """Return the name of a function's first parameter."""
    return next((each.name for each in parameters(function)), "")


def given_to(call: ast.Call) -> list[ast.expr]:
    """Return the values that a call gives, by position and by name."""
    return [*call.args, *(each.value for each in call.keywords)]


def argument(call: ast.Call, name: str, position: int | None) -> ast.expr | None:
    """Return the value that a call gives to a parameter, by its name or its place among those by position."""
    by_name = next((each.value for each in call.keywords if each.arg == name), None)
    if by_name is not None or position is None or position >= len(call.args):
        return by_name
    is_unpacked = any(isinstance(each, ast.Starred) for each in call.args[: position + 1])
    return None if is_unpacked else call.args[position]


def expressions(node: ast.AST) -> list[ast.expr]:
    """Return the expressions directly below a node, as they stand in the file."""
    below: list[ast.expr] = []
    for child in ast.iter_child_nodes(node):
        below += [child] if isinstance(child, ast.expr) else expressions(child)
    return sorted(below, key=lambda each: (each.lineno, each.col_offset))


def _unpacked(target: ast.expr, value: ast.expr) -> list[Assignment]:
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        pairs = zip(target.elts, value.elts, strict=False)
        return [assignment for pair in pairs for assignment in _unpacked(*pair)]
    return [(target, value)]

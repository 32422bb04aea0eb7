"""A file of Python source: its syntax tree with positions, what following a value asks of it, and values as source.

All positions are offsets in bytes, as Python's code objects have columns in bytes.
"""

import ast
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper, ParentNodeProvider

from parity.core.errors import UsageError
from parity.runtime.survey import Frame

NOTHING: Final = object()  # what `literal` returns for an expression that is none
Function = cst.FunctionDef | cst.Lambda
Assignment = tuple[cst.BaseExpression, cst.BaseExpression]  # a target and the value that is assigned to it


class Span(NamedTuple):
    """A part of a file, by offsets in bytes."""

    start: int
    end: int


class Source:
    """A parsed file. Raises UsageError if it cannot be read or parsed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.bytes = path.read_bytes()
            wrapper = MetadataWrapper(cst.parse_module(self.bytes), unsafe_skip_copy=True)
        except (OSError, cst.ParserSyntaxError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: cannot be edited: {str(error).splitlines()[0]}") from None
        self.module = wrapper.module
        self._spans = wrapper.resolve(ByteSpanPositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)

    @cached_property
    def nodes(self) -> list[cst.CSTNode]:
        """Return all nodes, the outer ones first."""
        return list(_walk(self.module))

    def span(self, node: cst.CSTNode) -> Span:
        """Return where a node stands, without spaces and comments around it, a tuple with its parentheses."""
        span = self._spans[node]
        start, end = span.start, span.start + span.length
        if isinstance(node, cst.Tuple) and node.lpar:
            start, end = self.bytes.rindex(b"(", 0, start), self.bytes.index(b")", end) + 1
        return Span(start, end)

    def text(self, node: cst.CSTNode) -> str:
        return self.bytes[slice(*self.span(node))].decode()

    def line(self, offset: int) -> int:
        """Return the number of the line of an offset, counted from 1."""
        return self.bytes.count(b"\n", 0, offset) + 1

    def call_at(self, frame: Frame) -> cst.Call | None:
        """Return the call that a frame was running; None if the file has none there."""
        starts = [0, *(index + 1 for index, byte in enumerate(self.bytes) if byte == ord("\n"))]
        if frame.end_line > len(starts):
            return None
        span = Span(starts[frame.line - 1] + frame.column, starts[frame.end_line - 1] + frame.end_column)
        return next((node for node in self.nodes if isinstance(node, cst.Call) and self.span(node) == span), None)

    def on_line(self, number: int) -> list[cst.CSTNode]:
        """Return the nodes that begin on a line."""
        return [node for node in self.nodes if node in self._spans and self.line(self.span(node).start) == number]

    def function(self, node: cst.CSTNode) -> Function | None:
        """Return the innermost function around a node."""
        return next((parent for parent in self.parents(node) if isinstance(parent, Function)), None)

    def class_of(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """Return the class that a method, or a node in one, belongs to."""
        return next((parent for parent in self.parents(node) if isinstance(parent, cst.ClassDef)), None)

    def is_method(self, function: Function) -> bool:
        """Return whether a function gets an object as its first argument, which calls do not show."""
        if isinstance(function, cst.Lambda):
            return False
        static = any(self.text(each.decorator) == "staticmethod" for each in function.decorators)
        return isinstance(self.scope(function), cst.ClassDef) and not static

    def place_of(self, function: Function, name: str) -> int | None:
        """Return the place of a parameter among a call's arguments; None if it can be passed by name alone."""
        names = [each.name.value for each in (*function.params.posonly_params, *function.params.params)]
        return names.index(name) - self.is_method(function) if name in names else None

    def parents(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the nodes around a node, the innermost first."""
        parent = self._parents.get(node)
        while isinstance(parent, cst.CSTNode):
            yield parent
            parent = self._parents.get(parent)

    def assigned(self, name: str, within: cst.CSTNode | None) -> cst.BaseExpression | None:
        """Return what is last assigned to a name, or to `self.name`, in a function or class, or in the module."""
        values = [
            value
            for target, value in _assignments(within or self.module)
            if self.text(target) == name and self.scope(target) is within
        ]
        return values[-1] if values else None

    def scope(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the function or class that a node directly belongs to; None for the module."""
        return next((each for each in self.parents(node) if isinstance(each, cst.ClassDef | Function)), None)

    def method(self, kind: cst.ClassDef, name: str) -> cst.FunctionDef | None:
        methods = (each for each in kind.body.body if isinstance(each, cst.FunctionDef))
        return next((each for each in methods if each.name.value == name), None)

    def kind(self, name: str) -> cst.ClassDef | None:
        """Return a class of the module by its name."""
        classes = (node for node in self.nodes if isinstance(node, cst.ClassDef))
        return next((node for node in classes if node.name.value == name), None)

    def imported(self, name: str) -> tuple[str, int, str] | None:
        """Return the module that a name comes from, the number of its dots, and its name there ("": it is a module)."""
        for node in self.nodes:
            if isinstance(node, (cst.Import, cst.ImportFrom)) and not isinstance(node.names, cst.ImportStar):
                for alias in node.names:
                    if (alias.evaluated_alias or alias.evaluated_name) != name:
                        continue
                    if isinstance(node, cst.Import):
                        return alias.evaluated_name, 0, ""
                    return self.text(node.module) if node.module else "", len(node.relative), alias.evaluated_name
        return None


def parsed(path: Path, root: Path) -> Source | None:
    """Return a file as source; None if it lies outside of the folder `root`, or cannot be parsed."""
    with suppress(UsageError):
        return Source(path) if path.is_relative_to(root) else None
    return None


def literal(node: cst.CSTNode) -> Any:
    """Return the value of an expression that consists of literals alone; NOTHING for any other."""
    try:
        return ast.literal_eval(cst.Module([]).code_for_node(node).strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return NOTHING


def parameters(function: Function) -> list[cst.Param]:
    """Return the parameters that can be passed by position, and then those that need their names."""
    given = function.params
    return [*given.posonly_params, *given.params, *given.kwonly_params]


def argument(call: cst.Call, name: str, position: int | None) -> cst.BaseExpression | None:
    """Return the value that a call gives to a parameter, by its name or its place among those by position."""
    by_name = next((arg.value for arg in call.args if arg.keyword and arg.keyword.value == name), None)
    if by_name is not None or position is None:
        return by_name
    ordered = [arg for arg in call.args if arg.keyword is None and arg.star != "**"]
    if any(arg.star for arg in ordered[: position + 1]) or position >= len(ordered):
        return None
    return ordered[position].value


def parameter(function: Function, name: str) -> cst.Param | None:
    return next((each for each in parameters(function) if each.name.value == name), None)


def first_of(function: Function) -> str:
    """Return the name of a function's first parameter."""
    return next((each.name.value for each in parameters(function)), "")


def expressions(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """Yield the expressions directly below a node."""
    for child in node.children:
        if isinstance(child, cst.BaseExpression):
            yield child
        else:
            yield from expressions(child)


def _walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from _walk(child)


def _assignments(node: cst.CSTNode) -> Iterator[Assignment]:
    """Yield all assignments below a node, those of tuples element by element."""
    for each in _walk(node):
        if isinstance(each, cst.Assign):
            for target in each.targets:
                yield from _unpacked(target.target, each.value)
        elif isinstance(each, cst.AnnAssign) and each.value is not None:
            yield each.target, each.value


def _unpacked(target: cst.BaseExpression, value: cst.BaseExpression) -> Iterator[Assignment]:
    if isinstance(target, (cst.Tuple, cst.List)) and isinstance(value, (cst.Tuple, cst.List)):
        for inner, given in zip(target.elements, value.elements, strict=False):
            yield from _unpacked(inner.value, given.value)
    else:
        yield target, value

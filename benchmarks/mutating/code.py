"""A module's source as a syntax tree, with what a mutation wants to know of each node."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, ParentNodeProvider, PositionProvider

# Functions that describe a layer, and compute nothing.
DESCRIBING = ("get_config", "from_config", "compute_output_shape", "compute_output_spec", "compute_mask", "__repr__")


METHODS = ("call", "build", "__init__", "__call__")  # that Keras calls


class Change(NamedTuple):
    """A node and what replaces it; `setting`: the argument, operator or function that is mutated, `old`, `new`: values.

    `at`: the node whose line is the mutation's, where it is not the replaced one.
    """

    kind: str
    setting: str
    node: cst.CSTNode
    replacement: cst.CSTNode
    old: Any = None
    new: Any = None
    at: cst.CSTNode | None = None


class Site(NamedTuple):
    """A mutation of one module.

    `first`, `last`: the lines of its statement. `target`: what the statement assigns to, "" if nothing. `uses`: the
    lines that use the target next, `passed`: those that use what the function returns. `lines`: those of which one must
    be executed for the mutation to be. `function`: the qualified name of the function, "" at the top.
    """

    kind: str
    setting: str
    before: str
    after: str
    old: Any
    new: Any
    first: int
    last: int
    lines: range
    function: str
    target: str
    uses: list[int]
    passed: list[int]
    change: Change


class Code:
    """A parsed module."""

    def __init__(self, source: str) -> None:
        wrapper = MetadataWrapper(cst.parse_module(source))
        self.module = wrapper.module
        self._lines: list[cst.SimpleStatementLine] | None = None
        self._positions = wrapper.resolve(PositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)

    def nodes(self) -> Iterator[cst.CSTNode]:
        """Yield every node, the outer before the inner ones."""
        yield from _within(self.module)

    def text(self, node: cst.CSTNode) -> str:
        """Return the source of a node."""
        return self.module.code_for_node(node)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the node around a node."""
        return self._parents.get(node)

    def around(self, node: cst.CSTNode, *kinds: type) -> Any:
        """Return the nearest node of these kinds around a node; None if there is none."""
        outer = self.parent(node)
        while outer is not None and not isinstance(outer, kinds):
            outer = self.parent(outer)
        return outer

    def lines(self, node: cst.CSTNode) -> range:
        """Return the lines of a node."""
        place: CodeRange = self._positions[node]
        return range(place.start.line, place.end.line + 1)

    def function(self, node: cst.CSTNode) -> str:
        """Return the qualified name of the function that a node stands in: "Attention.call"; "" at the top."""
        names = []
        outer = self.around(node, cst.FunctionDef, cst.ClassDef)
        while outer is not None:
            names.append(outer.name.value)
            outer = self.around(outer, cst.FunctionDef, cst.ClassDef)
        return ".".join(reversed(names))

    def class_has(self, node: cst.CSTNode, method: str) -> bool:
        """Return whether the class that a node stands in has a method of this name."""
        outer = self.around(node, cst.ClassDef)
        return outer is not None and any(
            isinstance(each, cst.FunctionDef) and each.name.value == method for each in outer.body.body
        )

    def mutated(self, change: Change) -> str:
        """Return the source with a change; what the change calls is imported at the end, where no line is moved."""
        source = self.module.deep_replace(change.node, change.replacement).code  # type: ignore[union-attr]
        compile(source, "<mutant>", "exec")
        return source if any(line == "import keras" for line in source.splitlines()) else f"{source}\nimport keras\n"

    def site(self, change: Change) -> Site | None:
        """Return where a change stands; None for what only describes or refuses."""
        at = change.at or change.node
        function = self.function(at)
        statement = self._statement(at)
        if statement is None or function.rpartition(".")[2] in DESCRIBING:
            return None
        span = self._span(statement, at)
        executed = span
        if isinstance(statement, cst.FunctionDef):  # of a default
            executed = self.lines(statement.body)
        before, after = (" ".join(self.text(each).split()) for each in (change.node, change.replacement))
        if isinstance(change.node, cst.BaseSuite):
            before, after = "two statements", "the same in the other order"
        start, stop = span.start, span.stop - 1
        names = change.kind, change.setting, before, after
        flows = _target(statement), self._uses(statement), self._passed(function)
        return Site(*names, change.old, change.new, start, stop, executed, function, *flows, change)

    def _uses(self, statement: cst.CSTNode) -> list[int]:
        """Return the lines of the statements that use what a statement assigns to, until it is assigned anew."""
        name, function = _target(statement), self.around(statement, cst.FunctionDef)
        if not name or function is None or _is_attribute(statement):
            return []
        lines: list[int] = []
        start = self.lines(statement).stop
        for each in _within(function):
            if isinstance(each, cst.SimpleStatementLine) and self.lines(each).start >= start and _mentions(each, name):
                lines += self.lines(each)
                if isinstance(each.body[0], cst.Assign) and _target(each) == name:
                    break
        return lines

    def _passed(self, function: str) -> list[int]:
        """Return the lines of the statements that use a variable to which a function of this module is assigned."""
        name = function.rpartition(".")[2]
        if not name or name in METHODS:
            return []
        return [line for each in self._statements() if _returns(each, name) for line in self._uses(each)]

    def _statements(self) -> list[cst.SimpleStatementLine]:
        if self._lines is None:
            self._lines = [each for each in self.nodes() if isinstance(each, cst.SimpleStatementLine)]
        return self._lines

    def _statement(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the statement that a node stands in; None for decorators and what is raised or asserted."""
        kinds = (cst.BaseCompoundStatement, cst.SimpleStatementLine)
        if self.around(node, cst.Raise, cst.Assert, cst.Decorator, cst.FormattedString) is not None:
            return None
        return node if isinstance(node, kinds) else self.around(node, *kinds)  # type: ignore[no-any-return]

    def _span(self, statement: cst.CSTNode, node: cst.CSTNode) -> range:
        """Return the lines of a statement; of one with a body those of the node."""
        return self.lines(statement if isinstance(statement, cst.SimpleStatementLine) else node)


def _target(statement: cst.CSTNode) -> str:
    """Return the name that a statement assigns to: "scale" of `self.scale = 2.0`; "" if it is none."""
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if isinstance(small, cst.Assign):
        return called(small.targets[0].target)
    return called(small.target) if isinstance(small, cst.AugAssign) else ""


def _is_attribute(statement: cst.CSTNode) -> bool:
    """Return whether a statement assigns to an attribute, which may be used anywhere."""
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    return isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Attribute)


def _returns(statement: cst.SimpleStatementLine, name: str) -> bool:
    """Return whether a statement assigns what a function of this name returns."""
    small = statement.body[0]
    return isinstance(small, cst.Assign) and isinstance(small.value, cst.Call) and called(small.value.func) == name


def _mentions(node: cst.CSTNode, name: str) -> bool:
    return any(isinstance(each, cst.Name) and each.value == name for each in _within(node))


def _within(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a node and all nodes in it, the outer before the inner ones."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        waiting.extend(reversed(each.children))


def called(node: cst.BaseExpression) -> str:
    """Return the last name of what a call calls: "mean" of `ops.mean(x)`; "" if it is no name."""
    return node.attr.value if isinstance(node, cst.Attribute) else node.value if isinstance(node, cst.Name) else ""


def expression(text: str) -> cst.BaseExpression:
    """Parse an expression, in parentheses so that it can stand anywhere."""
    return cst.parse_expression(f"({text})")

"""Follow a value through the user's source to where it comes from.

A name is followed to its assignment, to the argument of the calling function, to a default, to a config's entry, or
into another file of the user's. Each step is a place where the value may be changed.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import libcst as cst

from parity.core.errors import UsageError
from parity.diagnose.arguments import Setting
from parity.repair.source import (
    NOTHING,
    Function,
    Source,
    Span,
    argument,
    default_of,
    expressions,
    first_of,
    literal,
    parameters,
    place_of,
    spread,
)
from parity.runtime.survey import Frame, Made

CLOSE = 1e-3  # a constant that was solved for has noise in its last digits
DEEPEST = 40  # steps from a value to where it comes from; more is a circle


class Place(NamedTuple):
    """Where a value can be changed: a part of a file, and the text that replaces it, with {} for the new value.

    `key`: for a place in the pair's own file, the entry of keras_kwargs; the span is then of no meaning.
    """

    path: Path
    span: Span
    template: str = "{}"
    key: str = ""


class Scope(NamedTuple):
    """Where an expression stands, and how the program came there.

    `calls`: the calls that led to the function around `node`, the innermost first. `owners`: how the object was made
    whose method this is, and the objects around it.
    """

    source: Source
    node: cst.CSTNode
    calls: Sequence[Frame] = ()
    owners: Sequence[Made] = ()

    def at(self, node: cst.CSTNode) -> "Scope":
        """Return the same scope for another node."""
        return self._replace(node=node)


class Origins:
    """The places that a value of one setting comes from.

    `root`: the folder that files must lie in. `builder`: the name of the function that makes the model, and `kwargs`
    what it is called with by the pair's file `pair`.
    """

    def __init__(
        self, setting: Setting, root: Path, builder: str = "", kwargs: Sequence[str] = (), pair: Path = Path()
    ):
        self.setting, self.root, self.pair = setting, root, pair
        self._builder, self._kwargs = builder, kwargs
        self._sources: dict[Path, Source] = {}
        self._depth = 0

    def value(self, node: cst.BaseExpression, scope: Scope) -> list[Place]:
        """Return the places of an expression's value, that where it comes from first."""
        value, here = literal(node), Place(scope.source.path, scope.source.span(node))
        if value is not NOTHING:
            return [here] if self.is_old(value) else []
        self._depth += 1
        try:
            origins = self._origins(node, scope.at(node)) if self._depth < DEEPEST else []
        finally:
            self._depth -= 1
        return [*origins, here]

    def _origins(self, node: cst.CSTNode, scope: Scope) -> list[Place]:
        match node:
            case cst.Name(value=name):
                return self._name(name, scope)
            case cst.Attribute():
                return [place for inner in self._attribute(node, scope) for place in self.value(*inner)]
            case cst.Subscript():
                entry = self._element(node, scope)
                return self.value(*entry) if entry else []
            case cst.BaseExpression():  # of a computed value, each part that has the old value may be its origin
                parts = [child for child in expressions(node) if literal(child) is NOTHING]
                return [place for part in parts for place in self._origins(part, scope)]
        return []

    def _name(self, name: str, scope: Scope) -> list[Place]:
        """Return the places where the value of a name comes from."""
        function = scope.source.function(scope.node)
        while function is not None:
            if (value := scope.source.assigned(name, function)) is not None and value is not scope.node:
                return self.value(value, scope.at(value))
            if any(each.name.value == name for each in parameters(function)):
                return self._parameter(function, name, scope)
            scope = Scope(scope.source, function)  # how the program came to an outer function is not known
            function = scope.source.function(function)
        found = self._global(name, scope.source)
        return self.value(*found) if found else []

    def _global(self, name: str, source: Source) -> tuple[cst.BaseExpression, Scope] | None:
        """Return what is assigned to a name of a module, here or in the user's file that it is imported from."""
        if (value := source.assigned(name, None)) is not None:
            return value, Scope(source, value)
        if (imported := source.imported(name)) and imported[2] and (other := self._module(source, *imported[:2])):
            value = other.assigned(imported[2], None)
            return (value, Scope(other, value)) if value is not None else None
        return None

    def _parameter(self, function: Function, name: str, scope: Scope) -> list[Place]:
        """Return the places of a parameter's value: the call's argument, or else the default."""
        source, default = scope.source, default_of(function, name)
        by_default = self.value(default, scope.at(default)) if default is not None else []
        if scope.calls and (outer := self.scope_of(scope.calls[0], scope.calls[1:], scope.owners)):
            if not isinstance(outer.node, cst.Call):
                return by_default
            given = argument(outer.node, name, place_of(source, function, name))
            if given is not None:
                return self.value(given, outer)
            for mapping in spread(outer.node):
                if entry := self.entry(mapping, name, outer):
                    return self.value(*entry)
            return [*by_default, insertion(outer.source, outer.node, name)] if default is not None else []
        if name in self._kwargs and self._is_builder(source, function):
            return [Place(self.pair, Span(0, 0), key=name)]
        return by_default

    def _is_builder(self, source: Source, function: Function) -> bool:
        kind = source.class_of(function) if isinstance(function, cst.FunctionDef) else None
        named = kind.name.value if kind else getattr(getattr(function, "name", None), "value", "")
        return self._builder.replace(":", ".").rpartition(".")[2] == named

    def _attribute(self, node: cst.Attribute, scope: Scope) -> Iterator[tuple[cst.BaseExpression, Scope]]:
        """Yield what is assigned to an attribute: of self, of a module, or of an object of the user's class."""
        source, name = scope.source, node.attr.value
        function, kind = source.function(scope.node), source.class_of(scope.node)
        base = source.text(node.value)
        if isinstance(function, cst.FunctionDef) and kind and source.is_method(function) and base == first_of(function):
            yield from self._own(kind, name, function, base, scope)
        elif (imported := source.imported(base)) and (other := self._module(source, imported[0], imported[1])):
            if (value := other.assigned(name, None)) is not None:
                yield value, Scope(other, value)
        elif made := self._resolved(node.value, scope):
            yield from self._of_made(*made, name)

    def _own(
        self, kind: cst.ClassDef, name: str, function: cst.FunctionDef, base: str, scope: Scope
    ) -> Iterator[tuple[cst.BaseExpression, Scope]]:
        """Yield what a class assigns to an attribute of its objects."""
        source = scope.source
        initialise = source.method(kind, "__init__")
        if initialise and (value := source.assigned(f"{first_of(initialise)}.{name}", initialise)) is not None:
            if initialise is function:
                yield value, scope.at(value)
            else:  # another method: the calls that led to it are not those that made the object
                calls = scope.owners[0].calls if scope.owners else ()
                yield value, Scope(source, value, calls, scope.owners[1:])
        elif (value := source.assigned(name, kind)) is not None:
            yield value, Scope(source, value)

    def _of_made(self, node: cst.BaseExpression, scope: Scope, name: str) -> Iterator[tuple[cst.BaseExpression, Scope]]:
        """Yield what an object has as an attribute that a call of the user's class made: a config, mostly."""
        if not isinstance(node, cst.Call):
            return
        if (given := argument(node, name, None)) is not None:
            yield given, scope.at(given)
            return
        home, kind = self.class_called(node, scope.source)
        if kind and (value := home.assigned(name, kind)) is not None:
            yield value, Scope(home, value)

    def class_called(self, call: cst.Call, source: Source) -> tuple[Source, cst.ClassDef | None]:
        """Return the user's class that a call in a file makes an object of, and the file that has it."""
        called = source.text(call.func)
        imported = source.imported(called)
        if imported and (other := self._module(source, *imported[:2])):
            return other, other.kind(imported[2])
        return source, source.kind(called)

    def _element(self, node: cst.Subscript, scope: Scope) -> tuple[cst.BaseExpression, Scope] | None:
        """Return the entry of a mapping that a subscript reads."""
        index = node.slice[0].slice
        key = literal(index.value) if isinstance(index, cst.Index) else NOTHING
        return self.entry(node.value, key, scope)

    def entry(self, mapping: cst.BaseExpression, key: Any, scope: Scope) -> tuple[cst.BaseExpression, Scope] | None:
        """Return the value that a mapping has for a key, if the mapping is written out in the source."""
        written, at = self._resolved(mapping, scope) or (mapping, scope)
        if isinstance(written, cst.Dict):
            entries = (each for each in written.elements if isinstance(each, cst.DictElement))
            value = next((each.value for each in entries if literal(each.key) == key), None)
        elif isinstance(written, cst.Call) and at.source.text(written.func) == "dict":
            value = argument(written, str(key), None)
        else:
            value = None
        return (value, at.at(value)) if value is not None else None

    def _resolved(self, node: cst.BaseExpression, scope: Scope) -> tuple[cst.BaseExpression, Scope] | None:
        """Return the expression that a name, a parameter or an attribute stands for; None if that is not found."""
        for _ in range(DEEPEST):
            step = self._step(node, scope)
            if step is None:
                return None
            node, scope = step
            if not isinstance(node, (cst.Name, cst.Attribute)):
                return node, scope
        return None

    def _step(self, node: cst.BaseExpression, scope: Scope) -> tuple[cst.BaseExpression, Scope] | None:
        """Return what a name or an attribute was given last."""
        source, scope = scope.source, scope.at(node)
        if isinstance(node, cst.Attribute):
            return next(self._attribute(node, scope), None)
        if not isinstance(node, cst.Name):
            return None
        function = source.function(node)
        if function is None or not any(each.name.value == node.value for each in parameters(function)):
            local = source.assigned(node.value, function) if function else None
            return (local, scope.at(local)) if local is not None else self._global(node.value, source)
        default = default_of(function, node.value)
        outer = self.scope_of(scope.calls[0], scope.calls[1:], scope.owners) if scope.calls else None
        given = None
        if outer and isinstance(outer.node, cst.Call):
            given = argument(outer.node, node.value, place_of(source, function, node.value))
        if outer and given is not None:
            return given, outer.at(given)
        return (default, scope.at(default)) if default is not None else None

    def scope_of(self, frame: Frame, calls: Sequence[Frame], owners: Sequence[Made]) -> Scope | None:
        """Return the scope of the call that a frame was running; None if it is not in the user's folder."""
        source = self.parsed(Path(frame.file))
        call = source.call_at(frame) if source else None
        return Scope(source, call, calls, owners) if source and call else None

    def _module(self, source: Source, name: str, dots: int) -> Source | None:
        """Return the user's file of a module that is imported from another; None if it lies outside of the folder."""
        folders = [source.path.parent, self.root] if not dots else [source.path.parents[dots - 1]]
        relative = Path(*name.split(".")) if name else Path()
        for folder in folders:
            for path in ((folder / relative).with_suffix(".py"), folder / relative / "__init__.py"):
                if path.is_file():
                    return self.parsed(path)
        return None

    def parsed(self, path: Path) -> Source | None:
        if not path.is_relative_to(self.root) or path.suffix != ".py":
            return None
        if path not in self._sources:
            try:
                self._sources[path] = Source(path)
            except UsageError:
                return None
        return self._sources[path]

    def is_old(self, value: Any) -> bool:
        """Return whether a value in the source is the one to be replaced."""
        old = self.setting.old
        if isinstance(old, (list, tuple)):
            return isinstance(value, (list, tuple)) and list(value) == list(old)
        if isinstance(old, bool) or isinstance(value, bool) or not isinstance(old, (int, float)):
            return type(value) is type(old) and bool(value == old)
        return isinstance(value, (int, float)) and math.isclose(value, old, rel_tol=CLOSE)


def insertion(source: Source, call: cst.Call, name: str) -> Place:
    """Return the place behind a call's last argument, for a further one."""
    if call.args:
        end = source.span(call.args[-1]).end
        return Place(source.path, Span(end, end), f", {name}={{}}")
    end = source.span(call).end - 1
    return Place(source.path, Span(end, end), f"{name}={{}}")

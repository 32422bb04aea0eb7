"""Follow a value through the user's source to where it comes from.

A name is followed to its assignment, to the argument of the calling function, to a default, to a config's entry, or
into another file of the user's. Each step is a place where the value may be changed.
"""

import ast
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from parity.repair.edit import Setting
from parity.repair.source import NOTHING, Function, Place, Source, argument, expressions, first_of, literal, parsed
from parity.repair.source import parameter as parameter_of
from parity.runtime.survey import Frame, Made

CLOSE = 1e-3  # a constant that was solved for has noise in its last digits
DEEPEST = 40  # steps from a value to where it comes from; more is a circle


class Scope(NamedTuple):
    """An expression, where it stands, and how the program came there."""

    source: Source
    node: ast.AST
    calls: Sequence[Frame] = ()  # the calls that led to the function around `node`, the innermost first
    owners: Sequence[Made] = ()  # how the object was made whose method this is, and the objects around it

    @property
    def call(self) -> ast.Call:
        assert isinstance(self.node, ast.Call)
        return self.node

    def at(self, node: ast.AST) -> "Scope":
        return self._replace(node=node)


class Origins:
    """The places that a value of one setting comes from.

    `root`: the folder that files must lie in. `builder`, `kwargs`: what makes the model, and what `pair` gives to it.
    """

    def __init__(
        self, setting: Setting, root: Path, builder: str = "", kwargs: Sequence[str] = (), pair: Path = Path()
    ):
        self.setting, self.root, self.pair = setting, root, pair
        self._builder, self._kwargs = builder, kwargs
        self._sources: dict[Path, Source | None] = {}
        self._depth = 0

    def value(self, scope: Scope) -> list[Place]:
        """Return the places of an expression's value, that where it comes from first."""
        value, here = literal(scope.node), Place(scope.source.path, scope.source.span(scope.node))
        if value is not NOTHING:
            return [here] if self.is_old(value) else []
        self._depth += 1
        try:
            origins = self._origins(scope.node, scope) if self._depth < DEEPEST else []
        finally:
            self._depth -= 1
        return [*origins, here]

    def _origins(self, node: ast.AST, scope: Scope) -> list[Place]:
        """Return the places where the value of a node comes from, which is a part of the scope's expression."""
        match node:
            case ast.Name(id=name):
                return self._name(name, scope)
            case ast.Attribute():
                assigned = self._attribute(node, scope)
                return self.value(assigned) if assigned else []
            case ast.Subscript(value=mapping, slice=index):
                entry = self.entry(scope.at(mapping), literal(index))
                return self.value(entry) if entry else []
            case ast.expr():  # of a computed value, each part that has the old value may be its origin
                parts = [child for child in expressions(node) if literal(child) is NOTHING]
                return [place for part in parts for place in self._origins(part, scope)]
        return []

    def _name(self, name: str, scope: Scope) -> list[Place]:
        """Return the places where the value of a name comes from."""
        function = scope.source.around(scope.node, Function)
        while function is not None:
            if (value := scope.source.assigned(name, function)) is not None and value is not scope.node:
                return self.value(scope.at(value))
            if parameter := parameter_of(function, name):
                return self._parameter(function, *parameter, scope)
            scope = Scope(scope.source, function)  # how the program came to an outer function is not known
            function = scope.source.around(function, Function)
        assigned = self._global(name, scope.source)
        return self.value(assigned) if assigned else []

    def _global(self, name: str, source: Source) -> Scope | None:
        """Return what is assigned to a name of a module, here or in the user's file that it is imported from."""
        if here := _assigned(source, name):
            return here
        if (imported := source.imported(name)) and imported[2] and (home := self._module(source, *imported[:2])):
            return _assigned(home, imported[2])
        return None

    def _parameter(self, function: Function, name: str, default: ast.expr | None, scope: Scope) -> list[Place]:
        """Return the places of a parameter's value: the call's argument, or else the default."""
        source = scope.source
        by_default = self.value(scope.at(default)) if default is not None else []
        if caller := self._caller(scope):
            if given := self.given(caller, name, source.place_of(function, name)):
                return self.value(given)
            return [*by_default, insertion(caller, name)] if default is not None else []
        if name in self._kwargs and self._is_builder(source, function):
            return [Place(self.pair, key=name)]
        return by_default

    def given(self, caller: Scope, name: str, place: int | None) -> Scope | None:
        """Return what a call gives to a parameter: an argument, or the entry of a mapping that is passed on."""
        if (value := argument(caller.call, name, place)) is not None:
            return caller.at(value)
        mappings = (each.value for each in caller.call.keywords if each.arg is None)
        return next(filter(None, (self.entry(caller.at(mapping), name) for mapping in mappings)), None)

    def _is_builder(self, source: Source, function: Function) -> bool:
        kind = source.around(function, ast.ClassDef) if not isinstance(function, ast.Lambda) else None
        named = kind.name if kind else getattr(function, "name", "")
        return self._builder.replace(":", ".").rpartition(".")[2] == named

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Scope | None:
        """Return what is assigned to an attribute: of self, of a module, or of an object of the user's class."""
        source, name = scope.source, node.attr
        function, kind = (source.around(scope.node, each) for each in (Function, ast.ClassDef))
        base = source.text(node.value)
        if function and kind and source.is_method(function) and base == first_of(function):
            return self._own(kind, name, function, scope)
        if (imported := source.imported(base)) and (home := self._module(source, *imported[:2])):
            return _assigned(home, name)
        made = self._resolved(scope.at(node.value))
        if made is None or not isinstance(made.node, ast.Call):
            return None
        if (given := argument(made.node, name, None)) is not None:  # to a config, mostly
            return made.at(given)
        owner, kind = self.class_called(made)
        return _assigned(owner, name, kind) if kind else None

    def _own(self, kind: ast.ClassDef, name: str, function: Function, scope: Scope) -> Scope | None:
        """Return what a class assigns to an attribute of its objects."""
        source = scope.source
        initialise = next((each for each in source.methods(kind) if each.name == "__init__"), None)
        if initialise and (value := source.assigned(f"{first_of(initialise)}.{name}", initialise)) is not None:
            if initialise is function:
                return scope.at(value)
            # Another method: the calls that led to it are not those that made the object.
            return Scope(source, value, scope.owners[0].calls if scope.owners else (), scope.owners[1:])
        return _assigned(source, name, kind)

    def class_called(self, scope: Scope) -> tuple[Source, ast.ClassDef | None]:
        """Return the user's class that a call makes an object of, and the file that has it."""
        source, called = scope.source, scope.source.text(scope.call.func)
        imported = source.imported(called)
        if imported and (home := self._module(source, *imported[:2])):
            return home, home.kind(imported[2])
        return source, source.kind(called)

    def entry(self, mapping: Scope, key: Any) -> Scope | None:
        """Return the value that a mapping has for a key, if the mapping is written out in the source."""
        mapping = self._resolved(mapping) or mapping
        written, value = mapping.node, None
        if isinstance(written, ast.Dict):
            entries = zip(written.keys, written.values, strict=True)
            value = next((value for each, value in entries if each is not None and literal(each) == key), None)
        elif isinstance(written, ast.Call) and mapping.source.text(written.func) == "dict":
            value = argument(written, str(key), None)
        return mapping.at(value) if value is not None else None

    def _resolved(self, scope: Scope) -> Scope | None:
        """Return the expression that a name, a parameter or an attribute stands for; None if that is not found."""
        for _ in range(DEEPEST):
            step = self._step(scope)
            if step is None or not isinstance(step.node, ast.Name | ast.Attribute):
                return step
            scope = step
        return None

    def _step(self, scope: Scope) -> Scope | None:
        """Return what a name or an attribute was given last."""
        source, node = scope.source, scope.node
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope)
        if not isinstance(node, ast.Name):
            return None
        function = source.around(node, Function)
        parameter = parameter_of(function, node.id) if function else None
        if function is None or parameter is None:
            local = source.assigned(node.id, function) if function else None
            return scope.at(local) if local is not None else self._global(node.id, source)
        caller = self._caller(scope)
        given = argument(caller.call, node.id, source.place_of(function, node.id)) if caller else None
        if caller and given is not None:
            return caller.at(given)
        return scope.at(parameter.default) if parameter.default is not None else None

    def _caller(self, scope: Scope) -> Scope | None:
        """Return the call that led to the function around an expression; None if that is not known."""
        return self.scope_of(scope.calls[0], scope.calls[1:], scope.owners) if scope.calls else None

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
        """Return a file of the user's folder; None if it is no Python source, or cannot be parsed."""
        if path not in self._sources:
            self._sources[path] = parsed(path, self.root) if path.suffix == ".py" else None
        return self._sources[path]

    def is_old(self, value: Any) -> bool:
        """Return whether a value in the source is the one to be replaced."""
        old = self.setting.old
        if isinstance(old, (list, tuple)):
            return isinstance(value, (list, tuple)) and list(value) == list(old)
        if isinstance(old, bool) or isinstance(value, bool) or not isinstance(old, (int, float)):
            return type(value) is type(old) and bool(value == old)
        return isinstance(value, (int, float)) and math.isclose(value, old, rel_tol=CLOSE)


def _assigned(source: Source, name: str, within: ast.ClassDef | None = None) -> Scope | None:
    """Return what is assigned to a name in a class of a file, or in the file's module."""
    value = source.assigned(name, within)
    return Scope(source, value) if value is not None else None


def insertion(scope: Scope, name: str) -> Place:
    """Return the place behind a call's last argument, for a further one."""
    separator = ", " if scope.call.args or scope.call.keywords else ""
    return Place(scope.source.path, scope.source.end_of_arguments(scope.call), f"{separator}{name}={{}}")

"""The places where an argument of an object may be changed, by how the user's code made the object.

The first place of a list is where the value comes from, which sets it for all that use it; the last is the argument
itself.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import libcst as cst

from parity.repair.origins import Origins, Place, Scope, insertion
from parity.repair.source import argument, first_of, literal, spread
from parity.trace.survey import Frame, Made


class Places(Origins):
    """The places of one setting's value."""

    def of_object(self, made: Made, owners: Sequence[Made] = ()) -> list[Place]:
        """Return the places that set the argument of an object, by how it was made."""
        chain = [*made.initialisers, *made.calls]
        makers = chain[: len(made.initialisers) + 1]
        places: list[Place] = []
        for number, frame in enumerate(makers):
            if (scope := self.scope_of(frame, chain[number + 1 :], owners)) and isinstance(scope.node, cst.Call):
                last = number == len(makers) - 1
                places += self._given(scope, scope.node, made.positional if last else [])
        if places or not made.calls:
            return list(dict.fromkeys(places))
        return [place for frame in reversed(makers) for place in self._added(made, frame)]

    def on_line(self, path: Path, number: int) -> list[Place]:
        """Return the places on a line: arguments of the setting's name, and literals of its old value."""
        source = self.parsed(path)
        if source is None:
            return []
        places: list[Place] = []
        for node in source.on_line(number):
            if isinstance(node, cst.Call):
                places += self._given(Scope(source, node), node, [])
            elif isinstance(node, cst.BaseExpression) and self.is_old(literal(node)):
                places.append(Place(path, source.span(node)))
        return list(dict.fromkeys(places))

    def in_class(self, made: Made) -> Iterator[tuple[Place, str]]:
        """Yield the place of what an object's class assigns to its attribute of the setting's name, and its source."""
        scope = self.scope_of(made.calls[0], (), ()) if made.calls else None
        if scope is None or not isinstance(scope.node, cst.Call):
            return
        source, kind = self.class_called(scope.node, scope.source)
        methods = [each for each in kind.body.body if isinstance(each, cst.FunctionDef)] if kind else []
        for method, name, private in itertools.product(methods, self.setting.names, ("", "_")):
            if (value := source.assigned(f"{first_of(method)}.{private}{name}", method)) is not None:
                yield Place(source.path, source.span(value)), source.text(value)

    def _given(self, scope: Scope, call: cst.Call, names: Sequence[str]) -> list[Place]:
        """Return the places of the argument that a call gives; `names` are the parameters by position."""
        for name in self.setting.names:
            given = argument(call, name, names.index(name) if name in names else None)
            if given is not None:
                return self.value(given, scope)
            for mapping in spread(call):
                if entry := self.entry(mapping, name, scope):
                    return self.value(*entry)
        return []

    def _added(self, made: Made, frame: Frame) -> Iterator[Place]:
        """Yield the place of an argument that a call leaves out, if the class takes it."""
        name = next((name for name in self.setting.names if name in (*made.positional, *made.keywords)), None)
        scope = self.scope_of(frame, (), ())
        if name and scope and isinstance(scope.node, cst.Call):
            yield insertion(scope.source, scope.node, name)

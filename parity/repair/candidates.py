"""The edits that may remove a cause: from its place in torch's model to the port's line, and to the argument there.

Of the places where an argument of an object may be changed, the first is where the value comes from, which sets it for
all that use it; the last is the argument itself.
"""

import ast
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from parity.config.pair import UNNAMED
from parity.core.errors import TraceError
from parity.pairs.causes.sources import made_at, makers_of
from parity.pairs.file import PairFile
from parity.pairs.prepare import place
from parity.repair.edit import Edit, Expression, Setting, changed, code, edit, settings
from parity.repair.in_code import GRADIENT, in_code, lacking
from parity.repair.origins import Origins, Scope, insertion
from parity.repair.source import Place, first_of, literal, parsed
from parity.results import Cause
from parity.runtime import survey
from parity.runtime.survey import Made, Survey
from parity.trace.manifest import Trace
from parity.trace.mapping import PairContext

CLOSE: Final = 1e-6


class Port(NamedTuple):
    """What is known of the port from a comparison that ran in the folder `root`."""

    root: Path
    file: PairFile
    keras: Survey
    context: PairContext


def read(file: PairFile, root: Path, folder: Path) -> Port | None:
    """Return what a comparison of the pair has left in `folder`; None if it failed."""
    with suppress(TraceError):
        context = Trace(folder / "keras").manifest.context(file.search)
        return Port(root, file, survey.read(place(folder, "keras")), context)
    return None


def edits(cause: Cause, port: Port) -> list[Edit]:
    """Return the edits that may remove a cause, in the order in which they should be tried."""
    set_to = ((origin, sought.setting.new) for sought in _sought(cause, port) for origin in _places(sought, port))
    written = itertools.chain(_in_class(cause, port), _in_code(cause, port.root), lacking(cause, port.root))
    wanted = itertools.chain(set_to, ((span, Expression(text)) for span, text in written))
    return list(dict.fromkeys(filter(None, (edit(where, value, port.root) for where, value in wanted))))


def _in_class(cause: Cause, port: Port) -> Iterator[tuple[Place, str]]:
    """Yield where a class of the user's computes an attribute that an experiment has changed, with other source."""
    for sought in _sought(cause, port):
        for made, _ in sought.made:
            for at, text in Places(sought.setting, port.root).in_class(made):
                yield at, computed(text, sought.setting.old, sought.setting.new)


def _in_code(cause: Cause, root: Path) -> Iterator[tuple[Place, str]]:
    """Yield the places in the code that an experiment has changed, or that stop a gradient, with their new source."""
    stops = [None] if cause.id == GRADIENT and cause.source else []
    for change in [each for each in cause.changes if each.side == "keras" and each.source] or stops:
        if source := parsed(Path((change or cause).source.rpartition(":")[0]).absolute(), root):
            yield from in_code(cause, change, source)


def why_none(cause: Cause, port: Port) -> str:
    """Return why there is no edit that may remove a cause."""
    if cause.id in UNNAMED:
        return "the cause has no name"
    known = list(_sought(cause, port))
    if not known:
        return "no argument of Keras's sets it"
    name, made = known[0].setting.names[0], [each for sought in known for each, _ in sought.made]
    if not made:
        return f"no layer of Keras's is known to correspond to {cause.where}"
    file, _, line = made[0].source.rpartition(":")
    if not Path(file).is_relative_to(port.root):
        return f"{file}:{line} is outside of the folder that is repaired"
    return f"{Path(file).relative_to(port.root)}:{line}: it was not found what sets {name} there"


class _Sought(NamedTuple):
    """A setting that may remove a cause, how the objects that have it were made, or the line that it stands on."""

    setting: Setting
    made: list[tuple[Made, list[Made]]]
    line: str = ""


def _sought(cause: Cause, port: Port) -> Iterator[_Sought]:
    """Yield the settings that may remove a cause: those that an experiment has changed, then those of its id."""
    for change in cause.changes:
        if change.side == "keras":
            made = made_at(change.path, port.keras) if change.of else []
            setting = changed(change)
            yield _Sought(setting, made, change.source)
            if all(isinstance(value, (list, tuple)) and len(value) == 1 for value in (setting.old, setting.new)):
                number = setting._replace(old=setting.old[0], new=setting.new[0])  # Keras keeps an axis in a list
                yield _Sought(number, made, change.source)
    for setting in settings(cause):
        yield _Sought(setting, list(makers_of(cause, port.keras, port.context)))


def _places(sought: _Sought, port: Port) -> Iterator[Place]:
    setting, pair, path = sought.setting, port.file.pair, (port.file.path or Path()).absolute()
    context = port.root, pair.keras, [*pair.kwargs, *pair.keras_kwargs], path
    places = Places(setting, *context)
    # A framework may make the object itself, of what stands on the user's line: a Bidirectional copies its layer.
    for line in (sought.line, *(made.source for made, _ in sought.made if not made.calls)):
        name, _, number = line.rpartition(":")
        if number.isdecimal():
            yield from places.on_line(Path(name).absolute(), int(number))
    for made, owners in sought.made:
        yield from places.of_object(made, owners)
        for level, owner in enumerate(owners):  # a layer of a library, made of an argument of a similar name
            similar = tuple(each for each in (*owner.positional, *owner.keywords) if each.endswith(setting.names))
            outer = Places(setting._replace(names=similar), *context)
            yield from outer.of_object(owner, owners[level + 1 :]) if similar else []


# By source with {} for what is there: what that makes of the present value.
RELATED: Final[dict[str, Callable[[float], float]]] = {
    "1 / ({})": lambda value: 1 / value,
    "-({})": lambda value: -value,
    "1 - ({})": lambda value: 1 - value,
    "({}) ** 0.5": lambda value: value**0.5 if value > 0 else math.nan,
    "({}) ** -0.5": lambda value: value**-0.5 if value > 0 else math.nan,
    "({}) ** 2": lambda value: value * value,
    "2 * ({})": lambda value: 2 * value,
    "({}) / 2": lambda value: value / 2,
}


def computed(text: str, old: Any, new: Any) -> str:
    """Return the source for the value `new`, where `text` is the source that gives the value `old`."""
    if all(type(value) in (int, float) for value in (old, new)) and old:
        for template, relation in RELATED.items():
            if math.isclose(relation(old), new, rel_tol=CLOSE):
                return template.format(text)
    return code(new)


class Places(Origins):
    """The places of one setting's value."""

    def of_object(self, made: Made, owners: Sequence[Made] = ()) -> list[Place]:
        """Return the places that set the argument of an object, by how it was made."""
        chain = [*made.initialisers, *made.calls]
        makers = chain[: len(made.initialisers) + 1]
        places: list[Place] = []
        for number, frame in enumerate(makers):
            if scope := self.scope_of(frame, chain[number + 1 :], owners):
                places += self._given(scope, made.positional if number == len(makers) - 1 else [])
        if places or not made.calls:
            return list(dict.fromkeys(places))
        # The argument is left out, so that it is to be added to a call, if the class takes it.
        name = next((name for name in self.setting.names if name in (*made.positional, *made.keywords)), None)
        scopes = filter(None, (self.scope_of(frame, (), ()) for frame in reversed(makers)))
        return [insertion(scope, name) for scope in scopes] if name else []

    def on_line(self, path: Path, number: int) -> list[Place]:
        """Return the places on a line: arguments of the setting's name, and literals of its old value."""
        source = self.parsed(path)
        if source is None:
            return []
        places: list[Place] = []
        for node in source.on_line(number):
            if isinstance(node, ast.Call):
                places += self._given(Scope(source, node), [])
            elif isinstance(node, ast.expr) and self.is_old(literal(node)):
                places.append(Place(path, source.span(node)))
        return list(dict.fromkeys(places))

    def in_class(self, made: Made) -> Iterator[tuple[Place, str]]:
        """Yield the place of what an object's class assigns to its attribute of the setting's name, and its source."""
        scope = self.scope_of(made.calls[0], (), ()) if made.calls else None
        if scope is None:
            return
        source, kind = self.class_called(scope)
        methods = source.methods(kind) if kind else []
        for method, name, private in itertools.product(methods, self.setting.names, ("", "_")):
            if (value := source.assigned(f"{first_of(method)}.{private}{name}", method)) is not None:
                yield Place(source.path, source.span(value)), source.text(value)

    def _given(self, scope: Scope, names: Sequence[str]) -> list[Place]:
        """Return the places of the argument that a call gives; `names` are the parameters by position."""
        for name in self.setting.names:
            if given := self.given(scope, name, names.index(name) if name in names else None):
                return self.value(given)
        return []

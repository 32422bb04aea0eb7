"""The edits that may remove a cause: from its place in torch's model to the port's line, and to the argument there."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from parity.config.pair import UNNAMED, Pair
from parity.diagnose.arguments import Setting, settings
from parity.pairs.file import PairFile
from parity.pairs.prepare import place
from parity.pairs.sources import makers_of
from parity.repair.edit import Edit, edit
from parity.repair.origins import Place
from parity.repair.places import Places
from parity.trace import survey
from parity.trace.manifest import Trace
from parity.trace.mapping import PairContext
from parity.trace.survey import Made, Survey

Cause = Mapping[str, Any]


class Port(NamedTuple):
    """What is known of the port from a comparison that ran in the folder `root`."""

    root: Path
    file: PairFile
    keras: Survey
    context: PairContext

    @property
    def pair(self) -> Pair:
        """Return the pair's settings."""
        assert isinstance(self.file.case.model, Pair)
        return self.file.case.model

    def made(self, cause: Cause) -> Iterator[tuple[Made, list[Made]]]:
        """Yield how the layers of a cause, or the optimizer, were made, each with the layers around it."""
        return makers_of(cause, self.keras, self.context)


def read(file: PairFile, root: Path, folder: Path) -> Port:
    """Return what a comparison of the pair has left in `folder`. Raises TraceError."""
    manifest = Trace(folder / "keras").manifest
    context = PairContext(search=file.search, mapping=manifest.mapping, matching=manifest.matching)
    return Port(root, file, survey.read(Path(place(folder, "keras"))), context)


def edits(cause: Cause, port: Port) -> list[Edit]:
    """Return the edits that may remove a cause, in the order in which they should be tried."""
    found = [
        change
        for setting in settings(cause)
        for each in _places(cause, setting, port)
        if (change := edit(each, setting.new, port.root))
    ]
    return list(dict.fromkeys(found))


def why_none(cause: Cause, port: Port) -> str:
    """Return why there is no edit that may remove a cause."""
    if cause["id"] in UNNAMED:
        return "the cause has no name"
    known = settings(cause)
    if not known:
        return "no argument of Keras's sets it"
    name, made = known[0].names[0], [each for each, _ in port.made(cause)]
    if not made:
        return f"no layer of Keras's is known to correspond to {cause['where']}"
    file, _, line = made[0].source.rpartition(":")
    if not Path(file).is_relative_to(port.root):
        return f"{file}:{line} is outside of the folder that is repaired"
    return f"{Path(file).relative_to(port.root)}:{line}: it was not found what sets {name} there"


def _places(cause: Cause, setting: Setting, port: Port) -> Iterator[Place]:
    """Yield the places where a setting can be changed."""
    builder, kwargs = port.pair.keras, [*port.pair.kwargs, *port.pair.keras_kwargs]
    pair = port.file.path or Path()
    places = Places(setting, port.root, builder, kwargs, pair)
    if "argument" in cause and (source := cause.get("source")):
        name, _, number = source.rpartition(":")
        file = Path(name).absolute()
        at = [each for each in port.made(cause) if each[0].source == f"{file}:{number}"]
        for made, owners in at:
            yield from places.of_object(made, owners)
        if not at and number.isdigit():
            yield from places.on_line(file, int(number))
        return
    for made, owners in port.made(cause):
        yield from places.of_object(made, owners)
        for number, owner in enumerate(owners):  # a layer of a library, made of an argument of a similar name
            similar = tuple(name for name in (*owner.positional, *owner.keywords) if name.endswith(setting.names))
            outer = Places(setting._replace(names=similar), port.root, builder, kwargs, pair)
            yield from outer.of_object(owner, owners[number + 1 :]) if similar else []

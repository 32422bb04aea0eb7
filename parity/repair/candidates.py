"""The edits that may remove a cause: from its place in torch's model to the port's line, and to the argument there."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from parity.config.pair import UNNAMED, Pair
from parity.diagnose.arguments import Setting, settings
from parity.pairs.file import PairFile
from parity.pairs.prepare import place
from parity.repair.edit import Edit, edit
from parity.repair.origins import Place
from parity.repair.places import Places
from parity.trace import survey
from parity.trace.manifest import Trace
from parity.trace.mapping import PairContext
from parity.trace.survey import Made, Survey

Cause = Mapping[str, Any]
OPTIMIZERS = ("sgd.", "adam.", "adamw.", "weight_decay.", "clip.")  # the ids of causes in an optimizer


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
    name, made = known[0].names[0], list(_made(cause, port))
    if not made:
        return f"no layer of Keras's is known to correspond to {cause['where']}"
    if all(not Path(each.source.rpartition(":")[0]).is_relative_to(port.root) for each, _ in made):
        return f"{made[0][0].source} is outside of {port.root}"
    return f"{made[0][0].source}: it was not found what sets {name} there"


def layers(where: str, port: Port) -> list[str]:
    """Return the paths of the Keras layers that correspond to a module of torch's, or to a weight of one."""
    matching, mapping = port.context.matching, port.context.mapping
    by_output = [each.keras for each in matching.matches if _module(each.torch) == where] if matching else []
    weights = {weight.name: weight.module for weight in port.keras.weights}
    by_weight = [
        weights[name]
        for entry in (mapping.entries if mapping else [])
        if any(name == where or name.rpartition(".")[0] == where for name in entry.torch)
        for name in entry.keras
        if name in weights
    ]
    return list(dict.fromkeys([*map(_module, by_output), *by_weight]))


def _module(key: str) -> str:
    """Return the path of the module that returned a tensor."""
    return key.partition("#")[0]


def _made(cause: Cause, port: Port) -> Iterator[tuple[Made, list[Made]]]:
    """Yield how the layers of a cause, or the optimizer, were made, each with the layers around it."""
    if cause["id"].startswith(OPTIMIZERS):
        yield from [(port.keras.optimizer, [])] if port.keras.optimizer else []
        return
    for path in layers(cause["where"], port):
        parents = [path.rsplit("/", number)[0] for number in range(1, path.count("/") + 1)]
        around = [port.keras.made(each) for each in (*parents, "")]
        if made := port.keras.made(path):
            yield made, [each for each in around if each]


def _places(cause: Cause, setting: Setting, port: Port) -> Iterator[Place]:
    """Yield the places where a setting can be changed."""
    builder, kwargs = port.pair.keras, [*port.pair.kwargs, *port.pair.keras_kwargs]
    pair = port.file.path or Path()
    places = Places(setting, port.root, builder, kwargs, pair)
    if source := cause.get("source"):
        name, _, number = source.rpartition(":")
        file = Path(name).absolute()
        at = [each for each in _made(cause, port) if each[0].source == f"{file}:{number}"]
        for made, owners in at:
            yield from places.of_object(made, owners)
        if not at and number.isdigit():
            yield from places.on_line(file, int(number))
        return
    for made, owners in _made(cause, port):
        yield from places.of_object(made, owners)
        for number, owner in enumerate(owners):  # a layer of a library, made of an argument of a similar name
            similar = tuple(name for name in (*owner.positional, *owner.keywords) if name.endswith(setting.names))
            outer = Places(setting._replace(names=similar), port.root, builder, kwargs, pair)
            yield from outer.of_object(owner, owners[number + 1 :]) if similar else []

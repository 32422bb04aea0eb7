"""Say of each cause on which line of the user's code its Keras layer, or the optimizer, is made."""

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from parity.pairs.activations.modules import module
from parity.results import CaseResult, Cause
from parity.runtime.survey import Made, Survey
from parity.trace.mapping import PairContext

# The ids of causes in an optimizer.
OF_OPTIMIZERS = (
    *("sgd.", "adam.", "adamw.", "adamax.", "adagrad.", "adadelta.", "nadam.", "rmsprop."),
    *("optimizer.", "schedule.", "weight_decay.", "clip."),
)


def add_sources(result: CaseResult, keras: Survey, context: PairContext) -> None:
    """Add the line as `source` ("file:line") to each cause that has none, where it is known."""
    result.causes = [
        replace(cause, source=shown(_source(cause, keras, context))) if not cause.source else cause
        for cause in result.causes
    ]


def _source(cause: Cause, keras: Survey, context: PairContext) -> str:
    """Return the line that an experiment has changed, or else that makes the layer; "" if none is known."""
    makers = (made.source for made, _ in makers_of(cause, keras, context))
    changed = (change.source for change in cause.changes if change.side == "keras")
    return next(filter(None, (*changed, *makers)), "")


def makers_of(cause: Cause, keras: Survey, context: PairContext) -> Iterator[tuple[Made, list[Made]]]:
    """Yield how the layers of a cause, or the optimizer, were made, each with the layers around it."""
    if cause.id.startswith(OF_OPTIMIZERS):
        yield from [(keras.optimizer, [])] if keras.optimizer else []
        return
    for path in layers(cause.where, keras, context):
        yield from made_at(path, keras)


def made_at(path: str, keras: Survey) -> list[tuple[Made, list[Made]]]:
    """Return how a layer, or the framework's layer that made it, was made, with those around it; [] if unknown."""
    parents = [path.rsplit("/", number)[0] for number in range(1, path.count("/") + 1)]
    made = [each for each in map(keras.made, (path, *parents)) if each]
    model = keras.made("")
    return [(made[0], [*made[1:], *([model] if model else [])])] if made else []


def layers(where: str, keras: Survey, context: PairContext) -> list[str]:
    """Return the paths of the Keras layers that correspond to a module of torch's, or to a weight of one."""
    matches = context.matching.matches if context.matching else []
    by_output = [module(match.keras) for match in matches if module(match.torch) == where]
    owners = {weight.name: weight.module for weight in keras.weights}
    by_weight = [
        owners[name]
        for entry in (context.mapping.entries if context.mapping else [])
        if any(where in (name, name.rpartition(".")[0]) for name in entry.torch)
        for name in entry.keras
        if name in owners
    ]
    return list(dict.fromkeys([*by_output, *by_weight]))


def shown(source: str) -> str:
    """Return "file:line" relative to the working directory, if the file is below it."""
    path = Path(source)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else source

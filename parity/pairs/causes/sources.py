"""Say of causes what the surveys tell: on which line of the user's code a layer of Keras's, or the optimizer, is made.

And which layers are in another mode, draw masks for other sizes, or keep state from step to step.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from parity.config.pair import UNKNOWN
from parity.diagnose.experiment.causes import CARRIED, KEPT
from parity.pairs.activations.modules import Surveyed, module
from parity.pairs.weights.runs import agrees
from parity.results import CaseResult, Cause
from parity.runtime.survey import Made, Survey
from parity.trace.keys import plain
from parity.trace.manifest import Tensors
from parity.trace.mapping import Matching, PairContext

PLACE = "dropout.place"  # dropouts that draw masks for tensors of other sizes
ORDER = "dropout.order"
MODES = ("dropout.active", "batch_norm.mode")  # what a layer does that is not told of the training
MOST = 3  # names in a sentence
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


def explain_mode(result: CaseResult, torch: Survey, keras: Survey) -> None:
    """Say which layers are not in training mode: Keras's, where the model's `call` takes no `training`, or torch's."""
    rates = {module.path: module.facts.get("rate") for module in torch.modules}
    result.causes = [_as_mode(cause, "torch") if rates.get(plain(cause.where)) else cause for cause in result.causes]
    if any(cause.id == MODES[0] for cause in result.causes):  # then each side draws another number of masks
        result.causes = [cause for cause in result.causes if cause.id != ORDER]
    said = "; keras's `call` takes no `training`, and fit calls the model without it"
    for number, cause in enumerate(result.causes if keras.is_mode_lost else ()):
        if (told := _as_mode(cause, "keras")).id in MODES:
            result.causes[number] = replace(told, evidence=told.evidence + said)


def explain_states(result: CaseResult, keras: Survey, matching: Matching | None) -> None:
    """Name state that a layer of Keras's keeps from step to step, where a later pass is the first to part."""
    first = result.first_divergence
    if not (matching and first and first.step and first.kind in ("input", "activation", "loss")):
        return
    moving = set(keras.rehearsal.changing).difference(keras.rehearsal.counting)
    layers = {plain(match.torch): plain(match.keras) for match in matching.matches}
    kept = {
        module: names
        for module, layer in layers.items()
        if layer and (names := sorted(name for name in moving if name.startswith(f"{layer}/")))
    }
    for number, cause in enumerate(result.causes):
        where = plain(cause.where)
        if cause.id == UNKNOWN and where in kept:
            evidence = f"in the first step both are alike; keras's steps change {', '.join(kept[where][:MOST])}"
            result.causes[number] = replace(cause, id=CARRIED, torch=KEPT[False], keras=KEPT[True], evidence=evidence)
        elif cause.id == CARRIED and where == "loss" and kept:
            result.causes[number] = replace(cause, where=next(iter(kept)))


def _as_mode(cause: Cause, side: str) -> Cause:
    """Return the cause of a dropout that drops nothing on a side: its rate may be the same, but it is idle."""
    if cause.id != "dropout.rate" or cause.sides[side]:
        return cause
    return replace(cause, id=MODES[0], torch=side != "torch", keras=side != "keras")


def explain_masks(result: CaseResult, torch: Survey, keras: Survey, ours: Tensors, theirs: Tensors) -> None:
    """Name masks for other sizes where training alone parts for no known cause, or for a dropout of one side alone.

    Of several dropouts, that is one which stands elsewhere on the other side. `ours`, `theirs`: of inference.
    """
    rehearsals = [side.rehearsal for side in (torch, keras)]
    drawn = [Counter(each.masks) for each in rehearsals if each.drawn]  # none of a model that could not be rehearsed
    if len(drawn) < 2 or drawn[0] == drawn[1]:
        return
    sides = [sorted(further.elements()) for further in (drawn[0] - drawn[1], drawn[1] - drawn[0])]
    named = [cause for cause in result.causes if cause.id in (UNKNOWN, ORDER) or (_is_one_sided(cause) and all(sides))]
    if named and agrees(Surveyed(torch, ours), theirs):
        values = [
            f"masks for {', '.join(map(str, sizes))} elements" if sizes else "no further masks" for sizes in sides
        ]
        evidence = "in inference both return the same; a training pass draws other masks on each side"
        if named[0].evidence and named[0].id not in (UNKNOWN, ORDER):
            evidence = f"{evidence}; {named[0].evidence}"
        named[1:] = [each for each in named[1:] if _is_one_sided(each)]  # the other place of the same dropout
        place = replace(named[0], id=PLACE, torch=values[0], keras=values[1], evidence=evidence)
        causes = [place if each is named[0] else each for each in result.causes]
        result.causes = [each for each in causes if not any(each is other for other in named[1:])]


def _is_one_sided(cause: Cause) -> bool:
    """Return whether one side drops something where the other drops nothing."""
    return cause.id == "dropout.rate" and bool(cause.torch) != bool(cause.keras)

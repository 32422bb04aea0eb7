"""Say in words what the comparison of a pair does not look at, as far as the models have such things."""

from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Named

from parity.config.pair import Pair
from parity.core.arrays import Array
from parity.core.wording import agree, count
from parity.pairs.activations.counterparts import is_random
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.mapping import Mapping, counts
from parity.trace.survey import Survey
from parity.verdict.steps import is_whole

SINGULAR = {"take": "takes", "are": "is"}
SHOWN = 4  # at most so many names in a sentence


def not_run(pair: Pair, modules: Named[str, str]) -> list[str]:
    """Say what was not tested because no training step was run.

    `modules` maps the paths of torch's modules to their kinds.
    """
    if pair.train:
        return []
    forward = [] if pair.backward else ["no gradient was compared, as the file has backward = false"]
    return [*forward, f"no training step was run, as the file has no [train]: {', '.join(_in_training(modules))}"]


def constants(mapping: Mapping, reference: Trace) -> list[str]:
    """Say which of torch's buffers have no counterpart in Keras's model, except those that are told of elsewhere."""
    buffers_held = [name for kind, name in map(keys.split, _initial(reference)) if kind == "buffer"]
    elsewhere = {name for name in mapping.constants if counts(name) in mapping.assumptions or name in mapping.unlike}
    alone = [name for name in buffers_held if name in mapping.constants and name not in elsewhere]
    if not alone:
        return []
    named = few(alone)
    buffers, have = (agree(len(alone), word) for word in ("buffer", "has"))
    they = "they are" if len(alone) > 1 else "it is"
    return [f"torch's {buffers} {named} {have} no counterpart: {they} constant here, other values were not tried"]


def unused(mapping: Mapping) -> list[str]:
    """Say which weights of each side have no counterpart and need none."""
    apart = [_alone(side, names, "take part in nothing that is compared") for side, names in mapping.unused.items()]
    zeros = "are zeros that training cannot move, as before a batch norm"
    return [*apart, *([_alone("keras", mapping.still, zeros)] if mapping.still else [])]


def unnamed(torch: Survey) -> list[str]:
    """Say which tensors torch's model returns that [outputs] does not name."""
    return [f"not named in [outputs], and not compared: {few(torch.unnamed)}"] if torch.unnamed else []


def schedules(traces: Iterable[Trace]) -> list[str]:
    """Say whose schedule of the learning rate has not changed it in any step that was run."""
    still = {trace.backend: trace.manifest.training for trace in traces}
    sides = [side for side, training in still.items() if training.is_scheduled and len(set(training.rates)) == 1]
    return [f"{side}'s learning rate follows a schedule that changes it in none of these steps" for side in sides]


def gradients(outputs: Named[str, tuple[Array, Array]]) -> list[str]:
    """Say so where the models return whole numbers alone, which nothing flows back from. `outputs`: of both sides."""
    if not outputs or not all(is_whole(each) for pair in outputs.values() for each in pair):
        return []
    return ["gradients were not compared: the models return whole numbers or truth values alone, which have none"]


def _alone(side: str, names: list[str], what: str) -> str:
    """Say what some weights without a counterpart do; `what` is a phrase with its verb in the plural."""
    verb, _, rest = what.partition(" ")
    if len(names) > 1:
        return f"{len(names)} weights of {side} without a counterpart {what}: {few(names)}"
    return f"1 weight of {side} without a counterpart {SINGULAR[verb]} {rest}: {names[0]}"


def few(names: list[str]) -> str:
    """Return the names as a list in words, shortened."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def _initial(trace: Trace) -> list[str]:
    return trace.manifest.files.get(f"high/rank-0/{keys.INITIAL}", [])


def _in_training(modules: Named[str, str]) -> Iterator[str]:
    """Yield what only a training step exercises."""
    yield "neither loss nor optimizer"
    for subject, number in (
        ("dropout", sum(map(is_random, modules.values()))),
        ("batch norm's statistics", list(modules.values()).count("batch_norm")),
    ):
        if number:
            yield f"nor {subject} ({count(number, 'module')})"

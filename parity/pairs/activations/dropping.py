"""Drop matches that hold in inference but not in training: containers in which something is dropped, other calls.

In inference a dropout returns its input. So a block of torch's that ends after its dropout, and one of Keras's that
ends before it, return the same tensor in inference and different ones in training.

Tensors are matched by what the models return in inference, and are known by the number of the call. A module that
training calls more often, as a head that also serves an auxiliary loss, may have its calls in another order on each
side: then the first call of one side is not that of the other.
"""

from collections import Counter
from itertools import accumulate

from msgspec.structs import replace

from parity.core.groups import by_key
from parity.pairs.activations.counterparts import drops
from parity.pairs.activations.owners import SEPARATORS, ancestors
from parity.runtime.survey import Survey
from parity.trace.mapping import Match, Matching


def in_training(matching: Matching, torch: Survey, keras: Survey) -> Matching:
    """Return the matching without containers that drop something, or whose calls training orders otherwise."""
    dropping = _containers(torch) | reordered(matching, torch, keras), _containers(keras)

    unmatched = [match for match in matching.matches if not _is_outside(match, dropping)]
    return replace(
        matching,
        matches=[match for match in matching.matches if _is_outside(match, dropping)],
        torch_alone=[*matching.torch_alone, *(match.torch for match in unmatched)],
        keras_alone=[*matching.keras_alone, *(match.keras for match in unmatched)],
        fed=[each for each in matching.fed if each.torch not in dropping[0] and each.keras not in dropping[1]],
    )


def _containers(survey: Survey) -> set[str]:
    """Return all modules around a dropout with a rate above 0.

    The whole model is not among them, since its outputs are compared anyway. Neither is an attention around the
    dropout of its weights, which is inside it on both sides.
    """
    separator = SEPARATORS[survey.side]
    containers: set[str] = set()
    for dropout in survey.modules:
        around = list(ancestors(dropout.path, separator))
        is_inside_attention = bool(around) and survey.kind(around[0]) == "attention"
        if drops(dropout) and not is_inside_attention:
            containers.update(around)
    return containers


def reordered(matching: Matching, torch: Survey, keras: Survey) -> set[str]:
    """Return torch's modules with another number of calls in training, whose calls come at other times in Keras.

    The time of a call is the number of those tensors returned before it that both sides return in training as often
    as in inference.
    """
    varying = _varying(torch), _varying(keras)
    if not any(varying):
        return set()
    steady = [match for match in matching.matches if _is_outside(match, varying)]
    times = (
        _times(torch, {match.torch for match in steady if match.keras in keras.rehearsal.drawn}),
        _times(keras, {match.keras for match in steady if match.torch in torch.rehearsal.drawn}),
    )
    modules = {(module(match.torch), module(match.keras)) for match in matching.matches}
    return {
        ours
        for ours, theirs in modules
        if (ours in varying[0] or theirs in varying[1]) and times[0].get(ours) != times[1].get(theirs)
    }


def _is_outside(match: Match, modules: tuple[set[str], set[str]]) -> bool:
    """Return whether a match is of none of these modules of torch's and of Keras's."""
    return module(match.torch) not in modules[0] and module(match.keras) not in modules[1]


def module(key: str) -> str:
    """Return the module in the key of a tensor that it returned."""
    return key.partition("#")[0]


def _varying(survey: Survey) -> set[str]:
    """Return the modules that return more or fewer tensors in training than in inference, but some in both."""
    inference = Counter(seen.module for seen in survey.outputs)
    training = Counter(map(module, survey.rehearsal.drawn))
    return {path for path, count in inference.items() if path and training[path] not in (0, count)}


def _times(survey: Survey, steady: set[str]) -> dict[str, list[int]]:
    """Return, by module, how many `steady` tensors were returned in training before each of its tensors."""
    drawn = list(survey.rehearsal.drawn)
    before = accumulate((key in steady for key in drawn), initial=0)
    return by_key((module(key), count) for key, count in zip(drawn, before, strict=False))

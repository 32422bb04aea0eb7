"""What a matching in inference says too much about training: containers in which something is dropped.

In inference a dropout returns what it was given. So a block of torch's that ends behind its dropout, and one of
Keras's that ends before it, return the same tensor there, and another one in training.
"""

from parity.pairs.activations.counterparts import drops
from parity.pairs.activations.owners import SEPARATORS, ancestors
from parity.trace.mapping import Match, Matching
from parity.trace.survey import Survey


def in_training(matching: Matching, torch: Survey, keras: Survey) -> Matching:
    """The matching without those containers: all that is within them is compared by itself."""
    dropping = _containers(torch), _containers(keras)

    def stays(match: Match) -> bool:
        return _module(match.torch) not in dropping[0] and _module(match.keras) not in dropping[1]

    left = [match for match in matching.matches if not stays(match)]
    return Matching(
        matches=[match for match in matching.matches if stays(match)],
        torch_alone=[*matching.torch_alone, *(match.torch for match in left)],
        keras_alone=[*matching.keras_alone, *(match.keras for match in left)],
        layouts=matching.layouts,
        equal=matching.equal,
        not_compared=matching.not_compared,
    )


def _containers(survey: Survey) -> set[str]:
    """All modules around a dropout whose rate is not 0; not the whole model, whose outputs are compared anyway.

    A dropout of an attention's weights is in the midst of it on both sides.
    """
    separator = SEPARATORS[survey.side]
    found: set[str] = set()
    for module in survey.modules:
        above = list(ancestors(module.path, separator))
        within = bool(above) and survey.kind(above[0]) == "attention"
        if drops(module) and not within:
            found.update(above)
    return found


def _module(key: str) -> str:
    return key.partition("#")[0]

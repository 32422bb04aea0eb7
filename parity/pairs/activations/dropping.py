"""Drop matches that hold in inference but not in training: containers in which something is dropped, other calls.

In inference a dropout returns its input. So a block of torch's that ends after its dropout, and one of Keras's that
ends before it, return the same tensor in inference and different ones in training.
"""

from msgspec.structs import replace

from parity.pairs.activations.calls import module, reordered
from parity.pairs.activations.counterparts import drops
from parity.pairs.activations.owners import SEPARATORS, ancestors
from parity.trace.mapping import Match, Matching
from parity.trace.survey import Survey


def in_training(matching: Matching, torch: Survey, keras: Survey) -> Matching:
    """Return the matching without such containers, and without modules whose calls come in another order in training.

    All that is within the containers is compared by itself.
    """
    dropping = _containers(torch) | reordered(matching, torch, keras), _containers(keras)

    def stays(match: Match) -> bool:
        return module(match.torch) not in dropping[0] and module(match.keras) not in dropping[1]

    unmatched = [match for match in matching.matches if not stays(match)]
    return replace(
        matching,
        matches=[match for match in matching.matches if stays(match)],
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

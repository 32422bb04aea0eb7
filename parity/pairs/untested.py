"""What a comparison of a pair does not look at, in words, as far as the models have such things."""

from collections.abc import Iterator, Mapping

from parity.pairs.activations.counterparts import is_random
from parity.pairs.schema import Pair


def not_run(pair: Pair, modules: Mapping[str, str]) -> list[str]:
    """Say so where no training step was run. `modules`: torch's, with the kind of each."""
    if pair.train:
        return []
    return [f"no training step was run, as the file has no [train]: {', '.join(_in_training(modules))}"]


def _in_training(modules: Mapping[str, str]) -> Iterator[str]:
    """What only a training has."""
    yield "neither loss nor optimizer"
    for what, count in (
        ("dropout", sum(map(is_random, modules.values()))),
        ("batch norm's statistics", list(modules.values()).count("batch_norm")),
    ):
        if count:
            yield f"nor {what} ({count} module{'' if count == 1 else 's'})"

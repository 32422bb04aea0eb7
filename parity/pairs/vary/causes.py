"""Why a pair diverges on a variation of its inputs: it is compared once more, with those inputs as the ones given."""

from pathlib import Path

import msgspec
import numpy as np

from parity.config.pair import TARGET, Pair
from parity.pairs.file import PairFile
from parity.pairs.vary.variations import Variation
from parity.results import CaseResult

NPZ = "varied.npz"


def pair_on(variation: Variation, file: PairFile, folder: Path) -> PairFile:
    """Return the pair with a variation's inputs, which are written into `folder`, and without training."""
    pair = file.case.model
    assert isinstance(pair, Pair)
    folder.mkdir(parents=True, exist_ok=True)
    path = (folder / NPZ).absolute()
    np.savez(path, **variation.inputs)  # type: ignore[arg-type]  # numpy's stubs take its own option for an array
    inputs = {
        name: msgspec.structs.replace(given, npz=str(path), shape=list(variation.inputs[name].shape))
        for name, given in pair.inputs.items()
        if name != TARGET
    }
    model = msgspec.structs.replace(pair, inputs=inputs, train=None)
    return file._replace(case=msgspec.structs.replace(file.case, model=model, steps=1))


def take_causes(result: CaseResult, again: CaseResult, variation: Variation) -> None:
    """Give the result of a pair that diverges on a variation the place and the causes that the second comparison found.

    Nothing is taken of a comparison that could not be made.
    """
    if again.verdict != "diverged" or not again.first_divergence:
        return
    reason = f"on inputs that nobody gave: {variation.name}: {again.first_divergence.reason}"
    result.reason, result.first_divergence = reason, msgspec.structs.replace(again.first_divergence, reason=reason)
    result.causes, result.suggestions = again.causes, again.suggestions

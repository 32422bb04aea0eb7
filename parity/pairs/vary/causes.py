"""Why a pair diverges on other inputs than the first: it is compared once more, with those inputs as the ones given.

They are a variation of the inputs, or the batch of a later step of training.
"""

from pathlib import Path

import msgspec
import numpy as np

from parity.config.pair import Pair
from parity.data.pairs import PairData
from parity.pairs.file import PairFile
from parity.pairs.vary.variations import Variation, digest
from parity.results import ELSEWHERE, CaseResult

NPZ = "varied.npz"


def later_batch(result: CaseResult, file: PairFile) -> Variation | None:
    """Return the batch of a later step if the loss is the first to differ there; None if that is not so.

    All that was computed before agrees, the weights of that step too. So it may well be the batch that matters, as the
    first one with padding, or with a number beyond a limit.
    """
    first = result.first_divergence
    if result.verdict != "diverged" or not first or first.kind != "loss" or not first.step:
        return None
    data = PairData(file.case, file.search)
    batch = data.step(first.step)
    return None if digest(batch) == digest(data.step(0)) else Variation(f"the batch of step {first.step}", batch)


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
        if name not in pair.loss_inputs
    }
    return file.without_training(inputs=inputs)


def take_causes(result: CaseResult, again: CaseResult, variation: Variation) -> None:
    """Give the result of a pair that diverges on other inputs the place and causes that the comparison on them found.

    Nothing is taken of a comparison that could not be made, or in which both sides agree.
    """
    if again.verdict != "diverged" or not again.first_divergence or not result.first_divergence:
        return
    step = result.first_divergence.step
    where = f"on {variation.name}" if step else f"{ELSEWHERE} {variation.name}"
    reason = f"{where}: {again.first_divergence.reason}"
    first = msgspec.structs.replace(again.first_divergence, step=step, reason=reason)
    result.reason, result.first_divergence = reason, first
    result.causes, result.suggestions = again.causes, again.suggestions

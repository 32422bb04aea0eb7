"""Say what variations of the inputs mean for a pair: its verdict, and why it diverges on other inputs than the first.

For the latter it is compared once more, with those inputs as the ones given. They are a variation of the inputs, or the
batch of a later step of training. A pair that trains is also compared on batches that nobody gave: of another size,
with large values and with ids of 0. What depends on the size of the batch in training alone, or differs only in a
gradient beyond a limit or at a padding id, shows there.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from parity.config.pair import TARGET
from parity.core.arrays import Array, digest
from parity.data.pairs import PairData
from parity.pairs.file import PairFile
from parity.pairs.script_records import UNLIKE
from parity.pairs.vary.variations import CALLED, GIVEN, SECOND_CALL, TRAINING, Variation, is_float, is_padded, padded
from parity.results import ELSEWHERE, CaseResult, Divergence, worst
from parity.results import Variation as VariationResult
from parity.trace.keys import MODEL

NPZ = "varied.npz"
OTHER_BATCHES = "training on other batches, with evaluations between"
OTHER_PADDING = 1  # id of padding in some vocabularies; the first of the last sample
LARGER = 8  # times as large: the last sample, which may get beyond a limit that the others keep
FAR_OFF = 512  # times as large: its target, of which the loss may have a limit
# How the reason begins where a difference shows on the inputs given.
OF_THE_GIVEN = {
    GIVEN: "in inference, on", CALLED: "called without further arguments, as", SECOND_CALL: "at a", TRAINING: "in",
}  # fmt: skip


def conclude(result: CaseResult, unshared: list[VariationResult]) -> VariationResult | None:
    """Make the pair diverged or inconclusive by the first variation that is, or is `unshared`, and return that."""
    judged = [*result.variations, *unshared]
    decisive = next((each for each in judged if each.verdict == "diverged" or each in unshared), None)
    if decisive is None:
        return None
    where = OF_THE_GIVEN.get(decisive.name, ELSEWHERE)
    reason = f"{where} {decisive.name}: {decisive.reason}"
    result.verdict, result.reason = worst([result.verdict, decisive.verdict]), reason
    divergence = Divergence(step=0, kind="activation", name=MODEL, replica=0, bits=None, reason=reason)
    result.first_divergence = replace(decisive.first_divergence or divergence, reason=reason)
    return decisive


def can_be_given(variation: Variation) -> bool:
    """Return whether a variation is one of the inputs, rather than of how the models are called."""
    return variation.name not in (GIVEN, CALLED, SECOND_CALL, TRAINING)


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
    is_first = digest(batch.items()) == digest(data.step(0).items())
    return None if is_first else Variation(f"the batch of step {first.step}", batch)


def pair_on(variation: Variation, file: PairFile, folder: Path) -> PairFile:
    """Return the pair with a variation's inputs, which are written into `folder`, and without training."""
    path = _saved(variation.inputs, folder)
    inputs = {
        name: replace(given, npz=path, shape=list(variation.inputs[name].shape))
        for name, given in file.pair.inputs.items()
        if name not in file.pair.loss_inputs
    }
    return file.without_training(inputs=inputs)


def on_other_batches(file: PairFile, folder: Path) -> PairFile | None:
    """Return the pair with other batches, which are written into `folder`.

    None if it is not trained on inputs of the file's, or accepts differences by their size on those inputs. Of scripts
    it is a batch of their own data that is unlike those of the steps, if they have one.
    """
    pair = file.pair
    if pair.train is None or any(each.has_size for each in pair.expect):
        return None
    if file.has_scripts:
        unlike = (own for each in file.search if (own := Path(each) / UNLIKE).is_file())
        return next((_on(file, {name: [] for name in pair.inputs}, str(own.absolute())) for own in unlike), None)
    data = PairData(file.case, file.search)
    batches = [{name: data.values(name, number) for name in pair.inputs} for number in range(file.case.steps)]
    first = {array.shape[0] for array in batches[0].values() if array.ndim}
    size = first.pop() if len(first) == 1 else None
    arrays: dict[str, Array] = {}
    for number, batch in enumerate(batches):
        for name, given in pair.inputs.items():
            array = batch[name].copy()
            if array.ndim and size is not None:  # a sample less; one more if there are no more than two
                array = np.resize(array, (size - 1 if size > 2 else size + 1, *array.shape[1:]))
            if array.ndim and is_float(given, array) and (name not in pair.loss_inputs or _is_target(name, array)):
                array[-1:] *= LARGER if name not in pair.loss_inputs else FAR_OFF
            elif name not in pair.loss_inputs and array.ndim > 1 and is_padded(given, array):
                array[-1:] = padded(array[-1:])
                array[-1, 0] = min(OTHER_PADDING, array.max())
            arrays[f"{name}@{number}"] = array
    path, last = _saved(arrays, folder), file.case.steps - 1
    return _on(file, {name: list(arrays[f"{name}@{last}"].shape) for name in pair.inputs}, path)


def _is_target(name: str, array: Array) -> bool:
    """Return whether an array is a target of any size, rather than a probability."""
    return name.partition(".")[0] == TARGET and bool((np.abs(array - 0.5) > 0.5).any())


def _on(file: PairFile, shapes: Mapping[str, list[int]], path: str) -> PairFile:
    """Return the pair with inputs of an .npz file, of these shapes."""
    pair = file.pair
    inputs = {name: replace(pair.inputs[name], npz=path, shape=shape, range=None) for name, shape in shapes.items()}
    case = replace(file.case, model=replace(pair, inputs=inputs))
    return file._replace(case=case)


def _saved(arrays: dict[str, Array], folder: Path) -> str:
    """Write arrays into the folder, and return the path of their file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = (folder / NPZ).absolute()
    np.savez(path, **arrays)  # type: ignore[arg-type]  # numpy's stubs take its own option for an array
    return str(path)


def take_causes(result: CaseResult, again: CaseResult, variation: Variation) -> None:
    """Give a result that diverges on other inputs the place and causes that a comparison on them found, if it did."""
    if again.verdict != "diverged" or not again.first_divergence or not result.first_divergence:
        return
    step = result.first_divergence.step
    where = f"on {variation.name}" if step else f"{ELSEWHERE} {variation.name}"
    reason = f"{where}: {again.first_divergence.reason}"
    first = replace(again.first_divergence, step=step, reason=reason)
    result.reason, result.first_divergence = reason, first
    result.causes, result.suggestions = again.causes, again.suggestions

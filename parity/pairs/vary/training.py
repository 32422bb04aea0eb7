"""Make a training of a pair on batches that nobody gave: of another size, with large values and with ids of 0.

The other variations call the models in inference. What depends on the size of the batch in training alone, or differs
only in a gradient beyond a limit or at a padding id, shows here.
"""

from pathlib import Path

import msgspec
import numpy as np

from parity.core.arrays import Array
from parity.data.pairs import PairData
from parity.pairs.file import PairFile
from parity.pairs.vary.outcome import NPZ
from parity.pairs.vary.variations import is_float, is_padded, padded

NAME = "training on other batches, with evaluations between"
OTHER_PADDING = 1  # id of padding in some vocabularies; the first of the last sample
LARGER = 8  # times as large: the last sample, which may get beyond a limit that the others keep


def on_other_batches(file: PairFile, folder: Path) -> PairFile | None:
    """Return the pair with other batches, which are written into `folder`.

    None if it is not trained on inputs of the file's, or accepts differences by their size on those inputs.
    """
    pair = file.pair
    if pair.train is None or file.has_scripts or any(each.has_size for each in pair.expect):
        return None
    data = PairData(file.case, file.search)
    batches = [{name: data.values(name, number) for name in pair.inputs} for number in range(file.case.steps)]
    first = {array.shape[0] for array in batches[0].values() if array.ndim}
    size = first.pop() if len(first) == 1 else None
    inputs, arrays = dict(pair.inputs), dict[str, Array]()
    for number, batch in enumerate(batches):
        for name, given in pair.inputs.items():
            array = _resized(batch[name], size)
            if name not in pair.loss_inputs and array.ndim and is_float(given, array):
                array[-1:] *= LARGER
            elif name not in pair.loss_inputs and array.ndim > 1 and is_padded(given, array):
                array[-1:] = padded(array[-1:])
                array[-1, 0] = min(OTHER_PADDING, array.max())
            arrays[f"{name}@{number}"] = array
            path = str((folder / NPZ).absolute())
            inputs[name] = msgspec.structs.replace(given, npz=path, shape=list(array.shape), range=None)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / NPZ, **arrays)  # type: ignore[arg-type]  # numpy's stubs take its own option for an array
    case = msgspec.structs.replace(file.case, model=msgspec.structs.replace(pair, inputs=inputs))
    return file._replace(case=case)


def _resized(array: Array, size: int | None) -> Array:
    """Return an array of one sample less; of one more if there are no more than two."""
    if not array.ndim or size is None:
        return array.copy()
    return np.resize(array, (size - 1 if size > 2 else size + 1, *array.shape[1:]))

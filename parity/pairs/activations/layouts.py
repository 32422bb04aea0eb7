"""In which order the axes of the models' outputs stand, as the layers that made them say.

A convolution's output is N, C, H, W in torch and, as a rule, N, H, W, C in Keras: then nobody has to say so. The layer
that made an output is looked for on each side by itself, never by comparing the sides, which would excuse a fault.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations, product

import numpy as np

from parity.core.arrays import Array
from parity.trace.survey import Module, Survey

# torch's modules whose tensors are N, C and then all others.
CHANNELS_FIRST = (
    *(f"{kind}{rank}d" for kind in ("conv", "conv_transpose", "max_pool", "average_pool") for rank in (1, 2, 3)),
    *("batch_norm", "group_norm", "instance_norm"),
)
NORMS = ("batch_norm", "group_norm")  # of Keras, which say their axis where others say data_format
FEWEST = 32  # elements by which one tensor is seen to be made of another one
MOST = 1 << 13  # elements that are looked at
NEAREST = 6  # tensors before an output that may have made it
BENDS = 2.0  # times the range of a function that its values go up and down: GELU's bend a little, shuffled ones often


def output_layouts(
    torch: Survey, torch_values: Mapping[str, Array], keras: Survey, keras_values: Mapping[str, Array], keys: list[str]
) -> dict[str, str]:
    """The outputs that are channels-first in torch and channels-last in Keras, with the einops pattern between them."""
    found = {}
    for key in keys:
        shapes = torch_values[key].shape, keras_values[key].shape
        moved = (*shapes[1][:1], *shapes[1][-1:], *shapes[1][1:-1])
        if len(shapes[0]) < 3 or shapes[0] != moved:
            continue
        if _made_by(torch, torch_values, key, "first") and _made_by(keras, keras_values, key, "last"):
            axes = [f"axis{number}" for number in range(len(moved) - 2)]
            found[key] = f"{' '.join(['n', 'c', *axes])} -> {' '.join(['n', *axes, 'c'])}"
    return found


def _made_by(survey: Survey, values: Mapping[str, Array], key: str, channels: str) -> bool:
    """Whether an output is element by element made of a tensor that has its channels there, or of two, added up."""
    output = values[key]
    modules = {module.path: module for module in survey.modules}
    layers = [seen for seen in survey.outputs if seen.module in modules and tuple(seen.shape) == output.shape]
    known = [seen.key for seen in layers if _channels(modules[seen.module], len(seen.shape)) == channels]
    tensors = [_few(values[each]) for each in known[-NEAREST:][::-1]]
    return any(_is_made_of(_few(output), made) for made in _candidates(tensors))


def _candidates(tensors: list[Array]) -> Iterator[Array]:
    """The tensors, and what a residual connection makes of two: a ReLU that is no module may stand between."""
    yield from tensors
    for one, other in combinations(tensors, 2):
        for first, second in product((one, np.maximum(one, 0)), (other, np.maximum(other, 0))):
            yield first + second


def _channels(module: Module, rank: int) -> str:
    """Where a module's tensors have their channels, if it says so: "first", "last" or ""."""
    if "data_format" in module.facts:
        return str(module.facts["data_format"]).removeprefix("channels_")
    if "axis" in module.facts:
        axis = module.facts["axis"]
        return {1: "first", rank - 1: "last", -1: "last"}.get(axis, "") if module.kind in NORMS else ""
    return "first" if module.kind in CHANNELS_FIRST else ""


def _is_made_of(output: Array, tensor: Array) -> bool:
    """Whether one function of single elements makes the output of a tensor: alike elements become alike ones."""
    if len(output) < FEWEST or not (np.isfinite(output).all() and np.isfinite(tensor).all()):
        return False
    values = output[np.argsort(tensor, kind="stable")]
    span = float(np.ptp(values))
    return span > 0 and float(np.abs(np.diff(values)).sum()) <= BENDS * span


def _few(array: Array) -> Array:
    """Some of the elements, the same of arrays of one shape."""
    return np.asarray(array, np.float64).reshape(-1)[:: array.size // MOST + 1]

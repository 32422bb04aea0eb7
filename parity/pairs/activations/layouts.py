"""Find the order of axes of tensors, and of the models' inputs and outputs, as far as their layers tell.

The output of a convolution is N, C, H, W in torch and usually N, H, W, C in Keras; then the user does not have to say
so. The layer that made an output is looked for on each side separately, never by comparing the sides, since that
would excuse a fault. An input that both sides get in the same axes, although their first layers take other ones, is
noticed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, permutations, product
from typing import Literal

import numpy as np

from parity.config.pair import Pair
from parity.core.arrays import Array
from parity.pairs.activations.modules import Surveyed
from parity.pairs.activations.values import Order
from parity.pairs.weights.patterns import Shape
from parity.runtime.survey import Module, Survey
from parity.trace.keys import MODEL
from parity.trace.summary import Summary

Channels = Literal["first", "last", "features", ""]
# torch's modules whose tensors have the axes N, C and then all others: those that name their dimensions, and norms.
DIMENSIONS = re.compile(r"([123])d$")
CHANNELS_FIRST = ("batch_norm", "group_norm", "instance_norm")
FEATURES_LAST = ("linear", "layer_norm", "rms_norm", "embedding")  # on both sides, behind any other axes
NORMS = ("batch_norm", "group_norm")  # Keras's layers that state an axis, where others state data_format
FEWEST = 32  # with fewer elements nothing shows whether one tensor is a function of another
MOST = 1 << 13  # at most so many elements are looked at
NEAREST = 6  # how many tensors before an output may have made it
# The total variation of a function of single elements, in multiples of its range: a monotonic one has 1, GELU a little
# more, and values in another order many times as much.
BENDS = 2.0
SPACE = ("w", "h w", "d h w")
KINDS = ("conv", "max_pool", "average_pool", "depthwise", "separable")  # how kinds begin that have a channels' axis


def output_layouts(torch: Surveyed, keras: Surveyed, keys: list[str], given: Sequence[Order] = ()) -> dict[str, str]:
    """Return the outputs that are channels-first in torch and channels-last in Keras, with their einops patterns.

    So are those of which no layer tells it, but whose shapes only fit in one order of axes that an input is `given` in.
    """
    layouts = {}
    for key in keys:
        shapes = torch.values[key].shape, keras.values[key].shape
        likely = [order for order in given if len(order) == len(shapes[1])] if shapes[0] != shapes[1] else []
        fitting = {order for order in likely if tuple(shapes[1][axis] for axis in order) == shapes[0]}
        if len(fitting) == 1:
            layouts[key] = pattern(fitting.pop())
            continue
        channels_last = (*shapes[1][:1], *shapes[1][-1:], *shapes[1][1:-1])
        if len(shapes[0]) < 3 or shapes[0] != channels_last:
            continue
        if _made_by(torch, key, "first") and _made_by(keras, key, "last"):
            axes = [f"axis{number}" for number in range(len(channels_last) - 2)]
            layouts[key] = f"{' '.join(['n', 'c', *axes])} -> {' '.join(['n', *axes, 'c'])}"
    return layouts


def squeezed(torch: Mapping[str, Array], keras: Mapping[str, Array]) -> dict[str, str]:
    """Return the outputs of models that one side squeezes, with einops patterns from PyTorch's axes to Keras's.

    In a script the loss, which is compared, says what such an axis of size 1 is for.
    """
    patterns = {}
    for key in (key for key in torch if key in keras and key.startswith(MODEL)):
        shapes = torch[key].shape, keras[key].shape
        sizes = [[size for size in shape if size > 1] for shape in shapes]
        if shapes[0] != shapes[1] and sizes[0] == sizes[1]:
            names = [iter(f"a{axis}" for axis in range(len(sizes[0]))) for _ in shapes]
            sides = (
                " ".join(next(each) if size > 1 else "1" for size in shape)
                for shape, each in zip(shapes, names, strict=True)
            )
            patterns[key] = " -> ".join(sides)
    return patterns


def _made_by(side: Surveyed, key: str, at: Channels) -> bool:
    """Return whether an output is an elementwise function of a tensor, or of the sum of two, with its channels `at`.

    Where none has its shape, as if it was resized, the last one tells.
    """
    survey, values = side
    output, rank = values[key], values[key].ndim
    modules = {module.path: module for module in survey.modules}
    layers = [seen for seen in survey.outputs if seen.module in modules and len(seen.shape) == rank]
    placed = [seen for seen in layers if channels(survey.side, modules[seen.module], rank) == at]
    keys = [seen.key for seen in placed if tuple(seen.shape) == output.shape]
    axis = 1 if at == "first" else -1
    if placed and not keys and placed[-1].shape[axis] == output.shape[axis]:
        return True
    whole = [key_of_tensor for key_of_tensor in keys if not isinstance(values[key_of_tensor], Summary)]
    tensors = [_few(values[key_of_tensor]) for key_of_tensor in whole[-NEAREST:][::-1]]
    # A residual connection may make the sum of two, or of their ReLUs.
    pairs = (((left, np.maximum(left, 0)), (right, np.maximum(right, 0))) for left, right in combinations(tensors, 2))
    sums = (first + second for pair in pairs for first, second in product(*pair))
    return any(_is_made_of(_few(output), tensor) for tensor in chain(tensors, sums))


def channels(side: str, module: Module | None, rank: int) -> Channels:
    """Return where a module's tensors of so many axes have their channels; "" if unknown.

    They are "first" or "last" behind the batch, or "features" on the last axis, where nothing is known of the others.
    """
    if module is None:
        return ""
    if module.kind in FEATURES_LAST and module.facts.get("axis", -1) in (-1, rank - 1, [-1], [rank - 1]):
        return "features"
    if side == "torch":
        dimensions = DIMENSIONS.search(module.kind.lower())
        is_batch = dimensions is not None and rank == int(dimensions[1]) + 2
        return "first" if is_batch or module.kind in CHANNELS_FIRST else ""
    if "data_format" in module.facts:
        return "first" if module.facts["data_format"] == "channels_first" else "last"
    if module.kind in NORMS and "axis" in module.facts:
        named: dict[int, Channels] = {rank - 1: "last", -1: "last", 1: "first"}
        return named.get(module.facts["axis"], "")
    return ""


def order_by_channels(torch: Channels, keras: Channels, shapes: tuple[Shape, Shape]) -> Order | None:
    """Return the order in which Keras's axes are torch's, if both layers tell where their channels are.

    Where both tell no more than that the last axis holds features, it is known if only one order leaves it there.
    """
    rank = len(shapes[1])
    if len(shapes[0]) != rank or rank < 2:
        return None
    if (torch, keras) == ("features", "features"):
        within = [(*order, rank - 1) for order in permutations(range(rank - 1))]
        fitting = [order for order in within if tuple(shapes[1][axis] for axis in order) == shapes[0]]
        return fitting[0] if len(fitting) == 1 else None
    return {
        ("first", "last"): (0, rank - 1, *range(1, rank - 1)),
        ("last", "first"): (0, *range(2, rank), 1),
        ("first", "first"): tuple(range(rank)),
        ("last", "last"): tuple(range(rank)),
    }.get((torch, keras))


def pattern(order: Sequence[int]) -> str:
    """Return the einops pattern from torch's axes to Keras's, of which `order` tells where torch's are."""
    axes = [f"axis{number}" for number in range(len(order))]
    return f"{' '.join(axes)} -> {' '.join(axes[order.index(axis)] for axis in range(len(order)))}"


def given_orders(pair: Pair) -> list[Order]:
    """Return the orders in which Keras's axes are torch's for those inputs whose layout the pair's file gives."""
    orders = []
    for spec in pair.inputs.values():
        canonical, _, own = (side.split() for side in spec.keras_layout.partition("->"))
        if canonical and sorted(own) == sorted(canonical):
            orders.append(tuple(own.index(axis) for axis in canonical))
    return orders


def _is_made_of(output: Array, tensor: Array) -> bool:
    """Return whether an output is a smooth function of a tensor: sorted by its elements, it hardly goes up and down."""
    if len(output) < FEWEST or not (np.isfinite(output).all() and np.isfinite(tensor).all()):
        return False
    values = output[np.argsort(tensor, kind="stable")]
    span = float(np.ptp(values))
    return span > 0 and float(np.abs(np.diff(values)).sum()) <= BENDS * span


def _few(array: Array) -> Array:
    """Return some of the elements, the same ones for arrays of one shape."""
    return np.asarray(array, np.float64).reshape(-1)[:: array.size // MOST + 1]


def unlike_axes(pair: Pair, torch: Survey, keras: Survey | None = None) -> Iterator[str]:
    """Yield a sentence on each input without keras_layout that torch's layers take with channels first, Keras's last.

    Without Keras's survey, as when its model could not be called, its layers are taken to be as Keras has them.
    """
    for name, given in pair.inputs.items():
        shape, rank = tuple(given.shape), len(given.shape)
        if name in pair.loss_inputs or given.keras_layout or not 3 <= rank <= 5:
            continue
        first, last = _taking(torch, shape), _taking(keras, shape) if keras else "its layers"
        if first and last:
            space = SPACE[rank - 3]
            yield (
                f"[inputs.{name}] has no keras_layout, so that both models get it as {list(shape)}: torch's {first} "
                f"takes channels first, Keras's {last} last; perhaps the file should say "
                f'keras_layout = "n c {space} -> n {space} c"'
            )


def _taking(survey: Survey, shape: tuple[int, ...]) -> str:
    """Return the first layer with channels that takes a tensor of this shape, in Keras with channels last; or ""."""
    by_path = {module.path: module for module in survey.modules}
    for path, arguments in survey.arguments.items():
        module = by_path.get(path)
        takes_it = module is not None and module.kind.startswith(KINDS) and arguments[:1] == [shape]
        if module and takes_it and module.facts.get("data_format", "channels_last") == "channels_last":
            return path or "model"
    return ""

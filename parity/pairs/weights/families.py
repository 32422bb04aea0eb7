"""Give the einops patterns that turn torch's weights of one family of modules into Keras's."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

from parity.pairs.patterns import Shape, tidy
from parity.pairs.weights.units import Unit
from parity.trace.survey import Survey

# torch's axes of a matrix or convolution: outputs (o), inputs of a group (i), and the spatial axes of the kernel.
SPACE = ("", "x", "y x", "z y x")
MOST = 6  # patterns that are tried for one weight
LARGEST = 5  # axes of a weight whose permutations are still tried


def layouts(torch: Unit, keras: Unit, image: Shape = ()) -> list[str]:
    """Return patterns for the main weight, the most plausible first; none unless both families are known.

    `image` is the shape, channels first, that was flattened before a matrix.
    """
    torch_shape, keras_shape = torch.weights["weight"].shape, keras.weights["weight"].shape
    families = torch.family, keras.family
    if families[0] in ("linear", "linear_io", "attention") and families[1] in ("linear", "einsum"):
        return _matrix(families[0], keras, torch_shape, keras_shape, image)
    if families == ("conv", "linear") and math.prod(torch_shape[2:]) == 1:
        return [f"o i {' '.join('1' for _ in torch_shape[2:])} -> i o"]
    if families == ("conv", "linear") and len(keras_shape) == 2:
        space = SPACE[len(torch_shape) - 2]
        return [f"o i {space} -> ({space} i) o", f"o i {space} -> (i {space}) o"]
    if families[0] == "linear" and families[1] == "conv" and math.prod(keras_shape[:-2]) == 1:
        return [f"o i -> {' '.join('1' for _ in keras_shape[2:])} i o"]
    return _convolution(families, len(torch_shape) - 2)


def flattened(text: str, image: Shape) -> dict[str, int]:
    """Return the sizes of an image's axes, if the pattern of a matrix splits its inputs into them."""
    if "(i " not in text or len(image) < 2:
        return {}
    return dict(zip(SPACE[len(image) - 1].split(), image[1:], strict=True))


def reshapes(torch: Shape, keras: Shape) -> list[str]:
    """Return at most MOST patterns that make one shape of the other by moving, merging or splitting axes."""
    long_axes = [number for number, size in enumerate(torch) if size != 1]
    if torch == keras and len(long_axes) < 2:
        return [""]
    if math.prod(torch) != math.prod(keras) or len(long_axes) > LARGEST:
        return []
    orders = sorted(
        itertools.permutations(long_axes), key=lambda order: (list(order) != long_axes, list(order) != long_axes[::-1])
    )
    candidates = (_regrouped(torch, keras, order) for order in orders)
    patterns = dict.fromkeys(pattern for pattern in candidates if pattern is not None)
    return list(itertools.islice(patterns, MOST))


def equation(keras: Unit) -> tuple[str, str, str] | None:
    """Return the axes of an EinsumDense's kernel: all, those that are summed over, and those that go out.

    Return None if the equation is not known, or not that of a matrix.
    """
    text = keras.facts.get("equation")
    if not isinstance(text, str) or "->" not in text:
        return None
    operands, _, result = text.replace(" ", "").partition("->")
    inputs, _, kernel = operands.partition(",")
    inner = "".join(axis for axis in kernel if axis not in result)
    outer = "".join(axis for axis in result if axis in kernel)
    if set(outer) & set(inputs) or len(inner + outer) != len(kernel):
        return None
    return kernel, "".join(axis for axis in inputs if axis in inner), outer


def axes(keras: Unit) -> tuple[str, str, str] | None:
    """Return all axes of a Keras matrix, those that come in and those that go out, as names in an einops pattern.

    Return None if they are not known.
    """
    if keras.family == "linear":
        return "i o", "i", "o"
    einsum = equation(keras)
    return (" ".join(einsum[0]), " ".join(einsum[1]), " ".join(einsum[2])) if einsum else None


def heads(torch: Unit, keras: Unit) -> int:
    """Return the number of an attention's heads, if either side tells it, else 0."""
    return next((unit.facts["heads"] for unit in (torch, keras) if isinstance(unit.facts.get("heads"), int)), 0)


def _matrix(family: str, keras: Unit, torch_shape: Shape, keras_shape: Shape, image: Shape) -> list[str]:
    """Return the patterns for a matrix; if an image is flattened before it, also the one for channels-last inputs."""
    kernel_axes = axes(keras)
    if not kernel_axes:
        return _split_matrix(family, torch_shape, keras_shape)
    order, inner, outer = kernel_axes
    left = f"({inner}) ({outer})" if family == "linear_io" else f"({outer}) ({inner})"
    pattern = tidy(f"{left} -> {order}")
    if keras.family == "einsum" or len(image) < 2 or math.prod(image[1:]) == 1 or image[0] == 1:
        return [pattern]
    space = SPACE[len(image) - 1]
    return [pattern, f"o (i {space}) -> ({space} i) o"]


def _split_matrix(family: str, torch_shape: Shape, keras_shape: Shape) -> list[str]:
    """Return patterns for an EinsumDense of unknown equation: its first axes come in, and the others go out."""
    outer, inner = reversed(torch_shape) if family == "linear_io" else torch_shape
    names = "abcdef"[: len(keras_shape)]
    cuts = (
        cut
        for cut in range(1, len(keras_shape))
        if (math.prod(keras_shape[:cut]), math.prod(keras_shape[cut:])) == (inner, outer)
    )
    sides = ((" ".join(names[:cut]), " ".join(names[cut:])) for cut in cuts)
    order = " ".join(names)
    return [
        f"({inside}) ({outside}) -> {order}" if family == "linear_io" else f"({outside}) ({inside}) -> {order}"
        for inside, outside in sides
    ]


def _convolution(families: tuple[str, str], space: int) -> list[str]:
    """Return the pattern for a convolution with so many spatial axes."""
    if not 1 <= space <= 3:
        return []
    spatial = SPACE[space]
    patterns = {
        ("conv", "conv"): f"o i {spatial} -> {spatial} i o",
        ("conv_transpose", "conv_transpose"): f"i o {spatial} -> {spatial} o i",
        ("conv", "depthwise"): f"(c m) 1 {spatial} -> {spatial} c m",
    }
    return [patterns[families]] if families in patterns else []


def _regrouped(torch: Shape, keras: Shape, order: tuple[int, ...]) -> str | None:
    """Return the pattern that puts torch's axes in `order` and then only merges or splits neighbours, or None."""
    torch_axes = [(torch[number], f"a{number}") for number in order]
    keras_axes = [(size, f"b{number}") for number, size in enumerate(keras) if size != 1]
    left, right = {}, {}
    for torch_run, keras_run in _portions(torch_axes, keras_axes):
        if len(torch_run) > 1 and len(keras_run) > 1:
            return None
        names = [name for _, name in (torch_run if len(keras_run) == 1 else keras_run)]
        left.update({name: names if len(torch_run) == 1 else [name] for _, name in torch_run})
        right.update({name: names if len(keras_run) == 1 else [name] for _, name in keras_run})
    if len(left) != len(torch_axes) or len(right) != len(keras_axes):
        return None
    pattern = f"{_text('a', torch, left)} -> {_text('b', keras, right)}"
    return "" if torch == keras and list(order) == sorted(order) else pattern


Sized = list[tuple[int, str]]


def _portions(given: Sized, wanted: Sized) -> Iterator[tuple[Sized, Sized]]:
    """Yield the shortest runs of axes on both sides that have the same number of elements."""
    first = second = 0
    while first < len(given) and second < len(wanted):
        ends = [first + 1, second + 1]
        sizes = [given[first][0], wanted[second][0]]
        while sizes[0] != sizes[1]:
            side = 0 if sizes[0] < sizes[1] else 1
            rest = (given, wanted)[side]
            if ends[side] >= len(rest):
                return
            sizes[side] *= rest[ends[side]][0]
            ends[side] += 1
        yield given[first : ends[0]], wanted[second : ends[1]]
        first, second = ends


def _text(letter: str, shape: Shape, names: dict[str, list[str]]) -> str:
    groups = [names.get(f"{letter}{number}", ["1"]) for number in range(len(shape))]
    return " ".join(group[0] if len(group) == 1 else f"({' '.join(group)})" for group in groups)


def recurrent(torch: Unit, keras: Unit) -> dict[str, dict[str, Any]]:
    """Return how Keras's weights of a recurrent layer are made of torch's, by role, as fields of entries.

    Keras's bias is the sum of torch's two.
    """
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[torch.family]
    if torch.family != "gru":
        matrix: dict[str, Any] = {"rearrange": "o i -> i o"}
        return {"weight": matrix, "recurrent": matrix, "bias": {"combine": "sum"}}
    # torch's gates are reset, update, new; Keras's update, reset, new.
    cut: dict[str, Any] = {"sizes": {"g": gates}, "order": [1, 0, 2]}
    matrix = {"rearrange": "(g h) i -> g h i", "each": "g h i -> i (g h)", **cut}
    bias = {"rearrange": "(two g h) -> g two h", "each": "g two h -> two (g h)", **cut}
    bias["sizes"] = {"g": gates, "two": 2}
    return {"weight": matrix, "recurrent": matrix} | ({"bias": bias} if len(_bias(keras)) == 2 else {})


def _bias(keras: Unit) -> Shape:
    return keras.weights["bias"].shape if "bias" in keras.weights else ()


class Images:
    """The shape, channels first, that torch flattens before a matrix in a convolutional network.

    An instance is called with a unit; it returns () if nothing is flattened there.
    """

    def __init__(self, survey: Survey) -> None:
        convolutional = any("conv" in module.kind.lower() for module in survey.modules)
        self.outputs = survey.outputs if convolutional else []
        self.first = {seen.module: number for number, seen in reversed(list(enumerate(self.outputs)))}

    def __call__(self, unit: Unit) -> Shape:
        weight = unit.weights.get("weight")
        if unit.family != "linear" or weight is None or len(weight.shape) != 2 or unit.module not in self.first:
            return ()
        for seen in reversed(self.outputs[: self.first[unit.module]]):
            if math.prod(seen.shape[1:]) != weight.shape[1]:
                return ()
            if len(seen.shape) > 2:
                return seen.shape[1:]
        return ()

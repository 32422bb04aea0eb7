"""How the weights of one kind of module are laid out on each side: the patterns that lead from torch's to Keras's."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

from parity.pairs.patterns import Shape, tidy
from parity.pairs.weights.units import Unit
from parity.trace.survey import Survey

# Axes of a matrix or convolution as torch has them: outputs, inputs (of a group), and places in the kernel.
SPACE = ("", "x", "y x", "z y x")
MOST = 6  # ways for a weight that are tried
LARGEST = 5  # axes of a weight whose permutations are looked at


def layouts(torch: Unit, keras: Unit, image: Shape = ()) -> list[str]:
    """Patterns for the main weight, the most plausible first; none if nothing is known of both.

    `image`: the shape that was flattened before a matrix, channels first.
    """
    here, there = torch.weights["weight"].shape, keras.weights["weight"].shape
    families = torch.family, keras.family
    if families[0] in ("linear", "linear_io", "attention") and families[1] in ("linear", "einsum"):
        return _matrix(families[0], keras, here, there, image)
    if families == ("conv", "linear") and math.prod(here[2:]) == 1:
        return [f"o i {' '.join('1' for _ in here[2:])} -> i o"]
    if families == ("conv", "linear") and len(there) == 2:
        space = SPACE[len(here) - 2]
        return [f"o i {space} -> ({space} i) o", f"o i {space} -> (i {space}) o"]
    if families[0] == "linear" and families[1] == "conv" and math.prod(there[:-2]) == 1:
        return [f"o i -> {' '.join('1' for _ in there[2:])} i o"]
    return _convolution(families, len(here) - 2)


def flattened(text: str, image: Shape) -> dict[str, int]:
    """The sizes of an image's axes, where the pattern of a matrix splits its inputs into them."""
    if "(i " not in text or len(image) < 2:
        return {}
    return dict(zip(SPACE[len(image) - 1].split(), image[1:], strict=True))


def reshapes(torch: Shape, keras: Shape) -> list[str]:
    """All ways in which axes can be moved, merged or split to make one shape of the other: at most MOST."""
    own = [number for number, size in enumerate(torch) if size != 1]
    if torch == keras and len(own) < 2:
        return [""]
    if math.prod(torch) != math.prod(keras) or len(own) > LARGEST:
        return []
    orders = sorted(itertools.permutations(own), key=lambda order: (list(order) != own, list(order) != own[::-1]))
    found = (_regrouped(torch, keras, order) for order in orders)
    patterns = dict.fromkeys(pattern for pattern in found if pattern is not None)
    return list(itertools.islice(patterns, MOST))


def equation(keras: Unit) -> tuple[str, str, str] | None:
    """Of an EinsumDense: the kernel's axes, those of them that are summed over, those that go out."""
    text = keras.facts.get("equation")
    if not isinstance(text, str) or "->" not in text:
        return None
    operands, _, result = text.replace(" ", "").partition("->")
    given, _, kernel = operands.partition(",")
    inner = "".join(axis for axis in kernel if axis not in result)
    outer = "".join(axis for axis in result if axis in kernel)
    if set(outer) & set(given) or len(inner + outer) != len(kernel):
        return None
    return kernel, "".join(axis for axis in given if axis in inner), outer


def axes(keras: Unit) -> tuple[str, str, str] | None:
    """Of a matrix in Keras: its axes, what of them comes in and what goes out, as an einops pattern names them."""
    if keras.family == "linear":
        return "i o", "i", "o"
    known = equation(keras)
    return (" ".join(known[0]), " ".join(known[1]), " ".join(known[2])) if known else None


def heads(torch: Unit, keras: Unit) -> int:
    """Of an attention, as far as either side tells."""
    return next((unit.facts["heads"] for unit in (torch, keras) if isinstance(unit.facts.get("heads"), int)), 0)


def _matrix(family: str, keras: Unit, here: Shape, there: Shape, image: Shape) -> list[str]:
    known = axes(keras)
    if not known:
        return _split_matrix(family, here, there)
    order, inner, outer = known
    left = f"({inner}) ({outer})" if family == "linear_io" else f"({outer}) ({inner})"
    plain = tidy(f"{left} -> {order}")
    if keras.family == "einsum" or len(image) < 2 or math.prod(image[1:]) == 1 or image[0] == 1:
        return [plain]
    space = SPACE[len(image) - 1]
    return [plain, f"o (i {space}) -> ({space} i) o"]


def _split_matrix(family: str, here: Shape, there: Shape) -> list[str]:
    """Of an EinsumDense of which no equation is known: the kernel's first axes come in, and the others go out."""
    outer, inner = reversed(here) if family == "linear_io" else here
    names = "abcdef"[: len(there)]
    cuts = (cut for cut in range(1, len(there)) if (math.prod(there[:cut]), math.prod(there[cut:])) == (inner, outer))
    sides = ((" ".join(names[:cut]), " ".join(names[cut:])) for cut in cuts)
    order = " ".join(names)
    return [f"({a}) ({b}) -> {order}" if family == "linear_io" else f"({b}) ({a}) -> {order}" for a, b in sides]


def _convolution(families: tuple[str, str], space: int) -> list[str]:
    if not 1 <= space <= 3:
        return []
    places = SPACE[space]
    known = {
        ("conv", "conv"): f"o i {places} -> {places} i o",
        ("conv_transpose", "conv_transpose"): f"i o {places} -> {places} o i",
        ("conv", "depthwise"): f"(c m) 1 {places} -> {places} c m",
    }
    return [known[families]] if families in known else []


def _regrouped(torch: Shape, keras: Shape, order: tuple[int, ...]) -> str | None:
    """The pattern that puts torch's axes in this order and then only merges or splits neighbours; None if none does."""
    given = [(torch[number], f"a{number}") for number in order]
    wanted = [(size, f"b{number}") for number, size in enumerate(keras) if size != 1]
    left, right = {}, {}
    for ours, theirs in _portions(given, wanted):
        if len(ours) > 1 and len(theirs) > 1:
            return None
        names = [name for _, name in (ours if len(theirs) == 1 else theirs)]
        left.update({name: names if len(ours) == 1 else [name] for _, name in ours})
        right.update({name: names if len(theirs) == 1 else [name] for _, name in theirs})
    if len(left) != len(given) or len(right) != len(wanted):
        return None
    pattern = f"{_text('a', torch, left)} -> {_text('b', keras, right)}"
    return "" if torch == keras and list(order) == sorted(order) else pattern


Sized = list[tuple[int, str]]


def _portions(given: Sized, wanted: Sized) -> Iterator[tuple[Sized, Sized]]:
    """The shortest runs of axes on both sides that have as many elements."""
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
    found = [names.get(f"{letter}{number}", ["1"]) for number in range(len(shape))]
    return " ".join(group[0] if len(group) == 1 else f"({' '.join(group)})" for group in found)


def recurrent(torch: Unit, keras: Unit) -> dict[str, dict[str, Any]]:
    """What leads to Keras's weights of a recurrent layer, by role; torch's two biases make one."""
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
    """The shape, channels first, that torch flattens before a matrix, where it is a convolutional network."""

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

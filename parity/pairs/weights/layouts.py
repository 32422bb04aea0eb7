"""Give the einops patterns that turn torch's weights of a kind of layer into Keras's, alone or packed with others."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from parity.pairs.weights.patterns import MOST, Shape, reshapes, tidy
from parity.pairs.weights.units import Unit
from parity.trace.mapping import Entry

# torch's axes of a matrix or convolution: outputs (o), inputs of a group (i), and the spatial axes of the kernel.
SPACE = ("", "x", "y x", "z y x")
FLATTENED = re.compile(r"o \((?P<torch>i [x-z ]+)\) -> \((?P<keras>[x-z ]+ i)\) o")  # of a matrix that takes an image
MADE = "(o "  # how the pattern of a matrix begins whose outputs are made an image of
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
MOST_ORDERS = 24  # of the gates of a recurrent layer that somebody has written: as many as an LSTM has
HEAD_SIZES = (64, 128, 32, 16, 80, 96, 8, 4, 2)  # usual sizes of an attention head, tried in this order
Move = dict[str, Any]  # how a weight moves: fields of an entry of the mapping


class Unfolded(NamedTuple):
    """What features are flattened from: the sizes of the axes in Keras's order, and that which torch has them in."""

    sizes: tuple[int, ...]
    order: tuple[int, ...]


def unfolded(entries: Sequence[Entry], shapes: Mapping[str, Shape]) -> dict[int, Unfolded]:
    """Return, by the number of features, what Keras flattens to those that a matrix takes, in another order than torch.

    `shapes`: those of torch's weights.
    """
    by_features = {}
    for entry in entries:
        if len(entry.torch) == 1 and (flat := FLATTENED.fullmatch(entry.rearrange)):
            ours, theirs = (flat[name].split() for name in ("torch", "keras"))
            features, known = shapes[entry.torch[0]][-1], math.prod(entry.sizes.values())
            sizes = tuple(entry.sizes.get(axis, features // known) for axis in theirs)
            by_features[features] = Unfolded(sizes, tuple(theirs.index(axis) for axis in ours))
    return by_features


def known_patterns(torch: Unit, keras: Unit) -> list[str]:
    """Return patterns for the main weight, the most plausible first; none unless both families are known."""
    torch_shape, keras_shape = torch.weights["weight"].shape, keras.weights["weight"].shape
    families = torch.family, keras.family
    if families[0] in ("linear", "linear_io", "attention") and families[1] in ("linear", "einsum"):
        return _matrix(torch, keras)
    if families == ("conv", "linear") and math.prod(torch_shape[2:]) == 1:
        return [f"o i {' '.join('1' for _ in torch_shape[2:])} -> i o"]
    if families == ("conv", "linear") and len(keras_shape) == 2:
        space = SPACE[len(torch_shape) - 2]
        return [f"o i {space} -> ({space} i) o", f"o i {space} -> (i {space}) o"]
    if families == ("linear", "conv") and math.prod(keras_shape[:-2]) == 1:
        return [f"o i -> {' '.join('1' for _ in keras_shape[2:])} i o"]
    if families == ("linear", "conv") and 3 <= len(keras_shape) <= 5:  # the product of a matrix with unfolded patches
        space = SPACE[len(keras_shape) - 2]
        return [f"o (i {space}) -> {space} i o", f"o ({space} i) -> {space} i o"]
    return _convolution(families, len(torch_shape) - 2)


def turned(torch: Unit, keras: Unit) -> list[Move]:
    """Return how a kernel is turned around: a transposed convolution is a convolution with such a kernel."""
    shape = keras.weights["weight"].shape
    if {torch.family, keras.family} != {"conv", "conv_transpose"} or not 3 <= len(shape) <= 5:
        return []
    (plain,) = _convolution((torch.family, keras.family), len(shape) - 2)
    left, _, right = plain.partition(" -> ")
    *space, first, second = right.split()
    places = f"({' '.join(space)}) {first} {second}"
    order = list(range(math.prod(shape[:-2])))[::-1]
    sizes = dict(zip(space, shape, strict=False))
    return [{"rearrange": f"{left} -> {places}", "order": order, "each": f"{places} -> {right}", "sizes": sizes}]


def flattened(text: str, torch: Unit, keras: Unit) -> dict[str, int]:
    """Return the sizes of an image's axes, if the pattern of a matrix splits its inputs, or outputs, into them."""
    image = torch.image or keras.image if "(i " in text else torch.made if text.startswith(MADE) else ()
    return dict(zip(SPACE[len(image) - 1].split(), image[1:], strict=True)) if len(image) > 1 else {}


def beside_image(torch: Unit, keras: Unit) -> list[Move]:
    """Return how a matrix moves whose inputs are a flattened image, channels last in Keras, and something else."""
    if not torch.part or (torch.family, keras.family) != ("linear", "linear"):
        return []
    size, inputs = math.prod(torch.part), torch.weights["weight"].shape[1]
    image = np.moveaxis(np.arange(size).reshape(torch.part), 0, -1).ravel()
    rest = inputs - size
    orders = [*image, *range(size, inputs)], [*range(rest), *(image + rest)]
    return [{"rearrange": "o i -> i o", "order": [int(number) for number in order]} for order in orders]


def made_vector(main: Entry) -> Move | None:
    """Return how a vector moves beside a matrix whose outputs are made an image of; None for any other matrix."""
    if not main.rearrange.startswith(MADE):
        return None
    space = main.rearrange.removeprefix(MADE).partition(")")[0]
    return {"rearrange": f"(o {space}) -> ({space} o)", "sizes": main.sizes}


def axes(keras: Unit) -> tuple[str, str, str] | None:
    """Return all axes of a Keras matrix, those coming in and going out, as einops names; None if unknown."""
    if keras.family == "linear":
        return "i o", "i", "o"
    equation = keras.facts.get("equation")
    if not isinstance(equation, str) or "->" not in equation:
        return None
    operands, _, result = equation.replace(" ", "").partition("->")
    inputs, _, kernel = operands.partition(",")
    inner = [axis for axis in inputs if axis in kernel and axis not in result]
    outer = [axis for axis in result if axis in kernel]
    if set(outer) & set(inputs) or len(inner + outer) != len(kernel):
        return None
    return " ".join(kernel), " ".join(inner), " ".join(outer)


def separable(torch: Unit) -> tuple[str, str]:
    """Return the patterns of the depthwise and the pointwise kernel; `torch` is the depthwise convolution."""
    space = SPACE[max(len(torch.weights["weight"].shape) - 2, 0)]
    return f"(c m) 1 {space} -> {space} c m", f"o i {space} -> {space} i o"


def recurrent(torch: Unit, keras: Unit) -> dict[str, Move]:
    """Return how Keras's recurrent weights are made of torch's, by role; its bias is the sum of torch's two."""
    gates = GATES[torch.family]
    if torch.family != "gru":
        matrix: Move = {"rearrange": "o i -> i o"}
        return {"weight": matrix, "recurrent": matrix, "bias": {"combine": "sum"}}
    # torch's gates are reset, update, new; Keras's update, reset, new.
    cut: Move = {"sizes": {"g": gates}, "order": [1, 0, 2]}
    matrix = {"rearrange": "(g h) i -> g h i", "each": "g h i -> i (g h)", **cut}
    bias = {"rearrange": "(two g h) -> g two h", "each": "g two h -> two (g h)", **cut}
    bias["sizes"] = {"g": gates, "two": 2}
    has_two_biases = "bias" in keras.weights and len(keras.weights["bias"].shape) == 2
    return {"weight": matrix, "recurrent": matrix} | ({"bias": bias} if has_two_biases else {})


def gated(torch: Unit, keras: Unit) -> Iterator[dict[str, list[Move]]]:
    """Yield how the weights of two recurrent layers may correspond, by role, if one is somebody's own: in any order.

    First come the orders of the frameworks' own layers. A matrix may be transposed or not.
    """
    count = GATES[torch.family]
    known = [(1, 0, 2)] if torch.family == "gru" else []
    orders = dict.fromkeys([*known, *itertools.permutations(range(count))])
    for order in itertools.islice(orders, MOST_ORDERS):
        cut: Move = {"sizes": {"g": count}, "order": list(order)}
        matrix = [{"rearrange": "(g h) i -> g h i", "each": f"g h i -> {to}", **cut} for to in ("i (g h)", "(g h) i")]
        vector = {"rearrange": "(g h) -> g h", "each": "g h -> (g h)", **cut}
        is_one = "bias" in keras.weights and "recurrent_bias" not in keras.weights
        bias = vector | ({"combine": "sum"} if is_one and "recurrent_bias" in torch.weights else {})
        yield {"weight": matrix, "recurrent": matrix, "bias": [bias], "recurrent_bias": [vector]}


class Packed(NamedTuple):
    """Patterns of a packed matrix and bias, and sizes of axes; `each_...`: for parts of several sizes."""

    weight: str
    bias: str
    sizes: dict[str, int]
    each_weight: str = ""
    each_bias: str = ""


def cut(torch: Unit, keras: Unit) -> Iterator[Packed]:
    """Yield how torch's output axis may hold the matrices of n Keras layers, `keras` being the first of them.

    They stand one after the other, or are interleaved head by head. Nothing is known without the axes of Keras's.
    """
    if not (keras_axes := axes(keras)):
        return
    order, inner, outer = keras_axes
    n = "part" if "n" in order.split() else "n"  # an equation may use any letter
    yield _cut(torch, n, inner, f"{n} {outer}", order, outer, {})
    if torch.family == "attention":
        return
    if len(outer.split()) == 2:
        first, second = outer.split()
        yield _cut(torch, n, inner, f"{first} {n} {second}", order, outer, {})
    elif keras.family == "linear":
        for number in _heads(torch, keras, keras.weights["weight"].shape[-1]):
            halves = order.replace("o", "(heads k)"), "(heads k)"
            yield _cut(torch, n, inner, "heads n k", *halves, {"heads": number})


def _cut(torch: Unit, n: str, inner: str, packed: str, kernel: str, bias: str, sizes: dict[str, int]) -> Packed:
    """Return the patterns where torch's outputs are `packed` along axis `n`, and each part has these axes."""
    left = f"({inner}) ({packed})" if torch.family == "linear_io" else f"({packed}) ({inner})"
    return Packed(f"{left} -> {n} {kernel}", f"({packed}) -> {n} {bias}", sizes)


def cut_unequal(torch: Unit, keras: Sequence[Unit]) -> Iterator[Packed]:
    """Yield how torch's output axis may hold Keras's matrices of several sizes, as of an attention with grouped heads.

    They stand one after the other, or group by group: some heads of the query, then one of the key and of the value.
    """
    if not (keras_axes := axes(keras[0])) or torch.family == "attention":
        return
    order, inner, outer = keras_axes
    is_transposed = torch.family == "linear_io"
    whole = "inner outer -> outer inner" if is_transposed else ""
    yield Packed(whole, "", {}, f"({outer}) ({inner}) -> {order}", f"({outer}) -> {outer}")
    *heads, _ = outer.split()
    packed = "inner (group part size)" if is_transposed else "(group part size) inner"
    name = {heads[0]: "(group part)", outer.split()[1]: "size"} if heads else {outer: "(group part size)"}
    kernel, bias = (" ".join(name.get(axis, axis) for axis in text.split()) for text in (order, outer))
    for sizes in _groups(keras, len(heads) == 1):
        yield Packed(
            f"{packed} -> part group size inner",
            "(group part size) -> part group size",
            sizes,
            f"part group size ({inner}) -> {kernel}",
            f"part group size -> {bias}",
        )


def _groups(keras: Sequence[Unit], have_heads: bool) -> Iterator[dict[str, int]]:
    """Yield how many groups of heads there may be, and of which size; `have_heads`: Keras's shapes tell the size."""
    shapes = [unit.weights["weight"].shape for unit in keras]
    widths = [math.prod(shape[-2:]) if have_heads else shape[-1] for shape in shapes]
    common = math.gcd(*widths)
    possible = [*HEAD_SIZES, *range(common, 1, -1)]
    sizes = [shapes[0][-1]] if have_heads else [size for size in dict.fromkeys(possible) if common % size == 0]
    several = [size for size in sizes if min(widths) > size]
    yield from ({"group": min(widths) // size, "size": size} for size in several[: MOST - 1])


def stacked(torch: Shape, keras: Shape, count: int) -> Iterator[str]:
    """Yield patterns by which an array may hold `count` others of one shape: in two halves of an axis, or by turns."""
    for is_by_turns in (False, True):
        for axis, size in enumerate(torch):
            part = (*torch[:axis], size // count, *torch[axis + 1 :])
            if size % count or sorted(part) != sorted(keras):
                continue
            names = [f"a{number}" for number in range(len(torch))]
            for text in reshapes(part, keras):
                left, right = text.split(" -> ") if text else (" ".join(names), " ".join(names))
                groups = left.split()
                groups[axis] = f"({groups[axis]} n)" if is_by_turns else f"(n {groups[axis]})"
                yield f"{' '.join(groups)} -> n {right}"


def joined(torch: Sequence[Unit], keras: Unit) -> Iterator[Packed]:
    """Yield how the matrices of several torch modules may be packed in Keras's; nothing if its axes are not known."""
    if keras_axes := axes(keras):
        order, inner, outer = keras_axes
        yield Packed(f"({outer}) ({inner}) -> {order}", f"({outer}) -> {outer}", {})
    if keras.family == "linear" and len({unit.signature for unit in torch}) == 1:
        for number in _heads(torch[0], keras, torch[0].weights["weight"].shape[0]):
            sizes = {"n": len(torch), "heads": number}
            yield Packed("(n heads k) i -> i (heads n k)", "(n heads k) -> (heads n k)", sizes)


def vectors(torch: Unit, keras: Unit) -> list[Move]:
    """Return how a vector of torch's may hold those of several Keras layers, `keras` being the first of them."""
    shape = keras.weights["weight"].shape
    if len(shape) != 1:
        return [{"rearrange": "(n d e) -> n d e"}, {"rearrange": "(d n e) -> n d e"}]
    numbers = _heads(torch, keras, shape[0])
    interleaved = [{"rearrange": "(heads n k) -> n (heads k)", "sizes": {"heads": number}} for number in numbers]
    return [{"rearrange": "(n o) -> n o"}, *interleaved]


def _heads(torch: Unit, keras: Unit, width: int) -> list[int]:
    """Return the numbers of heads to try for an attention of this width: what a side tells, or else what is usual."""
    number = next((unit.facts["heads"] for unit in (torch, keras) if isinstance(unit.facts.get("heads"), int)), 0)
    usual = [width // size for size in HEAD_SIZES if size < width and width % size == 0]
    return [number] if number else usual[: MOST - 1]


def _matrix(torch: Unit, keras: Unit) -> list[str]:
    """Return the patterns for a matrix; also those for channels last if an image is flattened before or made behind."""
    if not (kernel_axes := axes(keras)):
        return []
    order, inner, outer = kernel_axes
    left = f"({inner}) ({outer})" if torch.family == "linear_io" else f"({outer}) ({inner})"
    before, behind = (
        SPACE[len(image) - 1] if len(image) > 1 and math.prod(image[1:]) > 1 and image[0] > 1 else ""
        for image in (torch.image or keras.image, torch.made)
    )
    patterns = [tidy(f"{left} -> {order}")]
    if keras.family != "einsum":
        patterns += [f"o (i {before}) -> ({before} i) o"] if before else []
        patterns += [f"{MADE}{behind}) i -> i ({behind} o)"] if behind else []
    return patterns


def _convolution(families: tuple[str, str], space: int) -> list[str]:
    """Return the pattern for a convolution with so many spatial axes."""
    if not 1 <= space <= 3:
        return []
    spatial = SPACE[space]
    patterns = {
        ("conv", "conv"): f"o i {spatial} -> {spatial} i o",
        ("conv_transpose", "conv_transpose"): f"i o {spatial} -> {spatial} o i",
        ("conv_transpose", "conv"): f"i o {spatial} -> {spatial} i o",
        ("conv", "conv_transpose"): f"o i {spatial} -> {spatial} o i",
        ("conv", "depthwise"): f"(c m) 1 {spatial} -> {spatial} c m",
    }
    return [patterns[families]] if families in patterns else []

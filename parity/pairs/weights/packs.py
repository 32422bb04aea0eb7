"""Link matrices that one side packs into one and the other keeps apart: query, key and value, or gate and up.

Packed matrices stand one after the other, or interleaved head by head; only running tells the two apart.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from parity.pairs.patterns import tidy
from parity.pairs.transfer import fits
from parity.pairs.weights import families
from parity.pairs.weights.units import Unit, distinctive_parts
from parity.trace.mapping import Entry
from parity.trace.survey import Weight

MATRICES = ("linear", "linear_io", "attention", "einsum")
PACKED = (("query", "key", "value"), ("key", "value"), ("gate", "up"))  # in the order in which they are packed
HEAD_SIZES = (64, 128, 32, 16, 80, 96, 8, 4, 2)  # usual sizes of an attention head, tried in this order
FIXED_ORDER = PACKED[:2]  # gate and up may be packed in either order


Move = TypeVar("Move")


class Packing(NamedTuple):
    """How torch's output axis is made of n parts, and the axes of each part's kernel and bias in Keras."""

    outputs: str
    kernel: str
    bias: str
    sizes: dict[str, int]


def entry(torch: Iterable[Weight], keras: Iterable[Weight], **fields: Any) -> Entry:
    """Return an entry for some weights."""
    return Entry(torch=[weight.name for weight in torch], keras=[weight.name for weight in keras], **fields)


def fitting(torch: Sequence[Weight], keras: Sequence[Weight], moves: Iterable[dict[str, Any]]) -> list[Entry]:
    """Return the entries of these moves that the shapes allow."""
    candidates = (entry(torch, keras, **move) for move in moves)
    shapes = [weight.shape for weight in torch], [weight.shape for weight in keras]
    return [candidate for candidate in candidates if fits(candidate, *shapes)]


def cut(torch: Unit, keras: Sequence[Unit]) -> list[list[Entry]]:
    """Return choices of entries that cut torch's matrix into those of several Keras layers."""
    if "weight" not in torch.weights or any("weight" not in unit.weights for unit in keras):
        return []
    if torch.family == "" and len(torch.weights["weight"].shape) == 1:
        return _vectors(torch, keras)
    axes = families.axes(keras[0])
    alike = len({unit.signature for unit in keras}) == 1 and all(unit.family in MATRICES for unit in keras)
    if not axes or not alike or torch.family not in MATRICES:
        return []
    inner = axes[1]
    choices = []
    for units, packing in _with_orders(_orders(keras), list(_packings(torch, keras[0]))):
        left = f"({inner}) ({packing.outputs})" if torch.family == "linear_io" else f"({packing.outputs}) ({inner})"
        texts = {"weight": f"{left} -> n {packing.kernel}", "bias": f"({packing.outputs}) -> n {packing.bias}"}
        choices.append(_entries([torch], units, texts, packing.sizes))
    return [choice for choice in choices if choice]


def joined(torch: Sequence[Unit], keras: Unit) -> list[list[Entry]]:
    """Return choices of entries that join several matrices of torch's into one of Keras's."""
    if keras.family not in ("linear", "einsum") or any(unit.family != "linear" for unit in torch):
        return []
    if "weight" not in keras.weights or any("weight" not in unit.weights for unit in torch):
        return []
    moves: list[tuple[dict[str, str], dict[str, int]]] = [(_whole(keras), {})]
    if keras.family == "linear" and len({unit.signature for unit in torch}) == 1:
        texts = {"weight": "(n heads k) i -> i (heads n k)", "bias": "(n heads k) -> (heads n k)"}
        numbers = _heads(torch[0], keras, torch[0].weights["weight"].shape[0])
        moves += [(texts, {"n": len(torch), "heads": number}) for number in numbers]
    choices = [_entries(units, [keras], texts, sizes) for units, (texts, sizes) in _with_orders(_orders(torch), moves)]
    return [choice for choice in choices if choice]


def _with_orders(orders: list[tuple[Unit, ...]], moves: list[Move]) -> Iterator[tuple[tuple[Unit, ...], Move]]:
    """Yield every move in the likeliest order, and the likeliest move in the other orders.

    All combinations would be too many to try by running.
    """
    yield from ((orders[0], move) for move in moves)
    yield from ((order, moves[0]) for order in orders[1:])


def _whole(keras: Unit) -> dict[str, str]:
    """Return the patterns for a matrix, and its bias, that becomes one Keras weight as a whole."""
    axes = families.axes(keras)
    if not axes:
        return {"weight": "o i -> i o", "bias": ""}
    order, inner, outer = axes
    return {"weight": f"({outer}) ({inner}) -> {order}", "bias": f"({outer}) -> {outer}"}


def _vectors(torch: Unit, keras: Sequence[Unit]) -> list[list[Entry]]:
    """Return choices for biases alone, whose matrices a rule of the user's covers.

    There are some only if the layers' names tell the order in which they are packed.
    """
    if len(_orders(keras)) > 1 or any(unit.family for unit in keras):
        return []
    sides = [torch.weights["weight"]], [unit.weights["weight"] for unit in _orders(keras)[0]]
    shape = sides[1][0].shape
    moves: list[dict[str, Any]] = [{"rearrange": "(n o) -> n o" if len(shape) == 1 else "(n d e) -> n d e"}]
    if len(shape) == 1:
        numbers = _heads(torch, keras[0], shape[0])
        moves += [{"rearrange": "(heads n k) -> n (heads k)", "sizes": {"heads": number}} for number in numbers]
    else:
        moves.append({"rearrange": "(d n e) -> n d e"})
    return [[choice] for choice in fitting(*sides, moves)]


def _packings(torch: Unit, keras: Unit) -> Iterator[Packing]:
    """Yield the ways in which torch's output axis may hold the parts: one after the other, or interleaved by heads."""
    order, _, outer = families.axes(keras) or ("i o", "i", "o")
    yield Packing(f"n {outer}", order, outer, {})
    if torch.family == "attention":
        return
    if len(outer.split()) == 2:
        first, second = outer.split()
        yield Packing(f"{first} n {second}", order, outer, {})
    elif keras.family == "linear":
        for number in _heads(torch, keras, keras.weights["weight"].shape[-1]):
            yield Packing("heads n k", order.replace("o", "(heads k)"), "(heads k)", {"heads": number})


def _heads(torch: Unit, keras: Unit, width: int) -> list[int]:
    """Return the numbers of heads to try for an attention of this width: what a side tells, or else what is usual."""
    number = families.heads(torch, keras)
    usual = [width // size for size in HEAD_SIZES if size < width and width % size == 0]
    return [number] if number else usual[: families.MOST - 1]


def _orders(units: Sequence[Unit]) -> list[tuple[Unit, ...]]:
    """Return the orders in which units may be packed; only one if their names tell."""
    parts = distinctive_parts([unit.label for unit in units])
    packing_order = next((packed for packed in PACKED if sorted(packed) == sorted(parts)), None)
    if not packing_order:
        return list(itertools.permutations(units))[: families.MOST]
    first = tuple(units[parts.index(part)] for part in packing_order)
    return [first] if packing_order in FIXED_ORDER else [first, first[::-1]]


def _entries(torch: Sequence[Unit], keras: Sequence[Unit], texts: dict[str, str], sizes: dict[str, int]) -> list[Entry]:
    """Return the entries of one choice, or [] if the matrices do not fit."""
    entries_found = []
    for role, text in texts.items():
        if all(role in unit.weights for unit in (*torch, *keras)):
            sides = [unit.weights[role] for unit in torch], [unit.weights[role] for unit in keras]
            used = {name: size for name, size in sizes.items() if name in text}
            entries = fitting(*sides, [{"rearrange": tidy(text), "sizes": used}])
            if role == "weight" and not entries:
                return []
            entries_found += entries
    return entries_found

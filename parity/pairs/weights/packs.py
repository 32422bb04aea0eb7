"""Matrices that one side packs into one and the other has apart: query, key and value, or gate and up.

What is packed stands one behind the other, or is interleaved head by head: only running tells the two apart.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from parity.pairs.patterns import tidy
from parity.pairs.transfer import fits
from parity.pairs.weights import families
from parity.pairs.weights.units import Unit, telling
from parity.trace.mapping import Entry
from parity.trace.survey import Weight

MATRICES = ("linear", "linear_io", "attention", "einsum")
PACKED = (("query", "key", "value"), ("key", "value"), ("gate", "up"))  # in the order in which they are packed
HEAD_SIZES = (64, 128, 32, 16, 80, 96, 8, 4, 2)
SETTLED = PACKED[:2]  # gate and up are seen in both orders


Way = TypeVar("Way")


class Packing(NamedTuple):
    """How torch's outputs are made of n parts, and each part's kernel and bias in Keras."""

    outputs: str
    kernel: str
    bias: str
    sizes: dict[str, int]


def entry(torch: Iterable[Weight], keras: Iterable[Weight], **fields: Any) -> Entry:
    """Of weights."""
    return Entry(torch=[weight.name for weight in torch], keras=[weight.name for weight in keras], **fields)


def fitting(torch: Sequence[Weight], keras: Sequence[Weight], ways: Iterable[dict[str, Any]]) -> list[Entry]:
    """The entries of these ways that shapes allow."""
    found = (entry(torch, keras, **way) for way in ways)
    shapes = [weight.shape for weight in torch], [weight.shape for weight in keras]
    return [one for one in found if fits(one, *shapes)]


def cut(torch: Unit, keras: Sequence[Unit]) -> list[list[Entry]]:
    """Choices of entries that cut torch's matrix into those of Keras's layers."""
    if "weight" not in torch.weights or any("weight" not in unit.weights for unit in keras):
        return []
    if torch.family == "" and len(torch.weights["weight"].shape) == 1:
        return _vectors(torch, keras)
    known = families.axes(keras[0])
    alike = len({unit.signature for unit in keras}) == 1 and all(unit.family in MATRICES for unit in keras)
    if not known or not alike or torch.family not in MATRICES:
        return []
    inner = known[1]
    choices = []
    for units, way in _combined(_orders(keras), list(_packings(torch, keras[0]))):
        left = f"({inner}) ({way.outputs})" if torch.family == "linear_io" else f"({way.outputs}) ({inner})"
        texts = {"weight": f"{left} -> n {way.kernel}", "bias": f"({way.outputs}) -> n {way.bias}"}
        choices.append(_entries([torch], units, texts, way.sizes))
    return [choice for choice in choices if choice]


def joined(torch: Sequence[Unit], keras: Unit) -> list[list[Entry]]:
    """Choices of entries that join torch's matrices into Keras's one."""
    if keras.family not in ("linear", "einsum") or any(unit.family != "linear" for unit in torch):
        return []
    if "weight" not in keras.weights or any("weight" not in unit.weights for unit in torch):
        return []
    ways: list[tuple[dict[str, str], dict[str, int]]] = [(_whole(keras), {})]
    if keras.family == "linear" and len({unit.signature for unit in torch}) == 1:
        texts = {"weight": "(n heads k) i -> i (heads n k)", "bias": "(n heads k) -> (heads n k)"}
        numbers = _heads(torch[0], keras, torch[0].weights["weight"].shape[0])
        ways += [(texts, {"n": len(torch), "heads": number}) for number in numbers]
    choices = [_entries(units, [keras], texts, sizes) for units, (texts, sizes) in _combined(_orders(torch), ways)]
    return [choice for choice in choices if choice]


def _combined(orders: list[tuple[Unit, ...]], ways: list[Way]) -> Iterator[tuple[tuple[Unit, ...], Way]]:
    """Every way in the likeliest order, and the likeliest way in the others: both left open would be too many."""
    yield from ((orders[0], way) for way in ways)
    yield from ((order, ways[0]) for order in orders[1:])


def _whole(keras: Unit) -> dict[str, str]:
    known = families.axes(keras)
    if not known:
        return {"weight": "o i -> i o", "bias": ""}
    order, inner, outer = known
    return {"weight": f"({outer}) ({inner}) -> {order}", "bias": f"({outer}) -> {outer}"}


def _vectors(torch: Unit, keras: Sequence[Unit]) -> list[list[Entry]]:
    """Of biases alone, where a rule of the user's is about the matrices: only of layers whose names tell."""
    if len(_orders(keras)) > 1 or any(unit.family for unit in keras):
        return []
    sides = [torch.weights["weight"]], [unit.weights["weight"] for unit in _orders(keras)[0]]
    part = sides[1][0].shape
    ways: list[dict[str, Any]] = [{"rearrange": "(n o) -> n o" if len(part) == 1 else "(n d e) -> n d e"}]
    if len(part) == 1:
        numbers = _heads(torch, keras[0], part[0])
        ways += [{"rearrange": "(heads n k) -> n (heads k)", "sizes": {"heads": number}} for number in numbers]
    else:
        ways.append({"rearrange": "(d n e) -> n d e"})
    return [[one] for one in fitting(*sides, ways)]


def _packings(torch: Unit, keras: Unit) -> Iterator[Packing]:
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
    """How many an attention of this width has: as it tells, or else what is usual."""
    number = families.heads(torch, keras)
    usual = [width // size for size in HEAD_SIZES if size < width and width % size == 0]
    return [number] if number else usual[: families.MOST - 1]


def _orders(units: Sequence[Unit]) -> list[tuple[Unit, ...]]:
    """The orders in which they may be packed: one, where their names tell."""
    parts = telling([unit.label for unit in units])
    known = next((packed for packed in PACKED if sorted(packed) == sorted(parts)), None)
    if not known:
        return list(itertools.permutations(units))[: families.MOST]
    first = tuple(units[parts.index(part)] for part in known)
    return [first] if known in SETTLED else [first, first[::-1]]


def _entries(torch: Sequence[Unit], keras: Sequence[Unit], texts: dict[str, str], sizes: dict[str, int]) -> list[Entry]:
    """Of a choice; none if the matrices do not fit."""
    found = []
    for role, text in texts.items():
        if all(role in unit.weights for unit in (*torch, *keras)):
            sides = [unit.weights[role] for unit in torch], [unit.weights[role] for unit in keras]
            used = {name: size for name, size in sizes.items() if name in text}
            entries = fitting(*sides, [{"rearrange": tidy(text), "sizes": used}])
            if role == "weight" and not entries:
                return []
            found += entries
    return found

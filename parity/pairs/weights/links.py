"""Units of both sides that hold the same weights, and the entries that follow: one to one, or packed in one of them."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from parity.pairs.patterns import Shape, numbered
from parity.pairs.weights import families, packs
from parity.pairs.weights.families import MOST
from parity.pairs.weights.packs import fitting
from parity.pairs.weights.units import RECURRENT, Unit
from parity.trace.mapping import Entry


class Link(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """`ambiguities`: for each the choices, lists of entries for the same Keras variables, the first as in `entries`."""

    torch: tuple[Unit, ...]
    keras: tuple[Unit, ...]
    entries: list[Entry]
    ambiguities: list[list[list[Entry]]] = []


def link(torch: Sequence[Unit], keras: Sequence[Unit], image: Shape = ()) -> Link | None:
    """What makes Keras's units of torch's; None if nothing does."""
    match len(torch), len(keras):
        case 1, 1:
            choices = _single(torch[0], keras[0], image)
        case 1, _:
            choices = packs.cut(torch[0], keras)
        case 2, 1 if "depthwise" in keras[0].weights and "pointwise" in keras[0].weights:
            choices = _separable(torch, keras[0])
        case _:
            choices = packs.joined(torch, keras[0])
    if not choices or not choices[0]:
        return None
    return _settled(tuple(torch), tuple(keras), choices)


def _settled(torch: tuple[Unit, ...], keras: tuple[Unit, ...], choices: list[list[Entry]]) -> Link:
    """What all choices share is no part of the ambiguity."""
    first, *others = choices
    doubtful = [entry for entry in first if any(entry not in other for other in others)]
    variables = {name for entry in doubtful for name in entry.keras}
    ambiguity = [[entry for entry in choice if variables.intersection(entry.keras)] for choice in choices]
    return Link(torch=torch, keras=keras, entries=first, ambiguities=[ambiguity] if others else [])


def _patterns(texts: Iterable[str]) -> list[dict[str, Any]]:
    return [{"rearrange": text} for text in texts]


def _single(torch: Unit, keras: Unit, image: Shape) -> list[list[Entry]]:
    """Every choice of how the unit's main weight moves, with all others of its weights."""
    if torch.family in RECURRENT or keras.family in RECURRENT:
        return [_recurrent(torch, keras)] if torch.family == keras.family else []
    if "weight" not in torch.weights or "weight" not in keras.weights:
        return []
    here, there = torch.weights["weight"], keras.weights["weight"]
    ways = [{"rearrange": text, "sizes": families.flattened(text, image)} for text in _ways(torch, keras, image)]
    main = fitting([here], [there], ways)
    roles = [role for role in torch.weights if role != "weight"]
    return [[choice, *(one for role in roles for one in _other(torch, keras, role, choice))] for choice in main[:MOST]]


def _ways(torch: Unit, keras: Unit, image: Shape) -> list[str]:
    known = families.layouts(torch, keras, image) if torch.family and keras.family else []
    if known and torch.certain and keras.certain:
        return known
    here, there = torch.weights["weight"].shape, keras.weights["weight"].shape
    plain = torch.family in ("norm", "embedding", "prelu") and torch.family == keras.family
    if plain and here == there and torch.certain and keras.certain:
        return [""]
    found = families.reshapes(here, there)
    # A kernel of Keras's is the transpose of a weight of torch's more often than not.
    if len(here) == 2 and keras.weights["weight"].role == "kernel":
        found.sort(key=lambda text: text == "")
    every = [*known, *found]
    same = [numbered(text) for text in every]
    return [text for number, text in enumerate(every) if same[number] not in same[:number]]


def _other(torch: Unit, keras: Unit, role: str, main: Entry) -> list[Entry]:
    """Of another weight of the unit: a norm's moves as the norm's first."""
    if role not in keras.weights:
        return []
    here, there = torch.weights[role], keras.weights[role]
    same = here.shape == torch.weights["weight"].shape and there.shape == keras.weights["weight"].shape
    texts = [main.rearrange] if same else families.reshapes(here.shape, there.shape)
    return fitting([here], [there], _patterns(texts))[:1]


def _recurrent(torch: Unit, keras: Unit) -> list[Entry]:
    if not {"weight", "recurrent"} <= set(torch.weights) & set(keras.weights):
        return []
    found = []
    for role, way in families.recurrent(torch, keras).items():
        sources = [role, "recurrent_bias"] if role == "bias" else [role]
        if role in keras.weights and role in torch.weights:
            found += fitting([torch.weights[one] for one in sources], [keras.weights[role]], [way])
    return found if len(found) >= 2 else []


def _separable(torch: Sequence[Unit], keras: Unit) -> list[list[Entry]]:
    """torch's depthwise convolution and the one behind it."""
    deep, wide = torch
    if (deep.family, wide.family) != ("conv", "conv") or len(deep.weights) != 1:
        return []
    places = families.SPACE[max(len(deep.weights["weight"].shape) - 2, 0)]
    found = fitting(
        [deep.weights["weight"]], [keras.weights["depthwise"]], _patterns([f"(c m) 1 {places} -> {places} c m"])
    )
    way = _patterns([f"o i {places} -> {places} i o"])
    found += fitting([wide.weights["weight"]], [keras.weights["pointwise"]], way)
    bias = fitting([wide.weights["bias"]], [keras.weights["bias"]], [{}]) if _both(wide, keras) else []
    return [found + bias] if len(found) == 2 else []


def _both(torch: Unit, keras: Unit) -> bool:
    return "bias" in torch.weights and "bias" in keras.weights

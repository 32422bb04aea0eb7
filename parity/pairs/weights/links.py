"""Link units of both sides that hold the same weights: one to one, or several packed into one."""

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
    """Units that hold the same weights, and the entries of the mapping that follow.

    `ambiguities` holds, for each ambiguity, its choices: lists of entries for the same Keras variables, the first as
    in `entries`.
    """

    torch: tuple[Unit, ...]
    keras: tuple[Unit, ...]
    entries: list[Entry]
    ambiguities: list[list[list[Entry]]] = []


def link(torch: Sequence[Unit], keras: Sequence[Unit], image: Shape = ()) -> Link | None:
    """Return the link by which Keras's units hold the weights of torch's, or None if shapes and kinds do not allow one.

    `image` is the shape, channels first, that torch flattens before the unit's matrix.
    """
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
    return _with_ambiguity(tuple(torch), tuple(keras), choices)


def _with_ambiguity(torch: tuple[Unit, ...], keras: tuple[Unit, ...], choices: list[list[Entry]]) -> Link:
    """Make a link of several choices; what all choices share is no part of the ambiguity."""
    first, *others = choices
    differing = [entry for entry in first if any(entry not in other for other in others)]
    variables = {name for entry in differing for name in entry.keras}
    ambiguity = [[entry for entry in choice if variables.intersection(entry.keras)] for choice in choices]
    return Link(torch=torch, keras=keras, entries=first, ambiguities=[ambiguity] if others else [])


def _patterns(texts: Iterable[str]) -> list[dict[str, Any]]:
    return [{"rearrange": text} for text in texts]


def _single(torch: Unit, keras: Unit, image: Shape) -> list[list[Entry]]:
    """Return every choice of how the unit's main weight moves, each with the entries of its other weights."""
    if torch.family in RECURRENT or keras.family in RECURRENT:
        return [_recurrent(torch, keras)] if torch.family == keras.family else []
    if "weight" not in torch.weights or "weight" not in keras.weights:
        return []
    torch_weight, keras_weight = torch.weights["weight"], keras.weights["weight"]
    moves = [
        {"rearrange": text, "sizes": families.flattened(text, image)}
        for text in _patterns_of_matrix(torch, keras, image)
    ]
    main = fitting([torch_weight], [keras_weight], moves)
    roles = [role for role in torch.weights if role != "weight"]
    return [
        [choice, *(entry for role in roles for entry in _other_weight(torch, keras, role, choice))]
        for choice in main[:MOST]
    ]


def _patterns_of_matrix(torch: Unit, keras: Unit, image: Shape) -> list[str]:
    """Return the patterns to try for the unit's main weight, the likeliest first.

    If both kinds are certain, only the known layouts are tried; otherwise all that the shapes allow.
    """
    known = families.layouts(torch, keras, image) if torch.family and keras.family else []
    if known and torch.certain and keras.certain:
        return known
    torch_shape, keras_shape = torch.weights["weight"].shape, keras.weights["weight"].shape
    plain = torch.family in ("norm", "embedding", "prelu") and torch.family == keras.family
    if plain and torch_shape == keras_shape and torch.certain and keras.certain:
        return [""]
    reshapes = families.reshapes(torch_shape, keras_shape)
    # A Keras kernel is usually the transpose of torch's weight, so that the identity is tried last.
    if len(torch_shape) == 2 and keras.weights["weight"].role == "kernel":
        reshapes.sort(key=lambda text: text == "")
    patterns = [*known, *reshapes]
    canonical = [numbered(text) for text in patterns]
    return [text for number, text in enumerate(patterns) if canonical[number] not in canonical[:number]]


def _other_weight(torch: Unit, keras: Unit, role: str, main: Entry) -> list[Entry]:
    """Return the entry of another weight of the unit; one with the main weight's shapes moves as that does."""
    if role not in keras.weights:
        return []
    torch_weight, keras_weight = torch.weights[role], keras.weights[role]
    moves_alike = (
        torch_weight.shape == torch.weights["weight"].shape and keras_weight.shape == keras.weights["weight"].shape
    )
    texts = [main.rearrange] if moves_alike else families.reshapes(torch_weight.shape, keras_weight.shape)
    return fitting([torch_weight], [keras_weight], _patterns(texts))[:1]


def _recurrent(torch: Unit, keras: Unit) -> list[Entry]:
    """Return the entries of a recurrent layer, or [] unless at least two of its weights fit."""
    if not {"weight", "recurrent"} <= set(torch.weights) & set(keras.weights):
        return []
    entries = []
    for role, move in families.recurrent(torch, keras).items():
        sources = [role, "recurrent_bias"] if role == "bias" else [role]
        if role in keras.weights and role in torch.weights:
            entries += fitting([torch.weights[source] for source in sources], [keras.weights[role]], [move])
    return entries if len(entries) >= 2 else []


def _separable(torch: Sequence[Unit], keras: Unit) -> list[list[Entry]]:
    """Link torch's depthwise convolution and the pointwise one after it to Keras's separable convolution."""
    depthwise, pointwise = torch
    if (depthwise.family, pointwise.family) != ("conv", "conv") or len(depthwise.weights) != 1:
        return []
    space = families.SPACE[max(len(depthwise.weights["weight"].shape) - 2, 0)]
    entries = fitting(
        [depthwise.weights["weight"]], [keras.weights["depthwise"]], _patterns([f"(c m) 1 {space} -> {space} c m"])
    )
    pointwise_pattern = _patterns([f"o i {space} -> {space} i o"])
    entries += fitting([pointwise.weights["weight"]], [keras.weights["pointwise"]], pointwise_pattern)
    bias = fitting([pointwise.weights["bias"]], [keras.weights["bias"]], [{}]) if _both(pointwise, keras) else []
    return [entries + bias] if len(entries) == 2 else []


def _both(torch: Unit, keras: Unit) -> bool:
    return "bias" in torch.weights and "bias" in keras.weights

"""Link units of both sides that hold the same weights: one to one, or several packed into one.

Shapes and kinds decide whether units can be linked at all, and how the weights move from torch's to Keras's. Where they
leave several ways (a matrix of a custom layer, the order in which matrices are packed), a link holds all of them.
"""

import itertools
from collections.abc import Iterable, Sequence

import msgspec

from parity.pairs.weights import layouts
from parity.pairs.weights.layouts import Move, Packed
from parity.pairs.weights.names import distinctive_parts
from parity.pairs.weights.patterns import MOST, numbered, reshapes, tidy
from parity.pairs.weights.transfer import fits
from parity.pairs.weights.units import RECURRENT, Unit, are_other_vectors
from parity.runtime.survey import Weight
from parity.trace.mapping import Entry

MATRICES = ("linear", "linear_io", "attention", "einsum")
PACKED = (("query", "key", "value"), ("key", "value"), ("gate", "up"))  # in the order in which they are packed
FIXED_ORDER = PACKED[:2]  # gate and up may be packed in either order
Choices = list[list[Entry]]
Order = tuple[Unit, ...]  # in which units are packed


class Link(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Units that hold the same weights, and the entries of the mapping that follow.

    `choices`: lists of entries for the same Keras variables, the first as in `entries`, among which only running can
    decide; empty if there is nothing to decide. `torch_position` and `keras_position` are those of the first units
    among all of their sides; `round` is the number of the alignment that made the link. `within` numbers the rule that
    says within which modules both belong together.
    """

    torch: tuple[Unit, ...]
    keras: tuple[Unit, ...]
    entries: list[Entry]
    choices: Choices = []
    torch_position: int = 0
    keras_position: int = 0
    round: int = 0
    within: int = -1

    @property
    def is_single(self) -> bool:
        """Return whether the link has one unit on each side."""
        return len(self.torch) == len(self.keras) == 1

    @property
    def alternatives(self) -> Choices:
        """Return all entries, once for each choice."""
        variables = {name for entry in itertools.chain(*self.choices[:1]) for name in entry.keras}
        rest = [entry for entry in self.entries if not variables.intersection(entry.keras)]
        return [[*choice, *rest] for choice in self.choices or [[]]]


class Ambiguity(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of torch's module at `place` that can be mapped in several ways.

    Each choice replaces the entries of the same Keras variables. `counted` says that the weights are siblings', and
    that the first choice pairs them in the order in which both sides create them.
    """

    place: str
    choices: Choices
    counted: bool = False

    @property
    def pairs(self) -> list[set[tuple[str, ...]]]:
        """Return which weights each choice puts together, however they move."""
        return [{(*entry.torch, "", *entry.keras) for entry in choice} for choice in self.choices]


def make_link(torch: Sequence[Unit], keras: Sequence[Unit]) -> Link | None:
    """Return the link by which Keras's units hold the weights of torch's, or None if shapes and kinds allow none."""
    match len(torch), len(keras):
        case 1, 1:
            choices = _single(torch[0], keras[0])
        case 1, _:
            choices = _cut(torch[0], keras)
        case 2, 1 if "depthwise" in keras[0].weights and "pointwise" in keras[0].weights:
            choices = _separable(torch, keras[0])
        case _:
            choices = _joined(torch, keras[0])
    if not choices or not choices[0]:
        return None
    first, *others = choices
    # What all choices share is no part of what is to be decided.
    differing = [entry for entry in first if any(entry not in other for other in others)]
    variables = {name for entry in differing for name in entry.keras}
    open_choices = [[entry for entry in choice if variables.intersection(entry.keras)] for choice in choices]
    return Link(torch=tuple(torch), keras=tuple(keras), entries=first, choices=open_choices if others else [])


def _fitting(torch: Sequence[Weight], keras: Sequence[Weight], moves: Iterable[Move]) -> list[Entry]:
    """Return the entries of these moves that the shapes allow."""
    names = [[weight.name for weight in side] for side in (torch, keras)]
    candidates = (Entry(torch=names[0], keras=names[1], **move) for move in moves)
    shapes = [weight.shape for weight in torch], [weight.shape for weight in keras]
    return [candidate for candidate in candidates if fits(candidate, *shapes)]


def _of_role(torch: Unit, keras: Unit, role: str, sources: Sequence[str], moves: Iterable[Move]) -> list[Entry]:
    """Return the entry of Keras's weight of a role, made of those of torch's, by the first of the moves that fits."""
    if role not in keras.weights or not torch.weights.keys() >= set(sources):
        return []
    return _fitting([torch.weights[source] for source in sources], [keras.weights[role]], moves)[:1]


def _single(torch: Unit, keras: Unit) -> Choices:
    """Return every choice of how the unit's main weight moves, each with the entries of its other weights."""
    if torch.family in RECURRENT or keras.family in RECURRENT:
        if torch.family != keras.family:
            return []
        in_any_order = [] if torch.certain and keras.certain else _gated(torch, keras)
        return in_any_order or [_recurrent(torch, keras)]
    if torch.family == keras.family == "norm" and not {"weight"} <= torch.weights.keys() & keras.weights.keys():
        # Offset and statistics stay what they are.
        return [[entry for role in torch.weights for entry in _of_role(torch, keras, role, [role], [{}])]]
    if "weight" not in torch.weights or "weight" not in keras.weights or are_other_vectors(torch, keras):
        return []
    moves = [
        {"rearrange": text, "sizes": layouts.flattened(text, torch, keras)} for text in _patterns_to_try(torch, keras)
    ]
    moves = [*layouts.turned(torch, keras), *moves, *layouts.beside_image(torch, keras)]
    main = _fitting([torch.weights["weight"]], [keras.weights["weight"]], moves)
    roles = [role for role in torch.weights if role != "weight"]
    return [
        [choice, *(entry for role in roles for entry in _other_weight(torch, keras, role, choice))]
        for choice in main[:MOST]
    ]


def _patterns_to_try(torch: Unit, keras: Unit) -> list[str]:
    """Return the main weight's patterns, likeliest first: known ones of certain kinds, else all that shapes allow."""
    known = layouts.known_patterns(torch, keras) if torch.family and keras.family else []
    is_certain = torch.certain and keras.certain
    if known and is_certain:
        return known
    torch_shape, keras_shape = torch.weights["weight"].shape, keras.weights["weight"].shape
    plain = torch.family in ("norm", "embedding", "prelu") and torch.family == keras.family
    if plain and torch_shape == keras_shape and is_certain:
        return [""]
    shaped = reshapes(torch_shape, keras_shape)
    # A Keras kernel is usually the transpose of torch's weight, so that what begins with the same axis is tried last.
    if len(torch_shape) == 2 and keras.weights["weight"].role == "kernel":
        shaped.sort(key=lambda text: text == "" or text[0] == text.partition(" -> ")[2][0] == "a")
    patterns = [*known, *shaped]
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
    texts = [main.rearrange] if moves_alike else reshapes(torch_weight.shape, keras_weight.shape)
    as_main = layouts.made_vector(main)
    moves = [as_main] if as_main else [{"rearrange": text} for text in texts]
    return _of_role(torch, keras, role, [role], moves)


def _recurrent(torch: Unit, keras: Unit) -> list[Entry]:
    """Return the entries of a recurrent layer, or [] unless its matrices fit, or rules of the user's cover both."""
    matrices = {"weight", "recurrent"}
    held = [matrices & unit.weights.keys() for unit in (torch, keras)]
    if held not in ([matrices, matrices], [set(), set()]):
        return []
    entries = []
    for role, move in layouts.recurrent(torch, keras).items():
        sources = [role, "recurrent_bias"] if role == "bias" else [role]
        entries += _of_role(torch, keras, role, sources, [move])
    return entries if not any(held) or len(entries) >= 2 else []


def _gated(torch: Unit, keras: Unit) -> Choices:
    """Return choices of the order of a recurrent layer's gates, of two of which somebody has written one."""
    choices = []
    for moves in layouts.gated(torch, keras):
        entries = []
        for role, ways in moves.items():
            sources = [role] if "combine" not in ways[0] else [role, "recurrent_bias"]
            entries += _of_role(torch, keras, role, sources, ways)
        if {entry.keras[0] for entry in entries} == {weight.name for weight in keras.weights.values()}:
            choices.append(entries)
    return choices


def _separable(torch: Sequence[Unit], keras: Unit) -> Choices:
    """Link torch's depthwise convolution and the pointwise one after it to Keras's separable convolution."""
    depthwise, pointwise = torch
    if (depthwise.family, pointwise.family) != ("conv", "conv") or len(depthwise.weights) != 1:
        return []
    entries = []
    for unit, role, text in zip(torch, ("depthwise", "pointwise"), layouts.separable(depthwise), strict=True):
        entries += _fitting([unit.weights["weight"]], [keras.weights[role]], [{"rearrange": text}])
    if len(entries) < 2:
        return []
    has_bias = "bias" in pointwise.weights and "bias" in keras.weights
    return [entries + (_fitting([pointwise.weights["bias"]], [keras.weights["bias"]], [{}]) if has_bias else [])]


def _cut(torch: Unit, keras: Sequence[Unit]) -> Choices:
    """Return choices of entries that cut torch's matrix into those of several Keras layers."""
    if "weight" not in torch.weights or any("weight" not in unit.weights for unit in keras):
        return []
    if torch.family == "":
        return (_cut_vector if len(torch.weights["weight"].shape) == 1 else _cut_array)(torch, keras)
    kinds = {(unit.family, unit.equation) for unit in keras}
    if len(kinds) > 1 or not {torch.family, keras[0].family} <= set(MATRICES):
        return []
    is_equal = len({unit.signature for unit in keras}) == 1
    ways = layouts.cut(torch, keras[0]) if is_equal else layouts.cut_unequal(torch, keras)
    return _packings([(torch,)], _packing_orders(keras), list(ways))


def _cut_vector(torch: Unit, keras: Sequence[Unit]) -> Choices:
    """Return choices for biases alone, beside a rule for their matrices, if names tell the order of packing."""
    orders = _packing_orders(keras)
    if len(orders) > 1 or any(unit.family for unit in keras):
        return []
    keras_weights = [unit.weights["weight"] for unit in orders[0]]
    return [
        [entry] for entry in _fitting([torch.weights["weight"]], keras_weights, layouts.vectors(torch, orders[0][0]))
    ]


def _cut_array(torch: Unit, keras: Sequence[Unit]) -> Choices:
    """Return choices for arrays of unknown modules, as of several experts, if names tell what is packed."""
    parts = distinctive_parts([unit.label for unit in keras])
    if not _named_packing(parts) or len({unit.signature for unit in keras}) > 1 or keras[0].family:
        return []
    shapes = torch.weights["weight"].shape, keras[0].weights["weight"].shape
    ways = [Packed(text, "", {}) for text in layouts.stacked(*shapes, len(keras))]
    return _packings([(torch,)], _packing_orders(keras), ways)


def _joined(torch: Sequence[Unit], keras: Unit) -> Choices:
    """Return choices of entries that join several matrices of torch's into one of Keras's."""
    if keras.family not in ("linear", "einsum") or any(unit.family != "linear" for unit in torch):
        return []
    if "weight" not in keras.weights or any("weight" not in unit.weights for unit in torch):
        return []
    return _packings(_packing_orders(torch), [(keras,)], list(layouts.joined(torch, keras)))


def _packings(torch: list[Order], keras: list[Order], ways: list[Packed]) -> Choices:
    """Return the entries of all ways of packing in the likeliest order, and of the likeliest way in the others."""
    first, *others = itertools.product(torch, keras)
    packings = [*((first, way) for way in ways), *((order, way) for order in others for way in ways[:1])]
    return [choice for order, way in packings if (choice := _packed_entries(*order, way))]


def _packing_orders(units: Sequence[Unit]) -> list[Order]:
    """Return the orders in which units may be packed; only one if their names tell."""
    parts = distinctive_parts([unit.label for unit in units])
    packing_order = _named_packing(parts)
    if not packing_order:
        return list(itertools.permutations(units))[:MOST]
    first = tuple(units[parts.index(part)] for part in packing_order)
    return [first] if packing_order in FIXED_ORDER else [first, first[::-1]]


def _named_packing(parts: list[str]) -> tuple[str, ...] | None:
    """Return the parts in the order in which they are packed, if names of theirs say what is packed."""
    return next((packed for packed in PACKED if sorted(packed) == sorted(parts)), None)


def _packed_entries(torch: Sequence[Unit], keras: Sequence[Unit], packed: Packed) -> list[Entry]:
    """Return the entries of the matrices and of the biases, or [] if the matrices do not fit."""
    entries: list[Entry] = []
    texts = ("weight", packed.weight, packed.each_weight), ("bias", packed.bias, packed.each_bias)
    for role, text, each in texts:
        if all(role in unit.weights for unit in (*torch, *keras)):
            sides = [unit.weights[role] for unit in torch], [unit.weights[role] for unit in keras]
            fitting = _fitting(*sides, [{"rearrange": tidy(text), "sizes": packed.sizes, "each": tidy(each)}])
            if role == "weight" and not fitting:
                return []
            entries += fitting
    return entries

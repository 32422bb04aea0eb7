"""Match the tensors that have the same values on both sides.

Many modules return what they were given (a dropout in inference, an identity, a block whose last layer's output is
its own), so that the same values often appear several times on each side. Such a family of equal tensors is aligned
in the order of execution without crossings: modules of the same weights and of the same kind first, then as many as
possible.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from parity.core.groups import Block, align, grouped
from parity.pairs.activations.counterparts import By, Correspondence, Counterparts, ModuleOutput, masks_may_agree
from parity.pairs.activations.values import SAME, Fit, could_be_same

Key = TypeVar("Key", bound=Hashable)
Edges = dict[int, dict[int, Fit]]  # torch's number -> Keras's number -> how they fit
Gaps = tuple[list[int], list[int]] | None
# Of several equal tensors only the nearest count: a block that adds a millionth to its input returns another tensor.
NEAREST, ROUNDING = 16.0, 1e-12
FEW = 4  # with more candidates than this, comparisons of equal tensors are cached
# Scores: the same weights go before the same kind, which goes before any pair; the others decide between equals.
WEIGHTS, KIND, ANY, GAP, RANK, LEAF = 4.0, 2.0, 1.0, 0.5, 0.25, 0.125


class Family(NamedTuple):
    """Tensors of the same values, in the order of execution."""

    torch: list[ModuleOutput]
    keras: list[ModuleOutput]


def match_equal(state: Counterparts) -> None:
    """Match the tensors of the same values; one number everywhere is no evidence, and is left to the next stages."""
    edges = _nearest(_edges(state))
    families = sorted(_families(state, edges), key=lambda family: len(family.torch) * len(family.keras))
    for simple, group in itertools.groupby(families, key=lambda family: len(family.torch) * len(family.keras) == 1):
        gaps = None if simple else state.gaps()
        for family in group:
            for torch, keras in _aligned(family, edges, gaps):
                by: By = "weights" if _owns_alike(torch, keras) else "value"
                state.add(Correspondence(torch, keras, edges[torch.number][keras.number], by))


def _edges(state: Counterparts) -> Edges:
    """Return all pairs of the same values; only those whose invariants allow it are compared."""
    telling = (output for output in state.keras if not output.tensor.is_constant)
    ascending = sorted(telling, key=lambda output: output.tensor.invariants.norm)
    groups = grouped(ascending, lambda output: (output.tensor.size, output.tensor.family))
    norms = {key: [output.tensor.invariants.norm for output in group] for key, group in groups.items()}
    edges: Edges = {}
    for torch in state.torch:
        key = torch.tensor.size, torch.tensor.family
        if torch.tensor.is_constant or key not in groups:
            continue
        norm, tolerance = torch.tensor.invariants.norm, 4 * SAME * torch.tensor.invariants.norm
        near = groups[key][bisect_left(norms[key], norm - tolerance) : bisect_right(norms[key], norm + tolerance)]
        candidates = [keras for keras in near if could_be_same(torch.tensor, keras.tensor)]
        compare = state.fit_once if len(candidates) > FEW else state.fit
        fits = ((keras.number, compare(torch, keras)) for keras in candidates)
        edges[torch.number] = {number: fit for number, fit in fits if fit and fit.distance <= SAME}
    return edges


def _nearest(edges: Edges) -> Edges:
    """Remove the pairs in which either tensor has a much nearer counterpart."""
    best: dict[int, float] = {}
    for keras, fit in ((keras, fit) for row in edges.values() for keras, fit in row.items()):
        best[keras] = min(best.get(keras, fit.distance), fit.distance)
    kept: Edges = {}
    for torch, row in edges.items():
        nearest_keras = min((fit.distance for fit in row.values()), default=0.0)
        limit = {keras: max(NEAREST * min(nearest_keras, best[keras]), ROUNDING) for keras in row}
        kept[torch] = {keras: fit for keras, fit in row.items() if fit.distance <= limit[keras]}
    return kept


def _families(state: Counterparts, edges: Edges) -> Iterator[Family]:
    """Yield the tensors that equal pairs join, directly or through others."""
    same = joined((("torch", torch), ("keras", keras)) for torch, row in edges.items() for keras in row)
    for members in {id(members): members for members in same.values()}.values():
        torch, keras = (sorted(number for of, number in members if of == side) for side in ("torch", "keras"))
        yield Family([state.torch[number] for number in torch], [state.keras[number] for number in keras])


def joined(pairs: Iterable[tuple[Key, Key]]) -> dict[Key, set[Key]]:
    """Return, by each of them, the set of all that pairs join to it: one set for all in it."""
    sets: dict[Key, set[Key]] = {}
    for one, other in pairs:
        first, second = sets.setdefault(one, {one}), sets.setdefault(other, {other})
        if first is not second:
            first |= second
            sets |= dict.fromkeys(second, first)
    return sets


def _aligned(family: Family, edges: Edges, gaps: Gaps) -> list[tuple[ModuleOutput, ModuleOutput]]:
    """Return the pairs with the highest sum of scores that do not cross."""
    scores = _scores(family, edges, gaps)

    def ending(row: int) -> Iterator[Block]:
        return (Block(row, column, 1, 1, score) for column, score in enumerate(scores[row - 1], 1) if score)

    blocks = align(len(family.torch), len(family.keras), ending)
    return [(family.torch[block.torch_end - 1], family.keras[block.keras_end - 1]) for block in blocks]


def _scores(family: Family, edges: Edges, gaps: Gaps) -> list[list[float]]:
    """Return how well each two tensors go together; 0 where they must not.

    A dropout is only ever matched with a dropout, since it changes its tensor in training, nor a layer with one of the
    same weights that has its activation built in: what comes before a ReLU may be positive by chance.
    """
    # How many dropouts each tensor follows: tensors that follow as many may be the same in training too.
    stages = [list(itertools.accumulate(int(output.is_random) for output in outputs)) for outputs in family]
    count = [sum(output.is_random for output in outputs) for outputs in family]
    return [
        [
            _score(torch, keras, gaps)
            if keras.number in edges[torch.number]
            and torch.is_random == keras.is_random
            and not (_owns_alike(torch, keras) and torch.leaf and keras.leaf and torch.fused != keras.fused)
            and masks_may_agree(torch, keras, count[0] != count[1] or torch_stage == keras_stage)
            else 0.0
            for keras, keras_stage in zip(family.keras, stages[1], strict=True)
        ]
        for torch, torch_stage in zip(family.torch, stages[0], strict=True)
    ]


def _owns_alike(torch: ModuleOutput, keras: ModuleOutput) -> bool:
    return bool(torch.owns) and torch.owns == keras.owns


def _score(torch: ModuleOutput, keras: ModuleOutput, gaps: Gaps) -> float:
    return (
        ANY
        + WEIGHTS * _owns_alike(torch, keras)
        + KIND * (torch.kind == keras.kind)
        + GAP * (gaps is not None and gaps[0][torch.number] == gaps[1][keras.number])
        + RANK * (len(torch.tensor.shape) == len(keras.tensor.shape))
        + LEAF * (torch.leaf == keras.leaf)
    )

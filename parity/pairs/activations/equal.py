"""The tensors that have the same values on both sides.

Many modules return what they were given (a dropout in inference, an identity, a block whose last layer's output is
its own), so the same values often stand at several places on each side. Such a family is aligned in the order of
execution: modules of the same weights and of the same kind first, and then as many as possible, without crossing.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from parity.pairs.activations.counterparts import Counterparts, Place, may_be_behind
from parity.pairs.activations.values import SAME, Fit, could_be_same

Edges = dict[int, dict[int, Fit]]  # torch's number -> Keras's number -> how they fit
Gaps = tuple[list[int], list[int]] | None
# What is nearest counts: a block that adds a millionth to its input returns nearly the same, and another tensor.
NEAREST, ROUNDING = 16.0, 1e-12
FEW = 4  # candidates from which on equal tensors are worth being recognised
# Of the same weights before of the same kind before as many as possible; the rest decides between equals.
WEIGHTS, KIND, ANY, GAP, RANK, LEAF = 4.0, 2.0, 1.0, 0.5, 0.25, 0.125


class Family(NamedTuple):
    """Tensors of the same values, in the order of execution."""

    torch: list[Place]
    keras: list[Place]


def match_equal(state: Counterparts) -> None:
    """Find them. A tensor of one number everywhere says nothing, and is left to the next stages."""
    edges = _nearest(_edges(state))
    families = sorted(_families(state, edges), key=lambda family: len(family.torch) * len(family.keras))
    for simple, group in itertools.groupby(families, key=lambda family: len(family.torch) * len(family.keras) == 1):
        gaps = None if simple else state.gaps()
        for family in group:
            for torch, keras in _aligned(family, edges, gaps):
                shares = torch.owns and torch.owns == keras.owns
                state.add(torch, keras, edges[torch.number][keras.number], "weights" if shares else "value")


def _edges(state: Counterparts) -> Edges:
    """All pairs of the same values: those whose norms allow it are compared."""
    shelves: dict[tuple[int, str], list[Place]] = {}
    for place in sorted(state.keras, key=lambda place: place.tensor.marks.norm):
        if not place.tensor.is_constant:
            shelves.setdefault((place.tensor.size, place.tensor.family), []).append(place)
    norms = {key: [place.tensor.marks.norm for place in shelf] for key, shelf in shelves.items()}
    edges: Edges = {}
    for torch in state.torch:
        key = torch.tensor.size, torch.tensor.family
        if torch.tensor.is_constant or key not in shelves:
            continue
        norm, room = torch.tensor.marks.norm, 4 * SAME * torch.tensor.marks.norm
        near = shelves[key][bisect_left(norms[key], norm - room) : bisect_right(norms[key], norm + room)]
        edges[torch.number] = _compared(state, torch, [k for k in near if could_be_same(torch.tensor, k.tensor)])
    return edges


def _compared(state: Counterparts, torch: Place, near: list[Place]) -> dict[int, Fit]:
    compare = state.fit_once if len(near) > FEW else state.fit
    fits = ((keras.number, compare(torch, keras)) for keras in near)
    return {number: fit for number, fit in fits if fit and fit.distance <= SAME}


def _nearest(edges: Edges) -> Edges:
    """Without the pairs of which either has a much nearer counterpart."""
    best: dict[int, float] = {}
    for keras, fit in ((keras, fit) for row in edges.values() for keras, fit in row.items()):
        best[keras] = min(best.get(keras, fit.distance), fit.distance)
    found: Edges = {}
    for torch, row in edges.items():
        own = min((fit.distance for fit in row.values()), default=0.0)
        limit = {keras: max(NEAREST * min(own, best[keras]), ROUNDING) for keras in row}
        found[torch] = {keras: fit for keras, fit in row.items() if fit.distance <= limit[keras]}
    return found


def _families(state: Counterparts, edges: Edges) -> Iterator[Family]:
    """What hangs together by equality."""
    back: dict[int, list[int]] = {}
    for torch, row in edges.items():
        for keras in row:
            back.setdefault(keras, []).append(torch)
    seen: set[int] = set()
    for start in edges:
        if start in seen or not edges[start]:
            continue
        ours, theirs, waiting = {start}, set[int](), [start]
        while waiting:
            fresh = set(edges[waiting.pop()]) - theirs
            theirs |= fresh
            reached = {torch for keras in fresh for torch in back[keras]} - ours
            ours |= reached
            waiting.extend(reached)
        seen |= ours
        yield Family([state.torch[number] for number in sorted(ours)], [state.keras[n] for n in sorted(theirs)])


def _aligned(family: Family, edges: Edges, gaps: Gaps) -> list[tuple[Place, Place]]:
    """The pairs of the highest sum of scores that do not cross."""
    torch, keras = family
    scores = _scores(family, edges, gaps)
    best = [[0.0] * (len(keras) + 1) for _ in range(len(torch) + 1)]
    for i, j in itertools.product(range(len(torch)), range(len(keras))):
        together = best[i][j] + scores[i][j] if scores[i][j] else 0.0
        best[i + 1][j + 1] = max(best[i][j + 1], best[i + 1][j], together)
    pairs = []
    i, j = len(torch), len(keras)
    while i and j:
        if best[i][j] == best[i - 1][j]:
            i -= 1
        elif best[i][j] == best[i][j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((torch[i], keras[j]))
    return pairs[::-1]


def _scores(family: Family, edges: Edges, gaps: Gaps) -> list[list[float]]:
    """How well each two would go together; 0 where they must not: a dropout in training is like nothing else."""
    ours, theirs = (_stages(places) for places in family)
    count = [sum(place.is_random for place in places) for places in family]
    return [
        [
            _score(torch, keras, gaps)
            if keras.number in edges[torch.number]
            and torch.is_random == keras.is_random
            and may_be_behind(torch, keras, count[0] != count[1] or stage == other)
            else 0.0
            for keras, other in zip(family.keras, theirs, strict=True)
        ]
        for torch, stage in zip(family.torch, ours, strict=True)
    ]


def _stages(places: list[Place]) -> list[int]:
    """How many dropouts a tensor stands behind: those of an equal number may be the same in training too."""
    return list(itertools.accumulate(int(place.is_random) for place in places))


def _score(torch: Place, keras: Place, gaps: Gaps) -> float:
    return (
        ANY
        + WEIGHTS * bool(torch.owns and torch.owns == keras.owns)
        + KIND * (torch.kind == keras.kind)
        + GAP * (gaps is not None and gaps[0][torch.number] == gaps[1][keras.number])
        + RANK * (len(torch.tensor.shape) == len(keras.tensor.shape))
        + LEAF * (torch.leaf == keras.leaf)
    )

"""The split of a model into consecutive stages of nearly equal work."""

from collections.abc import Sequence
from itertools import accumulate


def balanced(costs: Sequence[float], stages: int) -> list[int]:
    """Return how many blocks each stage gets, so that the stage with the most work has as little as possible.

    `costs`: the work of each block, in any unit; there are at least as many as stages, and each stage gets one or more.
    Solved from the first block on: the best cut of the first n blocks into k stages follows from those into k - 1.
    """
    sums = [0.0, *accumulate(costs)]
    # By the number of blocks that are cut: the most work of a stage, and the sizes of the stages.
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for _ in range(stages):
        best = {
            end: min(
                (max(most, sums[end] - sums[start]), [*sizes, end - start])
                for start, (most, sizes) in best.items()
                if start < end
            )
            for end in range(min(best) + 1, len(sums))
        }
    return best[len(costs)][1]

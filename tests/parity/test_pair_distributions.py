"""Whether two builders draw a table from one distribution: what is seen, what is not said, and how sure that is."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from parity.core.arrays import Floats
from parity.pairs.untrained.distributions import DRAWS, Contrast, contrast, critical

Draw = Callable[[np.random.Generator], Floats]


def drawn(torch: Draw, keras: Draw, seed: int = 0) -> Contrast | None:
    random = np.random.default_rng(seed)
    return contrast((torch(random) for _ in range(DRAWS)), (keras(random) for _ in range(DRAWS)), 1)


def normal(*shape: int, scale: float | Floats = 1.0) -> Draw:
    return lambda random: scale * random.standard_normal(shape)


def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Draw:
    return lambda random: random.uniform(low, high, shape)


def units(random: np.random.Generator) -> Floats:
    """Rows of length 1: their sum of squares is no random number."""
    rows = random.standard_normal((16, 8))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def without(row: int) -> Draw:
    return lambda random: random.standard_normal((8, 8)) * (np.arange(8) != row)[:, None]


def jittered(base: float, by: float) -> Draw:
    return lambda random: base ** (-np.arange(16) / 16) * (1 + by * random.random(16))


def orthogonal(random: np.random.Generator) -> Floats:
    return np.linalg.qr(random.standard_normal((16, 16)))[0]


def orthogonal_blocks(random: np.random.Generator) -> Floats:
    """Rows at right angles to those of their block, as long as normal ones: as in a Performer."""
    blocks = [np.linalg.qr(random.standard_normal((8, 8)))[0] for _ in range(2)]
    return np.concatenate(blocks) * np.linalg.norm(random.standard_normal((16, 8)), axis=1, keepdims=True)


def sparse(density: float) -> Draw:
    return lambda random: random.standard_normal((16, 16)) * (random.random((16, 16)) < density)


def repeated(random: np.random.Generator) -> Floats:
    """One random number, everywhere: no two elements are independent."""
    return np.full((8, 8), random.standard_normal())


ALIKE: dict[str, Draw] = {
    "normal": normal(8),
    "scalar": normal(),
    "columns at scales of their own": normal(8, 8, scale=2.0 ** np.arange(8)),
    "rows of length 1": units,
    "an orthogonal matrix": orthogonal,
    "orthogonal blocks": orthogonal_blocks,
    "a zero row": without(0),
    "jitter": jittered(10000.0, 0.05),
    "sparse": sparse(0.1),
    "one number everywhere": repeated,
    "a random order": lambda random: random.permutation(32).astype(float),
    "signs": lambda random: random.choice([-1.0, 1.0], 16),
    "a mask": lambda random: np.where(random.random((8, 8)) < 0.5, -3e38, 0.0),
    "heavy tails": lambda random: random.standard_cauchy((8, 8)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_tables_that_are_drawn_alike(name: str) -> None:
    assert [drawn(ALIKE[name], ALIKE[name], seed) for seed in range(5)] == [None] * 5


@pytest.mark.parametrize(
    ("torch", "keras"),
    [
        (normal(8), normal(8, scale=2 * math.pi)),
        (normal(64), normal(64, scale=1.5)),
        (normal(32, 32), normal(32, 32, scale=1.1)),
        (normal(8, 16), uniform(8, 16, low=-math.sqrt(3), high=math.sqrt(3))),
        (uniform(8, high=2 * math.pi), uniform(8)),
        (uniform(8, high=2 * math.pi), uniform(8, low=-math.pi, high=math.pi)),
        (normal(8, 8, scale=2.0 ** np.arange(8)), normal(8, 8, scale=np.roll(2.0 ** np.arange(8), 1))),
        (without(0), without(7)),
        (normal(8), lambda _: np.zeros(8)),
        (lambda _: np.sin(np.arange(8.0)), normal(8)),
        (jittered(10000.0, 0.05), jittered(1000.0, 0.05)),
        (jittered(10000.0, 0.05), jittered(10000.0, 0.0)),
        (orthogonal, normal(16, 16, scale=0.25)),
        (units, normal(16, 8, scale=1 / math.sqrt(8))),
        (orthogonal_blocks, normal(16, 8)),
        (lambda random: np.concatenate([half := random.standard_normal((8, 8)), -half]), normal(16, 8)),
        (lambda random: np.concatenate([half := random.standard_normal((16, 4)), half], 1), normal(16, 8)),
        (repeated, normal(8, 8)),
        (sparse(0.1), sparse(0.3)),
        (lambda random: random.permutation(32).astype(float), lambda random: random.integers(0, 32, 32).astype(float)),
        (lambda random: np.sort(random.standard_normal(64)), normal(64)),
    ],
)
def test_tables_that_are_not_drawn_alike(torch: Draw, keras: Draw) -> None:
    assert all(drawn(torch, keras, seed) and drawn(keras, torch, seed) for seed in range(2))


@pytest.mark.parametrize("n", [3, 4, 5])
def test_the_chance_of_a_false_alarm_is_exact(n: int) -> None:
    """By listing all orders of 2n builds."""
    orders = [
        sum(ours > theirs for ours in chosen for theirs in set(range(2 * n)).difference(chosen))
        for chosen in itertools.combinations(range(2 * n), n)
    ]
    for chance in (0.001, 0.01, 0.05, 0.2, 0.5):
        most = critical(n, chance)
        assert sum(u <= most for u in orders) <= chance * len(orders) < sum(u <= most + 1 for u in orders)

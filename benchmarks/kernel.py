"""Compares two large float32 arrays with the kernel and with what else there is, in one run.

    python benchmarks/kernel.py [--elements=64000000]

Rounds are interleaved and the best of each is taken, so that another load on the machine hits all
alike; the ratios are what matters. Exits 1 if a goal is missed.
"""

import argparse
import io
import time
import tracemalloc
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import numpy as np

from parity.core.arrays import Array
from parity.verdict import kernel, stream

ROUNDS = 25
SLOW_ROUNDS = 8  # of what takes a second; the first ones are far slower, while the system finds fresh memory for copies
POLYGRAPHY_ELEMENTS = 4_000_000  # in cache, which favours it; it makes several copies and histograms
OVER_ASSERT, OVER_DOT = 25.0, 0.4  # the goals, in speed of the difference of two arrays


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=64_000_000)
    size = parser.parse_args().elements
    random = np.random.default_rng(0)
    a = random.standard_normal(size, dtype=np.float32)
    b = a + np.float32(1e-6) * random.standard_normal(size, dtype=np.float32)
    runs = _runs(a[: size // 2], b[: size // 2])
    small = min(size, POLYGRAPHY_ELEMENTS)
    contenders: dict[str, tuple[Callable[[], object] | str, int, int]] = {  # how, bytes read, rounds
        "difference of two arrays": (lambda: difference(a, b), a.nbytes * 2, ROUNDS),
        "np.dot": (lambda: np.dot(a, b), a.nbytes * 2, ROUNDS),
        "np.testing.assert_allclose": (lambda: np.testing.assert_allclose(a, b, atol=1e-4), a.nbytes * 2, SLOW_ROUNDS),
        "torch.testing.assert_close": (_torch(a, b), a.nbytes * 2, SLOW_ROUNDS),
        f"polygraphy, {small:,} elements": (polygraphy(a[:small], b[:small]), small * 8, SLOW_ROUNDS),
        "kernel.measure, 3 x float64, 2 x float32": (lambda: kernel.measure(runs), size // 2 * 32, ROUNDS),
    }
    speeds = _speeds(contenders)
    ours = speeds["difference of two arrays"]
    print(f"{size:,} float32 elements, {stream.THREADS} threads, blocks of {stream.THREAD_BLOCK >> 20} MiB\n")
    for name, (how, _, _) in contenders.items():
        print(f"{name:42}", how if isinstance(how, str) else f"{speeds[name]:7.2f} GB/s {ours / speeds[name]:8.2f}x")
    print("\n(x: how many times as fast the difference of two arrays is)")
    print(f"peak additional memory: difference {_peak(lambda: difference(a, b)):.1f} MiB,", end=" ")
    print(f"measure {_peak(lambda: kernel.measure(runs)):.1f} MiB; one array: {a.nbytes / 2**20:.1f} MiB")
    goals = {"np.testing.assert_allclose": OVER_ASSERT, "np.dot": OVER_DOT}
    met = {name: ours / speeds[name] >= goal for name, goal in goals.items()}
    for name, goal in goals.items():
        print(f"{'met' if met[name] else 'MISSED'}: at least {goal:g} times the speed of {name}")
    return 0 if all(met.values()) else 1


class _TwoArrays:
    """The kernel's reduction for two arrays alone: the size of the first, and of their difference."""

    def __init__(self, step: int, dtype: np.dtype[Any]) -> None:
        self.spare = np.empty(step, dtype)

    def __call__(self, blocks: list[Array | None]) -> list[Any]:
        return [kernel._alone(blocks[0]), kernel._apart(blocks[0], blocks[1], self.spare, norm=True)]


def difference(a: Array, b: Array) -> list[Any]:
    """Return what the kernel measures of two float32 arrays: largest magnitude and difference, and the L2 norm."""
    return kernel._joined(stream.stream((a, b), _TwoArrays, np.dtype(np.float32))[0])


def _runs(a: Array, b: Array) -> kernel.Runs:
    high = a.astype(np.float64)
    return kernel.Runs(high, high + 1e-15, a, b, high - 1e-15)


def _torch(a: Array, b: Array) -> Callable[[], object] | str:
    try:
        import torch
    except ImportError as error:
        return f"skipped: {error}"
    one, other = torch.from_numpy(a), torch.from_numpy(b)
    return lambda: torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def polygraphy(a: Array, b: Array) -> Callable[[], object] | str:
    """Return what compares two arrays by Polygraphy's comparator, or why nothing does."""
    try:
        from polygraphy.comparator import Comparator, RunResults, SimpleCompareFunc  # type: ignore
        from polygraphy.comparator.struct import IterationResult  # type: ignore
    except ImportError as error:
        return f"skipped: {error}"
    results = RunResults(
        [(name, [IterationResult({"x": array}, runner_name=name)]) for name, array in (("a", a), ("b", b))]
    )

    def compare() -> None:
        with redirect_stdout(io.StringIO()):
            if not Comparator.compare_accuracy(results, SimpleCompareFunc(atol=1e-4, rtol=1e-5)):
                raise AssertionError("polygraphy finds the arrays different")

    return compare


def _speeds(contenders: dict[str, tuple[Callable[[], object] | str, int, int]]) -> dict[str, float]:
    """Return the GB/s of the best round of each."""
    best: dict[str, float] = {}
    for turn in range(ROUNDS):
        for name, (how, size, rounds) in contenders.items():
            if turn < rounds and not isinstance(how, str):
                start = time.perf_counter()
                how()
                best[name] = max(best.get(name, 0.0), size / (time.perf_counter() - start) / 1e9)
    return best


def _peak(work: Callable[[], object]) -> float:
    """MiB that numpy and Python allocate at most."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


if __name__ == "__main__":
    raise SystemExit(main())

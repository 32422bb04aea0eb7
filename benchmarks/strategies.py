"""Each distribution strategy against the same strategy written by hand, without this project's strategy files.

    python benchmarks/strategies.py [--case=GLOB ...] [--side=torch|keras] [--seconds=60]

Both trainings get the same model, weights, batches, loss and optimizer (by_hand/child.py) and take turns, a burst of
steps each. First it is checked that they train alike: after three steps their parameters agree. Goal: at most 1.05
times the time; it is met or missed if the whole interval of the ratio says so, and undecided otherwise. Exits 1 if a
goal is missed, or if two trainings differ.
"""

import argparse
import contextlib
import fnmatch
import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from parity.bench.lanes import USUAL, Lane, measured
from parity.config import cases
from parity.config.schema import Case
from parity.runtime.backend import Backend
from parity.runtime.child import ForkServer

GOAL = 1.05
AGREE = 1e-3  # of the largest change of a parameter in the steps that are checked
CHILD = Path(__file__).parent / "by_hand" / "child.py"
STRATEGIES = "single round_robin data_parallel ddp all_reduce send_recv pipeline hybrid branch_parallel tensor_parallel"
CASES = [f"transformer/{strategy}" for strategy in STRATEGIES.split()]
# A small model, whose step does not hide what a strategy adds to it; dropout would draw other masks on either side.
MODEL = {"dropout": 0.0, "d_model": 64, "feed_forward": 128, "encoder_layers": 1, "decoder_layers": 1}
DEVICES = {"transformer/hybrid": 4}  # the others have two


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", default=[], help="globs of transformer/STRATEGY; default all ten")
    parser.add_argument("--side", action="append", choices=["torch", "keras"])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each line, after which it ends (60)")
    args = parser.parse_args()
    chosen = [chosen_case(name) for name in CASES if any(fnmatch.fnmatch(name, glob) for glob in args.case or ["*"])]
    if not chosen:
        sys.exit(f"no case matches {args.case}; expected a glob for some of {', '.join(CASES)}")
    print(f"{'case':32}{'side':>6}{'by hand ms':>12}{'ours ms':>10}{'ratio':>8}{'interval':>16}", flush=True)
    missed = [_line(case, side, args.seconds) for case in chosen for side in args.side or ["torch", "keras"]]
    return int(any(missed))


def chosen_case(name: str) -> Case:
    """Return a case as it is timed."""
    return cases.resolve(name, {"model": MODEL, "devices": DEVICES.get(name, 2)})


def _line(case: Case, side: str, seconds: float) -> bool:
    """Print the line of a case, and return whether its goal is certainly missed."""
    with tempfile.TemporaryDirectory(prefix="parity-") as folder, lanes(case, side, Path(folder)) as (by_hand, ours):
        if difference := differing(by_hand, ours):
            print(f"{case.name:32}{side:>6}  NOT THE SAME TRAINING: {difference}", flush=True)
            return True
        low, middle, high = measured([by_hand.lane, ours.lane], seconds)[1]
    verdict = "met" if high <= GOAL else "MISSED" if low > GOAL else "undecided"
    times = f"{_ms(by_hand.lane):12.2f}{_ms(ours.lane):10.2f}{middle:8.3f}{low:9.3f}-{high:.3f}"
    print(f"{case.name:32}{side:>6}{times}  {verdict}", flush=True)
    return low > GOAL


def _ms(lane: Lane) -> float:
    return 1000 * statistics.median(lane.samples)


class Trainee:
    """A training, begun, and the folder in which its ranks write their parameters."""

    def __init__(self, lane: Lane, folder: Path) -> None:
        self.lane, self.folder = lane, folder

    def states(self) -> dict[str, np.lib.npyio.NpzFile]:
        """Return the parameters of the ranks, by file name."""
        return {path.name: np.load(path) for path in sorted(self.folder.glob("*.npz"))}


@contextlib.contextmanager
def lanes(case: Case, side: str, folder: Path):
    """Begin both trainings and make the steps that are checked."""
    with contextlib.ExitStack() as stack:
        yield [_begun(case, side, folder / whose, whose, stack) for whose in ("by_hand", "ours")]


def _begun(case: Case, side: str, folder: Path, whose: str, stack: contextlib.ExitStack) -> Trainee:
    folder.mkdir()
    threads = max(len(os.sched_getaffinity(0)) // case.distribution.processes(side), 1)
    command = [sys.executable, str(CHILD), side, whose]
    servers = {shares: ForkServer(side, command) for shares in (True, False)}
    backend = Backend(side, "", folder, threads=threads, servers=servers)
    lane = stack.enter_context(Lane(USUAL[side], case, backend))
    lane.begin()
    lane.burst(2)
    return Trainee(lane, folder / "bursts")


def differing(one: Trainee, other: Trainee) -> str:
    """Return how two trainings differ after the steps that are checked, or ""."""
    left, right = one.states(), other.states()
    if list(left) != list(right) or not left:
        return f"ranks {list(left)} and {list(right)}"
    for name in left:
        (first, last), (_, own) = ((_ordered(state, 0), _ordered(state, 1)) for state in (left[name], right[name]))
        if [array.shape for array in last] != [array.shape for array in own]:
            return f"rank {name}: parameters of other shapes"
        if not last:  # a stage without parameters
            continue
        moved = max(float(np.abs(a - b).max()) for a, b in zip(first, last, strict=True))
        apart = max(float(np.abs(a - b).max()) for a, b in zip(last, own, strict=True))
        if not moved:
            return f"rank {name}: nothing was trained"
        if not apart <= AGREE * moved:
            return f"rank {name}: parameters {apart:.1e} apart after a change of {moved:.1e}"
    return ""


def _ordered(state: np.lib.npyio.NpzFile, when: int) -> list[np.ndarray]:
    """Return the parameters at a time, in an order that does not depend on the names and the nesting of modules."""
    arrays = [state[f"{when}/{i}"] for i in range(len(state.files) // 2)]
    return sorted(arrays, key=lambda array: (array.shape, float(array.flat[0])))


if __name__ == "__main__":
    sys.exit(main())

"""A recorded training step against a bare one of the same model, in torch and in Keras.

    python benchmarks/step.py [--case=transformer/single --case=...] [--precision=float64] [--rounds=16]

Lanes: bare (the strategy's loop, no probe, no recorder), full (every step recorded whole), between (losses
and gradients only) and idle (a step that records nothing). Each side, case and precision has a process of
its own; in it the lanes take turns, one step each and then one plain write of a file of a full step's
size, so that another load on the machine hits all alike. The first steps, which trace, do not count;
medians. Goal: full / bare <= 1.15 + (the plain write's time) / bare. Exits 1 if it is missed.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bare
import numpy as np

from parity.config import cases
from parity.config.schema import Case
from parity.trace.recorder import Recorder

CASES = ["transformer/single", "residual_block/single", "linear_stack/single"]
PRECISIONS = ["float32", "float64"]
ENDLESS = 1_000_000  # steps
WARM = 2  # steps of each lane that do not count: the first traces
OVERHEAD = 1.15
HEADER = ("bare ms", "full ms", "MB", "write GB/s", "ratio", "allowed", "goal", "between", "idle")


class Recording(Recorder):
    """A recorder of more steps than will be made, all of them whole or none but the first."""

    def __init__(self, folder: Path, every: int, whole: bool) -> None:
        super().__init__(folder, ENDLESS, every)
        self.whole = whole

    def wants(self, kind: str) -> bool:
        """Everything, if all steps are to be whole."""
        return self.whole or super().wants(kind)


class Lane:
    """A training loop in a thread that makes one step when told to, and waits where the step has ended."""

    def __init__(self, train: Callable[[Any], None], recorder: Any) -> None:
        self.seconds: list[float] = []
        self.written = 0
        self._recorder = recorder
        self._go, self._waiting = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, args=(train,), daemon=True).start()
        self._waiting.acquire()

    def next_step(self) -> None:
        """Wait for the clock at the end of a step, and once before the first; the harness calls this."""
        self._recorder.next_step()
        self.seconds.append(time.perf_counter() - self._start)
        self._waiting.release()
        self._go.acquire()
        self._start = time.perf_counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorder, name)

    def step(self) -> None:
        """Run one step; its files are deleted when the clock has stopped."""
        self._go.release()
        self._waiting.acquire()
        if isinstance(self._recorder, Recording):
            # Not all that is in the folder: the file of the next step is open already.
            files = [self._recorder.folder / f"{stem}.safetensors" for stem in self._recorder.files]
            self._recorder.files.clear()
            self.written = sum(file.stat().st_size for file in files)
            for file in files:
                file.unlink()

    def _run(self, train: Callable[[Any], None]) -> None:
        self._start = time.perf_counter()
        try:
            train(self)
        finally:
            self._waiting.release()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", default=[], help=f"globs; default {', '.join(CASES)}")
    parser.add_argument("--precision", action="append", default=[], help=f"default {', '.join(PRECISIONS)}")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--side", choices=bare.SIDES, help="measure one case in this process, print JSON")
    args = parser.parse_args()
    if args.side:
        print(json.dumps(measure(args.side, cases.resolve(args.case[0]), args.precision[0], args.rounds)))
        return 0
    print(f"{'case, side, precision':40}" + "".join(f"{title:>11}" for title in HEADER))
    met = [
        _show(f"{case.name} {side} {at}", _child(side, case, at, args.rounds))
        for case in cases.select(args.case or CASES)
        for side in bare.SIDES
        for at in args.precision or PRECISIONS
    ]
    print("\nratio: full / bare; allowed: 1.15 + plain write / bare; between, idle: ratios of steps that record")
    print("losses and gradients only, or nothing")
    return 0 if all(met) else 1


def measure(side: str, case: Case, at: str, rounds: int) -> dict[str, float]:
    """Median seconds of each kind of step and of a plain write, and the bytes of a whole step."""
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        folder, data = Path(scratch), bare.Endless(case)
        recorders = {
            "bare": bare.Silent(),
            "full": Recording(folder / "full", 1, True),
            "between": Recording(folder / "between", 1, False),
            "idle": Recording(folder / "idle", ENDLESS, False),
        }
        lanes = {name: _lane(side, case, at, data, recorder) for name, recorder in recorders.items()}
        content = np.ones(lanes["full"].written, np.uint8).data
        writes = []
        order = list(lanes.values())
        for number in range(rounds):
            for lane in order:
                lane.step()
            order.append(order.pop(0))  # each comes first, behind the plain write, as often as the others
            # A new file each time, kept as a recording's files are: the memory of a file that was
            # removed would be used again, several times as fast.
            writes.append(_write(folder / f"plain-{number}", content))
        medians = {name: statistics.median(lane.seconds[-rounds:]) for name, lane in lanes.items()}
    return medians | {"write": statistics.median(writes), "bytes": len(content)}


def _lane(side: str, case: Case, at: str, data: bare.Endless, recorder: Recording | bare.Silent) -> Lane:
    lane = Lane(lambda self: bare.framework(side, case, at, data, self, isinstance(recorder, Recording)), recorder)
    for _ in range(WARM):
        lane.step()
    return lane


def _write(path: Path, content: memoryview) -> float:
    start = time.perf_counter()
    with path.open("wb") as file:
        file.write(content)
    return time.perf_counter() - start


def _child(side: str, case: Case, at: str, rounds: int) -> dict[str, float]:
    flags = [f"--side={side}", f"--case={case.name}", f"--precision={at}", f"--rounds={rounds}"]
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        measured: dict[str, float] = bare.answer(bare.start(__file__, Path(folder), *flags), Path(folder))
    return measured


def _show(title: str, got: dict[str, float]) -> bool:
    ratio, allowed = got["full"] / got["bare"], OVERHEAD + got["write"] / got["bare"]
    met = ratio <= allowed
    columns = [f"{got['bare'] * 1e3:.2f}", f"{got['full'] * 1e3:.2f}", f"{got['bytes'] / 1e6:.2f}"]
    columns += [f"{got['bytes'] / got['write'] / 1e9:.2f}", f"{ratio:.2f}", f"{allowed:.2f}"]
    columns += ["met" if met else "MISSED", *(f"{got[name] / got['bare']:.2f}" for name in ("between", "idle"))]
    print(f"{title:40}" + "".join(f"{column:>11}" for column in columns), flush=True)
    return met


if __name__ == "__main__":
    sys.exit(main())

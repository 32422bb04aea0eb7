"""What a diagnosis adds to a failing comparison: python benchmarks/diagnosis.py [CASE] [FAULT].

Both sides record a case, one of them with a planted fault; then the traces are judged alone and judged with
place and causes, in turn. The goal: less than a tenth of the whole comparison, from the start of the
backends to the causes.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from parity.config import cases
from parity.diagnose.diagnosis import examined
from parity.runtime.backend import Backend, running
from parity.runtime.job import RUNS, Job
from parity.runtime.runner import both
from parity.trace.manifest import Trace
from parity.verdict.traces import compare

GOAL = 0.1
ROUNDS = 3


def main() -> int:
    name, fault = [*sys.argv[1:], *("transformer/single", "layer_norm.default_epsilon")[len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as scratch:
        recorded = _seconds(lambda: _record(name, fault, Path(scratch)))
        judged, diagnosed = ([] for _ in range(2))
        for _ in range(ROUNDS):
            judged.append(_seconds(lambda: compare(*_traces(Path(scratch)))))
            diagnosed.append(_seconds(lambda: examined(*_traces(Path(scratch)))))
        causes = examined(*_traces(Path(scratch))).result.causes
    added = statistics.median(diagnosed) - statistics.median(judged)
    whole = recorded + statistics.median(judged)
    print(f"{name}, keras {fault}: {len(causes)} causes, {', '.join(sorted({cause.id for cause in causes}))}")
    print(f"recorded in {recorded:.1f} s, judged in {statistics.median(judged):.2f} s, diagnosed in {added:.2f} s more")
    print(f"ratio {added / whole:.3f}, goal {GOAL}")
    return int(added > GOAL * whole)


def _record(name: str, fault: str, folder: Path) -> None:
    case = cases.resolve(name)
    backends = [Backend(side, "", folder) for side in RUNS]
    jobs = {
        backend: Job(case=case, runs=RUNS[backend.name], folder=str(folder / backend.name), fault=planted)
        for backend, planted in zip(backends, ("", fault), strict=True)
    }
    with running(backends):
        for answer in both(jobs).values():
            assert answer.status == "done", answer.message


def _traces(folder: Path) -> tuple[Trace, Trace]:
    return Trace(folder / "torch"), Trace(folder / "keras")


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())

"""What watching adds to a step: python benchmarks/doctor.py [CASE].

On each side the doctor's observed steps and plain ones in turn, on virtual devices; Keras's plain steps run op by
op, as the observed ones do. The goal: less than a second.
"""

import contextlib
import importlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parity.config import cases
from parity.doctor.drive import Drive, Files, steps
from parity.runtime.drive import Rank, plain_run
from parity.runtime.environment import environment
from parity.runtime.job import DoctorJob

GOAL = 1.0  # seconds
CASE = "transformer/single"


def main() -> int:
    if sys.argv[1:2] == ["--side"]:
        with tempfile.TemporaryDirectory() as scratch:
            print(_added(sys.argv[2], sys.argv[3], Path(scratch)))
        return 0
    case = [*sys.argv[1:], CASE][0]
    worst = 0.0
    for side in ("torch", "keras"):
        with tempfile.TemporaryDirectory() as scratch:
            variables = environment(Path(scratch)) | {"PARITY_DEVICES": "cpu:2" if side == "keras" else "cpu:1"}
            command = [sys.executable, __file__, "--side", side, case]
            ended = subprocess.run(command, env=variables, capture_output=True, text=True)
        if ended.returncode:
            sys.exit(ended.stderr)
        plain, observed = map(float, ended.stdout.split()[-2:])
        print(f"{case} {side}: plain step {plain:.2f} s, observed {observed:.2f} s: {observed - plain:.2f} s more")
        worst = max(worst, observed - plain)
    print(f"goal: less than {GOAL:.0f} s more: {'met' if worst < GOAL else 'MISSED'}")
    return int(worst >= GOAL)


def _added(side: str, name: str, folder: Path) -> str:
    """Return the median seconds of plain and of observed steps; the first one of all is not counted."""

    def part(module: str) -> Any:
        return importlib.import_module(f"{side}_impl.{module}")

    job = DoctorJob(case=cases.resolve(name), folder=str(folder), devices=1)
    places = ["cuda:0" if side == "torch" else "GPU:0"]
    kept = contextlib.nullcontext
    if side == "keras":
        importlib.import_module("tensorflow").config.run_functions_eagerly(True)
        part("instruments.devices").names = lambda count: places
        kept = part("instruments.state").changes_undone
    taken: dict[bool, list[float]] = {True: [], False: []}
    with part("instruments.pretended").pretend(1):
        with part("instruments.build").Building() as building:
            program = part("record.run").program(plain_run(job.case, steps(job), Rank(0, 1), job.folder), places)
        observer = part("doctor.observer").Observer(program.model, building, places)

        @contextlib.contextmanager
        def timed(number: int, batch: Any) -> Iterator[None]:
            start, watched = time.perf_counter(), number % 2 == 0
            with contextlib.ExitStack() as stack:
                if watched:
                    stack.enter_context(kept())
                    stack.enter_context(observer.step(part("doctor.examine").named(batch)))
                yield
            taken[watched].append(time.perf_counter() - start)

        Drive(program, timed, Files(folder, 0), 1, steps(job)).run()
    return f"{statistics.median(taken[False])} {statistics.median(taken[True][1:])}"


if __name__ == "__main__":
    sys.exit(main())

"""The default run, `python -m parity.compare --quiet`, against its floor.

    python benchmarks/run.py [--case=GLOB ...] [--rounds=1]

The floor is what the same training costs if nothing is watched, written or compared: for each side the
import of its framework, then for every case and run (torch: low, high, witness; Keras: low, high) the
bare steps; Keras's first step traces and counts as it is. The sides run side by side, one core each, so
that no run can end before the slower side has done its part: the floor is the larger of the two sums, not
their sum. The floor is measured as the run is, both sides at once, right after it. Goal: at most 1.5 times
the floor. Exits 1 if it is missed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import bare
from msgspec import structs

from parity.config import cases
from parity.config.schema import Case
from parity.data.batches import Dataset
from parity.runtime.environment import environment

GOAL = 1.5
RUNS = {"torch": ["low", "high", "witness"], "keras": ["low", "high"]}
LATER = 4  # steps, at least, whose median is a later step's time
Parts = dict[str, dict[str, float]]  # case to the seconds of its parts


def main() -> int:
    args = _parse()
    if args.side:
        print(json.dumps({case.name: measure(args.side, case) for case in cases.select(args.case)}))
        return 0
    ratios = [_round([f"--case={glob}" for glob in args.case]) for _ in range(args.rounds)]
    ratio = statistics.median(ratios)
    print(f"\n{'met' if ratio <= GOAL else 'MISSED'}: {ratio:.2f} times the floor, goal {GOAL}")
    return 0 if ratio <= GOAL else 1


def measure(side: str, case: Case) -> dict[str, float]:
    """Seconds of a case's floor by part, over all its runs; of the evaluation too, which is not in the floor."""
    parts = dict.fromkeys(("first", "steps", "evaluation"), 0.0)
    for run in RUNS[side]:
        clock = bare.Clock()
        longer = structs.replace(case, steps=max(case.steps, LATER + 1))
        at = case.precision if run == "low" else "float64"
        bare.framework(side, longer, at, Dataset(longer), clock, watched=False)
        *steps, evaluation = clock.seconds
        later = statistics.median(steps[1:])
        parts["first"] += max(steps[0] - later, 0.0)
        parts["steps"] += later * case.steps
        parts["evaluation"] += evaluation
    return parts


def _round(flags: list[str]) -> float:
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        seconds, recorded = _compare(flags, Path(folder) / "report.json")
        floors = {side: _import(side, Path(folder)) for side in bare.SIDES}
        imports = dict(floors)
        children = {side: bare.start(__file__, Path(folder), f"--side={side}", *flags) for side in bare.SIDES}
        parts: dict[str, Parts] = {side: bare.answer(child, Path(folder)) for side, child in children.items()}
    for side in bare.SIDES:
        floors[side] += _sum(parts[side].values())
    _show(recorded, parts)
    floor = max(floors.values())
    for side in bare.SIDES:
        print(_line(side, imports[side], floors[side], parts[side], recorded))
    print(f"run {seconds:.1f} s, floor {floor:.1f} s, ratio {seconds / floor:.2f}", flush=True)
    return seconds / floor


def _compare(flags: list[str], report: Path) -> tuple[float, Parts]:
    """The run's seconds, and what its report says that each side took for each case."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "parity.compare", "--quiet", f"--json={report}", *flags], check=True)
    seconds = time.perf_counter() - start
    return seconds, {case["case"]: case["seconds"] for case in json.loads(report.read_text())["cases"]}


def _import(side: str, folder: Path) -> float:
    """An interpreter that imports the framework; the second time, so that the files are in memory."""
    for _ in range(2):
        start = time.perf_counter()
        command = [sys.executable, "-c", f"import {side}"]
        subprocess.run(command, check=True, env=environment(folder), stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def _sum(cases_of: Iterable[dict[str, float]]) -> float:
    return sum(parts["first"] + parts["steps"] for parts in cases_of)


def _show(recorded: Parts, floors: dict[str, Parts]) -> None:
    print(f"{'':34}{'torch':>20}{'keras':>30}\n{'case':34}" + f"{'run':>7}{'steps':>8}{'evaluate':>9}", end="")
    print(f"{'run':>9}{'tracing':>9}{'steps':>8}{'evaluate':>9}")
    for name, seconds in recorded.items():
        torch, keras = floors["torch"][name], floors["keras"][name]
        columns: list[Any] = [seconds["torch"], torch["first"] + torch["steps"], torch["evaluation"]]
        columns += [seconds["keras"], keras["first"], keras["steps"], keras["evaluation"]]
        print(f"{name:34}" + "".join(f"{value:8.2f}" for value in columns))


def _line(side: str, imported: float, floor: float, parts: Parts, recorded: Parts) -> str:
    def total(part: str) -> float:
        return sum(case[part] for case in parts.values())

    jobs = sum(case[side] for case in recorded.values())
    return (
        f"{side}: jobs {jobs:.1f} s; floor {floor:.1f} s = import {imported:.1f} + first steps' excess "
        f"{total('first'):.1f} + steps {total('steps'):.1f}; evaluations, not in the floor, {total('evaluation'):.1f}"
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", default=[], help="globs; default all built-in cases")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--side", choices=bare.SIDES, help="measure the floor in this process, print JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

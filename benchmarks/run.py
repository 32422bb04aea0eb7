"""The default run, `python -m parity.compare --quiet`, against its floor.

    python benchmarks/run.py [--case=GLOB ...] [--devices=cpu:2] [--rounds=1]

The floor is the same training with nothing watched, written or compared: by the same runner, in the same number of
processes and ranks, launched and their frameworks imported once, every case's runs (torch: low, high,
witness; Keras: low, high) traced, stepped and evaluated by the same strategies, a probe that does nothing.
Goal: at most 1.5 times the floor. Exits 1 if it is missed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bare

from parity.config import cases
from parity.config.devices import obstacle, parse
from parity.runtime.backend import Backend
from parity.runtime.runner import Runner
from parity.subjects import Plan

GOAL = 1.5
Seconds = dict[str, dict[str, float]]  # case to side to its seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--case", action="append", default=[], help="globs; default those that parity.compare runs by default"
    )
    parser.add_argument("--devices", default="cpu:2")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    ratios = [_round(args) for _ in range(args.rounds)]
    ratio = statistics.median(ratios)
    print(f"\n{'met' if ratio <= GOAL else 'MISSED'}: {ratio:.2f} times the floor, goal {GOAL}")
    return 0 if ratio <= GOAL else 1


def _round(args: argparse.Namespace) -> float:
    seconds, recorded = _compare(args)
    floor, trained = _floor(args)
    recorded = {name: sides for name, sides in recorded.items() if name in trained}
    print(f"{'case':34}{'torch':>8}{'bare':>8}{'keras':>8}{'bare':>8}")
    for name, sides in recorded.items():
        columns = [sides["torch"], trained[name]["torch"], sides["keras"], trained[name]["keras"]]
        print(f"{name:34}" + "".join(f"{value:8.2f}" for value in columns))
    for side in bare.SIDES:
        print(f"{side}: jobs {_sum(recorded, side):.1f} s, bare {_sum(trained, side):.1f} s")
    print(f"run {seconds:.1f} s, floor {floor:.1f} s, ratio {seconds / floor:.2f}", flush=True)
    return seconds / floor


def _compare(args: argparse.Namespace) -> tuple[float, Seconds]:
    """Return the run's seconds, and what its report says that each side took for each case."""
    flags = [f"--devices={args.devices}", *(f"--case={glob}" for glob in args.case)]
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        report = Path(folder) / "report.json"
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "parity.compare", "--quiet", f"--json={report}", *flags], check=True)
        seconds = time.perf_counter() - start
        results = json.loads(report.read_text())["cases"]
    return seconds, {case["case"]: case["seconds"] for case in results if case["seconds"]}


def _floor(args: argparse.Namespace) -> tuple[float, Seconds]:
    """Return the seconds of all that the cases need, run bare, and of each case's own training."""
    devices = parse(args.devices)
    able = [case for case in cases.select(args.case, devices=devices.number) if not obstacle(case)]
    chosen = [case for case in able if not case.distribution.side_obstacle("keras")]
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        plan = Plan(chosen, Path(folder), None)
        start = time.perf_counter()
        backends = [Backend(side, "", Path(folder), devices.kind) for side in bare.SIDES]
        for backend in backends:
            backend.command = [sys.executable, bare.__file__, backend.name]
        with Runner(backends) as runner:
            for task in plan.tasks:
                task.begin(runner.sides)
            for task in plan.tasks:
                if messages := [answer.message for answer in task.answers().values() if answer.status != "done"]:
                    raise RuntimeError(f"{task.case.name}: {messages[0]}")
        seconds = time.perf_counter() - start
    trained = {task.case.name: {side: answer.seconds for side, answer in task.answers().items()} for task in plan.own}
    return seconds, trained


def _sum(trained: Seconds, side: str) -> float:
    return sum(sides[side] for sides in trained.values())


if __name__ == "__main__":
    sys.exit(main())

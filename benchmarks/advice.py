"""The advice held against measurements: how far predicted memory and step times are off on this machine.

    python benchmarks/advice.py [--case='*/single' ...] [--devices=1,2,3,4] [--seconds=1] [--write]

For each case and each number of CPU devices, `python -m parity.advise --check` predicts all strategies in both
frameworks, and measures them. Prints for each case and framework the range of the median errors and the worst ones,
and at the end those over all. --write puts the table into docs/advise.md.
"""

import argparse
import json
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from parity.config import cases
from parity.runtime.resources import processors

PAGE = Path(__file__).parents[1] / "docs" / "advise.md"
BEGIN, END = "<!-- benchmarks/advice.py -->\n", "<!-- end -->\n"
GOALS = {"step": 0.15, "memory": 0.10}


class Row(NamedTuple):
    """The errors of all strategies of a case in one framework; by strategy, of the step's time and of the memory."""

    case: str
    devices: int
    side: str
    step: dict[str, float]
    memory: dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", default=[], help="built-in cases (default: '*/single')")
    parser.add_argument("--devices", default="1,2,3,4", help="numbers of CPU devices")
    parser.add_argument("--seconds", default="1", help="at most for each measurement")
    parser.add_argument("--write", action="store_true", help="write the table into docs/advise.md")
    args = parser.parse_args()
    names = [case.name for case in cases.select(args.case or ["*/single"])]
    rows = []
    for devices in map(int, args.devices.split(",")):
        for name in names:
            rows += checked(name, devices, args.seconds)
            print(f"{name} cpu:{devices}", file=sys.stderr, flush=True)
            if args.write:  # each time, since all of it takes long
                before, rest = PAGE.read_text().split(BEGIN)
                PAGE.write_text(f"{before}{BEGIN}{''.join(table(rows))}{END}{rest.split(END)[1]}")
    print("".join(table(rows)))
    return 0


def checked(name: str, devices: int, seconds: str) -> Iterator[Row]:
    """Yield the errors of a case in both frameworks."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "advice.json"
        command = [sys.executable, "-m", "parity.advise", f"--case={name}", f"--devices=cpu:{devices}", "--check"]
        subprocess.run([*command, f"--seconds={seconds}", f"--json={path}", "--quiet"], check=True)
        (advice,) = json.loads(path.read_text())["advice"]
    for side in ("torch", "keras"):
        found = {each["strategy"]: each["measured"] for each in advice["choices"] if each["side"] == side}
        errors = {strategy: measured for strategy, measured in found.items() if measured}
        step = {strategy: measured["seconds_error"] for strategy, measured in errors.items()}
        yield Row(name, devices, side, step, {strategy: errors[strategy]["peak_error"] for strategy in errors})


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of the table, and below it the errors over all strategies, cases and numbers of devices."""
    yield "\n| case | framework | step: medians | worst | memory: medians | worst |\n|---|---|---|---|---|---|\n"
    for case, side in dict.fromkeys((row.case, row.side) for row in rows):
        chosen = [row for row in rows if (row.case, row.side) == (case, side)]
        yield f"| {case} | {side} | {' | '.join(_summary(chosen, what) for what in GOALS)} |\n"
    for what, goal in GOALS.items():
        errors = [abs(error) for row in rows for error in getattr(row, what).values()]
        within = sum(error <= goal for error in errors)
        yield (
            f"\nOver all {len(errors)}: the {what}'s error is {statistics.median(errors):.0%} at the median and "
            f"{max(errors):.0%} at the worst; {within} are within {goal:.0%}.\n"
        )
    yield f"\nMeasured on {_processor()}, {processors()} processors.\n\n"


def _summary(rows: Sequence[Row], what: str) -> str:
    errors = {(strategy, row.devices): error for row in rows for strategy, error in getattr(row, what).items()}
    medians = [statistics.median(map(abs, getattr(row, what).values())) for row in rows]
    worst = max(errors, key=lambda place: abs(errors[place]))
    return f"{min(medians):.0%} to {max(medians):.0%} | {errors[worst]:+.0%} ({worst[0]}, {worst[1]})"


def _processor() -> str:
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.processor()


if __name__ == "__main__":
    sys.exit(main())

"""All that is worth doing on a machine with GPUs, in one go and under 8 minutes.

    python benchmarks/gpu_check.py --out=DIR [--devices=gpu:N] [--minutes=8] [--case=GLOB ...]

Every strategy on real devices: PyTorch against Keras (verdict, bits, layout) in float32, bfloat16 and,
as always, float64; with TF32 allowed on one side, which the precision finding must see; the GPU against
the CPU of the same framework; seconds. DIR gets report.json, report.html and the traces, which are small.

A framework that sees no GPU runs on the CPU, and is compared with the other's GPU. With one framework
installed its traces are recorded and compared with its CPU's alone; carried away, they can be compared
with the other's: python -m parity.compare DIR/traces/torch/... DIR/traces/keras/...
Exits 0 if all is as expected, 1 if not or if a framework cannot be imported, 3 if nothing could be run.
"""

import argparse
import fnmatch
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
from rich.console import Console
from rich.table import Table

from parity import cli, results
from parity.config import cases, strategies
from parity.config.devices import Devices, Kind, obstacle, parse
from parity.config.schema import Case
from parity.runtime.backend import PACKAGES, Backend, running
from parity.runtime.environment import EXTRAS
from parity.runtime.job import Answer, Job
from parity.runtime.resources import COUNT, crowded
from parity.runtime.runner import both
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.verdict.traces import compare

STRATEGIES = [f"*/{strategy}" for strategy in get_args(strategies.Name)]
HALF = ["*/single", "*/ddp"]
SMALL: dict[str, dict[str, Any]] = {
    "linear_stack": {"model": {"width": 64}},
    "residual_block": {"model": {"out_channels": 8}, "data": {"batch": 16}},
    "transformer": {"model": {"d_model": 64, "feed_forward": 128, "encoder_layers": 1, "decoder_layers": 1}},
}
TF32 = "precision.tf32"  # the planted fault that allows it


class Check(NamedTuple):
    """One thing to do: a case on some devices, at a precision, with TF32 allowed on one side or on none."""

    case: Case
    precision: str
    tf32: str = ""

    @property
    def name(self) -> str:
        """Return the name of the check, in messages and of its folder."""
        return f"{self.case.name}@{self.precision}" + (f"+tf32-{self.tf32}" if self.tf32 else "")


class Row(msgspec.Struct):
    """What one check gave. `expected`: whether the verdict is the one that it must be."""

    check: str
    sides: str
    verdict: str
    expected: bool
    worst_bits: float | None = None
    layout: list[str] = []
    findings: list[str] = []
    seconds: dict[str, float] = {}
    reason: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--devices", help="default: all GPUs that the installed frameworks see; cpu:N rehearses")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--case", action="append", default=[], metavar="GLOB")
    args = parser.parse_args()
    cli.make_folder("--out", args.out)
    present = {name: count for name in PACKAGES if (count := _gpus(name)) is not None}
    gpus = min(filter(None, present.values()), default=0)
    devices = parse(args.devices) if args.devices else Devices("gpu", gpus)
    if not present or (not gpus and devices.kind == "gpu"):
        print(f"gpu_check: no GPU that {' or '.join(present) or 'any framework'} sees", file=sys.stderr)
        return 3
    kinds = {side: _kinds(devices, count) for side, count in present.items()}
    deadline = time.monotonic() + 60 * args.minutes
    rows = []
    for row in _rows(kinds, devices, args, deadline):
        print(f"{row.check:48} {row.sides:18} {row.verdict:13} {'' if row.expected else 'NOT AS EXPECTED'}", flush=True)
        rows.append(row)
    _write(args.out, rows, present, devices)
    return 0 if rows and all(row.expected for row in rows) else 1


def _checks(patterns: list[str], devices: Devices, sides: list[str]) -> Iterator[Check]:
    for pattern, precision in [(p, "float32") for p in patterns or STRATEGIES] + [
        (p, "bfloat16") for p in patterns or HALF
    ]:
        for name in fnmatch.filter(cases.names(), pattern):
            small = SMALL.get(name.partition("/")[0], {})
            case = cases.resolve(name, small, {"steps": 2, "devices": devices.number, "precision": precision})
            if not (obstacle(case) or crowded(case, devices, dict.fromkeys(sides, ""))):
                yield Check(case, precision)
    for side in sides if devices.kind == "gpu" else ():
        case = cases.resolve("linear_stack/single", {"steps": 2, "devices": devices.number})
        yield Check(case, "float32", tf32=side)


def _kinds(devices: Devices, gpus: int) -> list[Kind]:
    """Return the kinds of devices that a framework's runs are on, the one to be checked first."""
    return ["gpu", "cpu"] if devices.kind == "gpu" and gpus else ["cpu"]


def _rows(kinds: dict[str, list[Kind]], devices: Devices, args: argparse.Namespace, deadline: float) -> Iterator[Row]:
    checks = list(_checks(args.case, devices, [side for side in kinds if kinds[side][0] == devices.kind]))
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        on: dict[Kind, list[Backend]] = {}
        for side, its_kinds in kinds.items():
            for kind in its_kinds:
                on.setdefault(kind, []).append(Backend(side, "", _folder(scratch, kind, side), kind))
        with running([backend for backends in on.values() for backend in backends]):
            for check in checks:
                if time.monotonic() > deadline:
                    yield Row(check.name, "-", "skipped", True, reason=f"{args.minutes} minutes are over")
                    continue
                yield from _row(check, kinds, on, args.out / "traces")


def _row(check: Check, kinds: dict[str, list[Kind]], on: dict[Kind, list[Backend]], out: Path) -> Iterator[Row]:
    """Compare a check side against side, each on its GPU if it has one; then each side's GPU against its CPU."""
    answers = {(kind, side): answer for kind in on for side, answer in _record(check, on[kind], out / kind).items()}
    failed = {place: answer for place, answer in answers.items() if answer.status != "done"}
    for (kind, side), answer in failed.items():
        yield Row(check.name, f"{side} {kind}", "error", False, reason=answer.message)
    traces = {place: Trace(out / place[0] / check.name / place[1]) for place in answers if place not in failed}
    seconds = {f"{side} {kind}": round(answer.seconds, 2) for (kind, side), answer in answers.items()}
    across = [(kinds[side][0], side) for side in kinds]
    within = ([(kind, side) for kind in reversed(kinds[side])] for side in kinds)
    for places in (across, *within):
        if len(places) == 2 and traces.keys() >= set(places):
            sides = ", ".join(f"{side} {kind}" for kind, side in places)
            reference, candidate = (traces[place] for place in places)
            yield _judged(check, sides, compare(reference, candidate), seconds)


def _judged(check: Check, sides: str, result: results.CaseResult, seconds: dict[str, float]) -> Row:
    """TF32 on one of the two sides must be seen; all else must match."""
    faulty = check.tf32 and check.tf32 in sides.replace(f"{check.tf32} cpu", "")
    bits = [
        check.worst_bits for check in result.checks.values() if isinstance(check, results.Check) and check.worst_bits
    ]
    clean = result.verdict == "match" and not result.findings
    return Row(
        check=check.name,
        sides=sides,
        verdict=result.verdict,
        expected=not clean if faulty else clean,
        worst_bits=min(bits, default=None),
        layout=getattr(result.checks["layout"], "differences", []),
        findings=[f"{finding.id}: {finding.message}" for finding in result.findings],
        seconds=seconds,
        reason=result.reason,
    )


def _record(check: Check, backends: list[Backend], out: Path) -> dict[str, Answer]:
    return both(
        {
            backend: Job(
                case=check.case,
                runs=list(keys.RUNS),
                folder=str((out / check.name / backend.name).absolute()),
                fault=TF32 if check.tf32 == backend.name and backend.kind == "gpu" else "",
            )
            for backend in backends
            if not check.case.distribution.side_obstacle(backend.name)
        }
    )


def _gpus(backend: str) -> int | None:
    """Return how many GPUs a framework sees; None if it is not installed."""
    if importlib.util.find_spec(EXTRAS[backend]) is None:
        return None
    if shutil.which("nvidia-smi") is None:  # without a driver there is none; to ask the framework takes seconds
        return 0
    ended = subprocess.run([sys.executable, "-c", COUNT[backend]], capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"gpu_check: {backend} is installed but cannot be imported: {ended.stderr.strip().splitlines()[-1]}")
    return int(ended.stdout.split()[-1])


def _write(out: Path, rows: list[Row], present: dict[str, int], devices: Devices) -> None:
    facts = {"devices": str(devices), "gpus": present, "driver": _driver()}
    (out / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode({**facts, "rows": rows}), indent=1))
    console = Console(record=True, width=160, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(json.dumps(facts))
    table = Table("check", "sides", "verdict", "bits", "layout", "findings", "seconds")
    for row in rows:
        bits = "=" if row.worst_bits is None else f"{row.worst_bits:.0f}"
        seconds = " ".join(f"{place} {value}" for place, value in row.seconds.items())
        verdict = row.verdict + ("" if row.expected else " (not as expected) " + row.reason)
        table.add_row(row.check, row.sides, verdict, bits, "\n".join(row.layout), "\n".join(row.findings), seconds)
    console.print(table)
    console.save_html(str(out / "report.html"))


def _driver() -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def _folder(scratch: str, kind: str, side: str) -> Path:
    folder = Path(scratch) / f"{kind}-{side}"
    folder.mkdir()
    return folder


if __name__ == "__main__":
    sys.exit(main())

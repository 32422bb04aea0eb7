"""python -m parity.advise: which distribution strategy fits on which devices, and what it would give.

Predicts, for every strategy in both frameworks, the memory of each device, the bytes of a step and its time, from the
case alone and from measured steps of `single` on this machine; for devices that are not here, from a table of known
devices and links.
"""

from parity.core import process

if __name__ == "__main__":
    process.end_at_once("parity.advise")  # the imports below take long

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from parity import cli
from parity.advise import choices, report
from parity.advise.advice import FACTOR, USABLE, Adviser, Target, advise, peak
from parity.advise.choices import GIGA, TERA, Device, Document, Group, Table
from parity.advise.describe import describe
from parity.advise.measure import Here, Rates, measured_link, rates
from parity.advise.model import recorded
from parity.config import cases, schema
from parity.core.errors import UsageError
from parity.pairs.file import load
from parity.report import output
from parity.runtime import resources
from parity.runtime.resources import available, gpus, processors

SECONDS = 5.0
OWN_LINKS = {"cpu": "memory", "gpu": "pcie"}  # that between CPU processes is measured
EPILOG = """Exit status: 0 the advice was given; 2 wrong usage; 3 a framework could not be run."""


def main(argv: Sequence[str], program: str = "parity.advise") -> int:
    """Run the command, called as `program`, and return its exit status."""
    args = _parse(argv, program)
    table = choices.table(args.table)
    group = choices.parse(args.devices or str(available(cli.pythons(args))), table)
    aim = target(args, group, table)
    document = Document()
    with output.written(args, document, {"markdown": lambda: report.text(document)}):
        for adviser in _advisers(args, aim.group):
            advice = advise(adviser, aim, args.check)
            advice.assumed = list(assumptions(adviser, aim))
            document.advice.append(advice)
    if not args.quiet:
        report.show(document, sys.stderr if args.json == "-" else sys.stdout)
    return 0


def _parse(argv: Sequence[str], program: str) -> argparse.Namespace:
    parser = cli.Parser(prog=program, description=__doc__, epilog=EPILOG)
    add = parser.add_argument
    cli.add_subjects(parser)
    add("--devices", default="", metavar="cpu:N|gpu:N|NxNAME", help="devices, e.g. 8xH200 (default: those of compare)")
    add("--link", default="", metavar="NAME", help="the link between devices, e.g. nvlink (default: the device's own)")
    add("--table", type=Path, metavar="FILE.toml", help="your own devices and links")
    add("--memory", default="", metavar="SIZE", help="memory of each device, e.g. 24GB (default: the device's own)")
    add("--check", action="store_true", help="measure every strategy here, and print how far its prediction is off")
    add("--precision", choices=get_args(schema.Precision), help="the run precision (default float32)")
    add("--set", action="append", default=[], metavar="A.B=C", help="override any field of a case (repeatable)")
    add("--seconds", type=cli.seconds, default=SECONDS, help=f"at most for each measurement (default {SECONDS:.0f})")
    output.add_flags(parser, "the advice")
    add("--quiet", action="store_true", help="print no text")
    cli.add_pythons(parser)
    cli.add_timeout(parser)
    args = parser.parse_args(argv)
    if not cli.globs(args) and not args.pair:
        parser.error("expected what to advise on: --case=GLOB or --pair=FILE.toml")
    output.check(args)
    return args


def _advisers(args: argparse.Namespace, group: choices.Group) -> Iterator[Adviser]:
    """Yield an adviser for each case and pair. Raises UsageError, and BackendError where a pair cannot be recorded."""
    pythons = cli.pythons(args)
    kind = available(pythons).kind if not group.is_here else "gpu" if group.kind == "gpu" else "cpu"
    here = Here(pythons, kind, args.seconds, args.timeout)
    fields = {"precision": args.precision, "devices": group.number}
    if args.check and not group.is_here:
        raise UsageError(f"--check measures devices of this machine, received --devices={group}; leave one of them out")
    if args.check and args.pair:
        raise UsageError("--check trains by every strategy, and pairs are trained on one device only; leave it out")
    chosen = cases.select(cli.globs(args), args.set, **fields) if cli.globs(args) else []
    files = [load(path, args.set, **fields).without_scripts() for path in args.pair]
    for case in chosen:
        yield Adviser(case, describe(case), here)
    for file in files:
        with tempfile.TemporaryDirectory(prefix="parity-") as folder:
            case, model, context = recorded(file, pythons, kind, args.timeout, Path(folder))
            yield Adviser(case, model, here._replace(pair=context, trained=file.case))


def target(args: argparse.Namespace, group: Group, table: Table) -> Target:
    """Return the devices that the flags ask about. Raises UsageError for what this machine does not have."""
    pythons = cli.pythons(args)
    row = None if group.is_here else choices.found(table.device, group.kind, f"--devices={args.devices}: device")
    if group.kind == "gpu" and gpus(pythons) < group.number:
        raise UsageError(
            f"--devices={group}: this machine has {gpus(pythons)} GPUs that {' and '.join(pythons)} can use; for "
            "devices that are not here give their name, e.g. --devices=8xH200"
        )
    name = args.link or (row.link if row else OWN_LINKS[group.kind])
    links = [choices.found(table.link, name, f"--link={name}: link")] * 2
    if group.kind == "cpu" and group.number > 1 and not args.link:
        links[0] = measured_link(group.number, Here(pythons, "cpu", args.seconds, args.timeout))
    if args.memory:
        memory = choices.gigabytes(args.memory)
    elif row:
        memory = row.memory * GIGA
    else:  # of one device of this machine; all CPU devices share theirs
        memory = float(resources.memory() if group.kind == "cpu" else int(_nvidia("memory.total")) * 2**20)
    measured = _rates(table, pythons) if row else None
    return Target(group=group, links=tuple(links), memory=memory, rates=measured, row=row)


def _rates(table: Table, pythons: dict[str, str]) -> Rates:
    """Return the rates of the device on which steps are measured: those of the table for a known GPU."""
    if available(pythons).kind == "cpu":
        return rates()
    name = _nvidia("name")
    known: list[Device] = [row for kind, row in table.device.items() if kind in name.split()]
    if not known:
        raise UsageError(f"this machine's {name} is not in the table of devices; add it with --table=FILE.toml")
    return Rates(known[0].float32 * TERA, known[0].bandwidth * GIGA)


def _nvidia(field: str) -> str:
    command = [shutil.which("nvidia-smi") or "nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()


def assumptions(adviser: Adviser, aim: Target) -> Iterator[str]:
    """Yield what the prediction rests on, one line each."""
    yield f"{USABLE:.0%} of a device's memory can be used for tensors"
    link = aim.links[0]
    yield f"links between devices: {link.bandwidth:.3g} GB/s, {link.latency:.3g} µs ({link.source})"
    if aim.shares:
        yield f"a process has one of {processors()} processors: the devices of one process compute one after the other"
    if aim.row:
        yield (
            f"{aim.group.kind}: {peak(adviser.case, aim.row):g} TFLOPS, {aim.row.bandwidth:g} GB/s ({aim.row.source}); "
            "it reaches the part of that which this machine's device reaches of its own"
        )
        yield "what the host does for each pass takes as long there as here"
    if adviser.case.precision != "float32":
        yield f"at {adviser.case.precision}, activations have the bytes of float32: an upper bound"
    if adviser.here.pair:
        yield "a pair's blocks are the members of its numbered lists of modules; its operations run at half the peak"
    yield f"what would change the choice was tried by a factor of {FACTOR:.0f} each"


if __name__ == "__main__":
    cli.end("parity.advise", main)

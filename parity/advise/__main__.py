"""python -m parity.advise: which distribution strategy fits on which devices, and what it would give.

Predicts, for every strategy in both frameworks, the memory of each device, the bytes of a step and its time, from the
case alone and from measured steps of `single` on this machine; for devices that are not here, from a table of known
devices and links.
"""

from parity.core import process

if __name__ == "__main__":
    process.end_at_once("parity.advise")  # the imports below take long

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO, get_args

from rich.filesize import decimal
from rich.table import Table as RichTable

from parity import cli
from parity.advise import choices
from parity.advise.advice import Adviser, Target, advise
from parity.advise.choices import GIGA, TERA, Advice, Device, Document, Group, Table
from parity.advise.describe import describe
from parity.advise.measure import Here, Rates, measured_link, rates
from parity.advise.model import recorded
from parity.config import cases, schema
from parity.core.errors import UsageError
from parity.core.groups import by_key
from parity.core.wording import agree
from parity.pairs.file import load
from parity.report import output
from parity.report.output import Console
from parity.runtime import resources
from parity.runtime.resources import available, gpus

SECONDS = 5.0
OWN_LINKS = {"cpu": "memory", "gpu": "pcie"}  # that between CPU processes is measured
PARTS = {"compute": "work", "imbalance": "uneven", "bubbles": "bubbles", "communication": "moved"}
CHECKED = ("measured", "off", "peak", "off")
BAR = 20  # characters of the longest bar of the plot
EPILOG = """Exit status: 0 the advice was given; 2 wrong usage; 3 a framework could not be run."""


def main(argv: Sequence[str], program: str = "parity.advise") -> int:
    """Run the command, called as `program`, and return its exit status."""
    args = _parse(argv, program)
    table = choices.table(args.table)
    group = choices.parse(args.devices or str(available(cli.pythons(args))), table)
    aim = target(args, group, table)
    document = Document()
    with output.written(args, document, {"markdown": lambda: text(document)}):
        for adviser in _advisers(args, aim.group):
            document.advice.append(advise(adviser, aim, args.check))
    if not args.quiet:
        show(document, sys.stderr if args.json == "-" else sys.stdout)
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
    row = None if group.is_here else choices.row_named(table.device, group.kind, f"--devices={args.devices}: device")
    if group.kind == "gpu" and gpus(pythons) < group.number:
        raise UsageError(
            f"--devices={group}: this machine has {gpus(pythons)} GPUs that {' and '.join(pythons)} can use; for "
            "devices that are not here give their name, e.g. --devices=8xH200"
        )
    name = args.link or (row.link if row else OWN_LINKS[group.kind])
    links = [choices.row_named(table.link, name, f"--link={name}: link")] * 2
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


def show(document: Document, file: TextIO) -> None:
    console = Console(file)
    for advice in document.advice:
        for line in _headline(advice):
            console.print(line, soft_wrap=True)
        for side in ("torch", "keras"):
            console.print(_table(advice, side))
        for line in _notes(advice):
            console.print(line, soft_wrap=True)
        console.print()


def text(document: Document) -> str:
    """Return what `show` prints, as a block of Markdown."""
    file = io.StringIO()
    show(document, file)
    return f"```\n{file.getvalue()}```\n"


def _headline(advice: Advice) -> Iterator[str]:
    batch = f", batch {advice.batch}" if advice.batch else ""
    yield f"{advice.case}{batch}, {advice.devices}, {decimal(round(advice.memory))} each"
    for side, best in advice.best.items():
        choice = next(each for each in advice.choices if (each.side, each.strategy) == (side, best))
        yield (
            f"  {side}: {best} is predicted to be the fastest that fits, {_seconds(choice.step)} a step, "
            f"{choice.speed_up:.2f} times single"
        )
    for side in {choice.side for choice in advice.choices} - set(advice.best):
        yield f"  {side}: nothing fits"


def _table(advice: Advice, side: str) -> RichTable:
    rows = [choice for choice in advice.choices if choice.side == side and not choice.why_not]
    checked = any(choice.measured for choice in rows)
    table = RichTable(box=None, padding=(0, 1, 0, 0), pad_edge=False, title=side, title_justify="left")
    table.add_column("strategy", no_wrap=True)
    for heading in ("fits", "memory", "bytes", "step", "x", *(CHECKED if checked else PARTS.values())):
        table.add_column(heading, justify="right", no_wrap=True)
    for choice in sorted(rows, key=lambda each: (not each.fits, each.step or 0.0)):
        parts = [_seconds(choice.seconds[part]) for part in PARTS]
        if measured := choice.measured:  # of a step and of the memory, each with how far its prediction is off
            parts = [_seconds(measured.seconds), f"{measured.seconds_error:+z.0%}"]
            parts += [decimal(round(measured.peak)), f"{measured.peak_error:+z.0%}"]
        table.add_row(
            choice.strategy + (f" ({choice.micro_batches})" if choice.micro_batches > 1 else ""),
            "yes" if choice.fits else "no",
            decimal(round(choice.peak if choice.peak is not None else max(choice.devices))),
            decimal(sum(choice.sent.values())),
            _seconds(choice.step),
            f"{choice.speed_up:.2f}",
            *parts,
        )
    return table


def _notes(advice: Advice) -> Iterator[str]:
    """Yield the parts of the memory, what is not there and why, the plot, the assumptions and what would change it."""
    for choice in advice.choices:
        if advice.best.get(choice.side) == choice.strategy:
            parts = ", ".join(f"{name} {decimal(round(size))}" for name, size in choice.memory.items() if size)
            yield f"{choice.side} {choice.strategy}, the device with the most: {parts}"
            if choice.sent:
                kinds = ", ".join(f"{name} {decimal(round(size))}" for name, size in choice.sent.items())
                yield f"{choice.side} {choice.strategy}, sent in each step: {kinds}"
    for choice in advice.choices:
        if cut := choice.balanced:  # with the flags of compare and bench that cut the stages so
            sizes = ", ".join(map(str, cut.stage_blocks))
            flags = " ".join(f"--set {field}={value}" for field, value in cut.fields.items()).replace(", ", ",")
            what = f"{choice.side} {choice.strategy}, with {sizes} blocks in its stages"
            yield f"{what}: {_seconds(cut.step)} a step {flags}".rstrip()
    reasons = ((choice.why_not, f"{choice.strategy} ({choice.side})") for choice in advice.choices if choice.why_not)
    for reason, strategies in by_key(reasons).items():
        yield f"not {', '.join(strategies)}: {reason}"
    for side, points in advice.scaling.items():
        most = max((speed_up for *_, speed_up in points), default=1.0)
        for number, strategy, speed_up in points:
            bar = "█" * max(round(BAR * speed_up / most), 1)
            yield f"{side:5} {number:4} {agree(number, 'device'):7}  {bar:{BAR}} {speed_up:6.2f} x  {strategy}"
    yield from (f"assumed: {line}" for line in advice.assumed)
    yield from (f"would change the choice: {line}" for line in advice.would_change)


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:z.0f} µs" if seconds else "0"


if __name__ == "__main__":
    cli.end("parity.advise", main)

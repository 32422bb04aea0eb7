"""python -m parity.doctor: why does it fail, crawl or hang on the GPU?

Runs some steps of a model, your own or a built-in case's, and says in plain words what is misplaced, mistyped,
copied or synchronised needlessly, what never learns, and where the time goes. Without a GPU your code is given
virtual ones, which compute on the CPU and refuse what GPUs refuse.
"""

from parity.core import signals

if __name__ == "__main__":
    signals.end_at_once("parity.doctor")  # the imports below take long

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from parity import cli
from parity.config import cases
from parity.config.devices import obstacle, parse
from parity.core import inputs
from parity.core.errors import BackendError, UsageError, nearest
from parity.doctor import report, rules
from parity.doctor.evidence import Evidence
from parity.doctor.examine import ExaminedProgram, examine
from parity.doctor.finding import Finding
from parity.report import as_json
from parity.runtime.hardware import available, gpus
from parity.runtime.job import DoctorJob

EPILOG = """A step is called as fn(model, inputs): inputs is a dict of tensors on the host, as a data loader gives
them, and fn does what one training step of yours does. Without one: inputs moved, forward, the sum of the outputs,
backward. Status: 0 nothing found; 1 findings (notes do not count); 2 usage; 3 the program could not be run."""
PATIENCE = 60.0  # seconds


def main(argv: Sequence[str]) -> int:
    """Returns the exit status."""
    args = _parse(argv)
    found: list[Finding] = []
    seen: list[Evidence] = []
    failed: list[BackendError] = []
    for program in list(_programs(args)):  # all flags are looked at before anything runs
        try:
            findings, evidence = examine(program, args.patience)
        except BackendError as error:  # the others are examined all the same
            failed.append(error)
            continue
        found += [finding for finding in findings if finding.id not in args.ignore]
        seen += evidence
    if seen or not failed:
        _report(args, found, seen)
    if failed:
        raise BackendError("\n".join(map(str, failed)))
    return int(any(finding.severity != "note" for finding in found))


def _report(args: argparse.Namespace, found: list[Finding], seen: list[Evidence]) -> None:
    try:
        if args.json is not None:  # first: it must not be lost where the text cannot be written
            as_json.write(report.document(found, seen), args.json)
    finally:
        if not args.quiet:
            report.show(found, seen, sys.stderr if args.json == "-" else sys.stdout)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = cli.Parser(prog="parity.doctor", description=__doc__, epilog=EPILOG)
    add = parser.add_argument
    add("--case", action="append", default=[], metavar="GLOB", help="built-in cases, on both sides (repeatable)")
    add("--torch", default="", metavar="MODULE:FN", help="a function that returns your torch.nn.Module")
    add("--keras", default="", metavar="MODULE:FN", help="a function that returns your keras.Model")
    add("--step", default="", metavar="MODULE:FN", help="your training step, called as fn(model, inputs)")
    add("--input", action="append", default=[], metavar="SPEC", help="name=dtype[shape], e.g. 'ids=int64[2,8]<100'")
    add("--devices", metavar="auto|cpu:N|gpu:N", help="default: the GPUs, or else 2 virtual ones (as cpu:2 asks for)")
    add("--ranks", type=cli.count, default=1, help="processes, for a program that torchrun or TF_CONFIG starts")
    add(
        "--patience",
        type=cli.seconds,
        default=PATIENCE,
        metavar="SECONDS",
        help="until a step counts as hung (default 60)",
    )
    add("--ignore", action="append", default=[], metavar="ID", help="a kind of finding to leave out (repeatable)")
    add("--profile", type=Path, metavar="DIR", help="write the framework's own profile of a step there")
    add("--json", metavar="FILE", help="write the findings there; - for stdout (the text then goes to stderr)")
    add("--quiet", action="store_true", help="print no text")
    cli.add_pythons(parser)
    args = parser.parse_args(argv)
    _check(args)
    return args


def _check(args: argparse.Namespace) -> None:
    """Raises UsageError for flags that do not go together."""
    if bool(args.case) == bool(args.torch or args.keras):
        raise UsageError("expected --case, or a program of yours by --torch or --keras; --help lists the flags")
    if args.case and (args.step or args.input or args.ranks > 1):
        raise UsageError("--step, --input and --ranks belong to a program of yours; a case has its own")
    if args.torch and args.keras and args.step:
        raise UsageError("--step belongs to one program: examine --torch and --keras one after the other")
    if not args.case and not args.input:
        raise UsageError(f"expected the inputs of the program, e.g. {inputs.EXAMPLE}")
    if unknown := [name for name in args.ignore if name not in rules.IDS]:
        raise UsageError(f"--ignore={unknown[0]}: there is no such finding{nearest(unknown[0], rules.IDS)}")
    if args.json is not None:
        as_json.check(args.json)
    if args.profile is not None:
        cli.make_folder("--profile", args.profile)


def _programs(args: argparse.Namespace) -> Iterator[ExaminedProgram]:
    """All that is to be examined, one after the other, since times are measured. Raises UsageError."""
    pythons = {side: python for side, python in cli.pythons(args).items() if args.case or getattr(args, side)}
    devices = available(pythons) if args.devices in (None, "auto") else parse(args.devices)
    virtual = devices.kind == "cpu" or gpus(pythons) < devices.number
    asked = not virtual or args.devices not in (None, "auto")
    if args.ranks > devices.number and asked:
        raise UsageError(f"--ranks={args.ranks} needs a device for each, there are {devices}")
    profile = str(args.profile.absolute()) if args.profile else ""
    for case in cases.select(args.case, devices=devices.number) if args.case else []:
        if reason := obstacle(case):
            raise UsageError(f"{case.name} on {devices}: {reason}")
        count = 1 if case.strategy == "single" else devices.number
        own = profile and str(Path(profile) / case.name)
        job = DoctorJob(case=case, devices=count, virtual=virtual, profile=own)
        for side, python in pythons.items():
            yield ExaminedProgram(side, python, job)
    given = [inputs.parse(text) for text in args.input]
    if repeated := [name for name, count in Counter(each.name for each in given).items() if count > 1]:
        raise UsageError(f"--input: there are two of the name {repeated[0]!r}")
    job = DoctorJob(
        step=args.step,
        inputs=given,
        devices=max(devices.number, args.ranks),
        virtual=virtual,
        asked=asked,
        ranks=args.ranks,
        profile=profile,
    )
    for side in [] if args.case else pythons:
        yield ExaminedProgram(side, pythons[side], msgspec.structs.replace(job, build=getattr(args, side)))


if __name__ == "__main__":
    cli.end("parity.doctor", main)

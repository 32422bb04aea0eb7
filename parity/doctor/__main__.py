"""python -m parity.doctor: find out why a model fails, is slow or hangs on the GPU.

Runs a few training steps of a model, your own or that of a built-in case, and reports in plain words what is on the
wrong device, has the wrong type, is copied or synchronised needlessly or never learns, and where the time goes. Without
a GPU your code is given virtual ones, which compute on the CPU and refuse what real GPUs refuse.
"""

from parity.core import process

if __name__ == "__main__":
    process.end_at_once("parity.doctor")  # the imports below take long

import argparse
import contextlib
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from parity import cli
from parity.config import cases
from parity.config.devices import Kind, obstacle, parse
from parity.core import inputs
from parity.core.errors import BackendError, MissingError, UsageError, nearest
from parity.doctor import report, rules
from parity.doctor.drive import Files, waiting
from parity.doctor.evidence import Evidence
from parity.doctor.finding import Finding
from parity.doctor.report import Examination
from parity.report import output
from parity.runtime.backend import Backend, running
from parity.runtime.job import DoctorJob
from parity.runtime.resources import available, gpus, processors

EPILOG = """The function of --step is called as fn(model, inputs), where inputs is a dict of tensors on the host, as a
data loader returns them; it does what one training step of yours does. Without --step, the doctor moves the inputs to
the model's device and runs forward, the sum of the outputs and backward. Exit status: 0 nothing found; 1 findings
(notes do not count); 2 wrong usage; 3 the program could not be run."""
PATIENCE = 60.0  # seconds without progress after which a program counts as hung


class ExaminedProgram(NamedTuple):
    side: str  # "torch" or "keras"
    python: str  # the interpreter to run it with; "" for the current one
    job: DoctorJob  # what to run


def main(argv: Sequence[str], program: str = "parity.doctor") -> int:
    """Run the command, called as `program`, and return its exit status."""
    args = _parse(argv, program)
    examination = Examination([], [], [], cli.command_line(program, argv))
    programs = list(_programs(args))  # a list, so that all flags are checked before anything runs

    def show() -> None:
        if not args.quiet and (examination.evidence or not examination.errors):
            report.show(examination, sys.stderr if args.json == "-" else sys.stdout)

    document, makers, failed = partial(report.document, examination), report.makers(examination), examination.errors
    with output.written(args, examination, makers, document, failed.append, show):
        for examined in programs:
            try:
                findings, evidence = examine(examined, args.patience)
            except (BackendError, MissingError) as error:  # the other programs are still examined
                examination.errors.append(str(error))
                continue
            examination.findings.extend(finding for finding in findings if finding.id not in args.ignore)
            examination.evidence.extend(evidence)
    if examination.errors:
        raise BackendError("\n".join(dict.fromkeys(examination.errors)))  # the same may be missing for each
    return int(any(finding.severity != "note" for finding in examination.findings))


def _parse(argv: Sequence[str], program: str) -> argparse.Namespace:
    parser = cli.Parser(prog=program, description=__doc__, epilog=EPILOG)
    add = parser.add_argument
    add("--case", action="append", default=[], metavar="GLOB", help="built-in cases, on both sides (repeatable)")
    add("--torch", default="", metavar="MODULE:FN", help="a function that returns your torch.nn.Module")
    add("--keras", default="", metavar="MODULE:FN", help="a function that returns your keras.Model")
    add("--step", default="", metavar="MODULE:FN", help="your training step, called as fn(model, inputs)")
    add("--input", action="append", default=[], metavar="SPEC", help="name=dtype[shape], e.g. 'ids=int64[2,8]<100'")
    add("--devices", metavar="auto|cpu:N|gpu:N", help="default: the GPUs, or else 2 virtual ones (like cpu:2)")
    add("--ranks", type=cli.count, default=1, help="processes to start, for a program that uses torchrun or TF_CONFIG")
    hung = "time without progress after which a step counts as hung (default 60)"
    add("--patience", type=cli.seconds, default=PATIENCE, metavar="SECONDS", help=hung)
    add("--ignore", action="append", default=[], metavar="ID", help="id of findings to leave out (repeatable)")
    add("--profile", type=Path, metavar="DIR", help="write the framework's own profile of one step to this folder")
    output.add_flags(parser, "the findings", "html", "junit", "sarif")
    add("--quiet", action="store_true", help="print no text")
    cli.add_pythons(parser)
    args = parser.parse_args(argv)
    _check(args)
    return args


def _check(args: argparse.Namespace) -> None:
    """Raise UsageError for flags that do not go together."""
    if bool(args.case) == bool(args.torch or args.keras):
        raise UsageError("expected either --case, or your own program by --torch or --keras; --help lists the flags")
    if args.case and (args.step or args.input or args.ranks > 1):
        raise UsageError("--step, --input and --ranks are for your own program: leave them out with --case")
    if args.torch and args.keras and args.step:
        raise UsageError("--step belongs to a single program: examine --torch and --keras in two runs")
    if not args.case and not args.input:
        raise UsageError(f"expected the inputs of the program by --input, e.g. {inputs.EXAMPLE}")
    if unknown := [name for name in args.ignore if name not in rules.IDS]:
        raise UsageError(f"--ignore={unknown[0]}: there is no finding with this id{nearest(unknown[0], rules.IDS)}")
    output.check(args)
    if args.profile is not None:
        cli.make_folder("--profile", args.profile)


def _programs(args: argparse.Namespace) -> Iterator[ExaminedProgram]:
    """Yield every program to examine, one after the other. Raises UsageError if a flag asks for what is not there."""
    pythons = {side: python for side, python in cli.pythons(args).items() if args.case or getattr(args, side)}
    devices = available(pythons) if args.devices in (None, "auto") else parse(args.devices)
    virtual = devices.kind == "cpu" or gpus(pythons) < devices.number
    asked = not virtual or args.devices not in (None, "auto")
    if args.ranks > devices.number and asked:
        raise UsageError(f"--ranks={args.ranks} needs a device for each rank, but there are {devices}")
    profile = str(args.profile.absolute()) if args.profile else ""
    for case in cases.select(args.case, devices=devices.number) if args.case else []:
        if reason := obstacle(case):
            raise UsageError(f"{case.name} on {devices}: {reason}")
        case_profile = profile and str(Path(profile) / case.name)
        job = DoctorJob(case=case, devices=case.distribution.used_devices, virtual=virtual, profile=case_profile)
        for side, python in pythons.items():
            if reason := case.distribution.side_obstacle(side):
                print(f"{side} {case.name} is not examined: {reason}", file=sys.stderr)
            else:
                yield ExaminedProgram(side, python, job)
    specs = [inputs.parse(text) for text in args.input]
    if repeated := [name for name, count in Counter(spec.name for spec in specs).items() if count > 1]:
        raise UsageError(f"--input: two inputs have the name {repeated[0]!r}")
    job = DoctorJob(step=args.step, inputs=specs, virtual=virtual, asked=asked, ranks=args.ranks, profile=profile)
    count = max(devices.number, args.ranks)
    for side in [] if args.case else pythons:
        own = msgspec.structs.replace(job, devices=count, build=getattr(args, side))
        yield ExaminedProgram(side, pythons[side], own)


def examine(program: ExaminedProgram, patience: float) -> tuple[list[Finding], list[Evidence]]:
    """Return the findings about a program, and the evidence of each rank that came to an end.

    On a GPU the program also runs on the CPU, if that is possible, to add its times there for comparison.
    `patience`: seconds without progress after which the program counts as hung.
    Raises UsageError if the job asks for something that is not there, BackendError if the program cannot be built.
    """
    findings, evidences = _examine(program, patience)
    if not program.job.virtual and len(evidences) == 1:
        with contextlib.suppress(BackendError):
            cpu_job = msgspec.structs.replace(program.job, virtual=True, profile="")
            _, cpu_evidences = _examine(program._replace(job=cpu_job), patience)
            evidences[0].times += [time for evidence in cpu_evidences for time in evidence.times]
    return findings, evidences


def _examine(program: ExaminedProgram, patience: float) -> tuple[list[Finding], list[Evidence]]:
    threads = max(processors() // program.job.group(program.side).ranks, 1)
    kind: Kind = "cpu" if program.job.virtual else "gpu"
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        backend = Backend(program.side, program.python, Path(scratch), kind, patience, threads)
        with running([backend]):
            return examined(backend, program.job, Path(scratch) / "seen")


def examined(backend: Backend, job: DoctorJob, folder: Path) -> tuple[list[Finding], list[Evidence]]:
    """Return findings and evidence like `examine`, using processes that are already running.

    `backend`: the running processes. `folder`: a folder to be created, for the files of this examination alone.
    """
    folder.mkdir()
    answer = backend.do(msgspec.structs.replace(job, folder=str(folder.absolute())))
    if answer.status == "usage":
        raise UsageError(answer.message)
    ranks = [Files(folder, rank) for rank in range(job.group(backend.name).ranks)]
    evidences = [evidence for rank in ranks if (evidence := rank.read())]
    waits = waiting(ranks)
    findings = rules.findings(evidences, [rank.noted() for rank in ranks], waits)
    # If the ranks' collective calls do not match, a rank may be ended in the middle of one. The files of the
    # examination then say more than the exception.
    failed = [evidence.later or any(step.failure for step in evidence.steps) for evidence in evidences]
    unmatched = [finding for finding in findings if finding.id.startswith("collective.")]
    if answer.status == "error" and not (any(rank.stack for rank in waits) or any(failed) or unmatched):
        raise BackendError(answer.message)
    case = job.case.name if job.case else ""
    for finding in findings:
        finding.side, finding.case = backend.name, case
    for evidence in evidences:
        evidence.case = case
    return findings, evidences


if __name__ == "__main__":
    cli.end("parity.doctor", main)

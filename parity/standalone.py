"""Entry point of a backend's process, standalone or as a worker of a `parity` program.

Standalone, it records the cases that its flags name, as the only process or as one rank of a group:
`torchrun --nproc-per-node=2 -m torch_impl --case=simple_block/ddp --out=traces/torch`, or with
TF_CONFIG set, `python -m keras_impl --case=simple_block/ddp@workers --out=traces/keras`.
Without flags, it takes its jobs from the parent process.
"""

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from parity import cli
from parity.config.devices import Devices, obstacle, parse
from parity.config.pair import Pair
from parity.core.arrays import Array, Floats
from parity.core.errors import MissingError, UsageError
from parity.core.wording import count
from parity.diagnose.experiment import study
from parity.diagnose.experiment.live import Live
from parity.pairs.vary import record as variations
from parity.runtime.drive import Side, record
from parity.runtime.environment import not_installed
from parity.runtime.job import BatchesJob, DoctorJob, ExperimentJob, Job, SurveyJob, VaryJob, Work
from parity.runtime.serve import serve
from parity.trace import keys

DEFAULT = Devices("cpu", 2)
T = TypeVar("T")
Part = Callable[[str, str], Any]  # returns what has a name in a module of the backend


def start(package: str, backend: str, imports: Callable[[], None]) -> NoReturn:
    """Run a backend's `__main__`: standalone if there are command-line flags, else as a worker of the parent process.

    `imports` imports what all workers share. What `package` does itself is imported when it is needed.
    """

    def part(module: str, name: str) -> Any:
        return getattr(importlib.import_module(f"{package}.{module}"), name)

    def load() -> Side:
        imports()
        return cast(Side, importlib.import_module(f"{package}.record.run"))

    side = functools.cache(functools.partial(_loaded, backend, load))
    try:
        if sys.argv[1:]:
            cli.end(package, functools.partial(main, package, backend, side))
        serve(
            lambda: functools.partial(_do, side(), part),
            lambda job, following: part("bench", "bench")(job, following),
            lambda: _loaded(backend, imports) if os.environ.get("PARITY_SHARES") else None,
        )
    except SystemExit as end:
        # Skip the interpreter's teardown, in which process groups and their threads may wait for ever.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)


def _loaded(backend: str, load: Callable[[], T]) -> T:
    """Return what `load` returns. Raises MissingError where a package is not installed."""
    try:
        return load()
    except ModuleNotFoundError as error:
        raise MissingError(not_installed(str(error.name).partition(".")[0], backend, sys.executable)) from None


def _do(side: Side, part: Part, job: Work) -> None:
    match job:
        case DoctorJob():
            part("doctor.examine", "examine")(job)
        case SurveyJob():
            part("record.pair.survey", "survey")(job)
        case BatchesJob():
            part("record.pair.survey", "batches")(job)
        case VaryJob():
            variations.record(job, side.NAME, part("record.pair.vary", "opened"))
        case ExperimentJob():
            study.study(job, functools.partial(_live, part))
        case Job():
            record(job, side)


@contextmanager
def _live(
    part: Part, job: ExperimentJob, at: str, initial: Mapping[str, Floats], inputs: dict[str, Array]
) -> Iterator[Live]:
    """Build a user's model with these weights, as for a recorded run, and yield it."""
    pair = job.case.model
    assert isinstance(pair, Pair)
    with part("record.pair.vary", "opened")(job, at, initial, inputs) as built, ExitStack() as stack:
        later = part("experiment.later", "Later")(job, built, stack)
        yield part("experiment.live", "Live")(built, inputs, pair.train, later)


def main(package: str, backend: str, load: Callable[[], Side], argv: Sequence[str]) -> int:
    """Record the chosen cases under OUT/CASE/BACKEND, and return the exit status.

    Raises UsageError for wrong flags, and for a case that cannot run on these devices or in this many processes;
    MissingError if the framework is not installed.
    """
    epilog = "Exit status: 0 everything was recorded; 2 a flag or config is wrong; 3 the backend failed."
    parser = cli.Parser(prog=package, description=__doc__, epilog=epilog)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="write each trace to DIR/CASE/BACKEND")
    cli.add_cases(parser)
    cli.add_training_flags(parser)
    args = parser.parse_args(argv)
    cli.make_folder("--out", args.out)
    devices = parse(args.devices) if args.devices not in (None, "auto") else DEFAULT
    os.environ["PARITY_DEVICES"] = str(devices)
    side = load()
    rank = side.rank()
    for case in cli.chosen_cases(args, devices):
        if reason := case.distribution.side_obstacle(backend) or obstacle(case):
            raise UsageError(f"{case.name}: {reason}")
        if (ranks := case.distribution.processes(backend)) != rank.of:
            raise UsageError(
                f"{case.name} on {devices} needs {count(ranks, 'process')} of {package}, received {rank.of}"
            )
        folder = args.out / case.name / backend
        record(Job(case=case, runs=list(keys.RUNS), folder=str(folder.absolute())), side)
        if rank.number == 0:
            print(f"{case.name}  {folder}", flush=True)
    return 0

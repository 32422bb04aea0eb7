"""The framework-independent part of a run: all runs of a case are recorded, then the manifest is written.

Each backend implements `Side`. If a case has several processes, each is a rank that records its own part, and rank 0
merges the parts into the manifest. A `Program` is what is run where nothing is recorded: to be examined, or timed.
"""

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from msgspec.structs import replace

from parity.config import weights
from parity.config.schema import Case
from parity.core import precision
from parity.core.arrays import Floats
from parity.data.batches import Batch, Dataset
from parity.data.pairs import PairData
from parity.runtime import survey
from parity.runtime.environment import threads
from parity.runtime.job import Job
from parity.trace import layout, manifest
from parity.trace.layout import Layout
from parity.trace.mapping import PairContext
from parity.trace.recorder import Recorder, Repeat
from parity.trace.training import Training

POLL = 0.005  # seconds between checks for the other ranks' parts
# The manifest's fields that map files to facts, with the attributes in which a recorder has these facts of its files.
BY_FILE = {each: each for each in ("files", "aliases", "digests", "summarised")} | {"same": "references"}


class Rank(NamedTuple):
    """The number of a process among the `of` processes that run a case together."""

    number: int
    of: int


class Run(NamedTuple):
    """One run of a case on one rank, as a backend receives it."""

    case: Case
    at: str  # the precision
    weights: Mapping[str, Floats]  # the initial parameters
    dataset: Any  # a Dataset, or for a pair a PairData
    recorders: dict[int, Recorder]  # by replica number, one for each replica of which this process holds a part
    watch: bool  # whether to record the device layout
    fault: str  # the faults to plant, "" for none
    pair: PairContext | None = None  # set for a user's own models

    def drew(self, parts: Sequence[Sequence[Batch]]) -> None:
        """Record which samples were drawn, given the batches of each replica."""
        for replica, recorder in self.recorders.items():
            recorder.drew(np.concatenate([batch.indices for batch in parts[replica]]))


# In tensor_parallel each device has only a part of the first activations, which are not compared. The inputs of the
# other modules are parts, or a copy on each device: they are not recorded.
BETWEEN, SPLIT = ("relu", "dropout"), ("linear1", "linear2")


class Replicas:
    """What of a built-in case's replicas is recorded."""

    def __init__(self, case: Case) -> None:
        self.gathered, self.sharded = case.distribution.is_gathered, case.distribution.is_sharded
        # Whether the gradients of each replica are recorded besides those that are applied.
        self.local = case.replicas > 1 or case.clip_norm is not None

    def takes_input(self, path: str) -> bool:
        """Return whether a module's input is a whole tensor, rather than a part of one."""
        return not (self.sharded and path.rpartition(".")[2].partition("@")[0] in (*BETWEEN, *SPLIT))

    def takes_output(self, path: str) -> bool:
        """Return whether a module's output can be compared, as a whole or shard by shard."""
        return not (self.sharded and path.rpartition(".")[2] in BETWEEN)


class Account(NamedTuple):
    """What a run returns besides its tensors: the device layout, and the kind of each recorded module."""

    layout: Layout
    modules: dict[str, str]
    lifted: list[str] = []  # the float32 computations of a user's model that were promoted to float64 in the high run
    classes: dict[str, str] = {}  # the names of the modules' classes, by path
    training: Training = Training()  # how a pair was trained


class Side(Protocol):
    """The interface of a backend, implemented by its module `record.run`."""

    NAME: str

    def versions(self) -> dict[str, str]:
        """Return the versions of the framework's packages, by package."""

    def rank(self) -> Rank:
        """Return the rank of this process."""

    def run(self, run: Run) -> Account:
        """Train the case's model and record its tensors."""


class Part(msgspec.Struct, frozen=True):
    """One rank's part of the manifest: the account of its runs, and what its recorders have of each file."""

    account: Account
    by_file: dict[str, dict[str, Any]]  # by the manifest's fields that map files to facts


def record(job: Job, side: Side) -> None:
    """Record the runs that a job names into its folder, replacing an earlier recording there."""
    folder, rank = Path(job.folder), side.rank()
    folder.mkdir(parents=True, exist_ok=True)
    manifest.discard(folder, rank.number)
    dataset: Any = PairData(job.case, job.pair.search) if job.pair else Dataset(job.case)
    part = _record(job, side, rank, dataset)
    if rank.number:
        manifest.write_part(folder, rank.number, part)
        return
    parts = [part]
    while len(parts) < rank.of:
        if (further := manifest.read_part(folder, len(parts), Part)) is None:
            time.sleep(POLL)
        else:
            parts.append(further)
    accounts = [each.account for each in parts]
    by_file: dict[str, Any] = {field: _merged(each.by_file[field] for each in parts) for field in part.by_file}
    written = {name.split("/")[1] for name in by_file["files"]}
    facts = manifest.Manifest(
        case=job.case,
        backend=side.NAME,
        data={"source": "pair" if job.pair else job.case.data.source, "sha256": dataset.digest},
        versions=side.versions(),
        environment={"python": platform.python_version(), "machine": platform.machine(), "threads": str(threads())},
        layout=layout.merge([account.layout for account in accounts], job.case.distribution.is_staged),
        # Without those ranks of a pair's side that have recorded nothing of their own.
        replicas=[[each for each in ranks if f"rank-{each}" in written] for ranks in replicas(job.case, rank.of)],
        modules=_merged(account.modules for account in accounts),
        classes=_merged(account.classes for account in accounts),
        mapping=job.pair.mapping if job.pair else None,
        matching=job.pair.matching if job.pair else None,
        side=job.pair.side if job.pair else None,
        lifted=[computation for account in accounts for computation in account.lifted],
        training=part.account.training,
        **by_file,
    )
    manifest.write(folder, facts)


def _merged(tables: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for table in tables for name, value in table.items()}


def replicas(case: Case, ranks: int) -> list[list[int]]:
    """Return the consecutive ranks that hold each replica; a single process has a rank number of its own for each."""
    if ranks == 1:
        return [[replica] for replica in range(case.replicas)]
    size = ranks // case.replicas
    return [list(range(replica * size, (replica + 1) * size)) for replica in range(case.replicas)]


def _record(job: Job, side: Side, rank: Rank, dataset: Any) -> Part:
    """Record the job's runs on this rank, and return its part of the manifest."""
    # Those of a pair are torch's, from its survey.
    initial: Mapping[str, Floats] = survey.Initial(Path(job.pair.survey)) if job.pair else weights.initial(job.case)
    whole: Account | None = None
    by_file: dict[str, dict[str, Any]] = {field: {} for field in (*BY_FILE, "moved")}
    for run in job.runs:
        start, data = initial, dataset
        if run == "witness":
            # The witness shows the effect of rounding on the reference: weights one ulp away, and sums in another
            # order, by reversing the batch. With dropout the batch keeps its order, because masks are drawn by
            # position in the batch.
            start = weights.Nudged(initial, job.case.seed)
            data = dataset if job.case.dropout else dataset.reversed()
        at = job.case.precision if run == "low" else precision.HIGH
        recording = recorders(job, f"{run}/rank-", rank, data)
        account = side.run(Run(job.case, at, start, data, recording, whole is None, job.fault, job.pair))
        whole = whole or account
        training = account.training if run == "high" else whole.training
        whole = whole._replace(training=training, lifted=list(dict.fromkeys([*whole.lifted, *account.lifted])))
        for field, attribute in BY_FILE.items():
            by_file[field] |= _by_file(run, recording, attribute)
        if run == "high" and "witness" in job.runs:  # run it again, and keep what is not bitwise equal
            repeats: dict[int, Recorder] = {replica: Repeat(before) for replica, before in recording.items()}
            side.run(Run(job.case, precision.HIGH, initial, dataset, repeats, False, job.fault, job.pair))
            by_file["moved"] |= _by_file(run, repeats, "moved")
    assert whole  # a job names a run
    return Part(whole, by_file)


def _by_file(run: str, recording: Mapping[int, Recorder], attribute: str) -> dict[str, Any]:
    """Return what the recorders of a run have as an attribute, by file."""
    return {
        f"{run}/{recorder.folder.name}/{stem}": facts
        for recorder in recording.values()
        for stem, facts in getattr(recorder, attribute).items()
    }


def recorders(job: Job, prefix: str, rank: Rank, data: Any) -> dict[int, Recorder]:
    """Return recorders of the replicas that this rank has a part of; folders are named by `prefix` and a rank."""
    by_replica, case = {}, job.case
    for replica, ranks in enumerate(replicas(case, rank.of)):
        if rank.of == 1 or rank.number in ranks:
            folder = Path(job.folder) / f"{prefix}{ranks[0] if rank.of == 1 else rank.number}"
            by_replica[replica] = Recorder(folder, case.steps, case.every, case.accumulate, job.summarises, job.whole)
            by_replica[replica].flipped_axis = data.batch_axis if data.backwards else None
    return by_replica


class Program(NamedTuple):
    """A program, built."""

    model: Any  # the model
    batches: Iterator[Any]  # its batches
    # Train(batches, on_step) makes a step with each batch and calls `on_step()` after it.
    train: Callable[[Iterator[Any], Callable[[], None]], None]
    called: Any = None  # what the training calls, where the model is called by something around it


def plain_run(case: Case, steps: int, rank: Rank, folder: str) -> Run:
    """Return the run of so many steps of a built-in case whose recorders note the samples and nothing else."""
    case = replace(case, steps=steps)
    data = Dataset(case)
    silent = recorders(Job(case=case, runs=[], folder=folder), "", rank, data)
    return Run(case, case.precision, weights.initial(case), data, silent, watch=False, fault="")

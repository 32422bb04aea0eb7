"""One job, framework-free: every run of a case, then the manifest. The backends supply `Side`.

Where a case has several processes, each is a rank that records its own part; rank 0 puts the parts
together into the manifest.
"""

import platform
import time
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from parity.config import weights
from parity.config.schema import STAGED, Case
from parity.data.batches import Dataset
from parity.layout import canonical
from parity.layout.canonical import Layout
from parity.numerics import precision
from parity.random import Floats
from parity.runtime.environment import threads
from parity.runtime.job import Job
from parity.trace import manifest
from parity.trace.recorder import Recorder

POLL = 0.005  # seconds between two looks for the other ranks' parts


class Rank(NamedTuple):
    """One process among those that run a case together."""

    number: int
    of: int


class Run(NamedTuple):
    """One run of a case on one rank: what a backend is asked to do.

    `at`: the precision. `recorders`: one for each replica of which this process holds a part, by the
    number of the replica. `watch`: whether the device layout is to be recorded.
    """

    case: Case
    at: str
    weights: dict[str, Floats]
    dataset: Dataset
    recorders: dict[int, Recorder]
    watch: bool
    fault: str


class Account(NamedTuple):
    """What a run tells beside its tensors: what happened where, and the kinds of the recorded modules."""

    layout: Layout
    modules: dict[str, str]


class Side(Protocol):
    """A backend's harness.run module."""

    NAME: str

    def versions(self) -> dict[str, str]:
        """The framework packages and their versions."""

    def rank(self) -> Rank:
        """This process among its like."""

    def run(self, run: Run) -> Account:
        """Train the case's model, recording."""


class Part(msgspec.Struct, frozen=True):
    """What one rank adds to the manifest."""

    layout: Layout
    modules: dict[str, str]
    files: dict[str, list[str]]
    aliases: dict[str, dict[str, str]]
    same: dict[str, list[str]]


def record(job: Job, side: Side) -> None:
    """Record every run that the job names into its folder, in the place of what was recorded there."""
    folder, rank = Path(job.folder), side.rank()
    folder.mkdir(parents=True, exist_ok=True)
    manifest.discard(folder, rank.number)
    dataset = Dataset(job.case)
    part = _record(job, side, rank, dataset)
    if rank.number:
        manifest.write_part(folder, rank.number, part)
        return
    parts = [part, *(_wait(folder, other) for other in range(1, rank.of))]
    facts = manifest.Manifest(
        case=job.case,
        backend=side.NAME,
        data={"source": job.case.data.source, "sha256": dataset.digest},
        versions=side.versions(),
        environment={"python": platform.python_version(), "machine": platform.machine(), "threads": str(threads())},
        layout=canonical.merge([part.layout for part in parts], job.case.strategy in STAGED),
        replicas=replicas(job.case, rank.of),
        modules={name: kind for part in parts for name, kind in part.modules.items()},
        files={name: keys for part in parts for name, keys in part.files.items()},
        aliases={name: keys for part in parts for name, keys in part.aliases.items()},
        same={name: keys for part in parts for name, keys in part.same.items()},
    )
    manifest.write(folder, facts)


def replicas(case: Case, ranks: int) -> list[list[int]]:
    """The ranks that hold each replica: consecutive ones. One process records all replicas as ranks."""
    if ranks == 1:
        return [[replica] for replica in range(case.replicas)]
    each = ranks // case.replicas
    return [list(range(replica * each, (replica + 1) * each)) for replica in range(case.replicas)]


def _record(job: Job, side: Side, rank: Rank, dataset: Dataset) -> Part:
    initial = weights.initial(job.case)
    part = None
    for run in job.runs:
        start, data = initial, dataset
        if run == "witness":
            # All that rounding may do to the reference: other last bits, and sums in another order. A dropout
            # mask belongs to a place in the batch: there the samples stay where they are.
            start = weights.nudged(initial, job.case.seed)
            data = dataset if job.case.dropout else dataset.reversed()
        at = job.case.precision if run == "low" else precision.HIGH
        recording = recorders(job, f"{run}/rank-", rank, data)
        account = side.run(Run(job.case, at, start, data, recording, part is None, job.fault))
        part = part or Part(*account, files={}, aliases={}, same={})
        for recorder in recording.values():
            name = f"{run}/{recorder.folder.name}"
            part.files.update({f"{name}/{stem}": keys for stem, keys in recorder.files.items()})
            part.aliases.update({f"{name}/{stem}": keys for stem, keys in recorder.aliases.items()})
            part.same.update({f"{name}/{stem}": keys for stem, keys in recorder.references.items()})
    assert part  # a job names a run
    return part


def recorders(job: Job, prefix: str, rank: Rank, data: Dataset) -> dict[int, Recorder]:
    """For each replica of which this rank holds a part, by its number."""
    made = {}
    for replica, ranks in enumerate(replicas(job.case, rank.of)):
        if rank.of == 1 or rank.number in ranks:
            number = ranks[0] if rank.of == 1 else rank.number
            folder = Path(job.folder) / f"{prefix}{number}"
            recorder = Recorder(folder, job.case.steps, job.case.every, job.case.accumulate)
            recorder.flipped_axis = data.batch_axis if data.backwards else None
            made[replica] = recorder
    return made


def _wait(folder: Path, rank: int) -> Part:
    """Another rank's part. The parent ends a job whose ranks do not answer, so this waits for ever."""
    while (part := manifest.read_part(folder, rank, Part)) is None:
        time.sleep(POLL)
    return part

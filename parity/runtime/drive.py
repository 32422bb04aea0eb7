"""One job, framework-free: every run of a case, then the manifest. The backends supply `Side`.

Where a case has several processes, each is a rank that records its own part; rank 0 puts the parts
together into the manifest.
"""

import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from parity.config import weights
from parity.config.schema import STAGED, Case
from parity.core import precision
from parity.core.arrays import Floats
from parity.data.batches import Dataset
from parity.data.pairs import PairData
from parity.runtime.environment import threads
from parity.runtime.job import Job
from parity.trace import layout, manifest, survey
from parity.trace.layout import Layout
from parity.trace.mapping import PairContext
from parity.trace.recorder import Recorder
from parity.trace.repeat import Repeat

POLL = 0.005  # seconds between two looks for the other ranks' parts


class Rank(NamedTuple):
    """One process among those that run a case together."""

    number: int
    of: int


class Run(NamedTuple):
    """One run of a case on one rank: what a backend is asked to do.

    `at`: the precision. `recorders`: one for each replica of which this process holds a part, by the
    number of the replica. `watch`: whether the device layout is to be recorded. `pair`: of a user's own models,
    whose `dataset` is a PairData.
    """

    case: Case
    at: str
    weights: Mapping[str, Floats]
    dataset: Any
    recorders: dict[int, Recorder]
    watch: bool
    fault: str
    pair: PairContext | None = None


class Account(NamedTuple):
    """What a run tells beside its tensors: what happened where, and the kinds of the recorded modules.

    `lifted`: places in a user's model that compute in float32 on purpose, and in float64 in the high run.
    """

    layout: Layout
    modules: dict[str, str]
    lifted: list[str] = []


class Side(Protocol):
    """A backend's harness.run module."""

    NAME: str

    def versions(self) -> dict[str, str]:
        """The framework packages and their versions."""

    def settings(self) -> dict[str, str]:
        """The framework's global settings, by name, as text."""

    def rank(self) -> Rank:
        """This process among its like."""

    def run(self, run: Run) -> Account:
        """Train the case's model, recording."""


class Part(msgspec.Struct, frozen=True):
    """What one rank adds to the manifest."""

    layout: Layout
    modules: dict[str, str]
    lifted: list[str]
    files: dict[str, list[str]]
    aliases: dict[str, dict[str, str]]
    same: dict[str, list[str]]
    digests: dict[str, str]
    moved: dict[str, dict[str, float]]


def record(job: Job, side: Side) -> None:
    """Record every run that the job names into its folder, in the place of what was recorded there."""
    folder, rank = Path(job.folder), side.rank()
    folder.mkdir(parents=True, exist_ok=True)
    manifest.discard(folder, rank.number)
    dataset = _dataset(job)
    part = _record(job, side, rank, dataset)
    if rank.number:
        manifest.write_part(folder, rank.number, part)
        return
    parts = [part, *(_wait(folder, other) for other in range(1, rank.of))]
    facts = manifest.Manifest(
        case=job.case,
        backend=side.NAME,
        data={"source": "pair" if job.pair else job.case.data.source, "sha256": dataset.digest},
        versions=side.versions(),
        environment={"python": platform.python_version(), "machine": platform.machine(), "threads": str(threads())},
        layout=layout.merge([part.layout for part in parts], job.case.strategy in STAGED),
        replicas=replicas(job.case, rank.of),
        modules={name: kind for part in parts for name, kind in part.modules.items()},
        mapping=job.pair.mapping if job.pair else None,
        matching=job.pair.matching if job.pair else None,
        lifted=[place for part in parts for place in part.lifted],
        files={name: keys for part in parts for name, keys in part.files.items()},
        aliases={name: keys for part in parts for name, keys in part.aliases.items()},
        same={name: keys for part in parts for name, keys in part.same.items()},
        digests={name: digest for part in parts for name, digest in part.digests.items()},
        moved={name: keys for part in parts for name, keys in part.moved.items()},
    )
    manifest.write(folder, facts)


def replicas(case: Case, ranks: int) -> list[list[int]]:
    """The ranks that hold each replica: consecutive ones. One process records all replicas as ranks."""
    if ranks == 1:
        return [[replica] for replica in range(case.replicas)]
    each = ranks // case.replicas
    return [list(range(replica * each, (replica + 1) * each)) for replica in range(case.replicas)]


def _dataset(job: Job) -> Any:
    return PairData(job.case, job.pair.search) if job.pair else Dataset(job.case)


def _initial(job: Job) -> Mapping[str, Floats]:
    """The values that the model starts from: those of a pair are the reference's own."""
    return survey.Initial(Path(job.pair.survey)) if job.pair else weights.initial(job.case)


def _record(job: Job, side: Side, rank: Rank, dataset: Any) -> Part:
    initial = _initial(job)
    part = None
    for run in job.runs:
        start, data = initial, dataset
        if run == "witness":
            # All that rounding may do to the reference: other last bits, and sums in another order. A dropout
            # mask belongs to a place in the batch: there the samples stay where they are.
            start = weights.Nudged(initial, job.case.seed)
            data = dataset if job.case.dropout else dataset.reversed()
        at = job.case.precision if run == "low" else precision.HIGH
        recording = recorders(job, f"{run}/rank-", rank, data)
        account = side.run(Run(job.case, at, start, data, recording, part is None, job.fault, job.pair))
        part = part or Part(*account[:2], lifted=[], files={}, aliases={}, same={}, digests={}, moved={})
        part.lifted.extend(place for place in account.lifted if place not in part.lifted)
        for recorder in recording.values():
            name = f"{run}/{recorder.folder.name}"
            part.files.update({f"{name}/{stem}": keys for stem, keys in recorder.files.items()})
            part.aliases.update({f"{name}/{stem}": keys for stem, keys in recorder.aliases.items()})
            part.same.update({f"{name}/{stem}": keys for stem, keys in recorder.references.items()})
            part.digests.update({f"{name}/{stem}": digest for stem, digest in recorder.digests.items()})
        if run == "high" and "witness" in job.runs:
            part.moved.update(_repeat(job, side, initial, dataset, recording))
    assert part  # a job names a run
    return part


def _repeat(
    job: Job, side: Side, initial: Mapping[str, Floats], dataset: Any, recorded: Mapping[int, Recorder]
) -> dict[str, dict[str, float]]:
    """Do the high run again: the tensors that are not the same bit by bit, by file, with their largest difference."""
    repeats = {replica: Repeat(before) for replica, before in recorded.items()}
    side.run(Run(job.case, precision.HIGH, initial, dataset, dict(repeats), False, job.fault, job.pair))
    moved = {}
    for repeat in repeats.values():
        moved.update({f"high/{repeat.folder.name}/{stem}": keys for stem, keys in repeat.moved.items()})
    return moved


def recorders(job: Job, prefix: str, rank: Rank, data: Any) -> dict[int, Recorder]:
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

"""What the parent and a backend's process say to each other: one JSON line per message."""

import contextlib
import os
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from parity.config.devices import processes
from parity.config.schema import Case
from parity.core.inputs import Input
from parity.trace.mapping import PairContext

# What a comparison needs of each side: the witness is the reference's.
RUNS = {"torch": ["low", "high", "witness"], "keras": ["low", "high"]}


class Group(NamedTuple):
    """What kind of processes a job needs: so many ranks, told of so many logical devices before they start.

    `devices`: 0 where they need not be told: torch's virtual devices are as many as each job says.
    """

    ranks: int
    devices: int


class Job(msgspec.Struct, frozen=True, kw_only=True, tag="record"):
    """Record the named runs of a case into a folder. `fault` plants mistakes, by name, joined by +."""

    case: Case
    runs: list[str]
    folder: str
    fault: str = ""
    pair: PairContext | None = None

    def group(self, backend: str) -> Group:
        """What the backend runs it in."""
        return Group(processes(self.case, backend), self.case.devices if backend == "keras" else 0)

    def progress(self) -> int:
        """How many bytes its ranks have recorded: tensors are written as they are computed."""
        return _written(Path(self.folder))


class DoctorJob(msgspec.Struct, frozen=True, kw_only=True, tag="examine"):
    """Observe some steps of a program, and write the evidence of each rank into a folder.

    The program is a built-in case, or what `build` ("module:function") returns, trained by `step`. `virtual`: the
    devices are no hardware. `asked`: whether so many were asked for, or are there. `ranks`: processes that a user's
    program is run in. `timed`: whether its steps are timed too. `profile`: a folder, or "".
    """

    folder: str = ""
    case: Case | None = None
    build: str = ""
    step: str = ""
    inputs: list[Input] = []
    devices: int = 1
    virtual: bool = True
    asked: bool = True
    ranks: int = 1
    timed: bool = True
    profile: str = ""

    def group(self, backend: str) -> Group:
        """What the backend runs it in. TensorFlow has virtual devices beside the host, which is one too."""
        ranks = processes(self.case, backend) if self.case else self.ranks
        return Group(ranks, self.devices + self.virtual if backend == "keras" else 0)

    def progress(self) -> int:
        """How many files its ranks have written: one after each step."""
        return len(os.listdir(self.folder))


class SurveyJob(msgspec.Struct, frozen=True, kw_only=True, tag="survey"):
    """Tell what a half of a pair is made of (parity.trace.survey), into a folder.

    Keras's is given torch's weights as far as `pair.mapping` says.
    """

    case: Case
    folder: str
    pair: PairContext

    def group(self, backend: str) -> Group:
        """One process."""
        return Group(1, self.case.devices if backend == "keras" else 0)

    def progress(self) -> int:
        """How many bytes of what the models returned and hold are written."""
        return _written(Path(self.folder))


class VaryJob(msgspec.Struct, frozen=True, kw_only=True, tag="vary"):
    """Call a half of a pair on variations of its inputs (parity.pairs.vary), in the named runs, into a folder.

    `given_only`: on the inputs given alone, to see which branches of the model they reach.
    """

    case: Case
    runs: list[str]
    folder: str
    pair: PairContext
    given_only: bool = False

    def group(self, backend: str) -> Group:
        """One process."""
        return Group(1, self.case.devices if backend == "keras" else 0)

    def progress(self) -> int:
        """How many calls have been recorded."""
        return sum(1 for _ in Path(self.folder).rglob("*.safetensors"))


Work = Job | DoctorJob | SurveyJob | VaryJob


def _written(folder: Path) -> int:
    """Return the size of all files below a folder, to which other processes write."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # renamed or removed since
                total += 1 + os.stat(os.path.join(parent, name)).st_size
    return total


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended. `ready` is said once, before the first job; instead of it `missing`, for a MissingError.

    `settings`: the names of the global settings that the job of a pair has changed and left so.
    """

    status: Literal["ready", "missing", "done", "usage", "error"]
    message: str = ""
    seconds: float = 0.0
    settings: list[str] = []

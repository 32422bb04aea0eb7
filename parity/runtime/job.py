"""The messages between the parent and a backend's process: jobs and answers, one line of JSON each."""

import contextlib
import os
from typing import Literal, NamedTuple

import msgspec

from parity.config.pair import Pair
from parity.config.schema import Case
from parity.core.errors import BackendError, UsageError
from parity.core.inputs import Input
from parity.runtime.experiment import Question
from parity.trace.mapping import PairContext

# The runs that a comparison needs from each side; only the reference, torch, has a witness.
RUNS = {"torch": ["low", "high", "witness"], "keras": ["low", "high"]}
# How a step is carried out: "eager" op by op; in torch by torch.compile; in Keras by tf.function, also with XLA.
Mode = Literal["eager", "compile", "graph", "xla"]
MODES: dict[str, list[Mode]] = {"torch": ["eager", "compile"], "keras": ["eager", "graph", "xla"]}


class Group(NamedTuple):
    """The processes that a job needs: the number of ranks, and of logical devices to set up when they start."""

    ranks: int
    devices: int  # 0 for torch, whose virtual devices are set up by each job


class _CaseJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a case or pair, whose results are written into a folder."""

    case: Case
    folder: str

    def group(self, backend: str) -> Group:
        """Return the processes in which the backend runs the job."""
        return Group(self.case.distribution.processes(backend), self.case.devices if backend == "keras" else 0)

    def progress(self) -> int:
        """Return a number that grows steadily while the job advances: the bytes and number of the folder's files."""
        total = 0
        for parent, _, names in os.walk(self.folder):
            for name in names:
                with contextlib.suppress(OSError):  # the process that writes there may have renamed or removed it
                    total += 1 + os.stat(os.path.join(parent, name)).st_size
        return total


class Job(_CaseJob, frozen=True, kw_only=True, tag="record"):
    """A job that records the named runs of a case into a folder."""

    runs: list[str]
    fault: str = ""  # the names of faults to plant, joined by +
    summarises: bool = False  # whether to write summaries of large tensors in place of these
    whole: list[str] = []  # the keys of tensors that are written whole all the same
    pair: PairContext | None = None  # set for a pair

    def group(self, backend: str) -> Group:
        """Return the processes in which the backend runs the job; a side of a pair may have several, or devices."""
        side = self.pair.side if self.pair else None
        if side is None or side.devices == 1:
            return super().group(backend)
        return Group(side.ranks, 0 if side.ranks > 1 else side.devices)


class DoctorJob(msgspec.Struct, frozen=True, kw_only=True, tag="examine"):
    """A job that observes some steps of a program, and writes the evidence of each rank into a folder.

    The program is the built-in case `case`, or the model that `build` ("module:function") returns, trained by `step`.
    `virtual`: the devices are no hardware of their own. `asked`: whether the user asked for this number of devices.
    `ranks`: the number of processes for a user's program. `timed`: whether to time its steps as well. `profile`: the
    folder for a profile, or "".
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
        """Return the processes in which the backend runs the job; of TensorFlow's devices, one more is the host."""
        ranks = self.case.distribution.processes(backend) if self.case else self.ranks
        return Group(ranks, self.devices + self.virtual if backend == "keras" else 0)

    def progress(self) -> int:
        """Return how many files the ranks have written, one after each step."""
        return len(os.listdir(self.folder))


class SurveyJob(_CaseJob, frozen=True, kw_only=True, tag="survey"):
    """A job that writes the survey of one side's model of a pair into a folder (parity.runtime.survey).

    A Keras model gets torch's weights first, as far as `pair.mapping` maps them; without them it is rehearsed.
    With `needless`, Keras's weights without a counterpart, only those are looked for that take part in nothing that is
    compared; in torch, which is the reference, that is always done.
    """

    pair: PairContext
    needless: list[str] | None = None
    # Replace large initial values by ones that can be drawn again (parity.runtime.survey.Law). With `seeds`, the model
    # is only built, once with each of them, and what is not trained (of `tables`, unless that is empty) is kept as its
    # builder made it.
    redraws: bool = False
    seeds: list[int] = []
    tables: list[str] = []


class BatchesJob(_CaseJob, frozen=True, kw_only=True, tag="batches"):
    """A job that runs a pair's training script, unrecorded, to see what it trains on (parity.pairs.scripts)."""

    pair: PairContext


class VaryJob(_CaseJob, frozen=True, kw_only=True, tag="vary"):
    """A job that calls one side's model of a pair on variations of its inputs (parity.pairs.vary).

    Each of the named runs is recorded into the folder. `given_only`: call it only on the inputs that the user gave, to
    see which branches of the model they reach.
    """

    runs: list[str]
    pair: PairContext
    given_only: bool = False


class ExperimentJob(_CaseJob, frozen=True, kw_only=True, tag="experiment"):
    """A job that calls modules of one side's model of a pair with other settings (parity.diagnose.experiment)."""

    pair: PairContext
    questions: list[Question]


class BenchJob(_CaseJob, frozen=True, kw_only=True, tag="bench"):
    """A job that trains a model without recording it, in bursts of steps that are timed (parity.bench).

    Every burst is a job of its own, and all of them go to the same processes: the first, with `number` 0, builds the
    model, and the others go on where the one before has stopped. Each rank writes FOLDER/NUMBER-RANK.json after a
    burst. `parts`: time the parts of each step as well, which slows it down.
    """

    mode: Mode = "eager"
    pair: PairContext | None = None
    number: int = 0
    steps: int = 1
    parts: bool = False


Work = Job | DoctorJob | SurveyJob | BatchesJob | VaryJob | ExperimentJob | BenchJob


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended; "ready" is sent once, before the first job, or "missing" in its place, for a MissingError."""

    status: Literal["ready", "missing", "done", "usage", "error"]
    message: str = ""
    seconds: float = 0.0

    def check(self) -> None:
        """Raise UsageError or BackendError, by whose fault it was, unless the job is done."""
        if self.status != "done":
            raise (UsageError if self.status == "usage" else BackendError)(self.message)


def owner(job: Work) -> str:
    """Return the name of the pair whose code a job runs; "" of any other job."""
    return job.case.name if job.case and isinstance(job.case.model, Pair) else ""

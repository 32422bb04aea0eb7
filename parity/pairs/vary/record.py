"""Record one backend's half of the variations: call its model on each of them, and write down what it returned.

Each variation that the model accepts leaves a trace of the model's outputs, in a folder named by its number.
`facts.json` says which variations the model did not accept and why, and which branches each one reached.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from parity.config.pair import Pair
from parity.config.weights import Nudged
from parity.core import precision, random
from parity.core.arrays import Array, Floats, digest, reproduced
from parity.core.errors import BackendError, UsageError
from parity.pairs.vary.coverage import Draw, Observer, Seen
from parity.pairs.vary.variations import (
    ALWAYS,
    ANOTHER,
    GIVEN,
    SECOND_CALL,
    ZEROS,
    Inputs,
    Variation,
    is_mask,
    variations,
)
from parity.runtime import survey
from parity.runtime.job import VaryJob
from parity.trace import keys, manifest
from parity.trace.layout import Layout
from parity.trace.recorder import Recorder

FACTS = "facts.json"
NEAR_ZERO = 2.0**-40  # times a normal number
Outputs = list[tuple[str, Array]]


class Instance(Protocol):
    """A model that has been built and given the weights of the pair, and that may be called many times."""

    def call(self, inputs: Inputs, training: bool | None, observer: Observer) -> Outputs:
        """Return the model's outputs by name, in canonical axes.

        Without `training` it is called as users call it: unobserved, and with the framework's shortcuts. Raises
        UsageError and BackendError.
        """

    def reset(self) -> None:
        """Give all that a call may change the value that it had before the first call."""


Open = Callable[[VaryJob, str, Mapping[str, Floats], Inputs], AbstractContextManager[Instance]]


class Facts(msgspec.Struct):
    """What one side reports, by the name of a variation.

    `failed` says why the model does not accept it, `excluded` why it cannot be compared. `branches` are those that it
    reached or has, `draws` the dropout masks that it drew. `seeded` names those in which a second call would draw the
    same masks, because of a seed.
    """

    failed: dict[str, str] = {}
    excluded: dict[str, str] = {}
    branches: dict[str, list[Seen]] = {}
    draws: dict[str, list[Draw]] = {}
    seeded: list[str] = []


def record(job: VaryJob, backend: str, open_: Open) -> None:
    """Call the model on every variation in every run of the job. `open_` builds the model at a precision."""
    torch = Path(job.pair.survey)
    initial, few = survey.Initial(torch), survey.read(torch).is_large
    chosen = variations(job.case, job.pair.search, few)[: ALWAYS if job.given_only else None]
    recording = _Recording(job, chosen)
    for run in job.runs:
        run_precision = job.case.precision if run == "low" else precision.HIGH
        weights = Nudged(initial, job.case.seed) if run == "witness" else initial
        with open_(job, run_precision, weights, chosen[0].inputs) as instance:
            for variation in chosen:
                recording.add(run, variation, instance)
        del instance  # the next run's model may need its memory
    recording.close(backend)


class _Recording:
    """What has been written so far: `files` and their `digests`, by the number of a variation."""

    def __init__(self, job: VaryJob, chosen: list[Variation]) -> None:
        assert isinstance(job.case.model, Pair)
        self.job, self.pair, self.chosen = job, job.case.model, chosen
        self.facts = Facts()
        self.files: dict[int, dict[str, list[str]]] = {}
        self.digests: dict[int, dict[str, str]] = {}
        self._reshaped = ""  # the run whose last call took inputs of other shapes than those given

    def add(self, run: str, variation: Variation, instance: Instance) -> None:
        """Call the model once and record the outputs, unless an earlier run of the variation has failed."""
        if variation.name in self.facts.failed or variation.name in self.facts.excluded:
            return
        given = self.chosen[0].inputs
        is_reshaped = any(array.shape != given[name].shape for name, array in variation.inputs.items())
        follows, self._reshaped = is_reshaped and self._reshaped == run, ""
        if variation.name not in (GIVEN, SECOND_CALL, ANOTHER) and not follows:
            instance.reset()
        observer = Observer()
        for name, array in variation.inputs.items():
            if is_mask(self.pair.inputs[name], array):
                observer.mask(f"inputs.{name}", array)
        try:
            if is_reshaped and not follows:  # what a model keeps of other shapes shows
                instance.call(given, variation.training, Observer())
            inputs = _near_zeros(variation.inputs) if (run, variation.name) == ("witness", ZEROS) else variation.inputs
            outputs = instance.call(inputs, variation.training, observer)
        except BackendError as error:
            self.facts.failed[variation.name] = str(error)
            return
        except UsageError as error:  # random numbers that shared dropout masks cannot stand for
            self.facts.excluded[variation.name] = str(error)
            return
        self._reshaped = run if is_reshaped else ""
        self.facts.branches.setdefault(variation.name, observer.branches())
        self.facts.draws.setdefault(variation.name, observer.draws)
        self._write(run, variation, outputs)
        if variation.training and run == "high":
            self._repeat(variation, instance, outputs, observer)

    def close(self, backend: str) -> None:
        """Write the manifests and the facts."""
        folder = Path(self.job.folder)
        for number, files in self.files.items():
            variation = self.chosen[number]
            data = {"source": variation.name, "sha256": digest(variation.inputs.items())}
            facts = manifest.Manifest(
                case=self.job.case,
                backend=backend,
                data=data,
                versions={},
                environment={},
                layout=Layout(devices=[], parameters={}),
                replicas=[[0]],
                files=files,
                digests=self.digests[number],
            )
            manifest.write(folder / str(number), facts)
        (folder / FACTS).write_bytes(msgspec.json.encode(self.facts))

    def _write(self, run: str, variation: Variation, outputs: Outputs) -> None:
        """Write the outputs of one call as a trace of a single step."""
        number = self.chosen.index(variation)
        recorder = Recorder(Path(self.job.folder) / str(number) / run / "rank-0", steps=1, every=1)
        recorder.next_step()  # the state before the first step is not recorded
        for name, array in outputs:
            recorder.add("activation", name, array)
        recorder.next_step()
        stem = keys.step_file(0)
        self.files.setdefault(number, {})[f"{run}/rank-0/{stem}"] = recorder.files[stem]
        self.digests.setdefault(number, {})[f"{run}/rank-0/{stem}"] = recorder.digests[stem]

    def _repeat(self, variation: Variation, instance: Instance, before: Outputs, first: Observer) -> None:
        """Call the model again, note whether a seed repeats the masks, and exclude the variation if the outputs change.

        In training mode the model may draw random numbers other than shared masks; then its outputs are no function
        of its inputs, and cannot be compared.
        """
        instance.reset()
        second, third = Observer(), Observer()
        again = instance.call(variation.inputs, variation.training, second)
        if first.states & second.states:  # a seed, or a count that the reset has put back
            instance.call(variation.inputs, variation.training, third)
        if second.states & third.states:
            self.facts.seeded.append(variation.name)
        pairs = zip(before, again, strict=False)
        if not all(reproduced(first, second) for (_, first), (_, second) in pairs):
            self.facts.excluded[variation.name] = "two calls on the same inputs draw different random numbers"


def _near_zeros(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return numbers that are nearly zeros, among which there are no ties as zeros may make them in a top-k."""
    drawn = {name: random.normal(0, f"zeros/{name}", array.shape) * NEAR_ZERO for name, array in inputs.items()}
    return {name: drawn[name] if array.dtype.kind == "f" else array for name, array in inputs.items()}


def read(folder: Path) -> Facts:
    """Read what a backend has reported about the variations."""
    return msgspec.json.decode((folder / FACTS).read_bytes(), type=Facts)

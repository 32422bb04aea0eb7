"""One job, framework-free: every run of a case, then the manifest. The backends supply `Side`."""

import platform
from pathlib import Path
from typing import Protocol

from parity.config import weights
from parity.config.schema import Case
from parity.data.batches import Dataset
from parity.numerics import precision
from parity.random import Floats
from parity.runtime.environment import THREADS
from parity.runtime.job import Job
from parity.trace import manifest
from parity.trace.recorder import Recorder


class Side(Protocol):
    """A backend's harness.run module."""

    NAME: str

    def versions(self) -> dict[str, str]:
        """The framework packages and their versions."""

    def run(
        self, case: Case, at: str, weights: dict[str, Floats], dataset: Dataset, recorder: Recorder, fault: str
    ) -> manifest.Layout:
        """Train the case's model at the precision `at`, recording; say where its parameters were."""


def record(job: Job, side: Side) -> None:
    """Record every run that the job names into its folder, in the place of what was recorded there."""
    manifest.discard(Path(job.folder))
    dataset = Dataset(job.case)
    initial = weights.initial(job.case)
    files: dict[str, list[str]] = {}
    for run in job.runs:
        at = job.case.precision if run == "low" else precision.HIGH
        name = f"{run}/rank-0"
        recorder = Recorder(Path(job.folder) / name, dataset.order(), job.case.every)
        start, data = initial, dataset
        if run == "witness":
            # All that rounding may do to the reference: other last bits, and sums in another order.
            start, data = weights.nudged(initial, job.case.seed), dataset.reversed()
            recorder.flipped_axis = dataset.batch_axis
        layout = side.run(job.case, at, start, data, recorder, job.fault)
        files |= {f"{name}/{stem}": written for stem, written in recorder.files.items()}
    facts = manifest.Manifest(
        case=job.case,
        backend=side.NAME,
        data={"source": job.case.data.source, "sha256": dataset.digest},
        versions=side.versions(),
        environment={"python": platform.python_version(), "machine": platform.machine(), "threads": str(THREADS)},
        layout=layout,
        files=files,
    )
    manifest.write(Path(job.folder), facts)

"""Training as it is without this project: the harness's own set-up, nothing watched.

The backend's harness runs a case, so that model, weights, optimizer, loss and loop are those of a
recording, with an `Unprobed` in the place of the probe. Used by step.py, and as a backend of its own by
run.py: `python benchmarks/bare.py SIDE` takes the same jobs from the parent as the real one.
"""

import importlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from parity.config import weights
from parity.config.schema import Case
from parity.data.batches import Batch, Dataset
from parity.runtime.drive import Run, replicas
from parity.runtime.environment import environment
from parity.runtime.job import Job
from parity.runtime.serve import serve

SIDES = ("torch", "keras")


class Unprobed:
    """In the place of a probe: watches nothing, passes on that a step ended."""

    modules: dict[str, str] = {}

    def __init__(self, first: Any, *_: Any) -> None:
        # torch's gets the run, Keras's its replicas; both have the recorders.
        owners = first.recorders.values() if hasattr(first, "recorders") else [one.recorder for one in first.values()]
        self._recorders = list(owners)

    def on_step(self) -> None:
        """Tell every recorder."""
        for recorder in self._recorders:
            recorder.next_step()

    def attach(self) -> None:
        """Watch nothing."""

    def watched_loss(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return what the function does."""
        return function(*args)

    reduction = watched_loss


class Silent:
    """In the place of a recorder that stores nothing."""

    step: int | None = None

    def drew(self, indices: Any) -> None:
        """Store nothing."""

    def next_step(self) -> None:
        """Store nothing."""

    def wants(self, kind: str) -> bool:
        """No kind at all."""
        return False


class Endless(Dataset):
    """The batches of a case over and over, made before the clock starts."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.made = list(super().steps())

    def steps(self) -> Iterator[list[list[Batch]]]:
        """Without end."""
        return itertools.cycle(self.made)


def framework(side: str, case: Case, at: str, dataset: Dataset, recorder: Any, watched: bool) -> None:
    """Run a case of one replica in this process, at the precision `at`."""
    harness = importlib.import_module(f"{side}_impl.record.run")
    if not watched:
        _replace_next_probe(harness)
    harness.run(Run(case, at, weights.initial(case), dataset, {0: recorder}, False, ""))


def start(script: str, folder: Path, *flags: str) -> "subprocess.Popen[str]":
    """Start a script in a backend's environment and return its process."""
    with (folder / "log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, script, *flags], stdout=subprocess.PIPE, stderr=log, env=environment(folder), text=True
        )


def answer(process: "subprocess.Popen[str]", folder: Path) -> Any:
    """Return what the script printed last, read as JSON. Raises RuntimeError if it failed."""
    output = process.communicate()[0]
    if process.returncode:
        raise RuntimeError(f"{process.args} ended with status {process.returncode}\n{(folder / 'log').read_text()}")
    return json.loads(output.splitlines()[-1])


def load(side: str) -> Callable[[Job], None]:
    """Import the framework and its harness; what runs a job bare."""
    harness: Any = importlib.import_module(f"{side}_impl.__main__").load()
    harness.Probe = Unprobed

    def run(job: Job) -> None:
        rank, dataset = harness.rank(), Dataset(job.case)
        ranks = enumerate(replicas(job.case, rank.of))
        own = [replica for replica, members in ranks if rank.of == 1 or rank.number in members]
        for name in job.runs:
            at = job.case.precision if name == "low" else "float64"
            recorders = {replica: Silent() for replica in own}
            harness.run(Run(job.case, at, weights.initial(job.case), dataset, recorders, False, ""))

    return run


def _replace_next_probe(harness: Any) -> None:
    """Only the next: the run that makes it may still be on its way when another one starts."""
    original = harness.Probe

    def make(*args: Any) -> Unprobed:
        harness.Probe = original
        return Unprobed(*args)

    harness.Probe = make


if __name__ == "__main__":
    serve(lambda: load(sys.argv[1]))

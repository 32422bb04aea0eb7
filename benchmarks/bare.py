"""Training steps of a backend as they are without this project: the harness's own set-up, nothing watched.

`framework` runs a case by the backend's harness, so that model, weights, optimizer, loss and loop are
those of a recording; with `watched=False` an `Unprobed` stands in for the probe. Steps are timed where
the harness tells the recorder that one ended. Used by step.py and run.py, each in a process per side.
"""

import importlib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from parity.config import weights
from parity.config.schema import Case
from parity.data.batches import Batch, Dataset
from parity.runtime.environment import environment

SIDES = ("torch", "keras")


class Unprobed:
    """In the place of a probe: watches nothing, passes on that a step ended."""

    def __init__(self, model: Any, optimizer: Any, recorder: Any, case: Any) -> None:
        self.on_step = recorder.next_step

    def watch(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        """The loss itself."""
        return loss


class Clock:
    """In the place of a recorder: notes when training starts, each step ends, the evaluation ends."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def next_step(self) -> None:
        """What the harness calls at each of these."""
        self.times.append(time.perf_counter())

    @property
    def seconds(self) -> list[float]:
        """Of each step, and last of the evaluation."""
        return [end - start for start, end in itertools.pairwise(self.times)]


class Endless(Dataset):
    """The batches of a case over and over, made before the clock starts."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.made = list(super().steps())

    def steps(self) -> Iterator[list[Batch]]:
        """Without end."""
        return itertools.cycle(self.made)


def framework(side: str, case: Case, at: str, dataset: Dataset, recorder: Any, watched: bool) -> None:
    """One run of a case in this process, at the precision `at`."""
    harness = importlib.import_module(f"{side}_impl.harness.run")
    if not watched:
        _replace_next_probe(harness)
    harness.run(case, at, weights.initial(case), dataset, recorder, "")


def start(script: str, folder: Path, *flags: str) -> "subprocess.Popen[str]":
    """This script again, in a backend's environment."""
    with (folder / "log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, script, *flags], stdout=subprocess.PIPE, stderr=log, env=environment(folder), text=True
        )


def answer(process: "subprocess.Popen[str]", folder: Path) -> Any:
    """What the script printed last, as JSON. Raises RuntimeError if it failed."""
    output = process.communicate()[0]
    if process.returncode:
        raise RuntimeError(f"{process.args} ended with status {process.returncode}\n{(folder / 'log').read_text()}")
    return json.loads(output.splitlines()[-1])


def _replace_next_probe(harness: Any) -> None:
    """Only the next: the run that makes it may still be on its way when another one starts."""
    original = harness.Probe

    def make(*args: Any) -> Unprobed:
        harness.Probe = original
        return Unprobed(*args)

    harness.Probe = make

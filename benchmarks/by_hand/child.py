"""A process that trains a case in bursts of steps: `python child.py SIDE ours|by_hand`.

Both kinds get the same model, weights, batches, loss, optimizer and clock. With `by_hand` the placement, the loop and
the communication are those of torch_loops.py or keras_loops.py. After CHECKED steps each rank writes its parameters,
and those that it began with, by which the two trainings are compared before they are timed.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from parity.core.errors import UsageError
from parity.runtime.drive import Program, Run
from parity.runtime.job import BenchJob, Work
from parity.runtime.serve import Following, serve

CHECKED = 3  # steps


def main(side: str, whose: str) -> None:
    """Serve the jobs of the parent."""

    def bench(job: BenchJob, following: Following) -> None:
        harness: Any = importlib.import_module(f"{side}_impl.bench")
        loops: Any = importlib.import_module(f"{side}_loops")
        make = harness.built_in.program if whose == "ours" else loops.program

        def program(run: Run, names: list[str]) -> Program:
            return checked(
                make(run, names), loops.parameters, Path(job.folder) / f"{harness.devices.rank().number}.npz"
            )

        harness.built_in.program = program
        harness.bench(job, following)

    def load() -> Callable[[Work], None]:
        importlib.import_module(f"{side}_impl.__main__").imports()
        return refuse

    serve(load, bench=bench)


def refuse(job: Work) -> None:
    """Refuse a job that trains in no bursts."""
    raise UsageError(f"{type(job).__name__}: only what trains in bursts is trained by hand")


def checked(program: Program, parameters: Callable[[Any], list[np.ndarray]], path: Path) -> Program:
    """Return the program, which writes its parameters of the beginning and of step CHECKED."""

    def train(batches: Iterator[Any], on_step: Callable[[], None]) -> None:
        states, left = [parameters(program.model)], CHECKED

        def noted() -> None:
            nonlocal left
            left -= 1
            if not left:
                states.append(parameters(program.model))
                arrays = {f"{when}/{i}": array for when, state in enumerate(states) for i, array in enumerate(state)}
                np.savez(path, **arrays)
            on_step()

        program.train(batches, noted)

    return program._replace(train=train)


if __name__ == "__main__":
    main(*sys.argv[1:])

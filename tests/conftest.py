"""Both backends, kept alive for the whole session; no test imports a framework into its own process."""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from parity.config import cases
from parity.config.schema import Case
from parity.diagnose.diagnosis import explained
from parity.results import CaseResult
from parity.runtime.backend import Backend, feed, running
from parity.runtime.job import RUNS, Job
from parity.trace.manifest import Trace

Compare = Callable[..., CaseResult]

# tests/test_sides.py runs the tests of each side in a process of its own.
collect_ignore = [f"{side}_impl" for side in ("torch", "keras") if os.environ.get("PARITY_SIDE") != side]


@pytest.fixture(scope="session")
def backends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Backend]]:
    """The two processes."""
    folder = tmp_path_factory.mktemp("backends")
    started = [Backend("torch", "", folder), Backend("keras", "", folder)]
    with running(started):
        yield started


@pytest.fixture(scope="session")
def run(backends: list[Backend], tmp_path_factory: pytest.TempPathFactory) -> Compare:
    """Run one case on both sides and judge it: `run(name or case, changes, torch="fault", keras="fault")`."""
    numbers = itertools.count()

    def compared(name: str | Case, changes: dict | None = None, **faults: str) -> CaseResult:
        case = name if isinstance(name, Case) else cases.resolve(name, changes or {})
        folder = tmp_path_factory.mktemp(f"case{next(numbers)}")
        jobs = {
            backend: [
                Job(
                    case=case,
                    runs=RUNS[backend.name],
                    folder=str(folder / backend.name),
                    fault=faults.get(backend.name, ""),
                )
            ]
            for backend in backends
        }
        for result in feed(jobs):
            assert result.answer.status == "done", result.answer.message
        return explained(Trace(folder / "torch"), Trace(folder / "keras"))

    return compared

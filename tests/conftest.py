"""Both backends, kept alive for the whole session; these tests import no framework into their own process."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from parity.config import cases
from parity.config.schema import Case
from parity.diagnose.diagnosis import explained
from parity.results import CaseResult
from parity.runtime.backend import Backend, feed, running
from parity.runtime.job import RUNS, Job
from parity.trace.manifest import Trace

pytest_plugins = ["sides"]

Compare = Callable[..., CaseResult]

TESTS = Path(__file__).parent
# What takes longest, the longest first: the files of tests/.
LONG = ("pairs", "strategies", "catalogue", "doctor_programs", "readme", "pair_commands", "recorded")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of several workers each takes a file at a time: none is to be left with a long one."""
    places = {TESTS / f"test_{name}.py": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))


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

"""Both backends, kept alive for the whole session; no test imports a framework into its own process."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from parity.config import cases
from parity.config.schema import Case
from parity.diagnose.diagnosis import explained
from parity.results import CaseResult
from parity.runtime.backend import Backend, feed, running
from parity.runtime.environment import environment
from parity.runtime.job import RUNS, Job
from parity.trace.manifest import Trace

Compare = Callable[..., CaseResult]

TESTS = Path(__file__).parent
SIDES = ("torch", "keras")
# What takes longest, the longest first: the files of tests/.
LONG = ("sides", "pairs", "strategies", "catalogue", "doctor_programs", "readme", "pair_commands", "recorded")
# tests/test_sides.py runs the tests of each side in a process of its own.
collect_ignore = [f"{side}_impl" for side in SIDES if os.environ.get("PARITY_SIDE") != side]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of several workers each takes a file at a time: none is to be left with a long one."""
    places = {TESTS / f"test_{name}.py": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))


@pytest.fixture(scope="session", autouse=True)
def begun(request: pytest.FixtureRequest) -> None:
    """Has a lone process begin the tests of both sides before all others; of several workers one waits for them."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        request.getfixturevalue("sides")


@pytest.fixture(scope="session")
def sides(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "subprocess.Popen[bytes]"]]:
    """The tests of both sides, each in a process: they take as long as most of these, and few cores."""
    wanted = [side for side in SIDES if any(item.name == f"test_a_side[{side}]" for item in request.session.items)]
    # The frameworks warn of their own affairs: here warnings are no errors.
    flags = ["-q", "-W", "default", "-p", "no:cacheprovider", "-n", "0"]
    started = {}
    for side in wanted:
        folder = tmp_path_factory.mktemp(side)
        command = [sys.executable, "-m", "pytest", *flags, str(TESTS / f"{side}_impl")]
        variables = {**environment(folder), "PARITY_SIDE": side, "PARITY_DEVICES": "cpu:4"}
        with (folder / "output").open("wb") as output:
            started[side] = subprocess.Popen(command, cwd=TESTS.parent, env=variables, stdout=output)
        started[side].output = folder / "output"
    yield started
    for process in started.values():
        process.kill()
        process.wait()


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

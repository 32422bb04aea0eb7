"""Both backends, kept alive for the whole session; these tests import no framework into their own process."""

import itertools
import math
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from parity.config import cases
from parity.config.schema import Case
from parity.diagnose.diagnosis import examined
from parity.pairs import judge
from parity.results import CaseResult
from parity.runtime.backend import PACKAGES, Backend, running
from parity.runtime.child import ForkServer
from parity.runtime.job import RUNS, Job
from parity.runtime.runner import both
from parity.trace.manifest import Trace

pytest_plugins = ["sides"]

# The tests start hundreds of processes. Where this is set, each of them compiles all that it imports of the project.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# How long an example takes says more about the machine than about what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

Compare = Callable[..., CaseResult]

TESTS = Path(__file__).parent
# What takes longest, the longest first.
LONG = (
    "test_documents.py", "test_steps_of_scripts.py", "test_scripts.py",
    "soundness/users/test_users.py", "test_pairs.py", "soundness/test_soundness.py",
    "public/test_public.py", "test_strategies.py", "test_doctor_programs.py", "soundness/test_truth.py",
    "test_catalogue.py", "test_variations.py", "test_script_idioms.py", "test_equivalence.py", "test_pair_returned.py",
    "test_pair_causes.py", "test_pair_later.py", "parity/test_packages.py",
)  # fmt: skip
# Of what is marked slow each day's run has another part, so that four weeks have all; --whole has all at once.
TURNS = 28
# All workers of a run have one day, also if it ends meanwhile.
DAY = int(os.environ.setdefault("PARITY_TESTS_DAY", str(date.today().toordinal())))
BEGUN = float(os.environ.setdefault("PARITY_TESTS_BEGUN", str(time.time())))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="run what is marked slow whole, not the part of the day")
    within = "begin no test later than so many seconds after the start, and skip what is left"
    parser.addoption("--within", type=float, default=math.inf, metavar="SECONDS", help=within)


def _is_of_another_day(item: pytest.Item) -> bool:
    is_slow = item.get_closest_marker("slow") is not None
    together = item.nodeid.partition(": ")[0]  # the commands of a page, each of which needs those before it
    return is_slow and zlib.crc32(together.encode()) % TURNS != DAY % TURNS


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow and another day's, and begin with what takes longest.

    A worker takes a file at a time. Tests that are asked for by name are run on any day. Where time may be over before
    all have run, what takes longest comes last, and the other files in another order each day, so that none is always
    the last.
    """
    if not config.getoption("whole") and not any("::" in argument for argument in config.args):
        config.hook.pytest_deselected(items=list(filter(_is_of_another_day, items)))
        items[:] = itertools.filterfalse(_is_of_another_day, items)
    places = {TESTS / name: place for place, name in enumerate(LONG)}
    if config.getoption("within") < math.inf:
        turn = {path: zlib.crc32(f"{DAY} {path.relative_to(TESTS)}".encode()) for path in {item.path for item in items}}
        items.sort(key=lambda item: (item.path in places, turn[item.path]))
    else:
        items.sort(key=lambda item: places.get(item.path, len(LONG)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    within = item.config.getoption("within")
    if time.time() - BEGUN > within:
        pytest.skip(f"not begun within {within:g} s")


class Kept(ForkServer):
    """A process that has imported its framework, from which all tests fork; a backend that ends leaves it alive."""

    def stop(self) -> None:
        """Go on; `end` ends it."""

    def end(self) -> None:
        super().stop()


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, dict[bool, Kept]]]:
    """What `Backend` takes as `servers`, by side: each framework is imported once in the session."""
    commands = {side: [sys.executable, "-m", package] for side, package in PACKAGES.items()}
    made = {side: {shares: Kept(side, of) for shares in (True, False)} for side, of in commands.items()}
    yield made
    for server in itertools.chain.from_iterable(each.values() for each in made.values()):
        server.end()


@pytest.fixture(scope="session")
def backends(servers: dict[str, dict[bool, Kept]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Backend]]:
    """The two processes."""
    folder = tmp_path_factory.mktemp("backends")
    started = [Backend(side, "", folder, servers=kept) for side, kept in servers.items()]
    with running(started):
        yield started


@pytest.fixture(scope="module")
def forks(servers: dict[str, dict[bool, Kept]]) -> Iterator[None]:
    """Let the commands and the assertions, called within this process, fork what the session has imported."""

    def backend(side: str, python: str, folder: Path, *settings: object) -> Backend:
        return Backend(side, python, folder, *settings, servers=servers[side])

    with pytest.MonkeyPatch.context() as patch:
        for module in ("asserts", "certify", "runtime.runner"):
            patch.setattr(f"parity.{module}.Backend", backend)
        yield


@pytest.fixture
def verdicts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the experiments of a pair, which name causes and change no verdict."""
    monkeypatch.setattr(judge, "_ask", lambda *_: None)


@pytest.fixture(scope="session")
def run(backends: list[Backend], tmp_path_factory: pytest.TempPathFactory) -> Compare:
    """Run one case on both sides and judge it: `run(name or case, changes, torch="fault", keras="fault")`."""
    numbers = itertools.count()

    def compared(name: str | Case, changes: dict | None = None, **faults: str) -> CaseResult:
        case = name if isinstance(name, Case) else cases.resolve(name, changes or {})
        folder = tmp_path_factory.mktemp(f"case{next(numbers)}")
        jobs = {
            backend: Job(
                case=case,
                runs=RUNS[backend.name],
                folder=str(folder / backend.name),
                fault=faults.get(backend.name, ""),
            )
            for backend in backends
        }
        for answer in both(jobs).values():
            assert answer.status == "done", answer.message
        return examined(Trace(folder / "torch"), Trace(folder / "keras")).result

    return compared

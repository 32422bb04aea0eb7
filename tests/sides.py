"""A pytest plugin: the tests of torch_impl and of keras_impl run in workers that hold one framework each.

Of pytest-xdist's workers one collects the tests of torch_impl, one those of keras_impl, and all others the rest, which
start both frameworks in processes of their own. A file goes to a worker that has collected it. Without workers a
process takes the tests of one of these kinds.
"""

import contextlib
import gc
import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from parity.runtime.environment import environment

TESTS = Path(__file__).parent
FRAMEWORKS = ("torch", "keras")
FOLDERS = {"torch": TESTS / "torch_impl", "keras": TESTS / "keras_impl"}
REST = "rest"  # the kind of all other tests, which import no framework either
KIND: pytest.StashKey[str] = pytest.StashKey()
SESSION: pytest.StashKey[pytest.Session] = pytest.StashKey()
KINDS: pytest.StashKey[list[str]] = pytest.StashKey()
FEW = "one worker holds torch, one Keras, and the others neither: received -n{}, expected -n0 or at least -n{}"
MIXED = "without workers a process holds one framework: name tests of tests/torch_impl, of tests/keras_impl, or others"


def kind(path: Path) -> str:
    """Return the kind of what lies in one of the folders, or else "rest"."""
    return next((side for side, folder in FOLDERS.items() if path.is_relative_to(folder)), REST)


def pytest_configure(config: pytest.Config) -> None:
    """Give this process its kind of tests, and the environment of a backend if it is to hold a framework."""
    paths = {argument: Path(argument.partition("::")[0]).absolute() for argument in config.args}
    if hasattr(config, "workerinput"):
        own = config.workerinput["kind"]
        config.args[:] = [argument for argument, path in paths.items() if _has(path, own)]
    else:
        kinds = [each for each in (*FOLDERS, REST) if any(_has(path, each) for path in paths.values())] or [REST]
        workers = config.getoption("numprocesses", None)
        if workers:
            if workers < len(kinds):
                raise pytest.UsageError(FEW.format(workers, len(kinds)))
            config.stash[KINDS] = kinds
            return
        if len(kinds) > 1:
            raise pytest.UsageError(MIXED)
        own = kinds[0]
    config.stash[KIND] = own
    if own in FRAMEWORKS:
        config.addinivalue_line("filterwarnings", "default")  # the frameworks warn of their own affairs
        folder = Path(tempfile.mkdtemp(prefix="parity-tests-"))
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ |= {**environment(folder), "PARITY_DEVICES": "cpu:4"}


def _has(path: Path, wanted: str) -> bool:
    """Whether a file is of a kind, or a folder has what is."""
    return kind(path) == wanted or (wanted in FOLDERS and FOLDERS[wanted].is_relative_to(path))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep the session for the scheduler, which counts the tests."""
    session.config.stash[SESSION] = session


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Load the framework as a backend does, before a test module can begin to use it."""
    if (own := session.config.stash.get(KIND, REST)) in FRAMEWORKS:
        with _silenced():
            importlib.import_module(f"{own}_impl.__main__").imports()
            importlib.import_module(f"{own}_impl.record.run")
        gc.collect()
        gc.freeze()  # as a backend does: each run of a pair collects garbage, and a framework is a large heap


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Drop what libraries write to standard error, which pytest does not capture yet."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as sink:
        os.dup2(sink.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what is of another kind than this process's."""
    return None if _has(collection_path, config.stash.get(KIND, REST)) else True


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker its kind: one that is wanted and of which there is no worker yet, or none any more."""
    kinds = node.config.stash[KINDS]
    taken = {getattr(each, "kind", "") for each in node.nodemanager.group if each is not node.gateway}
    node.gateway.kind = node.workerinput["kind"] = next((each for each in kinds if each not in taken), kinds[-1])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController) -> None:
    """Leave the kind of a worker that has ended to the one that takes its place."""
    node.gateway.kind = ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Distribute files to the workers that have collected them."""
    return ByCollection(config, log)


class ByCollection(LoadScopeScheduling):
    """Gives each worker, a file at a time, what it has collected; the workers' collections may differ."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def add_node_collection(self, node: WorkerController, collection: list[str]) -> None:
        """Keep what a worker has collected, also of one that takes the place of another."""
        self.registered_collections[node] = list(collection)

    def schedule(self) -> None:
        """Queue all files, the first time, and give each worker two of them."""
        if self.collection is None:
            self.collection = list(dict.fromkeys(chain.from_iterable(self.registered_collections.values())))
            for nodeid in self.collection:
                self.workqueue.setdefault(self._split_scope(nodeid), {})[nodeid] = False
            self.config.stash[SESSION].testscollected = len(self.collection)  # what progress is a part of
        for node in [*self.nodes, *self.nodes]:
            self._reschedule(node)

    def _reschedule(self, node: WorkerController) -> None:
        if node.shutting_down:
            return
        own = set(self.registered_collections.get(node, ()))
        unit = next((scope for scope, tests in self.workqueue.items() if own & tests.keys()), None)
        if unit is None:
            node.shutdown()
        elif self._pending_of(self.assigned_work[node]) <= 2:  # as the base class: it runs one and looks at the next
            self.workqueue.move_to_end(unit, last=False)
            self._assign_work_unit(node)

"""The torch side's processes, one group for each number of ranks, kept alive over the tests."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from small_cases import small

from parity.runtime.backend import Backend, running
from parity.runtime.job import Job
from parity.trace.manifest import Trace

Record = Callable[..., Trace]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By the number of devices: a group of ranks is started once. Most tests have two."""
    own = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    own.sort(key=lambda item: item.callspec.params.get("devices", 2) if hasattr(item, "callspec") else 2)
    items[:] = [*own, *(item for item in items if item not in set(own))]


@pytest.fixture(scope="session")
def torch_backend(tmp_path_factory) -> Iterator[Backend]:
    """The side, with its processes."""
    backend = Backend("torch", "", tmp_path_factory.mktemp("torch"))
    with running([backend]):
        yield backend


@pytest.fixture(scope="session")
def record(torch_backend, tmp_path_factory) -> Record:
    """Record a small case in float64, once: `record("simple_block", "ddp", 2, {"clip_norm": 0.1}, fault="")`."""
    numbers = itertools.count()
    known: dict[str, Trace] = {}

    def recorded(model: str, strategy: str, devices: int, changes: dict | None = None, fault: str = "") -> Trace:
        key = json.dumps([model, strategy, devices, changes, fault])
        if key not in known:
            folder = tmp_path_factory.mktemp(f"trace{next(numbers)}")
            case = small(model, strategy, devices, changes or {})
            job = Job(case=case, runs=["high"], folder=str(folder), fault=fault)
            answer = torch_backend.do(job)
            assert answer.status == "done", f"{msgspec.json.encode(case)}: {answer.message}"
            known[key] = Trace(folder)
        return known[key]

    return recorded


@pytest.fixture
def gpus() -> Iterator[None]:
    """Two virtual GPUs, in this process."""
    from torch_impl.instruments.pretended import pretend  # not above: workers for other tests read this file too

    with pretend(2):
        yield

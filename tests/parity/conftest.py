"""A folder for stand-ins that play the ranks of a backend, which several files of tests use."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from stand_ins import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as stage:
        yield stage

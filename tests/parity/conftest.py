"""A folder for stand-ins that play the ranks of a backend, which several files of tests use."""

from pathlib import Path

import pytest
from stand_ins import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)

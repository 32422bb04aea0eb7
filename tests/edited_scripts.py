"""The pairs of training scripts in tests/scripts, after edits of a copy of them."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from parity.pairs import file as files
from parity.pairs.compare import compared
from parity.results import CaseResult
from parity.runtime.backend import Backend

SCRIPTS = Path(__file__).parent / "scripts"
SLOW = pytest.mark.slow
Edits = Sequence[tuple[str, str, str]]  # a file, the text that is replaced in it, and by what


def compared_after(name: str, edits: Edits, backends: list[Backend], folder: Path) -> CaseResult:
    """Compare a pair of scripts after edits of a copy of them."""
    copy = folder / "scripts"
    shutil.copytree(SCRIPTS, copy)
    for file, before, after in edits:
        text = (copy / file).read_text()
        assert before in text
        (copy / file).write_text(text.replace(before, after))
    return compared(files.load(copy / f"{name}.toml"), backends, folder / "traces", varied=False)


def matches(result: CaseResult) -> bool:
    """Whether all of two trainings is equal, but for the accepted statistics of batch norm."""
    checks = [result.checks[kind] for kind in ("loss", "gradient", "update", "parameter")]
    assert all(check.verdict == "match" and check.compared for check in checks), result.checks
    return result.verdict == "match" and [cause.id for cause in result.expected] == ["batch_norm.running_variance"]

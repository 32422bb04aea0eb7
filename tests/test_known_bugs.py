"""Bugs that papers collected, as small programs with the same mistake: what the doctor says of each.

docs/known_bugs.md has the table of all of them, with their sources, and with those that are not seen.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from known_bugs_table import BUGS, NOT_SEEN, SOUND, KnownBug
from slow import sampled

from parity.core.inputs import parse
from parity.doctor.__main__ import examined
from parity.doctor.finding import Finding
from parity.pairs import file
from parity.pairs.compare import compared
from parity.runtime.backend import Backend, running
from parity.runtime.job import DoctorJob

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "tests" / "programs" / "papers"
PATIENCE = 5.0  # seconds for a step that takes milliseconds


def function(bug: KnownBug, name: str, right: bool) -> str:
    """As a flag names it; the repaired twin's own if it has one."""
    text = (PROGRAMS / f"{bug.name}.py").read_text()
    wanted = f"{name}_right" if right and f"def {name}_right(" in text else name
    return f"tests.programs.papers.{bug.name}:{wanted}"


def findings(bug: KnownBug, right: bool, folder: Path, servers: Any) -> list[Finding]:
    """What the doctor says of the program, or of its repaired twin.

    `folder` has a short name: the workers of a loader hand tensors over through sockets in it, and the name of a socket
    has at most 107 bytes (unix(7)).
    """
    backend = Backend("torch", "", folder, servers=servers["torch"])
    job = DoctorJob(
        folder="",
        build=function(bug, "build", right),
        step=function(bug, "step", right),
        inputs=[parse(text) for text in bug.inputs],
        devices=bug.ranks,
        ranks=bug.ranks,
        timed=False,
    )
    with running([backend]):
        if bug.hangs and not right:
            backend.patience = PATIENCE
        return examined(backend, job, folder / "seen")[0]


def fault(bug: KnownBug) -> str:
    lines = (PROGRAMS / f"{bug.name}.py").read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith("# fault")]
    return f"{bug.name}.py:{number}"


def named(bugs: list[KnownBug]) -> list:
    return [pytest.param(bug, id=bug.name) for bug in bugs]


@pytest.fixture
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        yield Path(folder)


@pytest.mark.parametrize("bug", sampled(named(BUGS), "router_apart"))
def test_a_known_bug_is_told_where_it_is(bug, scratch, servers):
    (found,) = findings(bug, False, scratch, servers)
    assert (found.id, found.severity, found.where) == (bug.finding, bug.severity, bug.where), found
    assert found.source.endswith(fault(bug)), found
    assert found.message and found.fix


@pytest.mark.slow
@pytest.mark.parametrize("bug", named([*BUGS, *SOUND]))
def test_of_the_repaired_program_nothing_is_said(bug, scratch, servers):
    assert findings(bug, True, scratch, servers) == []


@pytest.mark.slow
@pytest.mark.parametrize("bug", named(NOT_SEEN))
def test_the_page_admits_what_is_not_seen(bug, scratch, servers):
    assert findings(bug, False, scratch, servers) == []
    (row,) = rows(bug)
    assert row.endswith("| not seen |") or "| not seen," in row


@pytest.mark.slow
@pytest.mark.parametrize("repaired", [False, True])
def test_a_wrong_backward_pass_is_seen_by_comparison(repaired, backends, tmp_path):
    """Its gradients are the first that differ, and the cause is the switch by which the program is repaired."""
    changes = ["pair.torch_kwargs.repaired=true"] if repaired else []
    result = compared(file.load(PROGRAMS / "ring.toml", changes), backends, tmp_path / "ring", False)
    if repaired:
        assert result.verdict == "match"
    else:
        first = result.first_divergence
        assert result.verdict == "diverged" and (first.step, first.kind) == (0, "gradient")
        assert [(cause.id, cause.torch, cause.keras) for cause in result.causes] == [("block.repaired", False, True)]


def rows(bug: KnownBug) -> list[str]:
    """The rows of the page that are about a program."""
    page = (ROOT / "docs" / "known_bugs.md").read_text()
    return [line for line in page.splitlines() if f"../tests/programs/papers/{bug.name}.py)" in line]


@pytest.mark.parametrize("bug", named(BUGS))
def test_the_page_says_what_is_said_of_a_program(bug):
    (row,) = rows(bug)
    assert f"`{bug.finding}` at {fault(bug).replace(f'{bug.name}.py:', 'line ')}" in row

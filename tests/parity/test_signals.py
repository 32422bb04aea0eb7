"""Ctrl-C, SIGTERM and SIGHUP at every moment: one line, the shell's status, no process and no file left behind."""

import os
import signal
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from processes import Program, ended, started, until
from slow import WAIT, is_within
from stand_ins import PRELUDE

ROOT = Path(__file__).parents[2]
INTERRUPT = (signal.SIGINT, 130, "interrupted")
ENDS = [INTERRUPT, (signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "hung up")]
PAIR = '[pair]\ntorch = "a:b"\nkeras = "c:d"\n[inputs.x]\nshape = [2]\n'


def run(
    name: str, *flags: object, ignored: tuple[signal.Signals, ...] = (), **environment: str
) -> AbstractContextManager[Program]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return started("-m", *name.split(), *flags, ignored=ignored, env=variables)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        *(("parity.compare", end) for end in ENDS),
        *((name, INTERRUPT) for name in ("parity.record", "parity.doctor", "parity.selftest", "parity record")),
    ],
)
def test_while_modules_are_imported(name: str, end: tuple[signal.Signals, int, str], tmp_path: Path) -> None:
    """A package that is imported late takes for ever."""
    (tmp_path / "msgspec").mkdir()
    (tmp_path / "msgspec" / "__init__.py").write_text(
        f"import time\nopen({str(tmp_path / 'begun')!r}, 'w').close()\ntime.sleep(600)\n"
    )
    how, status, said = end
    with run(name, PYTHONPATH=f"{tmp_path}:{ROOT}") as program:
        until((tmp_path / "begun").exists, program)
        program.send_signal(how)
        out, err = program.communicate(timeout=WAIT)
    assert (program.returncode, out, err) == (status, "", f"{name}: {said}\n")


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """An interpreter whose process says that it is ready, notes its number, and hangs in its first job.

    The number of the process that has forked it is noted first.
    """
    path = tmp_path / "python"
    noted = [f"open({str(tmp_path / file)!r}, 'a').write(f'{{os.{of}()}} ')\n"
             for file, of in (("servers", "getppid"), ("pids", "getpid"))]  # fmt: skip
    hangs = f"sys.stdin.readline()\n{''.join(noted)}time.sleep(600)\n"
    path.write_text(f"#!{sys.executable}\n{PRELUDE}say('ready')\n{hangs}")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("what", "end"),
    [
        pytest.param("pair", ENDS[0], marks=pytest.mark.slow),
        ("pair", ENDS[1]),
        pytest.param("pair", ENDS[2], marks=pytest.mark.slow),
        pytest.param("case", INTERRUPT, marks=pytest.mark.slow),
        pytest.param("golden", INTERRUPT, marks=pytest.mark.slow),
        ("record", INTERRUPT),
    ],
)
def test_while_a_builder_hangs(what: str, end: tuple[signal.Signals, int, str], hanging: Path, tmp_path: Path) -> None:
    how, status, said = end
    (tmp_path / "own.toml").write_text(PAIR)
    (tmp_path / "scratch").mkdir()
    chosen = f"--pair={tmp_path / 'own.toml'}" if what in ("pair", "record") else "--case=simple_block/single"
    flags = [chosen, f"--torch-python={hanging}", f"--keras-python={hanging}"]
    flags += [f"--golden={tmp_path / 'golden'}", "--update-golden"] if what == "golden" else []
    flags += ["--backend=torch", f"--out={tmp_path / 'out'}"] if what == "record" else []
    name = "parity.record" if what == "record" else "parity.compare"
    pids = tmp_path / "pids"
    with run(name, *flags, TMPDIR=str(tmp_path / "scratch")) as program:
        until(lambda: pids.exists() and len(pids.read_text().split()) == (1 if what == "record" else 2), program)
        begun = time.monotonic()
        program.send_signal(how)
        err = program.communicate(timeout=WAIT)[1]
        assert is_within(time.monotonic() - begun, 10.0)
    assert (program.returncode, err) == (status, f"{name}: {said}\n")
    assert list((tmp_path / "scratch").iterdir()) == []
    assert all(ended(int(pid), within=0.0) for pid in pids.read_text().split())
    assert all(ended(int(pid), within=0.0) for pid in (tmp_path / "servers").read_text().split())


def test_a_second_signal_does_not_disturb_the_tidying(hanging: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    flags = ["--case=simple_block/single", f"--torch-python={hanging}", f"--keras-python={hanging}"]
    with run("parity.compare", *flags, TMPDIR=str(tmp_path / "scratch")) as program:
        until((tmp_path / "pids").exists, program)
        for how in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            program.send_signal(how)
        err = program.communicate(timeout=WAIT)[1]
    assert program.returncode in (130, 143) and err.count("\n") == 1  # two that come at once have no order
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("lost", ["", "finally: raise RuntimeError('release unlocked lock')"])
def test_a_signal_after_the_tidying_does_not_change_the_status(lost: str) -> None:
    """While the interpreter ends, it would take the signal's default. Where a lock is awaited, Python loses Stopped."""
    kill = "os.kill(os.getpid(), signal.{})"
    code = (
        "import os, signal\nfrom parity.core import process\n"
        "try:\n    with process.stopping():\n"
        f"        try: {kill.format('SIGTERM')}\n        {lost or 'finally: pass'}\n"
        f"except process.Stopped as stop:\n    {kill.format('SIGINT')}\n    raise SystemExit(stop.status)\n"
    )
    with started("-c", code, env={**os.environ, "PYTHONPATH": str(ROOT)}) as program:
        assert program.communicate(timeout=WAIT) == ("", "")
    assert program.returncode == 143


@pytest.mark.parametrize("how", [signal.SIGHUP, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_that_is_ignored_stays_ignored(how: signal.Signals, hanging: Path, tmp_path: Path) -> None:
    """As under nohup, and behind a shell's `&`; another signal ends the program and the processes of its sides."""
    flags = ["--case=simple_block/single", f"--torch-python={hanging}", f"--keras-python={hanging}"]
    pids = tmp_path / "pids"
    with run("parity.compare", *flags, ignored=(how,), TMPDIR=str(tmp_path)) as program:
        until(lambda: pids.exists() and len(pids.read_text().split()) == 2, program)
        program.send_signal(how)
        time.sleep(0.5)
        assert program.poll() is None
        program.send_signal(signal.SIGTERM)
        assert program.communicate(timeout=WAIT)[1] == "parity.compare: terminated\n"
    assert program.returncode == 143
    assert all(ended(int(pid), within=0.0) for pid in pids.read_text().split())

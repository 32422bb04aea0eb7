"""Ctrl-C, SIGTERM and SIGHUP at every moment: one line, the shell's status, no process and no file left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENDS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "hung up")]
READY = 'print(\'{"status": "ready"}\', flush=True)\n'
PAIR = '[pair]\ntorch = "a:b"\nkeras = "c:d"\n[inputs.x]\nshape = [2]\n'


def started(*command: object, ignored: bool = False, **environment: str) -> "subprocess.Popen[str]":
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    ignore = (lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) if ignored else None  # as nohup does
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, command)],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=ignore or (lambda: signal.signal(signal.SIGINT, signal.default_int_handler)),
    )


def until(condition: Callable[[], bool], program: "subprocess.Popen[str]") -> None:
    while not condition():
        assert program.poll() is None, program.communicate()
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize(
    "name", ["parity.compare", "parity.record", "parity.doctor", "parity.selftest", "parity record"]
)
@pytest.mark.parametrize(("how", "status", "said"), ENDS)
def test_while_modules_are_imported(how: signal.Signals, status: int, said: str, name: str, tmp_path: Path) -> None:
    """A package that is imported late takes for ever."""
    (tmp_path / "msgspec").mkdir()
    (tmp_path / "msgspec" / "__init__.py").write_text(
        f"import time\nopen({str(tmp_path / 'begun')!r}, 'w').close()\ntime.sleep(600)\n"
    )
    program = started(*name.split(), PYTHONPATH=f"{tmp_path}:{ROOT}")
    until((tmp_path / "begun").exists, program)
    program.send_signal(how)
    out, err = program.communicate(timeout=20)
    assert (program.returncode, out, err) == (status, "", f"{name}: {said}\n")


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """An interpreter whose process says that it is ready, notes its number, and hangs in its first job."""
    path = tmp_path / "python"
    note = f"open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}} ')"
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{READY}sys.stdin.readline()\n{note}\ntime.sleep(600)\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("what", ["pair", "case", "golden", "record"])
@pytest.mark.parametrize(("how", "status", "said"), ENDS)
def test_while_a_builder_hangs(
    how: signal.Signals, status: int, said: str, what: str, hanging: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(PAIR)
    (tmp_path / "scratch").mkdir()
    chosen = f"--pair={tmp_path / 'own.toml'}" if what in ("pair", "record") else "--case=simple_block/single"
    flags = [chosen, f"--torch-python={hanging}", f"--keras-python={hanging}"]
    flags += [f"--golden={tmp_path / 'golden'}", "--update-golden"] if what == "golden" else []
    flags += ["--backend=torch", f"--out={tmp_path / 'out'}"] if what == "record" else []
    name = "parity.record" if what == "record" else "parity.compare"
    program = started(name, *flags, TMPDIR=str(tmp_path / "scratch"))
    pids = tmp_path / "pids"
    until(lambda: pids.exists() and len(pids.read_text().split()) == (1 if what == "record" else 2), program)
    begun = time.monotonic()
    program.send_signal(how)
    err = program.communicate(timeout=20)[1]
    assert time.monotonic() - begun < 10.0
    assert (program.returncode, err) == (status, f"{name}: {said}\n")
    assert list((tmp_path / "scratch").iterdir()) == []
    assert [pid for pid in pids.read_text().split() if not gone(int(pid))] == []


def test_a_second_signal_does_not_disturb_the_tidying(hanging: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    flags = ["--case=simple_block/single", f"--torch-python={hanging}", f"--keras-python={hanging}"]
    program = started("parity.compare", *flags, TMPDIR=str(tmp_path / "scratch"))
    until((tmp_path / "pids").exists, program)
    for how in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        program.send_signal(how)
    err = program.communicate(timeout=20)[1]
    assert program.returncode in (130, 143) and err.count("\n") == 1  # two that come at once have no order
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_signal_that_is_ignored_stays_ignored(hanging: Path, tmp_path: Path) -> None:
    """As under nohup."""
    flags = ["--case=simple_block/single", f"--torch-python={hanging}", f"--keras-python={hanging}"]
    program = started("parity.compare", *flags, ignored=True, TMPDIR=str(tmp_path))
    until((tmp_path / "pids").exists, program)
    program.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert program.poll() is None
    program.send_signal(signal.SIGTERM)
    assert program.communicate(timeout=20)[1] == "parity.compare: terminated\n"
    assert program.returncode == 143

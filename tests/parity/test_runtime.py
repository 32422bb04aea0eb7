"""Backends that crash, hang, are missing or lose their parent: stand-ins for the interpreter play them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from processes import ended, started, until
from slow import WAIT, slowness

from parity.config import cases
from parity.config.pair import Pair, PairInput
from parity.core.errors import BackendError, MissingError
from parity.runtime.backend import Backend, running
from parity.runtime.child import ForkServer
from parity.runtime.environment import environment
from parity.runtime.job import DoctorJob, Job, SurveyJob
from parity.trace.mapping import PairContext

READY = 'print(\'{"status": "ready"}\', flush=True); '
DONE = 'print(\'{"status": "done"}\', flush=True); '
SERVE = "import sys, time; from parity.runtime.serve import serve; "


@pytest.fixture
def interpreter(tmp_path: Path):
    """Makes a program that runs the given Python code whatever its arguments are."""

    def make(code: str) -> str:
        path = tmp_path / "python"
        forks = "from parity.runtime.serve import forks; forks()" if READY in code else ""
        path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{forks}\n{code}\n")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(case=cases.resolve("simple_block/single"), runs=["low"], folder=str(tmp_path / "trace"))


def survey_job(name: str, folder: Path) -> SurveyJob:
    """A pair's, of this name."""
    pair = Pair(torch="a:b", keras="a:b", inputs={"x": PairInput(shape=[2])})
    case = msgspec.structs.replace(cases.resolve("simple_block/single"), name=name, model=pair)
    return SurveyJob(case=case, folder=str(folder), pair=PairContext(search=[]))


def test_a_process_that_forks_no_more_is_replaced(interpreter, job, tmp_path):
    """As where the system has killed it for want of memory; what it has forked goes on."""
    code = f"{SERVE}serve(lambda: lambda job: open({str(tmp_path / 'parents')!r}, 'a').write(f'{{os.getppid()}} '))"
    with running([Backend("torch", interpreter(code), tmp_path)]) as (backend,):
        assert backend.do(job).status == "done"
        forking = int((tmp_path / "parents").read_text())
        os.kill(forking, signal.SIGKILL)
        assert ended(forking)
        ranks = Job(case=cases.resolve("simple_block/ddp"), runs=["low"], folder=str(tmp_path / "trace"))
        assert [backend.do(each).status for each in (job, ranks)] == ["done"] * 2
    assert len(set((tmp_path / "parents").read_text().split())) == 3


def test_a_fork_that_fails_leaves_nothing_open(interpreter, tmp_path):
    server, log = ForkServer("torch", [interpreter(f"{SERVE}serve(lambda: print)")]), tmp_path / "log"
    server.start(environment(tmp_path), log, WAIT)
    before = set(os.listdir("/proc/self/fd"))
    forked = server.fork("torch", {}, log)
    server.stop()
    forked.stop()
    with pytest.raises(BackendError, match="torch: the process that was to fork it has ended"):
        server.fork("torch", {}, log)
    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_missing_framework_is_named(interpreter, job, tmp_path):
    code = (
        "sys.modules['tensorflow'] = None; sys.argv = ['keras_impl']\n"
        "import runpy; runpy.run_module('keras_impl', run_name='__main__')"
    )
    backend = Backend("keras", interpreter(code), tmp_path)
    with running([backend]), pytest.raises(MissingError) as error:
        backend.do(job)
    assert str(error.value).startswith(f"keras: tensorflow is not installed for {sys.executable}; ")


def test_what_a_model_prints_does_not_disturb_the_answers(interpreter, job, tmp_path):
    code = SERVE + "serve(lambda: lambda job: (print('hello'), os.write(1, b'raw')))"
    backend = Backend("torch", interpreter(code), tmp_path)
    with running([backend]):
        assert backend.do(job).status == "done"
    log = (tmp_path / "torch.log").read_text()
    assert "hello" in log and "raw" in log


def test_a_program_that_goes_on_step_by_step_does_not_count_as_hung(interpreter, tmp_path):
    step = f"open(job.folder + '/' + str(n), 'w').close() or time.sleep({0.4 * slowness()})"
    code = SERVE + f"serve(lambda: lambda job: [{step} for n in range(6)])"
    (tmp_path / "seen").mkdir()
    backend = Backend("torch", interpreter(code), tmp_path, patience=1.5 * slowness())
    with running([backend]):
        assert backend.do(DoctorJob(folder=str(tmp_path / "seen"))).status == "done"


def test_a_program_that_stays_in_a_step_counts_as_hung(interpreter, tmp_path):
    code = SERVE + "serve(lambda: lambda job: time.sleep(60))"
    (tmp_path / "seen").mkdir()
    backend = Backend("torch", interpreter(code), tmp_path, patience=1.5)
    with running([backend]):
        answer = backend.do(DoctorJob(folder=str(tmp_path / "seen")))
    assert answer.status == "error"
    assert "no answer within" in answer.message


def test_each_pair_has_a_process_to_itself(interpreter, job, tmp_path):
    """Its code may leave settings of the process changed, or modules imported."""
    code = f"{SERVE}serve(lambda: lambda job: open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}} '))"
    pairs = [survey_job(name, tmp_path) for name in ("pair/a", "pair/a", "pair/b")]
    with running([Backend("torch", interpreter(code), tmp_path)]) as (backend,):
        for each in (*pairs, job, job):
            assert backend.do(each).status == "done"
    first, again, other, case, next_case = (tmp_path / "pids").read_text().split()
    assert first == again and case == next_case and len({first, other, case}) == 3


def test_a_process_has_the_imports_and_no_more_of_others(interpreter, job, tmp_path):
    """What each writes down: its environment, its draws, what it imported with the others, and its group."""
    told = "job.fault, os.getpid() == os.getpgid(0), os.environ['RANK'], random.random(), numpy.random.random(), HELD"
    code = (
        "import json, numpy, random; HELD = []\n"
        f"{SERVE}imports = lambda: HELD.append(os.getpid())\n"
        f"run = lambda job: open({str(tmp_path)!r} + '/' + os.environ['RANK'], 'w').write(json.dumps([{told}]))\n"
        "serve(lambda: run, imports=imports)"
    )
    ddp = Job(case=cases.resolve("simple_block/ddp"), runs=["low"], folder=str(tmp_path / "trace"), fault="x")
    with running([Backend("torch", interpreter(code), tmp_path)]) as (backend,):
        assert backend.do(ddp).status == "done"
    first, second = (json.loads((tmp_path / rank).read_text()) for rank in "01")
    assert [first[:3], second[:3]] == [["x", True, "0"], ["x", True, "1"]]
    assert len({*first[3:5], *second[3:5]}) == 4  # no numbers are drawn twice
    assert first[5] == second[5] and len(first[5]) == 1


@pytest.mark.parametrize(
    ("name", "processes"), [("simple_block/single", 1), pytest.param("simple_block/ddp", 2, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_its_parent(interpreter, tmp_path, how, name, processes):
    pids = tmp_path / "pids"
    run = f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}} '), time.sleep(600)"
    path = interpreter(SERVE + f"serve(lambda: lambda job: ({run}))")
    parent_code = (
        "import sys; from pathlib import Path; from parity.config import cases\n"
        "from parity.runtime.backend import Backend, running; from parity.runtime.job import Job\n"
        f"backend = Backend('torch', {path!r}, Path({str(tmp_path)!r}))\n"
        f"job = Job(case=cases.resolve({name!r}), runs=['low'], folder='unused')\n"
        "with running([backend]): backend.do(job)"
    )
    with started("-c", parent_code) as parent:
        until(lambda: pids.exists() and len(pids.read_text().split()) == processes, parent)
        parent.send_signal(how)
        parent.wait(timeout=WAIT)
    assert all(ended(int(pid)) for pid in pids.read_text().split())


def test_a_users_settings_of_the_frameworks_do_not_reach_the_backends(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("DATA_FOLDER", "/data")
    variables = environment(tmp_path)
    assert variables["KERAS_BACKEND"] == "tensorflow"
    assert variables["OMP_NUM_THREADS"] == "1"
    assert variables["DATA_FOLDER"] == "/data"
    assert not {"TF_ENABLE_ONEDNN_OPTS", "WORLD_SIZE"} & set(variables)


def test_a_closed_backend_is_not_started_again(interpreter, job, tmp_path):
    """As when Ctrl-C ends the processes while a thread still has jobs for them."""
    started = tmp_path / "started"
    code = f"open({str(started)!r}, 'a').write('x'); {READY}sys.stdin.readline(); {DONE}sys.stdin.read()"
    backend = Backend("torch", interpreter(code), tmp_path)
    with running([backend]):
        assert backend.do(job).status == "done"
    assert backend.do(job).status == "error"
    assert started.read_text() == "x"


RECORDING = "open(job.folder + '/t' + str(n % 2), 'ab').write(b'tensor') and time.sleep({})"


@pytest.mark.parametrize(
    ("steps", "pause", "status"), [pytest.param(8, 0.0, "done", marks=pytest.mark.slow), (2, 600.0, "error")]
)
def test_who_records_is_not_hung_until_nothing_more_comes(interpreter, job, tmp_path, steps, pause, status):
    """The first takes three times as long as a silent one may."""
    patience = 1.0 * slowness()
    recorded = f"[{RECORDING.format(0.4 * slowness())} for n in range({steps})]"
    code = f"{SERVE}serve(lambda: lambda job: (os.makedirs(job.folder), {recorded}, time.sleep({pause})))"
    with running([Backend("torch", interpreter(code), tmp_path, patience=patience)]) as (backend,):
        answer = backend.do(job)
    assert answer.status == status
    if status == "error":
        assert f"no answer within {patience:g} s" in answer.message and "--timeout=SECONDS" in answer.message


def test_the_timeout_is_a_flag(interpreter, tmp_path):
    path = interpreter(READY + "time.sleep(600)")
    flags = ["--case=simple_block/single", "--timeout=0.5", f"--torch-python={path}", f"--keras-python={path}"]
    command = [sys.executable, "-m", "parity.compare", *flags, f"--json={tmp_path / 'report'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 3, done.stderr
    (case,) = json.loads((tmp_path / "report").read_text())["cases"]
    assert case["verdict"] == "error" and "no answer within 0.5 s" in case["reason"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("OSError(28, 'No space')", True),
        ("ValueError('28')", False),
        ("RuntimeError('Graph execution error: ...\\nOSError: [Errno 28] No space left on device')", True),
        ("RuntimeError('OSError: [Errno 2] No such file')", False),
    ],
)
@pytest.mark.parametrize("caught", [False, True])
def test_a_full_disk_is_told_as_that(interpreter, job, tmp_path, error, said, caught):
    """Also where it was met within the user's own code, which a recorder listens to."""
    body = f"    raise {error}\n"
    if caught:
        handler = "    except Exception as error:\n        raise BackendError('forward fails') from error\n"
        body = f"    try:\n    {body}{handler}"
    code = f"{SERVE}from parity.core.errors import BackendError\ndef run(job):\n{body}serve(lambda: run)"
    backend = Backend("torch", interpreter(code), tmp_path)
    with running([backend]):
        message = backend.do(job).message
    assert ("the disk is full; set TMPDIR" in message) == said


def test_half_a_character_in_a_message_ends_no_process(interpreter, job, tmp_path):
    code = "def run(job): raise ValueError(chr(0xD800))\n" + SERVE + "serve(lambda: run)"
    backend = Backend("torch", interpreter(code), tmp_path)
    with running([backend]):
        first, second = backend.do(job), backend.do(job)
    assert first.status == second.status == "error"
    assert first.message == second.message == "ValueError: \\ud800"

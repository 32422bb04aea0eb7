"""An examination without a framework: inputs, the user's functions, the drive, the ranks' files, the clock."""

import contextlib
import functools
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from parity.core import inputs
from parity.core.clock import Clock, Time
from parity.core.errors import UsageError
from parity.core.program import load
from parity.doctor.drive import Drive, Files, outcome, waiting
from parity.runtime.drive import Program

MISTAKEN_INPUTS = [
    ("x", "expected name=dtype[shape]"),
    ("x=float32", "expected name=dtype[shape]"),
    ("x=float32[a]", "expected name=dtype[shape]"),
    ("x=flaot32[8]", "did you mean 'float32'"),
    ("x=float32[8]<4", "only integers have a limit"),
    ("x=int64[8]<0", "expected one from 1 to"),
    ("x=int8[8]<1000", "expected one from 1 to 128"),
    ("1x=float32[8]", "expected name=dtype[shape]"),
]


def test_inputs_are_as_described_and_the_same_every_time():
    ids = inputs.parse("ids=int64[20, 50]<7").values()
    assert ids.dtype == np.int64
    assert ids.shape == (20, 50)
    assert set(np.unique(ids)) == set(range(7))
    floats = inputs.parse("x=float16[4,256]").values()
    assert floats.dtype == np.float16
    assert abs(floats.astype(float).std() - 1) < 0.1
    assert inputs.parse("mask=bool[64]").values().dtype == bool
    assert inputs.parse("scale=float32[]").values().shape == ()
    assert np.array_equal(inputs.parse("x=float32[9]").values(3), inputs.parse("x=float32[9]").values(3))
    assert not np.array_equal(inputs.parse("x=float32[9]").values(3), inputs.parse("x=float32[9]").values(4))


@pytest.mark.parametrize(("text", "said"), MISTAKEN_INPUTS)
def test_a_mistaken_input_is_told(text, said):
    with pytest.raises(UsageError, match="--input") as raised:
        inputs.parse(text)
    assert said in str(raised.value)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A user's module `users_model`, found in the working directory."""
    (tmp_path / "users_model.py").write_text("import math\nlimit = 3\ndef build():\n    return 'built'\n")
    (tmp_path / "users_broken.py").write_text("import no_such_package_anywhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path)])
    yield
    for name in ("users_model", "users_broken"):
        sys.modules.pop(name, None)


def test_a_function_is_found_in_the_working_directory(module):
    assert load("--torch", "users_model:build")() == "built"
    assert load("--step", "users_model:math.sqrt", "x")(4) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("users_model", "expected module:function"),
        (":build", "expected module:function"),
        ("users_modle:build", "there is no module 'users_modle'"),
        ("users_model.inner:build", "there is no module"),
        ("users_model:biuld", "did you mean 'build'"),
        ("users_model:limit", "expected a function, received int"),
        ("users_model:math.sqrt", "is called as math.sqrt()"),
        ("users_model.py:build", "did you mean users_model:build?"),
    ],
)
def test_a_function_that_is_not_there_is_told(module, text, said):
    with pytest.raises(UsageError, match="--torch=") as raised:
        load("--torch", text)
    assert said in str(raised.value)


def test_what_the_users_module_lacks_itself_comes_through(module):
    with pytest.raises(ModuleNotFoundError, match="no_such_package_anywhere"):
        load("--torch", "users_broken:build")


class Log:
    """The contexts of a drive: what happened, in order."""

    def __init__(self, swallows: bool = False):
        self.lines: list[str] = []
        self.swallows = swallows

    def contexts(self, steps):
        return [functools.partial(self.context, number) for number in range(steps)]

    @contextlib.contextmanager
    def context(self, number, batch):
        self.lines.append(f"{number} begins with {batch}")
        try:
            yield
        except ValueError:
            self.lines.append(f"{number} raised")
            if not self.swallows:
                raise
        else:
            self.lines.append(f"{number} ends")


def drive(tmp_path, log, train, steps=2):
    Drive(Program(None, iter("abc"), train), log.contexts(steps), Files(tmp_path, 0), ranks=1).run()


def one_by_one(batches, on_step):
    for _ in batches:
        on_step()


def all_at_once(batches, on_step):
    for _ in list(batches):
        on_step()


@pytest.mark.parametrize("train", [one_by_one, all_at_once])
def test_every_step_has_its_context_and_batch_whenever_batches_are_fetched(tmp_path, train):
    log = Log()
    drive(tmp_path, log, train)
    assert log.lines == ["0 begins with a", "0 ends", "1 begins with b", "1 ends"]
    assert Files(tmp_path, 0).steps() == 3  # two, and the end


def test_what_an_unobserved_step_raises_is_told_by_its_line(tmp_path):
    def train(batches, on_step):
        raise ValueError("only in a graph\nand more")

    made = Drive(Program(None, iter("ab"), train), Log().contexts(2), Files(tmp_path, 0), ranks=1)
    found = outcome(made, lambda traceback: "train.py:3")
    assert (found.exception, found.message, found.place.source) == ("ValueError", "only in a graph", "train.py:3")
    made = Drive(Program(None, iter("ab"), train), Log().contexts(2), Files(tmp_path, 0), ranks=1)
    with pytest.raises(ValueError, match="only in a graph"):  # no line of the user's: the doctor's own mistake
        outcome(made, lambda traceback: "")
    made = Drive(Program(None, iter("ab"), one_by_one), Log().contexts(2), Files(tmp_path, 0), ranks=1)
    assert outcome(made, lambda traceback: "train.py:3") is None


def test_ranks_wait_for_each_other_but_not_for_one_that_has_left(tmp_path):
    first, second = Files(tmp_path, 0), Files(tmp_path, 1)
    meeting = threading.Thread(target=first.meet, args=(2, 0))
    meeting.start()
    time.sleep(0.05)
    assert meeting.is_alive()
    second.ended("all")
    meeting.join(5)
    assert not meeting.is_alive()
    first.meet(2, 1)


def test_a_process_that_hangs_says_where(tmp_path):
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom parity.doctor.drive import Files\n"
        "files = Files(Path(sys.argv[1]), 1)\nfiles.answer_where()\nprint('ready', flush=True)\n"
        "def stuck():\n    time.sleep(60)\nstuck()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(Path.cwd())}) as child:
        assert child.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        child.send_signal(signal.SIGUSR1)
        time.sleep(0.3)
        child.kill()
    Files(tmp_path, 0).ended(0)
    there, stuck = waiting([Files(tmp_path, 0), Files(tmp_path, 1)])
    assert there.ended
    assert not stuck.ended
    assert "in stuck" in stuck.stack[0]


def test_the_parts_of_a_step_are_timed_and_a_part_within_counts_for_the_outer_one(monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))  # a tick each time somebody looks
    clock = Clock(lambda: None)
    copy = clock.timed("copies", lambda: None)
    for _ in range(3):
        with clock.step():
            clock.timed("forward", copy)()
            copy()
            clock.timed("backward", lambda: None)()
    assert clock.result("CPU") == [
        Time(device="CPU", steps=3, step=7.0, forward=1.0, loss=2.0, backward=1.0, copies=1.0, update=None)
    ]
    assert Clock(lambda: None).result("CPU") == []

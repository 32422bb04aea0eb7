"""Traces that are damaged or made to harm: one line says so; nothing hangs, crashes, or leaves the trace's folder."""

import json
import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slow import is_within
from synthetic import by_hand

from parity.core.errors import TraceError
from parity.trace import manifest
from parity.trace.keys import MANIFEST
from parity.trace.manifest import Trace
from parity.trace.tensorfile import TensorFile

STEP = "step-000000"
FIRST = f"high/rank-0/{STEP}"
ESCAPE = "\x1b[2J"
# 8 bytes, then the header of a file with one float32 tensor
ENTRY = b'"%s":{"dtype":"F32","shape":[%s],"data_offsets":[%d,%d]}'


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two ranks, each with a loss."""
    tensors = {run: {STEP: {"loss/loss": np.asarray(1.0)}} for run in ("low", "high")}
    by_hand(tmp_path / "trace", tensors, others=[tensors])
    return tmp_path / "trace"


def everything(folder: Path) -> Trace:
    """A trace, all of whose files have been read."""
    found = Trace(folder)
    for run in found.manifest.runs:
        for stem in found.stems(run):
            for replica in range(found.replicas):
                for array in found.open(run, stem, replica).values():
                    array.sum()
    return found


def told(folder: Path, act: Callable[[Path], Any] = everything) -> str:
    """The one line that is said of a trace, in less time than a hang takes."""
    start = time.monotonic()
    with pytest.raises(TraceError) as error:
        act(folder)
    text = str(error.value)
    assert text.isprintable()
    assert len(text) < 1500
    assert is_within(time.monotonic() - start, 20)
    return text


def change(folder: Path, **fields: Any) -> None:
    facts = json.loads((folder / MANIFEST).read_bytes())
    (folder / MANIFEST).write_text(json.dumps({**facts, **fields}))


def header(path: Path, text: bytes, body: bytes = bytes(4)) -> None:
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def test_the_trace_itself_is_read(trace: Path) -> None:
    """The others differ from it by what they are about."""
    assert everything(trace).replicas == 2
    header(trace / "a", b"{%s}" % (ENTRY % (b"a", b"1", 0, 4)))
    assert list(TensorFile(trace / "a")) == ["a"]


# What stands in the place of a file


def elsewhere(path: Path) -> Path:
    """The file moved out of the trace, into a folder beside it."""
    outside = path.parents[len(path.parts) - path.parts.index("trace") - 1] / "outside"
    outside.mkdir(exist_ok=True)
    return path.rename(outside / path.name)


def link(path: Path) -> None:
    path.symlink_to(elsewhere(path))


def looped(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def nothing(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("place", [link, looped, pipe, directory, device, nothing])
@pytest.mark.parametrize("name", [MANIFEST, f"{FIRST}.safetensors"])
def test_what_is_no_file_of_the_trace_s_own_is_not_read(place: Callable[[Path], None], name: str, trace: Path) -> None:
    place(trace / name)
    assert name.rpartition("/")[2] in told(trace) or place is nothing


@pytest.mark.parametrize("name", ["high", "high/rank-0", "low/rank-1"])
def test_a_folder_that_is_a_link_to_elsewhere_is_not_read(name: str, trace: Path) -> None:
    link(trace / name)
    assert "is a symbolic link" in told(trace)


def test_the_trace_s_folder_may_be_a_link_that_the_user_names(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "named").symlink_to(trace)
    assert everything(tmp_path / "named").replicas == 2


def test_folders_that_are_links_are_not_looked_through(trace: Path, tmp_path: Path) -> None:
    within = tmp_path / "within"
    (within / "loop").mkdir(parents=True)
    (within / "loop" / "again").symlink_to(within)
    (within / "elsewhere").symlink_to(trace)
    assert "holds no trace" in told(within, manifest.find)
    assert manifest.find(tmp_path) == [trace]


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, ESCAPE, "\udcff"])
def test_odd_names_of_folders(name: str, tmp_path: Path) -> None:
    told(tmp_path / name, Trace)
    told(tmp_path / name, manifest.find)
    told(tmp_path / name, TensorFile)


# Manifests


def test_a_manifest_of_a_gigabyte_is_not_read(trace: Path) -> None:
    with (trace / MANIFEST).open("r+b") as file:
        file.truncate(1 << 30)  # all holes: it takes no room
    tracemalloc.start()
    assert "at most 64000000" in told(trace, Trace)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_what_a_manifest_does_not_need_is_not_built(trace: Path) -> None:
    """Hundreds of thousands of empty lists, under a name that no version knows."""
    content = (trace / MANIFEST).read_text().rstrip().removesuffix("}")
    (trace / MANIFEST).write_text(f'{content}, "more": [{"[]," * 300_000}[]]}}')
    before = sys.getallocatedblocks()
    assert Trace(trace).replicas == 2
    assert sys.getallocatedblocks() - before < 100_000


def test_brackets_within_brackets(trace: Path) -> None:
    for text in ("[" * 1_000_000, '{"a":' * 1_000_000):
        for name in ("schema", "files", "more"):
            (trace / MANIFEST).write_text(f'{{"schema": 1, "{name}": {text}')
            assert "damaged" in told(trace, Trace)


def test_a_key_that_is_there_twice(trace: Path) -> None:
    content = (trace / MANIFEST).read_text().rstrip().removesuffix("}")
    for more in ('"backend": "keras"', '"environment": {"a": "1", "a": "2"}', '"backend"x: "torch"'):
        (trace / MANIFEST).write_text(f"{content}, {more}}}")
        assert "damaged" in told(trace, Trace)
    header(trace / "a", b"{%s,%s}" % (ENTRY % (b"a", b"1", 0, 4), ENTRY % (b"a", b"1", 0, 4)))
    assert "'a' occurs twice" in told(trace / "a", TensorFile)


@pytest.mark.parametrize("text", [ESCAPE, "\x9b31m", "a\nb", "\u202e", "\x7f", "\0"])
@pytest.mark.parametrize(
    "field", ["versions", "environment", "modules", "aliases", "files", "layout", "case", "lifted"]
)
def test_what_a_terminal_would_obey(text: str, field: str, trace: Path) -> None:
    facts = json.loads((trace / MANIFEST).read_bytes())
    more = {
        "versions": {text: "1"},
        "environment": {"python": text},
        "modules": {text: "linear"},
        "aliases": {FIRST: {text: "loss/loss"}},
        "files": {**facts["files"], FIRST: [f"loss/{text}"]},
        "layout": {**facts["layout"], "devices": [text]},
        "case": {**facts["case"], "name": text},
        "lifted": [text],
    }
    change(trace, **{field: more[field]})
    assert "control characters" in told(trace, Trace)


def test_a_terminal_obeys_no_name_of_a_tensor(trace: Path) -> None:
    header(trace / "a", b"{%s}" % (ENTRY % (rb"a\u001b[2J", b"1", 0, 4)))
    assert "control characters" in told(trace / "a", TensorFile)
    header(trace / "a", b"{%s}" % (ENTRY % (b"a" * 1_000_000, b"1", 0, 5)))
    assert "damaged" in told(trace / "a", TensorFile)  # of a million characters, not all are said


@pytest.mark.parametrize(
    "replicas",
    [[], [[]], [[0], []], [[-1]], [[0.5]], [["0"]], [[0, 0]], [[0], [0]], [[0], [2]], [[2**70]], [[0] * 100_000], None],
)
def test_replicas_of_ranks_that_are_not_there(replicas: Any, trace: Path) -> None:
    change(trace, replicas=replicas)
    assert "damaged" in told(trace, Trace)


@pytest.mark.slow
def test_very_many_files(trace: Path) -> None:
    change(trace, files={f"high/rank-0/step-{step:06d}": [] for step in range(100_000)})
    assert "has no file of rank 1" in told(trace, Trace)
    change(trace, replicas=[[0]])
    assert "other tensors" in told(trace)  # the first of them


# Headers


@pytest.mark.parametrize(
    ("shape", "end"),
    [
        pytest.param(
            b"9007199254740993," * 2_000_000 + b"0",  # a product of a hundred million digits
            0,
            marks=pytest.mark.slow,
        ),
        (b"1," * 2_000_000 + b"1", 4),
        (b"9" * 5000, 4),
        (b"1e3", 4000),
        (b"1.0", 4),
        (b"NaN", 4),
    ],
)
def test_odd_shapes(shape: bytes, end: int, trace: Path) -> None:
    header(trace / "a", b"{%s}" % (ENTRY % (b"a", shape, 0, end)))
    assert "damaged" in told(trace / "a", TensorFile)


def test_very_many_tensors_of_no_size(trace: Path) -> None:
    entries = b",".join(ENTRY % (b"%d" % number, b"0", 0, 0) for number in range(100_000))
    header(trace / "a", b"{%s}" % entries, b"")
    assert len(TensorFile(trace / "a")) == 100_000


def test_reading_a_pipe_waits_for_nobody(trace: Path) -> None:
    """Opened as a plain file, a pipe is waited for: the test that nothing hangs would hang."""
    pipe(trace / MANIFEST)
    waiting = threading.Thread(target=(trace / MANIFEST).read_bytes, daemon=True)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    assert "no finished trace" in told(trace)
    (trace / MANIFEST).open("wb").close()  # lets the thread go
    waiting.join(5)

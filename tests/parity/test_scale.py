"""Memory that does not grow with the model: of a comparison and of the writer."""

import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import pytest
from slow import WAIT
from synthetic import by_hand

from parity.trace import keys, manifest, tensorfile
from parity.trace.recorder import Recorder
from parity.trace.tensorfile import TensorFile

ELEMENTS = 8_000_000
LARGEST = 8 * ELEMENTS  # bytes
# What a comparison allocates, and what it holds with the pages of the files, beyond what it began with. The
# kernel's threads are two, wherever the test runs.
JUDGE = """
import json, re, sys, tracemalloc
from pathlib import Path
from parity.verdict import stream
from parity.verdict.traces import compare
from parity.trace.manifest import Trace

def resident(what):
    return 1024 * int(re.search(what + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

stream.THREADS = 2
traces = [Trace(Path(folder)) for folder in sys.argv[1:]]
before = resident("VmRSS")
result = compare(*traces)
held = resident("VmHWM") - before
tracemalloc.start()
compare(*traces)
print(json.dumps([result.verdict, held, tracemalloc.get_traced_memory()[1]]))
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with large tensors: parameters before and after a step, an activation, whole numbers."""
    folder = tmp_path_factory.mktemp("large") / "torch"
    values = np.random.default_rng(0).standard_normal(ELEMENTS)
    high = {"activation/relu": values, "input/input": np.arange(ELEMENTS), "parameter/weight": values + 1}
    runs = {"high": {"initial": {"parameter/weight": values}, "step-000000": high}}
    runs["low"] = {
        stem: {key: array.astype(np.float32) if array.dtype == np.float64 else array for key, array in named.items()}
        for stem, named in runs["high"].items()
    }
    by_hand(folder, runs)
    return folder


def judged(*folders: Path) -> tuple[str, int, int]:
    """Verdict, resident and allocated bytes of a comparison in a process of its own."""
    command = [sys.executable, "-c", JUDGE, *map(str, folders)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == 0, done.stderr
    verdict, held, allocated = json.loads(done.stdout)
    return verdict, held, allocated


@pytest.mark.parametrize("differs", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_comparison_holds_a_few_blocks(trace: Path, tmp_path: Path, differs: bool) -> None:
    """Four files of each trace are mapped, 10 times the largest tensor; a whole one alone would break the bound."""
    other = tmp_path / "keras"
    shutil.copytree(trace, other, copy_function=os.link)
    if differs:
        file = other / "high" / "rank-0" / "step-000000.safetensors"
        shutil.copyfile(trace / file.relative_to(other), file.with_suffix(".draft"))
        os.replace(file.with_suffix(".draft"), file)
        content = np.memmap(file, np.float64, "r+", offset=TensorFile(file).start)
        content[ELEMENTS // 2] += 1.0
        content.flush()
        facts, name = manifest.read(other), "high/rank-0/step-000000"
        digests = {**facts.digests, name: TensorFile(file).digest()}
        (other / keys.MANIFEST).unlink()  # a link to the other's
        manifest.write(other, msgspec.structs.replace(facts, digests=digests))
    verdict, held, allocated = judged(trace, other)
    assert verdict == ("diverged" if differs else "match")
    assert allocated < LARGEST
    assert held < 3 * LARGEST


@pytest.mark.parametrize("transposed", [False, True])
def test_a_recorder_makes_one_copy_at_most(tmp_path: Path, transposed: bool) -> None:
    """Of a tensor whose elements lie in another order, none of any other."""
    array = np.zeros((1000, 4000), np.float32)
    recorder = Recorder(tmp_path, steps=1, every=1)
    tracemalloc.start()
    for number in range(5):
        recorder.add("parameter", f"layer{number}.weight", array.T if transposed else array)
    recorder.next_step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    slack = 1 << 20
    assert peak < (array.nbytes if transposed else 0) + slack


def test_what_was_released_reads_the_same_again(trace: Path) -> None:
    values = TensorFile(trace / "high" / "rank-0" / "initial.safetensors")["parameter/weight"]
    first = values[:1000].copy()
    tensorfile.release(values, values[:1000], np.zeros(1000))
    assert np.array_equal(values[:1000], first)


def test_what_was_written_into_a_private_copy_is_kept(tmp_path: Path) -> None:
    np.zeros(10_000).tofile(tmp_path / "file")
    private = np.memmap(tmp_path / "file", np.float64, "c")
    private[:] = 1.0
    view = private.view()
    view.flags.writeable = False
    tensorfile.release(private, view)
    assert private.min() == 1.0

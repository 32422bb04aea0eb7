"""Two large traces: how fast they are compared and in how much memory, and what recording them takes.

    python benchmarks/scale.py [--gigabytes=4] [--folder=DIR]

Traces of a training step are written with the recorder: half of the parameters in one large tensor, half in
small ones; what the process that records holds is next to nothing but the largest. `python -m parity.compare` judges
them in a process of its own, whose memory is watched; beside it stand a plain sum over the same memory-mapped bytes,
a copy of them, and Polygraphy's comparator at a size that it can stand. The traces are deleted afterwards. Exits 1
if the goal is missed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kernel
import numpy as np
from numpy.typing import NDArray

from parity.config import cases
from parity.core.arrays import Array
from parity.trace.layout import Layout
from parity.trace.manifest import Manifest, write
from parity.trace.recorder import Recorder

GOAL = 500  # MB that a comparison may hold, whatever the model's size
SMALL = 1 << 16  # elements of a small tensor
PARAMETER = 36  # bytes on disk of a parameter: before the step, its gradient and after the step, in both runs
POLYGRAPHY = 16_000_000  # elements
BLOCK = 1 << 24  # bytes that the floors take at a time
POLL = 0.005  # seconds
RUNS = {"low": np.dtype(np.float32), "high": np.dtype(np.float64)}


class Memory(NamedTuple):
    """The largest resident memory of a process in MB, and what of it no file backs."""

    resident: float
    anonymous: float


class Measured(NamedTuple):
    """What a process of its own took."""

    seconds: float
    memory: Memory
    output: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=4.0, help="of each trace")
    parser.add_argument("--folder", type=Path, help="where the traces are written (a temporary folder if not given)")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        return _part(*args.part)
    with tempfile.TemporaryDirectory(prefix="parity-scale-", dir=args.folder) as scratch:
        return _compare(Path(scratch), args.gigabytes)


def _compare(folder: Path, gigabytes: float) -> int:
    traces = [folder / name for name in ("torch", "keras")]
    for trace in traces:
        recorded = _run(__file__, "--part", "record", str(trace), str(gigabytes))
        print(recorded.output, f"in {recorded.seconds:.0f} s, {_said(recorded.memory)}", sep=", ")
    size = sum(file.stat().st_size for file in folder.rglob("*.safetensors"))
    report = folder / "report.json"
    rows = {
        "a sum over the mapped bytes": _run(__file__, "--part", "sum", str(folder)),
        "a copy of the mapped bytes": _run(__file__, "--part", "copy", str(folder)),
        "parity.compare": _run("-m", "parity.compare", *map(str, traces), f"--json={report}", "--quiet"),
    }
    verdict = json.loads(report.read_text())["cases"][0]["verdict"]
    print(f"\ntwo traces of {size / 2e9:.2f} GB each: {verdict}\n")
    for name, row in rows.items():
        print(f"{name:42}{row.seconds:7.1f} s {size / row.seconds / 1e9:7.2f} GB/s   {_said(row.memory)}")
    other = _run(__file__, "--part", "polygraphy")
    print(f"{f'polygraphy, 2 x {POLYGRAPHY:,} float32':42}{other.output:>17} GB/s   {_said(other.memory)}")
    met = verdict == "match" and rows["parity.compare"].memory.resident < GOAL
    print(f"\n{'met' if met else 'MISSED'}: a match within {GOAL} MB")
    return int(not met)


def _said(memory: Memory) -> str:
    return f"{memory.resident:7.0f} MB resident, {memory.anonymous:.0f} without the files' pages"


def _run(*arguments: str) -> Measured:
    """Measure a Python process of its own. Raises RuntimeError if it failed."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    status = Path(f"/proc/{process.pid}/status")
    memory = Memory(0.0, 0.0)
    while process.poll() is None:
        now = _memory(status)
        memory = Memory(*map(max, memory, now))
        time.sleep(POLL)
    seconds = time.perf_counter() - start
    output = process.communicate()[0].strip()
    if process.returncode:
        raise RuntimeError(f"{process.args} ended with status {process.returncode}\n{output}")
    return Measured(seconds, memory, output)


def _memory(status: Path) -> Memory:
    """Return the memory of a running process; zeros for one that has just ended."""
    lines = [line.split() for line in status.read_text().splitlines()]
    size = {line[0]: int(line[1]) * 1024 / 1e6 for line in lines if line[0] in ("VmHWM:", "RssAnon:")}
    return Memory(size.get("VmHWM:", 0.0), size.get("RssAnon:", 0.0))


def _part(name: str, *arguments: str) -> int:
    """Run one part of the benchmark in this process and print what it measured."""
    parts: dict[str, Callable[..., str]] = {"record": _record, "sum": _sum, "copy": _copy, "polygraphy": _polygraphy}
    print(parts[name](*arguments))
    return 0


def _record(folder: str, gigabytes: str) -> str:
    """Record a trace of one step; Keras's is one ulp from torch's, at each precision."""
    total = int(float(gigabytes) * 1e9 / PARAMETER)
    sizes = [total // 2, *[SMALL] * (total // 2 // SMALL)]
    files, digests = {}, {}
    for run, dtype in RUNS.items():
        recorder = Recorder(Path(folder) / run / "rank-0", steps=1, every=1)
        for kinds in (("parameter",), ("gradient", "parameter")):
            for kind in kinds:
                for number, size in enumerate(sizes):
                    recorder.add(kind, f"layer{number}.weight", _values(folder, recorder.step, kind, size, dtype))
            recorder.next_step()
        recorder.add("activation", "layer0", _values(folder, recorder.step, "activation", SMALL, dtype))  # evaluation
        recorder.next_step()
        files.update({f"{run}/rank-0/{stem}": keys for stem, keys in recorder.files.items()})
        digests.update({f"{run}/rank-0/{stem}": digest for stem, digest in recorder.digests.items()})
    facts = Manifest(
        case=cases.resolve("simple_block/single", {"steps": 1}),
        backend=Path(folder).name,
        data={"source": "synthetic", "sha256": "0"},
        versions={},
        environment={},
        layout=Layout(devices=["CPU"], parameters={}),
        replicas=[[0]],
        files=files,
        digests=digests,
    )
    write(Path(folder), facts)
    return f"recorded {len(sizes):,} tensors of {total:,} parameters, the largest {total // 2 * 8 / 1e6:.0f} MB"


def _values(folder: str, step: int | None, kind: str, size: int, dtype: np.dtype[Any]) -> Array:
    """Seeded numbers at a precision, without another copy of them; on Keras's side the next ones."""
    random, values = np.random.default_rng([size, step is None, len(kind)]), np.empty(size, dtype)
    for start in range(0, size, SMALL):
        values[start : start + SMALL] = random.standard_normal(min(SMALL, size - start))
    return values if folder.endswith("torch") else np.nextafter(values, dtype.type(np.inf), out=values)


def _blocks(folder: str) -> Iterator[NDArray[np.float64]]:
    """Read all tensor files as float64, whatever they hold."""
    for file in sorted(Path(folder).rglob("*.safetensors")):
        mapped = np.memmap(file, np.float64, "r", shape=file.stat().st_size // 8)
        for start in range(0, len(mapped), BLOCK // 8):
            yield mapped[start : start + BLOCK // 8]


def _sum(folder: str) -> str:
    return f"{sum(float(block.sum()) for block in _blocks(folder)):.1e}"


def _copy(folder: str) -> str:
    buffer = np.empty(BLOCK // 8)
    for block in _blocks(folder):
        np.copyto(buffer[: len(block)], block)
    return "copied"


def _polygraphy() -> str:
    """Return its speed in GB/s over one pair of arrays."""
    one = np.random.default_rng(0).standard_normal(POLYGRAPHY, dtype=np.float32)
    compare = kernel.polygraphy(one, np.nextafter(one, np.float32(np.inf)))
    if isinstance(compare, str):
        return compare
    start = time.perf_counter()
    compare()
    return f"{one.nbytes * 2 / (time.perf_counter() - start) / 1e9:.2f}"


if __name__ == "__main__":
    sys.exit(main())

"""Traces on disk: files that the safetensors library agrees on, damage that is told, recordings that repeat."""

import contextlib
import json
import mmap
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16
from synthetic import by_hand, record, small_case

from parity.core.arrays import Array
from parity.core.errors import TraceError, UsageError
from parity.trace import keys, manifest
from parity.trace.manifest import Trace
from parity.trace.recorder import Recorder
from parity.trace.tensorfile import DTYPES, TensorFile, Writer

MODEST = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(path: Path, arrays: dict[str, Array], room: int = 1 << 10) -> Path:
    writer = Writer(path, room)
    for key, array in arrays.items():
        writer.add(key, array)
    assert writer.close() == list(arrays)
    return path


def same(one: Array, other: Array) -> bool:
    """Equal in shape, dtype and every byte (NaN and the sign of zero included)."""
    return (one.shape, one.dtype) == (other.shape, other.dtype) and one.tobytes() == other.tobytes()


def every_dtype() -> dict[str, Array]:
    values = np.array([[0.0, -0.0, 1.5], [np.nan, np.inf, -3.25]])
    integers = np.nan_to_num(np.abs(values), posinf=7)
    return {
        f"kind/{code}": (values if code[0] in "FB" and code != "BOOL" else integers).astype(dtype)
        for code, dtype in DTYPES.items()
    }


def awkward() -> dict[str, Array]:
    """Arrays that are not row-major, not aligned, empty or without axes."""
    block = np.arange(2 * 3 * 4.0).reshape(2, 3, 4)
    unaligned = np.frombuffer(b"x" + block.tobytes(), np.uint8)[1:].view(np.float64)
    return {
        "T": block[0].T,
        "strided": block[:, ::2, 1::2],
        "backwards": block[::-1, :, ::-1],
        "fortran": np.asfortranarray(block.astype(np.float32)),
        "transposed": block.transpose(2, 0, 1),
        "broadcast": np.broadcast_to(np.float32(3), (4, 2)),
        "scalar": np.asarray(2.5),
        "of a scalar": np.float32(1.25),
        "empty": np.zeros((0, 3)),
        "empty at the end": np.zeros((2, 0), np.int64),
        "bytes": np.arange(3, dtype=np.uint8),  # what follows is not aligned
        "unaligned": unaligned,
        "bfloat16.T": np.arange(6).reshape(2, 3).astype(bfloat16).T,
        "square.T": np.arange(4.0).reshape(2, 2).T,
        "last and empty": np.zeros(0, np.float32),
    }


@pytest.mark.parametrize("arrays", [every_dtype(), awkward(), {}], ids=["dtypes", "awkward", "none"])
@pytest.mark.parametrize("room", [0, 1 << 12])
def test_what_is_written_is_read(arrays: dict[str, Array], room: int, tmp_path: Path) -> None:
    file = TensorFile(write(tmp_path / "a.safetensors", arrays, room))
    assert list(file) == list(arrays)
    assert len(file) == len(arrays)
    for key, array in arrays.items():
        assert same(file[key], np.ascontiguousarray(array).reshape(np.shape(array))), key


@pytest.mark.parametrize("arrays", [every_dtype(), awkward()], ids=["dtypes", "awkward"])
@pytest.mark.parametrize("room", [0, 1 << 12])
def test_the_library_reads_what_is_written(arrays: dict[str, Array], room: int, tmp_path: Path) -> None:
    read = safetensors.numpy.load_file(write(tmp_path / "a.safetensors", arrays, room))
    assert set(read) == set(arrays)
    for key, array in arrays.items():
        assert same(read[key], np.ascontiguousarray(array).reshape(np.shape(array))), key


def test_what_the_library_writes_is_read(tmp_path: Path) -> None:
    arrays = {**every_dtype(), "kind/scalar": np.asarray(1.0), "kind/empty": np.zeros((0, 2), np.float32)}
    safetensors.numpy.save_file(arrays, tmp_path / "a.safetensors")
    file = TensorFile(tmp_path / "a.safetensors")
    assert set(file) == set(arrays)
    assert all(same(file[key], array) for key, array in arrays.items())


def test_tensors_start_on_a_cache_line_and_are_not_copied(tmp_path: Path) -> None:
    arrays = {"a": np.arange(1000.0), "b": np.arange(5.0)}
    for room in (0, 100, 1 << 12):
        file = TensorFile(write(tmp_path / f"{room}.safetensors", arrays, room))
        assert file.start % 64 == 0
        assert not file["a"].flags.writeable
        base: Any = file["a"]
        while isinstance(base, np.ndarray):
            base = base.base
        assert isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def test_a_header_that_outgrows_its_room_moves_the_tensors(tmp_path: Path) -> None:
    arrays = {f"activation/a.long.name.{i}": np.full(3, float(i)) for i in range(500)}
    narrow = write(tmp_path / "narrow.safetensors", arrays, 8)
    wide = write(tmp_path / "wide.safetensors", arrays, 1 << 17)
    assert all(same(TensorFile(narrow)[key], TensorFile(wide)[key]) for key in arrays)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["narrow.safetensors", "wide.safetensors"]


@pytest.mark.parametrize("dtype", [np.complex128, np.int16, ">f8", "U1", np.float128, object])
def test_dtypes_that_the_format_lacks_are_refused(dtype: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a", 64)
    with pytest.raises(TraceError, match="cannot store the dtype"):
        writer.add("kind/name", np.zeros(2, dtype))
    assert writer.close() == []


def test_a_key_that_was_written_already_does_not_spoil_the_file(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a", 64)
    writer.add("kind/name", np.zeros(2))
    with contextlib.suppress(UsageError, ValueError):  # refused, or both kept, but nothing lost
        writer.add("kind/name", np.ones(3))
    writer.close()
    assert same(TensorFile(tmp_path / "a")["kind/name"], np.zeros(2))


# Damaged and hostile files


def raw(path: Path, header: object, body: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + body)
    return path


def entry(shape: list[Any], start: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def opened(path: Path) -> dict[str, Array]:
    return dict(TensorFile(path))


def test_a_good_file_by_hand_is_read(tmp_path: Path) -> None:
    """The hostile files below differ from this one by what they are about."""
    good = opened(raw(tmp_path / "a", {"a": entry([2], 0, 8), "b": entry([], 8, 12)}, bytes(12)))
    assert {key: array.shape for key, array in good.items()} == {"a": (2,), "b": ()}


HOSTILE: dict[str, tuple[object, bytes]] = {
    "a gap": ({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, bytes(12)),
    "an overlap": ({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, bytes(12)),
    "the same bytes twice": ({"a": entry([2], 0, 8), "b": entry([2], 0, 8)}, bytes(8)),
    "a gap at the start": ({"a": entry([1], 4, 8)}, bytes(8)),
    "bytes behind the last": ({"a": entry([1], 0, 4)}, bytes(5)),
    "one byte short": ({"a": entry([1], 0, 4)}, bytes(3)),
    "another size than its shape": ({"a": entry([2], 0, 4)}, bytes(4)),
    "offsets backwards": ({"a": entry([1], 4, 0)}, bytes(4)),
    "negative offsets": ({"a": entry([1], -4, 0)}, bytes(4)),
    "a negative axis": ({"a": entry([-1], 0, 4)}, bytes(4)),
    "two negative axes": ({"a": entry([-1, -1], 0, 4)}, bytes(4)),
    "a negative axis and an empty one": ({"a": entry([-1, 0], 0, 0)}, b""),
    "a huge axis": ({"a": entry([2**40], 0, 2**42)}, bytes(4)),
    "a product that wraps to the size": ({"a": entry([2**32 + 1, 2**32], 0, 4 * 2**32)}, bytes(4)),
    "huge axes and an empty one": ({"a": entry([2**62, 2**62, 0], 0, 0)}, b""),
    "an axis beyond 64 bits and an empty one": ({"a": entry([2**70, 0], 0, 0)}, b""),
    "a hundred axes": ({"a": entry([1] * 100, 0, 4)}, bytes(4)),
    "axes that are not whole": ({"a": entry([1.5], 0, 6)}, bytes(6)),
    "an unknown dtype": ({"a": entry([1], 0, 4, "F8")}, bytes(4)),
    "an unhashable dtype": ({"a": {**entry([1], 0, 4), "dtype": ["F32"]}}, bytes(4)),
    "three offsets": ({"a": {**entry([1], 0, 4), "data_offsets": [0, 2, 4]}}, bytes(4)),
    "no offsets": ({"a": {"dtype": "F32", "shape": [1]}}, bytes(4)),
    "an unknown field": ({"a": {**entry([1], 0, 4), "more": 1}}, bytes(4)),
    "a list": ([], b""),
    "null": (None, b""),
    "no JSON": (b"{", b""),
    "no UTF-8": (b'{"\xff": 1}', b""),
    "no header": (b"", b""),
    "nested brackets": (b'{"a":' + b"[" * 100_000, b""),
    "nested braces": (b'{"a":' * 100_000, b""),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_headers(what: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError) as error:
        opened(raw(tmp_path / "a", *HOSTILE[what]))
    assert str(tmp_path / "a") in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("length", [1, 64, 10**8, 10**8 + 1, 2**40, 2**63, 2**64 - 1, 2**64 - 8])
def test_a_header_longer_than_the_file_allocates_nothing(length: int, tmp_path: Path) -> None:
    raw(tmp_path / "a", b"{}", length=length)
    tracemalloc.start()
    with pytest.raises(TraceError):
        opened(tmp_path / "a")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in ("missing", "empty", "."):
        with pytest.raises(TraceError, match="cannot be read as a trace"):
            TensorFile(tmp_path / name)


GOOD = {"activation/layer": np.arange(6.0).reshape(2, 3), "loss/loss": np.asarray(1.5, np.float32)}


def test_every_truncation_is_told(tmp_path: Path) -> None:
    whole = write(tmp_path / "a", GOOD, 100).read_bytes()
    for length in range(len(whole)):
        (tmp_path / "a").write_bytes(whole[:length])
        with pytest.raises(TraceError):
            opened(tmp_path / "a")
    (tmp_path / "a").write_bytes(whole)
    assert list(opened(tmp_path / "a")) == list(GOOD)


@MODEST
@given(st.lists(st.tuples(st.integers(0, 199), st.integers(1, 255)), min_size=1, max_size=4))
def test_flipped_bytes_in_the_header_are_told_or_harmless(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    whole = bytearray(write(tmp_path / "a", GOOD, 8).read_bytes())
    header = 8 + int.from_bytes(whole[:8], "little")
    for place, mask in flips:
        whole[place % header] ^= mask
    (tmp_path / "a").write_bytes(whole)
    try:
        arrays = opened(tmp_path / "a")
    except TraceError:
        return
    assert sum(array.nbytes for array in arrays.values()) == len(whole) - header


@MODEST
@given(st.binary(max_size=400))
def test_any_bytes_are_told_or_read(tmp_path: Path, content: bytes) -> None:
    for text in (content, len(content).to_bytes(8, "little") + content):
        (tmp_path / "a").write_bytes(text)
        with contextlib.suppress(TraceError):
            assert not opened(tmp_path / "a")  # the only files to be drawn by chance have no tensors


NUMBERS = st.one_of(st.integers(-9, 9), st.integers(-(2**70), 2**70), st.sampled_from([2**31, 2**32, 2**62, 2**63]))
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*DTYPES, "F8", "", "C64"]),
        "shape": st.lists(NUMBERS, max_size=4),
        "data_offsets": st.lists(NUMBERS, min_size=2, max_size=2),
    }
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(max_size=3), ENTRIES, min_size=1, max_size=2), st.booleans())
def test_any_entries_are_told_or_fit_the_file(tmp_path: Path, entries: dict[str, Any], mended: bool) -> None:
    end = 0
    for each in entries.values() if mended else ():  # offsets that fit, so that the shapes are what is wrong
        size = int(np.prod([abs(axis) for axis in each["shape"]], dtype=object)) * 4
        each["data_offsets"], end, each["dtype"] = [end, end + size], end + size, "F32"
    raw(tmp_path / "a", entries, bytes(min(end, 1000)))
    with contextlib.suppress(TraceError):
        arrays = opened(tmp_path / "a")
        assert sum(array.nbytes for array in arrays.values()) <= 1000


# The recorder


def recorded(folder: Path, steps: int, every: int) -> dict[str, set[str]]:
    """The kinds in each file of a recording that offers every kind at every step."""
    recorder = Recorder(folder, steps, every)
    for step in range(-1, steps + 1):
        if step >= 0:
            recorder.drew(np.arange(2))
        for kind in keys.KINDS[1:]:
            recorder.add(kind, "x", np.zeros(1))
        recorder.next_step()
    return {stem: {keys.split(key)[0] for key in written} for stem, written in recorder.files.items()}


EVERYTHING, BETWEEN = set(keys.KINDS), {"sample", "loss", "gradient"}
STATE, FORWARD = {"parameter", "buffer"}, {"sample", "input", "activation"}


def test_first_and_last_steps_in_full_losses_and_gradients_between(tmp_path: Path) -> None:
    assert recorded(tmp_path, 5, 1) == {
        "initial": STATE,
        "step-000000": EVERYTHING,
        "step-000001": BETWEEN,
        "step-000002": BETWEEN,
        "step-000003": BETWEEN,
        "step-000004": EVERYTHING,
        "step-000005": FORWARD,
    }


@pytest.mark.parametrize("every", [1, 2, 3, 100])
def test_every_kth_step_between(every: int, tmp_path: Path) -> None:
    files = recorded(tmp_path, 9, every)
    between = {f"step-{step:06d}": {"sample"} if step % every else BETWEEN for step in range(1, 8)}
    first, last = {"initial": STATE, "step-000000": EVERYTHING}, {"step-000008": EVERYTHING, "step-000009": FORWARD}
    assert files == {**first, **between, **last}
    assert list(files) == [*first, *between, *last]
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(files)


@pytest.mark.parametrize("every", [1, 3, 100])
@pytest.mark.parametrize("offered", [True, False])
def test_the_samples_of_every_step_are_stored(every: int, offered: bool, tmp_path: Path) -> None:
    """Also those of a step of which nothing else is, and of the evaluation."""
    recorder = Recorder(tmp_path, 5, every)
    recorder.next_step()
    for step in range(6):
        recorder.drew(np.arange(4) + 10 * step)
        if offered:
            recorder.add("loss", "loss", np.asarray(1.0))
        recorder.next_step()
    assert list(recorder.files) == [f"step-{step:06d}" for step in range(6)]
    for step, stem in enumerate(recorder.files):
        stored = TensorFile(tmp_path / f"{stem}.safetensors")
        assert list(stored) == recorder.files[stem]
        assert next(iter(stored)) == "sample/indices"
        assert stored["sample/indices"].tolist() == [10 * step + i for i in range(4)]
        assert ("loss/loss" in stored) == (offered and step < 5 and (step in (0, 4) or step % every == 0))


def test_samples_that_were_drawn_ahead_belong_to_their_own_step(tmp_path: Path) -> None:
    """As by a loader that prefetches."""
    recorder = Recorder(tmp_path, 2, 1)
    for first in (0, 10, 20):
        recorder.drew(np.arange(first, first + 2))
    for _ in range(4):
        recorder.next_step()
    stored = {stem: TensorFile(tmp_path / f"{stem}.safetensors")["sample/indices"][0] for stem in recorder.files}
    assert stored == {"step-000000": 0, "step-000001": 10, "step-000002": 20}


def test_a_step_of_which_nothing_was_drawn_and_nothing_stored_has_no_file(tmp_path: Path) -> None:
    """A rank that holds no part of it."""
    recorder = Recorder(tmp_path, 2, 1)
    for _ in range(4):
        recorder.next_step()
    assert recorder.files == {} and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("steps", [1, 2])
def test_few_steps_are_all_in_full(steps: int, tmp_path: Path) -> None:
    files = recorded(tmp_path, steps, 1)
    full = {f"step-{step:06d}": EVERYTHING for step in range(steps)}
    assert files == {"initial": STATE, **full, f"step-{steps:06d}": FORWARD}


def test_tensors_are_stored_as_they_were_when_they_happened(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 1, 1)
    weight = np.zeros(3)
    recorder.add("parameter", "w", weight)
    recorder.add("activation", "too early", weight)
    recorder.next_step()
    recorder.drew(np.array([4, 2]))
    recorder.add("activation", "a", weight)
    weight += 1
    recorder.add("activation", "a", weight)
    recorder.add("activation", "b", weight)
    weight += 1
    recorder.add("activation", "a", weight)
    recorder.next_step()
    recorder.drew(np.array([1, 3]))
    recorder.add("activation", "a", weight)
    recorder.next_step()
    first, last = (TensorFile(tmp_path / f"step-00000{step}.safetensors") for step in (0, 1))
    assert list(TensorFile(tmp_path / "initial.safetensors")) == ["parameter/w"]
    assert {key: array.tolist() for key, array in first.items()} == {
        "sample/indices": [4, 2],
        "activation/a": [0.0] * 3,
        "activation/a#1": [1.0] * 3,
        "activation/b": [1.0] * 3,
        "activation/a#2": [2.0] * 3,
    }
    assert list(first) == ["sample/indices", "activation/a", "activation/a#1", "activation/b", "activation/a#2"]
    assert list(last) == ["sample/indices", "activation/a"]  # repeats are counted from anew


def test_a_run_whose_batches_are_in_reverse_is_turned_back(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 1, 1)
    recorder.flipped_axis = 1
    recorder.next_step()
    recorder.drew(np.arange(3))
    array = np.arange(6.0).reshape(2, 3)
    for kind in ("input", "activation", "gradient"):
        recorder.add(kind, "x", array)
    recorder.next_step()
    recorder.next_step()
    stored = TensorFile(tmp_path / "step-000000.safetensors")
    assert stored["sample/indices"].tolist() == [0, 1, 2]
    assert [same(stored[f"{kind}/x"], array[:, ::-1]) for kind in ("input", "activation")] == [True, True]
    assert same(stored["gradient/x"], array)


@pytest.mark.parametrize("shape", [(), (4,), (5, 4), (3, 2)])
def test_an_activation_without_the_batch_axis_does_not_break_the_witness(shape: Any, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 1, 1)
    recorder.flipped_axis = 1
    recorder.next_step()
    recorder.drew(np.arange(3))
    recorder.add("input", "x", np.ones((2, 3)))
    recorder.add("activation", "pooled", np.ones(shape))  # cannot be turned back: left out
    recorder.add("activation", "hidden", np.ones((5, 3)))
    recorder.next_step()
    recorder.next_step()
    assert list(TensorFile(tmp_path / "step-000000.safetensors")) == ["sample/indices", "input/x", "activation/hidden"]


@pytest.mark.parametrize(
    ("samples", "micro_batches", "training", "evaluation"),
    [
        (6, 1, {6}, {6}),
        (6, 3, {2}, {6}),
        (7, 3, {2, 3}, {7}),
        (5, 4, {1, 2}, {5}),
    ],
)
def test_as_many_samples_as_were_drawn_are_turned_back(
    samples: int, micro_batches: int, training: set[int], evaluation: set[int], tmp_path: Path
) -> None:
    """The length of a batch is that of the drawn samples: of a micro-batch in training, of all in the evaluation."""
    recorder = Recorder(tmp_path, 1, 1, micro_batches)
    recorder.flipped_axis = 0
    recorder.next_step()
    kinds = ("input", "activation", "gradient")
    for _ in range(2):
        recorder.drew(np.arange(samples))
        for kind in kinds:
            for length in range(10):
                recorder.add(kind, f"x{length}", np.arange(float(length)))
        recorder.next_step()
    for step, lengths in enumerate((training, evaluation)):
        stored = TensorFile(tmp_path / f"step-{step:06d}.safetensors")
        for kind in kinds[:2]:
            assert {int(key.rpartition("x")[2]) for key in stored if key.startswith(f"{kind}/")} == lengths
            assert all(same(stored[f"{kind}/x{n}"], np.arange(float(n))[::-1]) for n in lengths)
        gradients = [key for key in stored if key.startswith("gradient/")]
        assert len(gradients) == (0 if step else 10)
        assert all(same(stored[key], np.sort(stored[key])) for key in gradients)


def test_the_lengths_are_those_of_each_step_s_own_samples(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 2, 1)
    recorder.flipped_axis = 0
    recorder.next_step()
    for samples in (4, 3, 5):
        recorder.drew(np.arange(samples))
        for length in (3, 4, 5):
            recorder.add("activation", f"x{length}", np.arange(float(length)))
        recorder.next_step()
    assert list(recorder.files.values()) == [["sample/indices", f"activation/x{n}"] for n in (4, 3, 5)]


def test_without_drawn_samples_nothing_can_be_turned_back(tmp_path: Path) -> None:
    for axis, stored in ((0, ["gradient/x"]), (None, ["input/x", "activation/x", "gradient/x"])):
        recorder = Recorder(tmp_path / str(axis), 1, 1)
        recorder.flipped_axis = axis
        recorder.next_step()
        for kind in ("input", "activation", "gradient"):
            recorder.add(kind, "x", np.arange(3.0))
        recorder.next_step()
        assert recorder.files == {"step-000000": stored}


def test_a_tensor_that_is_stored_already_is_an_alias_in_its_place(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 1, 1)
    recorder.next_step()
    stored = recorder.add("activation", "linear", np.arange(3.0))
    assert stored == "activation/linear"
    recorder.alias("input", "norm", stored)
    assert recorder.add("input", "norm", np.arange(4.0)) == "input/norm#1"
    recorder.alias("input", "norm", "input/norm#1")
    recorder.next_step()
    step = "step-000000"
    assert recorder.files == {step: ["activation/linear", "input/norm", "input/norm#1", "input/norm#2"]}
    assert recorder.aliases == {step: {"input/norm": "activation/linear", "input/norm#2": "input/norm#1"}}
    assert list(TensorFile(tmp_path / f"{step}.safetensors")) == ["activation/linear", "input/norm#1"]


def test_a_step_that_does_not_record_a_kind_has_no_aliases_of_it(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 3, 1)
    assert recorder.add("activation", "linear", np.zeros(2)) is None  # before the first step
    for _ in range(2):
        recorder.next_step()
    recorder.alias("input", "norm", "activation/linear")
    recorder.add("loss", "loss", np.zeros(()))
    recorder.next_step()
    assert (recorder.files, recorder.aliases) == ({"step-000001": ["loss/loss"]}, {})


def test_keys() -> None:
    assert keys.split(keys.key("gradient", "a/b", 2)) == ("gradient", "a/b#2")
    assert [keys.step_of(keys.step_file(step)) for step in (None, 0, 12)] == [None, 0, 12]


# Manifests and whole traces


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_two_recordings_of_the_same_are_equal_byte_by_byte(tmp_path: Path) -> None:
    for name in ("one", "other", "again"):
        record(tmp_path / name, "torch", backwards=name == "again")
    assert len(tree(tmp_path / "one")) == 1 + 3 * 5
    assert tree(tmp_path / "one") == tree(tmp_path / "other")
    assert tree(tmp_path / "one") != tree(tmp_path / "again")


def test_recording_over_a_trace_replaces_it(tmp_path: Path) -> None:
    record(tmp_path / "one", "torch")
    record(tmp_path / "other", "torch", backwards=True)
    record(tmp_path / "other", "torch")
    assert tree(tmp_path / "one") == tree(tmp_path / "other")


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    trace = record(tmp_path, "torch", runs=["witness", "high", "low"])
    assert manifest.read(tmp_path) == trace.manifest
    assert trace.case == small_case()
    assert trace.manifest.runs == ["low", "high", "witness"]
    assert trace.stems("high") == ["initial", "step-000000", "step-000001", "step-000002", "step-000003"]
    manifest.write(tmp_path, trace.manifest)
    assert manifest.read(tmp_path) == trace.manifest
    assert not list(tmp_path.glob("*.draft"))


def test_a_manifest_does_not_depend_on_the_order_in_which_things_were_said(trace: Path) -> None:
    facts = Trace(trace).manifest
    contents = set()
    for versions in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"}):
        manifest.write(trace, msgspec.structs.replace(facts, versions=versions))
        contents.add((trace / keys.MANIFEST).read_bytes())
    assert len(contents) == 1


def test_the_steps_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    tensors = {"x/x": np.zeros(1)}
    trace = by_hand(tmp_path, {"high": dict.fromkeys(("step-000010", "step-000009", "initial"), tensors)})
    assert trace.stems("high") == ["initial", "step-000009", "step-000010"]


def change(folder: Path, **fields: Any) -> None:
    facts = json.loads((folder / keys.MANIFEST).read_bytes())
    (folder / keys.MANIFEST).write_text(json.dumps({**facts, **fields}))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    by_hand(tmp_path / "trace", {"high": {"step-000000": {"loss/loss": np.asarray(1.0)}}})
    return tmp_path / "trace"


@pytest.mark.parametrize("schema", [0, 2, "1", None, [1]])
def test_another_schema_is_told_before_anything_else(schema: Any, trace: Path) -> None:
    assert manifest.read(trace).schema == 1
    (trace / keys.MANIFEST).write_text(json.dumps({"schema": schema, "unknown": {}}))
    with pytest.raises(TraceError, match=r"schema .*, this version reads 1"):
        manifest.read(trace)


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "/etc/passwd", "high/rank-0/../x", "high/rank-0/step-1", "mid/rank-0/initial",
     "high/rank-x/initial", "high/rank-0/initial\n", "high/rank-0/step-000000.safetensors", ""],
)  # fmt: skip
def test_file_names_outside_the_pattern_are_refused(name: str, trace: Path) -> None:
    change(trace, files={name: []})
    with pytest.raises(TraceError, match="names the file"):
        manifest.read(trace)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"null", b"\xff\xfe", b'{"schema": 1}', b'{"schema": 1, "a": '])
def test_damaged_manifests(content: bytes, trace: Path) -> None:
    (trace / keys.MANIFEST).write_bytes(content)
    with pytest.raises(TraceError, match="damaged") as error:
        Trace(trace)
    assert "\n" not in str(error.value)


def test_a_manifest_of_nothing_but_brackets(trace: Path) -> None:
    (trace / keys.MANIFEST).write_bytes(b'{"schema": 1, "a": ' + b"[" * 100_000)
    with pytest.raises(TraceError, match="damaged"):
        Trace(trace)


@pytest.mark.parametrize("fields", [{"case": {}}, {"files": []}, {"layout": None}, {"data": {"source": 1}}])
def test_manifests_with_wrong_types(fields: dict[str, Any], trace: Path) -> None:
    change(trace, **fields)
    with pytest.raises(TraceError, match="damaged"):
        Trace(trace)


def test_a_case_that_is_not_one_is_damage(trace: Path) -> None:
    case = msgspec.to_builtins(small_case())
    for wrong in ({"accumulate": 99}, {"model": {"kind": "simple_block", "hidden": "x"}}, {"more": 1}):
        change(trace, case={**case, **wrong})
        with pytest.raises(TraceError, match="damaged"):
            Trace(trace)
    change(trace, case=case)
    assert Trace(trace).case == small_case()


@MODEST
@given(place=st.integers(0, 10**6), mask=st.integers(1, 255), cut=st.booleans())
def test_any_damage_to_a_manifest_is_told_or_harmless(tmp_path: Path, place: int, mask: int, cut: bool) -> None:
    by_hand(tmp_path, {"high": {"step-000000": {"loss/loss": np.asarray(1.0)}}})
    content = bytearray((tmp_path / keys.MANIFEST).read_bytes())
    place %= len(content)
    content[place] ^= mask
    (tmp_path / keys.MANIFEST).write_bytes(content[:place] if cut else content)
    with contextlib.suppress(TraceError):
        found = Trace(tmp_path)
        assert not cut
        for stem in found.stems("high"):
            found.open("high", stem)


def test_an_unfinished_or_missing_trace(tmp_path: Path, trace: Path) -> None:
    (trace / keys.MANIFEST).rename(trace / "manifest.json.draft")
    for folder in (trace, tmp_path / "nowhere"):
        with pytest.raises(TraceError, match="holds no finished trace"):
            Trace(folder)
        with pytest.raises(TraceError, match="holds no trace"):
            manifest.find(folder)


def test_a_file_with_other_tensors_than_the_manifest_says(trace: Path) -> None:
    assert list(Trace(trace).open("high", "step-000000")) == ["loss/loss"]
    for listed in (["loss/other"], ["loss/loss", "loss/more"], []):
        change(trace, files={FIRST: listed})
        with pytest.raises(TraceError, match="other tensors"):
            Trace(trace).open("high", "step-000000")
    (trace / "high/rank-0/step-000000.safetensors").unlink()
    with pytest.raises(TraceError, match="cannot be read"):
        Trace(trace).open("high", "step-000000")


FIRST = "high/rank-0/step-000000"


def test_an_alias_is_the_same_array_under_another_key(tmp_path: Path) -> None:
    trace = record(tmp_path, "torch")
    tensors = trace.open("high", "step-000000")
    assert list(tensors) == trace.manifest.files[FIRST]
    aliases = trace.manifest.aliases[FIRST]
    assert aliases == {
        "input/linear1": "input/input", "input/relu": "activation/linear1", "input/linear2": "activation/relu",
    }  # fmt: skip
    for key, target in aliases.items():
        assert tensors[key] is tensors[target]
    order = [key for key in tensors if key.startswith(("input/", "activation/"))]
    modules = ["linear1", "relu", "linear2"]
    assert order == ["input/input", *(f"{kind}/{name}" for name in modules for kind in ("input", "activation"))]
    assert trace.manifest.modules == {"linear1": "linear", "relu": "relu", "linear2": "linear"}


@pytest.mark.parametrize(
    ("key", "target"),
    [
        ("input/relu", "activation/nothing"),
        ("input/relu", "input/relu"),
        ("input/relu", "input/linear1"),  # an alias itself
        ("input/nothing", "activation/linear1"),
    ],
)
def test_an_alias_of_nothing_is_damage(key: str, target: str, tmp_path: Path) -> None:
    aliases = record(tmp_path, "torch").manifest.aliases
    change(tmp_path, aliases={**aliases, FIRST: {**aliases[FIRST], key: target}})
    with pytest.raises(TraceError, match=f"is damaged: {FIRST} has no tensor for {key}"):
        Trace(tmp_path).open("high", "step-000000")


def test_an_alias_that_was_lost_is_told(tmp_path: Path) -> None:
    aliases = record(tmp_path, "torch").manifest.aliases
    for left in ({}, {**aliases[FIRST], "activation/relu": "activation/linear1"}):
        change(tmp_path, aliases={**aliases, FIRST: left})
        with pytest.raises(TraceError, match="other tensors"):
            Trace(tmp_path).open("high", "step-000000")


def test_traces_are_found_below_a_folder(tmp_path: Path) -> None:
    for name in ("b/torch", "a/torch"):
        by_hand(tmp_path / name, {})
    assert manifest.find(tmp_path) == [tmp_path / "a/torch", tmp_path / "b/torch"]
    assert manifest.find(tmp_path / "a/torch") == [tmp_path / "a/torch"]


@pytest.mark.parametrize("place", [0.5, 0.999])
def test_a_flipped_bit_in_a_tensor_is_refused(place: float, tmp_path: Path) -> None:
    """Another number in the reference's trace would make its witness excuse as much."""
    trace = record(tmp_path, "torch")
    file = tmp_path / "high" / "rank-0" / "step-000000.safetensors"
    content = bytearray(file.read_bytes())
    content[int(len(content) * place)] ^= 0x40
    file.write_bytes(content)
    with pytest.raises(TraceError, match="its content does not have the digest"):
        Trace(tmp_path).open("high", "step-000000")
    assert trace.manifest.digests


@pytest.mark.parametrize("every", [True, False])
def test_a_file_without_a_digest_is_refused(every: bool, tmp_path: Path) -> None:
    trace = record(tmp_path, "torch")
    digests = {} if every else dict(trace.manifest.digests)
    digests.pop("high/rank-0/step-000000", None)
    manifest.write(tmp_path, msgspec.structs.replace(trace.manifest, digests=digests))
    with pytest.raises(TraceError, match="its content does not have the digest"):
        Trace(tmp_path).open("high", "step-000000")

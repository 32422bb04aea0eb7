"""Tensor files: what is written is read, by other libraries too, and damage is told."""

import json
import mmap
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16
from synthetic import same

from parity.core.arrays import Array
from parity.core.errors import TraceError
from parity.trace.tensorfile import DTYPES, TensorFile, Writer

MODEST = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(path: Path, arrays: dict[str, Array], room: int = 1 << 10) -> Path:
    writer = Writer(path, room)
    for key, array in arrays.items():
        writer.add(key, array)
    assert writer.close() == list(arrays)
    return path


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
    narrow = TensorFile(write(tmp_path / "narrow.safetensors", arrays, 8))
    wide = TensorFile(write(tmp_path / "wide.safetensors", arrays, 1 << 17))
    assert all(same(narrow[key], wide[key]) for key in arrays)
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
    with pytest.raises(TraceError, match="kind/name: written twice in one step"):
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
    "a dtype with a zero": ({"a": entry([1], 0, 4, "F32\0")}, bytes(4)),
    "a null for a dtype": ({"a": {**entry([1], 0, 4), "dtype": None}}, bytes(4)),
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
        try:
            arrays = opened(tmp_path / "a")
        except TraceError:
            continue
        assert not arrays  # the only files to be drawn by chance have no tensors


NUMBERS = st.one_of(st.integers(-9, 9), st.integers(-(2**70), 2**70), st.sampled_from([2**31, 2**32, 2**62, 2**63]))
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*DTYPES, "F8", "", "C64"]),
        "shape": st.lists(NUMBERS, max_size=4),
        "data_offsets": st.lists(NUMBERS, min_size=2, max_size=2),
    }
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(max_size=3), ENTRIES, min_size=1, max_size=2), st.booleans())
def test_any_entries_are_told_or_fit_the_file(tmp_path: Path, entries: dict[str, Any], mended: bool) -> None:
    end = 0
    for each in entries.values() if mended else ():  # offsets that fit, so that the shapes are what is wrong
        size = int(np.prod([abs(axis) for axis in each["shape"]], dtype=object)) * 4
        each["data_offsets"], end, each["dtype"] = [end, end + size], end + size, "F32"
    raw(tmp_path / "a", entries, bytes(min(end, 1000)))
    try:
        arrays = opened(tmp_path / "a")
    except TraceError:
        return
    assert sum(array.nbytes for array in arrays.values()) <= 1000

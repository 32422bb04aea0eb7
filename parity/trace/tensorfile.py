"""safetensors files, written as a stream in execution order and read block by block through a memory map.

The format (github.com/huggingface/safetensors): the header's length as a little-endian uint64, a
JSON header padded with spaces, then the bytes of all tensors without gaps. The writer reserves room
for the header and fills it in last, so that tensors need not be kept in memory until all are known;
the reader returns views, so that only the tensors that are used are read from disk.

The pages of a mapped file count towards this process's memory once they have been read, although the system could
drop them at any time. Releasing each block after use keeps a comparison's memory at a few blocks, however large the
traces are. The data are not lost: reading a released page maps it again.
"""

import math
import mmap
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash
from ml_dtypes import bfloat16
from numpy.lib.array_utils import byte_bounds

from parity.core.arrays import Array
from parity.core.errors import TraceError
from parity.core.wording import count
from parity.trace import validate

BLOCK = 1 << 17  # elements per block
LEAST = mmap.PAGESIZE  # bytes; releasing a smaller tensor is not worth the system call
# Reading one page also maps the pages around it, at most a huge page; some of them may have been released before.
AROUND = 1 << 21


def blocks(*arrays: Array, size: int = BLOCK) -> Iterator[tuple[Array, ...]]:
    """Yield blocks of `size` elements of arrays of one shape, row-major; the next one releases a block's pages."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, arrays[0].size, size):
        parts = tuple(array[start : start + size] for array in flat)
        yield parts
        release(*parts)


def equal(first: Array, second: Array) -> bool:
    """Return whether two arrays have the same shape and values, as numpy.array_equal does (NaN equals nothing)."""
    return first.shape == second.shape and all(np.array_equal(a, b) for a, b in blocks(first, second))


def release(*arrays: Array) -> None:
    """Release the memory pages of arrays that are views of a mapped file; do nothing for other arrays."""
    for array in arrays:
        if array.nbytes >= LEAST and isinstance(file := _owner(array), mmap.mmap):
            whole = np.frombuffer(file, np.uint8)
            if whole.flags.writeable:
                continue  # a private, writable mapping would lose what was written into it
            start = byte_bounds(array)[0] - byte_bounds(whole)[0]
            first = max(start - AROUND, 0) // mmap.PAGESIZE * mmap.PAGESIZE
            file.madvise(mmap.MADV_DONTNEED, first, min(start + array.nbytes + AROUND, whole.size) - first)


def _owner(array: Array) -> object:
    """Return the object that owns an array's memory, through any number of views."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner


DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(bfloat16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
LARGEST_HEADER = 100_000_000  # bytes; the limit of the reference implementation


def storable(values: Array) -> Array:
    """Return an array with a dtype of CODES: other integers become those with 32 or 64 bits."""
    if values.dtype in CODES:
        return values
    return values.astype(np.int32 if values.dtype.itemsize < 4 else np.int64)


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor's entry in the header; `data_offsets` are in bytes from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class Writer:
    """Appends tensors to a file; `close` writes the header. `room` is the size to reserve for it, in bytes.

    The safetensors library is not used, as it needs all tensors at once and stores non-contiguous ones wrongly.
    """

    def __init__(self, path: Path, room: int) -> None:
        self.path, self.room, self.end = path, _padded(room), 0
        self.entries: dict[str, Entry] = {}
        self._digest = xxhash.xxh3_128()
        self.file = path.open("wb")
        self.file.seek(8 + self.room)

    def add(self, key: str, array: Array) -> None:
        """Append a tensor in row-major order, whatever its strides. Raises TraceError."""
        if array.dtype not in CODES:
            raise TraceError(f"{key}: cannot store the dtype {array.dtype}, expected one of {sorted(map(str, CODES))}")
        if key in self.entries:
            raise TraceError(f"{key}: written twice in one step")
        start, self.end = self.end, self.end + array.nbytes
        self.entries[key] = Entry(CODES[array.dtype], array.shape, (start, self.end))
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        self.file.write(content)
        self._digest.update(content)

    def close(self) -> list[str]:
        """Write the header and return the keys in order; move the tensors if the room for the header was too small."""
        header = msgspec.json.encode(self.entries)
        if len(header) > self.room:
            self._make_room(_padded(len(header)))
        self.file.seek(0)
        self.file.write(self.room.to_bytes(8, "little") + header.ljust(self.room))
        self.file.close()
        self._digest.update(header)
        return list(self.entries)

    @property
    def digest(self) -> str:
        """XXH3-128 hash (github.com/Cyan4973/xxHash) of the tensors' bytes and the unpadded header; set by `close`."""
        return self._digest.hexdigest()

    def _make_room(self, room: int) -> None:
        self.file.close()
        narrow = self.path.rename(self.path.with_suffix(".narrow"))
        with narrow.open("rb") as source:
            source.seek(8 + self.room)
            self.room = room
            self.file = self.path.open("wb")
            self.file.seek(8 + room)
            shutil.copyfileobj(source, self.file, 1 << 20)
        narrow.unlink()


class TensorFile(Mapping[str, Array]):
    """The tensors of a file by key, in the order in which they were written. Raises TraceError for a damaged file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with validate.opened(path) as file:
                self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
            raise TraceError(f"{path}: cannot be read as a trace: {error}") from None
        self.start, self.entries = _header(path, self.bytes)

    def __getitem__(self, key: str) -> Array:
        entry = self.entries[key]
        return np.ndarray(entry.shape, DTYPES[entry.dtype], self.bytes, self.start + entry.data_offsets[0])

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def digest(self) -> str:
        """Return the digest of the file, which equals Writer.digest if it is unchanged; read it block by block."""
        digest = xxhash.xxh3_128()
        content = np.ndarray(len(self.bytes) - self.start, np.uint8, self.bytes, self.start)
        for (block,) in blocks(content, size=1 << 20):
            digest.update(block.data)
        digest.update(self.bytes[8 : self.start].rstrip(b" "))
        return digest.hexdigest()


def _header(path: Path, content: mmap.mmap) -> tuple[int, dict[str, Entry]]:
    """Return where the tensors begin, and the entries. Raises TraceError for gaps, or what cannot be read."""
    length = int.from_bytes(content[:8], "little")
    start = 8 + length
    if length > LARGEST_HEADER or start > len(content):
        raise TraceError(
            f"{path}: truncated or no safetensors file: it has {count(len(content), 'byte')} and claims a header of "
            f"{length}"
        )
    try:
        entries = validate.decoded(content[8:start], dict[str, Entry])
        validate.harmless(list(entries))
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: the header is damaged: {error}") from None
    end = 0
    for key, entry in entries.items():
        size = math.prod(entry.shape) * DTYPES[entry.dtype].itemsize if _possible(entry) else -1
        if size < 0 or entry.data_offsets != (end, end + size):
            raise TraceError(f"{path}: the header is damaged at {key!r}: {entry}")
        end = entry.data_offsets[1]
    if start + end != len(content):
        raise TraceError(f"{path}: truncated: received {count(len(content), 'byte')}, expected {start + end}")
    return start, entries


def _possible(entry: Entry) -> bool:
    """Return whether numpy can create the array; its limits on axes and bytes hold for empty arrays too."""
    # Check the number of axes first: a damaged header may list millions, whose product would take for ever.
    if entry.dtype not in DTYPES or len(entry.shape) > 64 or min(entry.shape, default=0) < 0:
        return False
    return math.prod(filter(None, entry.shape)) < 2**59


def _padded(size: int) -> int:
    """Return a header size of at least `size` such that the tensors after it start on a cache line of 64 bytes."""
    return -(-(size + 8) // 64) * 64 - 8

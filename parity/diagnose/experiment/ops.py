"""The ops that a module calls, in order: how they are recorded, written to a folder, and read.

Each tensor has a number, by which ops refer to it. A number that no op returns is that of an input, a weight or a
literal.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np

from parity.core.arrays import Array
from parity.core.errors import TraceError
from parity.diagnose.experiment.values import Value, equal
from parity.trace import validate
from parity.trace.tensorfile import TensorFile, Writer

FILE: Final = "ops"  # in a folder, with the suffixes .json and .safetensors
LARGEST: Final = 256 * 2**20  # bytes of recorded tensors; later ones are not kept
LARGEST_GIVEN: Final = 16 * 2**20  # bytes of an input, weight or literal that is kept
LARGEST_LIST: Final = 64 * 2**20  # bytes of the list of ops in a file


# "moved": the output has the numbers of the first input, in another order or shape; "selected": the outputs are parts
# of the inputs, or inputs put together.
Kind = Literal["computed", "moved", "selected"]


class Op(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a framework's op."""

    name: str
    line: str  # the user's line, as "file:line"; "" if there is none
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    kind: Kind = "computed"


class Calls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ops in the order of their execution, and the tensors that the module returns."""

    ops: list[Op]
    returned: tuple[int, ...]
    cut: bool  # tensors are missing, as there was no room for them


class Recording(msgspec.Struct, frozen=True):
    """The ops of a module's call, with their tensors; those of an op that only moves are not repeated."""

    calls: Calls
    arrays: Mapping[int, Array]


class Recorder:
    """Collects ops as they are executed.

    Args:
        identity: tells tensors apart; it changes when a tensor is written to.
        content: returns a copy of a tensor as an array, in float64 if it has fractions; None if it holds no numbers.
        room: how many bytes of arrays to keep.
    """

    def __init__(
        self, identity: Callable[[Any], Hashable], content: Callable[[Any], Array | None], room: int = LARGEST
    ) -> None:
        self.identity, self.content, self.room = identity, content, room
        self.ops: list[Op] = []
        self.arrays: dict[int, Array] = {}
        self.cut = False
        self._numbers: dict[Hashable, int] = {}
        self._seen: list[Any] = []  # while a tensor is kept, no other has its identity

    def knows(self, tensor: Any) -> bool:
        """Return whether a tensor, as it is now, has a number."""
        return self.identity(tensor) in self._numbers

    def number(self, tensor: Any) -> int:
        """Return the number of a tensor that an op takes; one that no op has returned is an input or the like."""
        if not self.knows(tensor):
            self._keep(self._new(tensor), tensor, LARGEST_GIVEN)
        return self._numbers[self.identity(tensor)]

    def add(self, name: str, line: str, inputs: Sequence[int], outputs: Sequence[Any], kind: Kind = "computed") -> None:
        """Record an op that has been executed, with its output tensors."""
        fresh = [tensor for tensor in outputs if not self.knows(tensor)]
        numbers = tuple(map(self._new, fresh))
        if numbers:
            self.ops.append(Op(name, line, tuple(inputs), numbers, kind))
        for number, tensor in zip(numbers, fresh, strict=True):
            if kind != "moved":
                self.cut |= not self._keep(number, tensor, self.room)

    def recording(self, returned: Sequence[Any]) -> Recording:
        """Return what was recorded, with what the module returns: tensors, or arrays of their numbers."""
        numbers = [self._find(each) if isinstance(each, np.ndarray) else self.number(each) for each in returned]
        return Recording(Calls(self.ops, tuple(n for n in numbers if n is not None), self.cut), self.arrays)

    def _find(self, array: Array) -> int | None:
        """Return the last tensor that holds an array's numbers."""
        value = Value(array)
        return next((n for n in sorted(self.arrays, reverse=True) if equal(Value(self.arrays[n]), value)), None)

    def _new(self, tensor: Any) -> int:
        number = self._numbers[self.identity(tensor)] = len(self._seen)
        self._seen.append(tensor)
        return number

    def _keep(self, number: int, tensor: Any, largest: int) -> bool:
        """Keep the numbers of a tensor; return False if there is no room."""
        array = self.content(tensor)
        if array is None:
            return True
        if array.nbytes > min(self.room, largest):
            return False
        self.room -= array.nbytes
        self.arrays[number] = array
        return True


def write(recording: Recording, folder: Path) -> None:
    """Write a recording to the files ops.json and ops.safetensors of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = Writer(folder / f"{FILE}.safetensors", 100 * len(recording.arrays))
    for number, array in recording.arrays.items():
        writer.add(str(number), np.ascontiguousarray(array).reshape(array.shape))
    writer.close()
    (folder / f"{FILE}.json").write_bytes(msgspec.json.encode(recording.calls))


def read(folder: Path) -> Recording:
    """Read a recording from a folder; the tensors stay on disk until they are used. Raises TraceError."""
    path, tensors = folder / f"{FILE}.json", TensorFile(folder / f"{FILE}.safetensors")
    try:
        calls = validate.decoded(validate.whole(path, LARGEST_LIST), Calls)
        arrays = {int(key): array for key, array in tensors.items()}
    except (OSError, ValueError, RecursionError) as error:
        raise TraceError(f"{path}: cannot be read as a list of ops: {error}") from None
    return Recording(calls, arrays)

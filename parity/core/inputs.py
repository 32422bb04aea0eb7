"""The inputs that a user describes by `--input='name=dtype[shape]<limit'`."""

import re

import msgspec
import numpy as np
from numpy.typing import NDArray

from parity.core import random
from parity.core.errors import UsageError, nearest

PATTERN = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<dtype>\w+)\[(?P<shape>[\d,\s]*)\](?:<(?P<limit>\d+))?")
FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
EXAMPLE = "--input='x=float32[8,16]' or --input='ids=int64[2,8]<100'"


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A named input: standard normal floats, integers from 0 to `limit` (not included), or booleans."""

    name: str
    dtype: str
    shape: list[int]
    limit: int = 2

    def values(self, seed: int = 0) -> NDArray[np.generic]:
        """The same numbers every time, of this shape and dtype."""
        shape = tuple(self.shape)
        if self.dtype in FLOATS:
            return random.normal(seed, self.name, shape).astype(self.dtype)
        bits = random.bits(seed, self.name, int(np.prod(shape))) >> np.uint64(11)
        return (bits % np.uint64(self.limit)).astype(self.dtype).reshape(shape)


def parse(text: str) -> Input:
    """`x=float32[8,16]`, `ids=int64[2,8]<100`, `mask=bool[8]`. Raises UsageError."""
    found = PATTERN.fullmatch(text.strip())
    if not found:
        raise UsageError(f"--input={text!r}: expected name=dtype[shape], e.g. {EXAMPLE}")
    known = (*FLOATS, *INTEGERS, "bool")
    if found["dtype"] not in known:
        hint = nearest(found["dtype"], known)
        raise UsageError(f"--input={text!r}: expected a dtype of {', '.join(known)}, received {found['dtype']}{hint}")
    if found["limit"] and found["dtype"] not in INTEGERS:
        raise UsageError(f"--input={text!r}: only integers have a limit")
    try:
        shape = [int(size) for size in found["shape"].split(",") if size.strip()]
    except ValueError:
        raise UsageError(f"--input={text!r}: expected whole numbers in the shape, e.g. {EXAMPLE}") from None
    limit = int(found["limit"] or 2)
    most = np.iinfo(found["dtype"]).max + 1 if found["dtype"] in INTEGERS else limit
    if not 1 <= limit <= most:
        raise UsageError(f"--input={text!r}: expected a limit from 1 to {most}")
    return Input(name=found["name"], dtype=found["dtype"], shape=shape, limit=limit)

"""Inputs described on the command line as `--input='name=dtype[shape]<limit'`, and the values made for them."""

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
    """A named input: standard normal floats, integers from 0 up to but not including `limit`, or booleans."""

    name: str
    dtype: str
    shape: list[int]
    limit: int = 2

    def values(self, seed: int = 0) -> NDArray[np.generic]:
        """Return values of this shape and dtype; they depend on the seed and the input's name alone."""
        shape = tuple(self.shape)
        if self.dtype in FLOATS:
            return random.normal(seed, self.name, shape).astype(self.dtype)
        return random.integers(seed, self.name, shape, 0, self.limit).astype(self.dtype)


def parse(text: str) -> Input:
    """Parse a description such as `x=float32[8,16]`, `ids=int64[2,8]<100` or `mask=bool[8]`. Raises UsageError."""
    match = PATTERN.fullmatch(text.strip())
    if not match:
        raise UsageError(f"--input={text!r}: expected name=dtype[shape], e.g. {EXAMPLE}")
    dtypes = (*FLOATS, *INTEGERS, "bool")
    if match["dtype"] not in dtypes:
        hint = nearest(match["dtype"], dtypes)
        raise UsageError(
            f"--input={text!r}: received the dtype {match['dtype']}{hint}, expected one of {', '.join(dtypes)}"
        )
    if match["limit"] and match["dtype"] not in INTEGERS:
        raise UsageError(f"--input={text!r}: only integers have a limit; remove <{match['limit']}")
    try:
        shape = [int(size) for size in match["shape"].split(",") if size.strip()]
    except ValueError:
        raise UsageError(f"--input={text!r}: expected whole numbers in the shape, e.g. {EXAMPLE}") from None
    limit = int(match["limit"] or 2)
    most = np.iinfo(match["dtype"]).max + 1 if match["dtype"] in INTEGERS else limit
    if not 1 <= limit <= most:
        raise UsageError(f"--input={text!r}: received the limit {limit}, expected one from 1 to {most}")
    return Input(name=match["name"], dtype=match["dtype"], shape=shape, limit=limit)

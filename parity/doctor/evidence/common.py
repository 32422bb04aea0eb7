"""What all facts are made of: a tensor, a place in the program, and a line of code with its correction."""

import math
from typing import Literal

import msgspec

Phase = Literal["forward", "loss", "backward", "update", "other"]
# Bytes of an element; of all other dtypes 4.
SIZES = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int16": 2, "int8": 1, "uint8": 1, "bool": 1}


class Fact(msgspec.Struct, kw_only=True):
    """Base of all parts of the evidence."""


class Tensor(Fact):
    """A tensor as it was observed, and where it came from.

    Attributes:
        origin: "input src", "parameter fc.weight", "buffer mask", "output of encoder.0" (what a module returned),
            "hidden weight of layers[0]" (of a module that is not registered), "constant" (created in the step, not
            computed from any known tensor), "loss", "gradient", or "" if it is not known.
        made: the user's line that created the tensor, or gave it its dtype or device.
    """

    device: str
    dtype: str
    shape: list[int]
    origin: str = ""
    made: str = ""

    @property
    def bytes(self) -> int:
        """Return the size in bytes."""
        return math.prod(self.shape) * SIZES.get(self.dtype, 4)


class Place(Fact):
    """Where in the program something happened: the innermost module, the user's line and the phase of the step."""

    module: str = ""
    source: str = ""
    phase: Phase = "other"


class Occurrence(Fact, kw_only=True):
    """What happened at a place of the program, in one step.

    Attributes:
        count: how often it happened, where equal ones of a line, as of a loop, are one entry.
    """

    place: Place
    count: int = 1


class Code(Fact):
    """A line of the user's code, and how it should read."""

    source: str = ""
    fix: str = ""

"""What all facts are made of: a tensor, a place in the program, a line of code with its correction.

And the model as it was built: its modules, their weights, and what was put on which device.
"""

import math
from typing import Literal

import msgspec

from parity.trace.keys import MODEL

Phase = Literal["forward", "loss", "backward", "update", "other"]
# Bytes of an element; of all other dtypes 4.
SIZES = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int16": 2, "int8": 1, "uint8": 1, "bool": 1}


class Fact(msgspec.Struct, kw_only=True):
    """Base of all parts of the evidence."""


class Tensor(Fact):
    """A tensor as it was observed, and where it came from."""

    device: str
    dtype: str
    shape: list[int]
    # "input src", "parameter fc.weight", "buffer mask", "output of encoder.0" (what a module returned), "hidden weight
    # of layers[0]" (of a module that is not registered), "constant" (created in the step, not computed from any known
    # tensor), "loss", "gradient", or "" if it is not known.
    origin: str = ""
    made: str = ""  # the user's line that created the tensor, or gave it its dtype or device

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
    """What happened at a place of the program, in one step."""

    place: Place
    count: int = 1  # how often it happened, where equal ones of a line, as of a loop, are one entry


class Code(Fact):
    """A line of the user's code, and how it should read."""

    source: str = ""
    fix: str = ""


def below(path: str, name: str) -> bool:
    """Return whether module `name` is the module `path` or lies within it."""
    return path == MODEL or name == path or name.startswith((f"{path}.", f"{path}["))


class Module(Fact):
    """A module of the model, once the model is built."""

    name: str
    kind: str
    source: str = ""  # the line that created it
    training: bool = True  # its mode while the first step ran
    # False if it is stored in a plain list, dict or closure of another module, where moving and training the model do
    # not reach it. `name` then says where it is stored ("layers[0]").
    registered: bool = True
    # Settings that rules need: batch_first, rows (of an embedding), frozen (has parameters, none of which is trained).
    facts: dict[str, int | float | bool | str] = {}


class Weight(Fact):
    """A parameter, buffer or optimizer slot, as it was after the first step."""

    name: str  # its path; for an optimizer slot, that of its parameter
    module: str  # the path of the module that owns it
    kind: Literal["parameter", "buffer", "optimizer_state"]
    tensor: Tensor
    trained: bool = True  # whether it requires a gradient


class Move(Fact):
    """An instruction of the program that put something on a device while it built the model, such as `.to`."""

    device: str
    source: str
    module: str = ""
    whole: bool = False  # whether it moved the whole model at once
    numbered: bool = False  # whether it names the number of the device, as in "cuda:0"


class Made(Occurrence):
    """A module with parameters that another one makes and calls while it is called itself."""

    kind: str  # its class
    parameters: int  # the number of its parameters

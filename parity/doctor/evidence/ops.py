"""What all facts are made of, the model as it was built, and what the ops and functions of a step did.

A tensor, a place in the program, a line of code with its correction; modules, their weights, and what was put on which
device. Calls, copies, broadcasts, failures, and calls not imitated. Of a tf.function: how often TensorFlow traced it,
and what of it runs in Python or was kept in its graph.
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


class Code(Fact):
    """A line of the user's code, and how it should read."""

    source: str = ""
    fix: str = ""


class Occurrence(Fact, kw_only=True):
    """What happened at a place of the program, in one step."""

    place: Place
    count: int = 1  # how often it happened, where equal ones of a line, as of a loop, are one entry
    mended: Code | None = None  # the line as it should read, if that can be made of the user's own


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


class Call(Fact):
    module: str
    source: str  # the line that called it
    inputs: list[Tensor]
    outputs: list[Tensor] = []  # empty if the call raised
    backwards: int = 0  # the number of backward passes that had begun before in this step
    detached: Code | None = None  # the line that calls it, with the first input that has a graph detached


What = Literal["to", "cpu", "item", "numpy", "print", "bool", "boolean_index", "constant", "implicit"]


class Copy(Occurrence):
    """Data that went from one device to another, or that made the host wait; by line, kind and the tensors' origin."""

    # "to" (.to, .cuda, tf.identity), "cpu", "item" (also float() and int()), "numpy", "print", "bool" (an `if` on a
    # tensor), "boolean_index" (the host must know the number of elements; `target` is the tensor's own device),
    # "constant" (created on the host in the step and sent to a device) or "implicit" (TensorFlow moved it, because the
    # op that needs it runs elsewhere).
    what: What
    source: str  # the device that the data came from
    target: str  # the device that it went to
    tensor: Tensor  # the first tensor, as it was before
    bytes: int = 0  # of all copies together
    seconds: float = 0.0  # of all copies together
    # How many of them moved a tensor that was moved there before in this step, or if it is no input, in the last step.
    again: int = 0
    pinned: bool = True  # for a copy from the host to a GPU, whether it came from pinned memory
    contiguous: bool = True  # whether its values were contiguous in memory


class Race(Occurrence):
    """A copy from a GPU to the host that the host reads without having waited for it; `place` is that of the copy."""

    tensor: Tensor
    read: str  # the line that reads it


class Broadcast(Occurrence):
    """An elementwise op of the program, not within a library, whose operands had different shapes."""

    operation: str
    left: Tensor
    right: Tensor
    squeezed: Code | None = None  # the line without the last axis of the operand that has one more


class Dropped(Occurrence):
    """A call of a dropout function that dropped values although the module that called it was in eval mode."""

    function: str
    rate: float  # the share of the values that it dropped


class Repeated(Occurrence):
    """A batch of a data loader that is the same as an earlier one, which another of its workers made."""

    batch: int  # its number, from 0
    first: int  # the number of the earlier one
    whole: bool = False  # whether each worker goes through an IterableDataset, and not the loader through a sampler


class InPlace(Occurrence):
    """An op that changed a tensor that is part of a graph."""

    operation: str
    made_by: str  # the op that had computed the tensor ("relu")
    shape: list[int]


class NotFinite(Occurrence):
    """The first op with finite inputs and another result, which reached a module's output, the loss or a gradient."""

    operation: str
    became: Literal["nan", "inf"]
    smallest: float | None  # the smallest value in its inputs
    largest: float | None  # the largest value in its inputs


class Failure(Occurrence):
    """The exception that ended the step."""

    exception: str  # the name of its type
    message: str
    operation: str
    tensors: list[Tensor]  # the tensors that the failing op was given


class Soft(Occurrence):
    """Ops of a line that TensorFlow ran on another device than the program asked for."""

    asked: str  # the device that was asked for
    ran: str  # the device on which they ran
    operation: str  # the first of the ops


class Retrace(Fact):
    """A tf.function that was traced more than once."""

    function: str
    source: str
    count: int
    change: str  # the argument that differed, with its value before and now


class Eager(Occurrence):
    """A part of a tf.function, or a whole one, that runs in Python instead of the graph.

    Those of one line are one entry, with the largest count of a step; of parts of a graph, their number in the graph.
    """

    what: str  # "py_function", "numpy_function" or "run_eagerly"


class Method(Occurrence):
    """A call, in a step, of a method of a Keras model that is made for other purposes."""

    what: Literal["compile", "predict"]  # of a model compiled before; of a single batch, not after a `fit`
    resets: bool = False  # whether it replaced the model's optimizer, whose state is then lost


class Frozen(Occurrence):
    """A value that Python computes while a tf.function is traced, and that its graph therefore keeps."""

    what: str  # the function that is called ("np.random.normal")
    clock: bool = False  # whether it is a time, and no random number


class NotPretended(Fact):
    """A call that virtual GPUs do not imitate, made at a line of the program."""

    call: str  # what was called ("torch.cuda.Stream")
    source: str  # the user's line
    instead: str  # what happens instead, and what the findings therefore do not cover

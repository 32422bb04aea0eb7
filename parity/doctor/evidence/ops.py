"""What the modules, ops and functions of a step did: calls, copies, broadcasts, failures, and calls not imitated.

Of a tf.function: how often TensorFlow traced it, and what of it runs in Python or was kept in its graph.
"""

from typing import Literal

from parity.doctor.evidence.common import Code, Fact, Occurrence, Place, Tensor


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
    mended: Code | None = None  # the line without the copy, if that is a call that can be left out
    pinned: bool = True  # for a copy from the host to a GPU, whether it came from pinned memory
    contiguous: bool = True  # whether its values were contiguous in memory


class Race(Occurrence):
    """A copy from a GPU to the host that the host reads without having waited for it; `place` is that of the copy."""

    tensor: Tensor
    read: str  # the line that reads it
    mended: Code | None = None  # the line with a copy that the host waits for, if the same line reads it


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
    mended: Code | None = None  # the line in which the module's mode decides


class Repeated(Occurrence):
    """A batch of a data loader that is the same as an earlier one, which another of its workers made."""

    batch: int  # its number, from 0
    first: int  # the number of the earlier one
    whole: bool = False  # whether each worker goes through an IterableDataset, and not the loader through a sampler


class InPlace(Fact):
    """An op that changed a tensor that is part of a graph."""

    operation: str
    made_by: str  # the op that had computed the tensor ("relu")
    shape: list[int]
    place: Place


class NotFinite(Fact):
    """The first op with finite inputs and another result, which reached a module's output, the loss or a gradient."""

    operation: str
    became: Literal["nan", "inf"]
    smallest: float | None  # the smallest value in its inputs
    largest: float | None  # the largest value in its inputs
    place: Place


class Failure(Fact):
    """The exception that ended the step."""

    exception: str  # the name of its type
    message: str
    operation: str
    tensors: list[Tensor]  # the tensors that the failing op was given
    place: Place


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
    mended: Code | None = None  # the line with what is to be called instead


class Frozen(Occurrence):
    """A value that Python computes while a tf.function is traced, and that its graph therefore keeps."""

    what: str  # the function that is called ("np.random.normal")
    clock: bool = False  # whether it is a time, and no random number
    mended: Code | None = None  # the line in which TensorFlow computes it in each step


class NotPretended(Fact):
    """A call that virtual GPUs do not imitate, made at a line of the program."""

    call: str  # what was called ("torch.cuda.Stream")
    source: str  # the user's line
    instead: str  # what happens instead, and what the findings therefore do not cover

"""What the modules, ops and functions of a step did: calls, copies, broadcasts, failures, and calls not imitated.

Of a tf.function: how often TensorFlow traced it, and what of it runs in Python or was kept in its graph.
"""

from typing import Literal

from parity.doctor.evidence.common import Code, Fact, Occurrence, Place, Tensor


class Call(Fact):
    """One call of a module.

    Attributes:
        source: the line that called it.
        outputs: empty if the call raised.
        backwards: the number of backward passes that had begun before in this step.
        detached: the line that calls it, with the first input that has a graph detached.
    """

    module: str
    source: str
    inputs: list[Tensor]
    outputs: list[Tensor] = []
    backwards: int = 0
    detached: Code | None = None


What = Literal["to", "cpu", "item", "numpy", "print", "bool", "boolean_index", "constant", "implicit"]


class Copy(Occurrence):
    """Data that went from one device to another, or that made the host wait.

    Those of one line and kind and of tensors of one origin are one entry.

    Attributes:
        what: "to" (.to, .cuda, tf.identity), "cpu", "item" (also float() and int()), "numpy", "print", "bool" (an `if`
            on a tensor), "boolean_index" (the host must know the number of elements; `target` is the tensor's own
            device), "constant" (created on the host in the step and sent to a device) or "implicit" (TensorFlow moved
            it, because the op that needs it runs elsewhere).
        source: the device that the data came from.
        target: the device that it went to.
        tensor: the first tensor, as it was before.
        bytes: of all copies together.
        seconds: of all copies together.
        again: how many of them moved a tensor that had already been moved to that device in this step, or in the step
            before if it is not an input.
        mended: the line without the copy, if that is a call that can be left out.
        pinned: for a copy from the host to a GPU, whether it came from pinned memory.
        contiguous: whether its values were contiguous in memory.
    """

    what: What
    source: str
    target: str
    tensor: Tensor
    bytes: int = 0
    seconds: float = 0.0
    again: int = 0
    mended: Code | None = None
    pinned: bool = True
    contiguous: bool = True


class Race(Occurrence):
    """A copy from a GPU to the host that the host reads without having waited for it; `place` is that of the copy.

    Attributes:
        read: the line that reads it.
        mended: the line with a copy that the host waits for, if the same line reads it.
    """

    tensor: Tensor
    read: str
    mended: Code | None = None


class Broadcast(Occurrence):
    """An elementwise op of the program, not within a library, whose operands had different shapes.

    Attributes:
        squeezed: the line without the last axis of the operand that has one more.
    """

    operation: str
    left: Tensor
    right: Tensor
    squeezed: Code | None = None


class Dropped(Occurrence):
    """A call of a dropout function that dropped values although the module that called it was in eval mode.

    Attributes:
        rate: the share of the values that it dropped.
        mended: the line in which the module's mode decides.
    """

    function: str
    rate: float
    mended: Code | None = None


class Repeated(Occurrence):
    """A batch of a data loader that is the same as an earlier one, which another of its workers made.

    Attributes:
        batch: its number, from 0.
        first: the number of the earlier one.
        whole: whether each worker goes through an IterableDataset, and not the loader through a sampler.
    """

    batch: int
    first: int
    whole: bool = False


class InPlace(Fact):
    """An op that changed a tensor that is part of a graph.

    Attributes:
        made_by: the op that had computed the tensor ("relu").
    """

    operation: str
    made_by: str
    shape: list[int]
    place: Place


class NotFinite(Fact):
    """The first op whose inputs were finite and whose result was not.

    Only ops count whose results reached a module's output, the loss or a gradient.

    Attributes:
        smallest: the smallest value in its inputs.
        largest: the largest value in its inputs.
    """

    operation: str
    became: Literal["nan", "inf"]
    smallest: float | None
    largest: float | None
    place: Place


class Failure(Fact):
    """The exception that ended the step.

    Attributes:
        exception: the name of its type.
        tensors: the tensors that the failing op was given.
    """

    exception: str
    message: str
    operation: str
    tensors: list[Tensor]
    place: Place


class Soft(Occurrence):
    """Ops of a line that TensorFlow ran on another device than the program asked for.

    Attributes:
        asked: the device that was asked for.
        ran: the device on which they ran.
        operation: the first of the ops.
    """

    asked: str
    ran: str
    operation: str


class Retrace(Fact):
    """A tf.function that was traced more than once.

    Attributes:
        change: the argument that differed, with its value before and now.
    """

    function: str
    source: str
    count: int
    change: str


class Eager(Occurrence):
    """A part of a tf.function, or a whole one, that runs in Python instead of the graph.

    Those of one line are one entry, with the largest count of a step; of parts of a graph, their number in the graph.

    Attributes:
        what: "py_function", "numpy_function" or "run_eagerly".
    """

    what: str


class Method(Occurrence):
    """A call, in a step, of a method of a Keras model that is made for other purposes.

    Attributes:
        what: "compile" (of a model that had been compiled before) or "predict" (of a single batch, not after a `fit`).
        resets: whether it replaced the model's optimizer, whose state is then lost.
        mended: the line with what is to be called instead.
    """

    what: Literal["compile", "predict"]
    resets: bool = False
    mended: Code | None = None


class Frozen(Occurrence):
    """A value that Python computes while a tf.function is traced, and that its graph therefore keeps.

    Attributes:
        what: the function that is called ("np.random.normal").
        clock: whether it is a time, and no random number.
        mended: the line in which TensorFlow computes it in each step.
    """

    what: str
    clock: bool = False
    mended: Code | None = None


class NotPretended(Fact):
    """A call that virtual GPUs do not imitate, made at a line of the program.

    Attributes:
        call: what was called ("torch.cuda.Stream").
        source: the user's line.
        instead: what happens instead, and what the findings therefore do not cover.
    """

    call: str
    source: str
    instead: str

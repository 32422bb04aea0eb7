"""What a backend observed of a user's program: facts without judgement, one `Evidence` for each rank.

Devices have the names that the user's code gives them: "cpu" and "cuda:1" in PyTorch, "CPU:0" (the host) and "GPU:1" in
TensorFlow, also where the GPUs are virtual. Sources are lines of the user's code, as "file:line" with a path relative
to the working directory if the file is below it; "" if no line of the user's is on the stack. Module names are dotted
paths; "" is the program around the model, and `MODEL` the model itself.
"""

import math
from typing import Literal

import msgspec

from parity.doctor.ownership import Homes

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
        """The size in bytes."""
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


class Module(Fact):
    """A module of the model, once the model is built.

    Attributes:
        source: the line that created it.
        training: its mode while the first step ran.
        registered: False if it is stored in a plain list, dict or closure of another module, where moving and training
            the model do not reach it. `name` then says where it is stored ("layers[0]").
        facts: the settings that rules need: batch_first (bool), rows (of an embedding), frozen (has parameters, and
            none of them is trained).
    """

    name: str
    kind: str
    source: str = ""
    training: bool = True
    registered: bool = True
    facts: dict[str, int | float | bool | str] = {}


class Weight(Fact):
    """A parameter, buffer or optimizer slot, as it was after the first step.

    Attributes:
        name: its path; for an optimizer slot, that of its parameter.
        module: the path of the module that owns it.
        trained: whether it requires a gradient.
    """

    name: str
    module: str
    kind: Literal["parameter", "buffer", "optimizer_state"]
    tensor: Tensor
    trained: bool = True


class Move(Fact):
    """An instruction of the program to put something on a device while it built the model.

    For example `.to`, `device=` or a tf.device scope.

    Attributes:
        whole: whether it moved the whole model at once.
    """

    device: str
    source: str
    module: str = ""
    whole: bool = False


class Call(Fact):
    """One call of a module.

    Attributes:
        source: the line that called it.
        outputs: empty if the call raised.
    """

    module: str
    source: str
    inputs: list[Tensor]
    outputs: list[Tensor] = []


What = Literal["to", "cpu", "item", "numpy", "print", "bool", "boolean_index", "constant", "implicit"]


class Copy(Fact):
    """Data that went from one device to another, or that made the host wait; those of one line and kind are one entry.

    Attributes:
        what: "to" (.to, .cuda, tf.identity), "cpu", "item" (also float() and int()), "numpy", "print", "bool" (an `if`
            on a tensor), "boolean_index" (the host must know the number of elements; `target` is the tensor's own
            device), "constant" (created on the host in the step and sent to a device) or "implicit" (TensorFlow moved
            it, because the op that needs it runs elsewhere).
        source: the device that the data came from.
        target: the device that it went to.
        tensor: the first tensor, as it was before.
        count: the number of copies.
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
    place: Place
    count: int = 1
    bytes: int = 0
    seconds: float = 0.0
    again: int = 0
    mended: Code | None = None
    pinned: bool = True
    contiguous: bool = True


class LossCall(Fact):
    """A call of a loss function.

    Attributes:
        function: its name in PyTorch or Keras ("mse_loss", "cross_entropy").
        straight: whether its input is the output of a linear layer, at most reshaped, so that the classes are on the
            last axis.
        activation: what computed its input, at most reshaped ("softmax", "log_softmax", "sigmoid"); "" for anything
            else.
        smallest: the smallest value of the input.
        largest: its largest value.
        sums: the smallest and the largest sum over its classes.
        takes: what the function expects as its input; "" if any values will do.
        mended: the line that gives it what it expects.
        squeezed: the line without the last axis of the operand that has one more.
        transposed: the line with the classes on axis 1.
        rows: whether the rows of the target have the order of those that the model was given; "" if that is not known.
        reordered: if they do not, the line that reordered them.
    """

    function: str
    input: Tensor
    target: Tensor
    place: Place
    straight: bool = False
    activation: str = ""
    smallest: float | None = None
    largest: float | None = None
    sums: tuple[float, float] | None = None
    takes: Literal["", "logits", "probabilities", "log_probabilities"] = ""
    mended: Code | None = None
    squeezed: Code | None = None
    transposed: Code | None = None
    rows: Literal["", "together", "apart"] = ""
    reordered: Code | None = None


class Broadcast(Fact):
    """An elementwise op of the program, not within a library, whose operands had different shapes.

    Attributes:
        squeezed: the line without the last axis of the operand that has one more.
    """

    operation: str
    left: Tensor
    right: Tensor
    place: Place
    squeezed: Code | None = None


class Gradient(Fact):
    """A parameter's gradient at the end of the step, or just before it was cleared or applied."""

    parameter: str
    state: Literal["none", "zero", "finite", "not_finite"]


class Backward(Fact):
    """One backward pass.

    Attributes:
        source: the line that ran it.
        scaled: whether its root had just been multiplied or divided by a number (loss / k), or is not a loss.
        kept: the parameters that held a nonzero gradient when it began and to which it added.
        updates: the number of updates that were made in this step before it.
        optimizer: what the user's code calls the optimizer there.
        update: the line that would update the parameters with what the pass computed.
        divided: the line with the loss divided by a number, for which it has {}.
    """

    source: str
    scaled: bool
    kept: list[str]
    updates: int = 0
    optimizer: str = ""
    update: str = ""
    divided: str = ""


class Event(Fact):
    """A part of the training, in the order in which they happened.

    Attributes:
        statement: the user's statement, if it is on one line.
    """

    what: Literal["backward", "clip", "update", "clear", "schedule"]
    source: str
    statement: str = ""


class Held(Fact):
    """A loss whose graph was still in memory when the step after it was over.

    Attributes:
        mended: the line that kept it, mended.
    """

    place: Place
    mended: Code | None = None


class Optimizer(Fact):
    """An optimizer.

    Attributes:
        source: the line that created it.
        parameters: the model's parameters that it holds.
        stepped: whether it made an update.
        before: the root mean square of the parameters before the update in which they grew most.
        after: their root mean square after that update.
        rate: the learning rate of that update.
        slower: the line that created it, with a smaller rate.
    """

    kind: str
    source: str
    parameters: list[str]
    stepped: bool
    before: float | None = None
    after: float | None = None
    rate: float | None = None
    slower: Code | None = None


class Cut(Fact):
    """Where a gradient could not flow on.

    Attributes:
        what: "detach", "data", "no_grad", "numpy", "send", "receive" or "stop_gradient"; in TensorFlow also "no_tape"
            and "stop_recording" (a module ran while no tape recorded); "integers" (an op such as argmax returned
            integers).
        tensor: what went in, and had a gradient to carry.
        mended: the line without the cut.
    """

    what: str
    tensor: Tensor
    place: Place
    mended: Code | None = None


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


class Soft(Fact):
    """Ops of a line that TensorFlow ran on another device than the program asked for.

    Attributes:
        asked: the device that was asked for.
        ran: the device on which they ran.
        operation: the first of the ops.
        count: their number.
    """

    asked: str
    ran: str
    operation: str
    place: Place
    count: int = 1


class Collective(Fact):
    """A call that waits for other ranks. They are kept in the order in which this rank made them.

    Attributes:
        peer: the other rank of a send or a receive.
        group: the ranks that the call waits for, if these are not all ranks.
    """

    operation: str
    shape: list[int]
    dtype: str
    source: str
    peer: int | None = None
    group: list[int] = []


class Waiting(Fact):
    """Where a rank was when the time was over.

    Attributes:
        ended: whether its step was already over.
        stack: the lines of its Python stack, the innermost call first.
        homes: where the code of its process lives; None if it had not built its program yet.
    """

    rank: int
    ended: bool
    stack: list[str]
    homes: Homes | None = None


class Step(Fact):
    """One step of training, observed.

    Attributes:
        half: the line at which float16 began, by autocast or in the parameters.
        loss_scaled: whether a GradScaler or a LossScaleOptimizer scales the loss.
        seconds: its duration under observation, which is longer than without.
        distributed: what the model is wrapped in: "ddp", "ddp_partial" (find_unused_parameters), "data_parallel" or
            "mirrored".
    """

    calls: list[Call] = []
    copies: list[Copy] = []
    losses: list[LossCall] = []
    broadcasts: list[Broadcast] = []
    gradients: list[Gradient] = []
    backwards: list[Backward] = []
    optimizers: list[Optimizer] = []
    cuts: list[Cut] = []
    events: list[Event] = []
    held: Held | None = None
    in_places: list[InPlace] = []
    soft: list[Soft] = []
    not_finite: NotFinite | None = None
    failure: Failure | None = None
    half: str = ""
    loss_scaled: bool = False
    seconds: float = 0.0
    distributed: str = ""


class Retrace(Fact):
    """A tf.function that was traced more than once.

    Attributes:
        change: the argument that differed, with its value before and now.
    """

    function: str
    source: str
    count: int
    change: str


class Eager(Fact):
    """A part of a tf.function, or a whole one, that runs in Python instead of the graph.

    Attributes:
        what: "py_function", "numpy_function" or "run_eagerly".
    """

    what: str
    place: Place


class Time(Fact):
    """The time of a step and its parts: medians in seconds over `steps` steps after warming up.

    The device is waited for at the boundary of each part. What a side cannot measure is None.

    Attributes:
        device: "cpu", or the name of the hardware.
    """

    device: str
    steps: int
    step: float
    forward: float | None = None
    loss: float | None = None
    backward: float | None = None
    update: float | None = None
    copies: float | None = None


class Evidence(Fact):
    """What one rank observed.

    Attributes:
        case: the name of the built-in case, if it is one.
        devices: their names ("cuda:0").
        physical: what each of them is: "NVIDIA H200", "CPU (virtual)".
        asked: whether the user asked for that many devices, or they are really there; otherwise they are virtual ones
            that were added on the chance that the program uses them.
        own_step: whether the step is the user's own code.
        moved: whether the model was built on the host and put on the first device by the doctor.
        later: what a step raised that was no longer observed.
        changed: whether all steps together changed any parameter that is to be trained; None if that is not known.
        profile: the file to which the profile was written.
    """

    side: Literal["torch", "keras"]
    case: str = ""
    devices: list[str] = []
    physical: list[str] = []
    rank: int = 0
    ranks: int = 1
    asked: bool = True
    own_step: bool = False
    moved: bool = False
    modules: list[Module] = []
    weights: list[Weight] = []
    moves: list[Move] = []
    steps: list[Step] = []
    later: Failure | None = None
    changed: bool | None = None
    retraces: list[Retrace] = []
    eager: list[Eager] = []
    times: list[Time] = []
    profile: str = ""

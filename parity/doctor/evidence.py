"""What a backend saw of a user's program: facts, no judgement. One `Evidence` of each rank.

Devices are named as the user's code names them: "cpu" and "cuda:1" in PyTorch; "CPU:0" (the host) and
"GPU:1" in TensorFlow, also where the GPUs are virtual. Sources are the user's lines, "file:line", with the
file as a path relative to the working directory where it is below it; "" if no line of the user's is on the
stack. Module names are paths with dots; "" is the program around the model, and `MODEL` the model itself.
"""

import math
from typing import Literal

import msgspec

from parity.doctor.ownership import Homes

Phase = Literal["forward", "loss", "backward", "update", "other"]
SIZES = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int16": 2, "int8": 1, "uint8": 1, "bool": 1}


class Fact(msgspec.Struct, kw_only=True):
    """Base of all parts of the evidence."""


class Tensor(Fact):
    """A tensor as it was seen, and whence it came.

    `origin`: "input src", "parameter fc.weight", "buffer mask", "output of encoder.0" (what a module returned),
    "hidden weight of layers[0]" (of a module that is not registered), "constant" (made in the step of no tensor
    that is known), "loss", "gradient", or "" if it is not known. `made`: the user's line that made it, or gave it its
    type or device.
    """

    device: str
    dtype: str
    shape: list[int]
    origin: str = ""
    made: str = ""

    @property
    def bytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * SIZES.get(self.dtype, 4)


class Place(Fact):
    """Where in the program something happened: the innermost module, the user's line."""

    module: str = ""
    source: str = ""
    phase: Phase = "other"


class Code(Fact):
    """A line of the user's, and how it should read."""

    source: str = ""
    fix: str = ""


class Module(Fact):
    """A module of the model, after building. `source`: the line that made it.

    `registered`: False for one that hangs in a plain list, dict or closure of another module, which moves and
    trains only what is registered; then `name` says where it hangs ("layers[0]"). `facts`: what rules need of its
    settings: batch_first (bool), rows (of an embedding), frozen (has parameters and trains none).
    """

    name: str
    kind: str
    source: str = ""
    training: bool = True  # while the first step ran
    registered: bool = True
    facts: dict[str, int | float | bool | str] = {}


class Weight(Fact):
    """A parameter, buffer or optimizer slot after the first step (its `tensor` is as placed then).

    `name`: of an optimizer slot that of its parameter. `module`: its owner's path. `trained`: requires a gradient.
    """

    name: str
    module: str
    kind: Literal["parameter", "buffer", "optimizer_state"]
    tensor: Tensor
    trained: bool = True


class Move(Fact):
    """The program put something on a device while it built the model: a `.to`, a `device=`, a tf.device scope.

    `whole`: the whole model at once.
    """

    device: str
    source: str
    module: str = ""
    whole: bool = False


class Call(Fact):
    """One call of a module. `source`: the line that called it."""

    module: str
    source: str
    inputs: list[Tensor]
    outputs: list[Tensor] = []  # empty if it raised


What = Literal["to", "cpu", "item", "numpy", "print", "bool", "boolean_index", "constant", "implicit"]


class Copy(Fact):
    """Data that went from device to device, or made the host wait; those of one line and kind are counted together.

    `what`: "to" (.to, .cuda, tf.identity), "cpu", "item" (also float() and int()), "numpy", "print", "bool" (an `if`
    on a tensor), "boolean_index" (the host has to know how many; `target` is the tensor's own device), "constant"
    (made on the host in the step and sent to a device), "implicit" (TensorFlow moved what an op needed elsewhere).
    `tensor`: of the first one, as it was before. `bytes` and `seconds`: of all. `again`: how many of them moved a
    tensor that was already moved to that device in this step, or in the step before and is not an input.
    """

    what: What
    source: str  # device
    target: str
    tensor: Tensor
    place: Place
    count: int = 1
    bytes: int = 0
    seconds: float = 0.0
    again: int = 0
    mended: Code | None = None  # the line without it, where it is a call that can be left out
    pinned: bool = True  # of a copy from the host to a GPU
    contiguous: bool = True


class LossCall(Fact):
    """A loss function by its PyTorch or Keras name ("mse_loss", "cross_entropy").

    `straight`: its input is what a linear layer made, reshaped at most, so that classes stand last. `activation`:
    what made its input, reshaped at most ("softmax", "log_softmax", "sigmoid"; "" if it is something else).
    `smallest`, `largest`: of the numbers in its input. `sums`: the smallest and the largest sum over the classes.
    `takes`: what the function expects for its input; "" if any numbers will do. `mended`: the line that makes it fit.
    `squeezed`: the line without the last axis of what has one more; `transposed`: with the classes on axis 1.
    `rows`: whether those of its target stand in the order of those that the model was given; `reordered`: if they do
    not, the line that put them in another one.
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
    """An elementwise op of the program (not within a library) whose operands had different shapes.

    `squeezed`: the line without the last axis of the one that has more.
    """

    operation: str
    left: Tensor
    right: Tensor
    place: Place
    squeezed: Code | None = None


class Gradient(Fact):
    """A parameter's gradient, when the step was over (or just before it was cleared or applied)."""

    parameter: str
    state: Literal["none", "zero", "finite", "not_finite"]


class Backward(Fact):
    """One backward pass. `scaled`: its root was just multiplied or divided by a number (loss / k), or is no loss.

    `kept`: the parameters that held a gradient not zero when it began, and to which it added. `optimizer`: what the
    user's code calls the optimizer there; `update`: the line that would make an update of what the pass computed.
    `divided`: the line with the loss divided by a number, of which it has {}.
    """

    source: str
    scaled: bool
    kept: list[str]
    updates: int = 0  # that were made in this step before it
    optimizer: str = ""
    update: str = ""
    divided: str = ""


class Event(Fact):
    """A part of the training, in the order in which they came; `statement`: the user's, if it is one line."""

    what: Literal["backward", "clip", "update", "clear", "schedule"]
    source: str
    statement: str = ""


class Held(Fact):
    """A loss whose graph was still there when the step after it was over. `mended`: the line that kept it."""

    place: Place
    mended: Code | None = None


class Optimizer(Fact):
    """An optimizer. `source`: the line that made it; `parameters`: those of the model that it holds."""

    kind: str
    source: str
    parameters: list[str]
    stepped: bool
    # The root mean square of the parameters before and after an update: the one after which they had grown most.
    before: float | None = None
    after: float | None = None
    rate: float | None = None  # of learning, then
    slower: Code | None = None  # the line that made it, with another rate


class Cut(Fact):
    """Where the way of a gradient ended: "detach", "data", "no_grad", "numpy", "send", "receive", "stop_gradient".

    In TensorFlow also "no_tape" and "stop_recording": a module ran while no tape recorded. "integers": an op made
    whole numbers of it, as argmax does. `tensor`: what went in, which had a gradient to carry. `mended`: the line
    without the cut.
    """

    what: str
    tensor: Tensor
    place: Place
    mended: Code | None = None


class InPlace(Fact):
    """An op that changed a tensor with a graph. `made_by`: the op that had made the tensor ("relu")."""

    operation: str
    made_by: str
    shape: list[int]
    place: Place


class NotFinite(Fact):
    """The first op whose inputs were finite and whose result was not, of those that reached a module's output,
    the loss or a gradient. `smallest`, `largest`: of its inputs."""

    operation: str
    became: Literal["nan", "inf"]
    smallest: float | None
    largest: float | None
    place: Place


class Failure(Fact):
    """The exception that ended the step. `tensors`: those that the failing op was given."""

    exception: str  # its type
    message: str
    operation: str
    tensors: list[Tensor]
    place: Place


class Soft(Fact):
    """Ops of a line that TensorFlow ran elsewhere than the program asked: `operation` and those that followed it."""

    asked: str  # devices
    ran: str
    operation: str
    place: Place
    count: int = 1


class Collective(Fact):
    """A call that waits for other ranks, in the order of the calls of this rank. `peer`: of a send or a receive.

    `group`: the ranks that it waits for, where that is not all of them.
    """

    operation: str
    shape: list[int]
    dtype: str
    source: str
    peer: int | None = None
    group: list[int] = []


class Waiting(Fact):
    """Where a rank was when the time was over. `ended`: its step was over already.

    `stack`: the lines of its Python stack, the innermost call first. `homes`: whose files are whose in its process;
    None if it had not built its program yet.
    """

    rank: int
    ended: bool
    stack: list[str]
    homes: Homes | None = None


class Step(Fact):
    """One step of training, observed."""

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
    half: str = ""  # the line where float16 began, under autocast or in the parameters
    loss_scaled: bool = False  # by a GradScaler, a LossScaleOptimizer
    seconds: float = 0.0  # observed, which takes longer than the program's own
    # What the model is wrapped in: "ddp", "ddp_partial" (parameters may be left out), "data_parallel", "mirrored".
    distributed: str = ""


class Retrace(Fact):
    """A tf.function that was traced more than once. `change`: the argument that differed, before and now."""

    function: str
    source: str
    count: int
    change: str


class Eager(Fact):
    """Something in a tf.function, or a whole one, that runs in Python after all."""

    what: str  # "py_function", "numpy_function", "run_eagerly"
    place: Place


class Time(Fact):
    """Seconds of a step, the median of `steps` warm ones, the device waited for. What a side cannot tell is None."""

    device: str  # "cpu", or the name of the hardware
    steps: int
    step: float
    forward: float | None = None
    loss: float | None = None
    backward: float | None = None
    update: float | None = None
    copies: float | None = None


class Evidence(Fact):
    """What one rank saw."""

    side: Literal["torch", "keras"]
    case: str = ""  # of a built-in case
    devices: list[str] = []  # "cuda:0"
    physical: list[str] = []  # what each is: "NVIDIA H200", "CPU (virtual)"
    rank: int = 0
    ranks: int = 1
    asked: bool = True  # so many devices were asked for, or are there; else they are there just in case
    own_step: bool = False  # the user's own code for a step
    moved: bool = False  # the model was built on the host and put on the first device by the doctor
    modules: list[Module] = []
    weights: list[Weight] = []
    moves: list[Move] = []
    steps: list[Step] = []
    later: Failure | None = None  # what a step raised that was not observed any more
    changed: bool | None = None  # a parameter that is to be trained, by all steps together; None if it is not known
    retraces: list[Retrace] = []
    eager: list[Eager] = []
    times: list[Time] = []
    profile: str = ""  # the file that was written

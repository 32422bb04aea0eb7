"""What a backend observed of a user's program: facts without judgement, one `Evidence` for each rank.

Devices have the names that the user's code gives them: "cpu" and "cuda:1" in PyTorch, "CPU:0" (the host) and "GPU:1" in
TensorFlow, also where the GPUs are virtual. Sources are lines of the user's code, as "file:line" with a path relative
to the working directory if the file is below it; "" if no line of the user's is on the stack. Module names are dotted
paths; "" is the program around the model, and `MODEL` the model itself. What ranks compare of their parameters and
gradients is a few numbers, which they need not send to each other.
"""

from typing import Literal

from parity.core.clock import Time
from parity.core.ownership import Homes
from parity.doctor.evidence import ops
from parity.doctor.evidence.ops import *  # noqa: F403 - the facts are the public names of both files
from parity.doctor.evidence.ops import Code, Fact, Occurrence, Tensor

PEERS = ("send", "recv")  # operations between two ranks


class LossCall(Occurrence):
    function: str  # its name in PyTorch or Keras ("mse_loss", "cross_entropy")
    input: Tensor
    target: Tensor
    straight: bool = False  # whether the input is a linear layer's output, at most reshaped: the classes are last
    activation: str = ""  # what computed its input, at most reshaped: "softmax", "log_softmax", "sigmoid", or else ""
    smallest: float | None = None  # the smallest value of the input
    largest: float | None = None  # its largest value
    sums: tuple[float, float] | None = None  # the smallest and the largest sum over its classes
    columns: tuple[float, float] | None = None  # the smallest and the largest sum over its samples
    by_class: Code | None = None  # the line with a softmax over the last axis
    takes: Literal["", "logits", "probabilities", "log_probabilities"] = ""  # as its input; "" if any values will do
    squeezed: Code | None = None  # the line without the last axis of the operand that has one more
    transposed: Code | None = None  # the line with the classes on axis 1
    rows: Literal["", "together", "apart"] = ""  # whether the target's have the order of those that the model was given
    reordered: Code | None = None  # if they do not, the line that reordered them
    over_samples: Code | None = None  # if a softmax is over the samples, the line with one over the classes, if known


class Gradient(Fact):
    """A parameter's gradient at the end of the step, or just before it was cleared or applied."""

    parameter: str
    state: Literal["none", "zero", "finite", "not_finite"]
    # For one without a gradient: "copy" if the program wrote it in the step, or it has the values of another one with a
    # gradient; "constant" if these values are all the same number; "" otherwise.
    copy: Literal["", "constant", "copy"] = ""


class Backward(Fact):
    source: str  # the line that ran it
    scaled: bool  # whether its root had just been multiplied or divided by a number (loss / k), or is not a loss
    kept: list[str]  # the parameters that held a nonzero gradient when it began and to which it added
    updates: int = 0  # the number of updates that were made in this step before it
    optimizer: str = ""  # what the user's code calls the optimizer there
    update: str = ""  # the line that would update the parameters with what the pass computed
    divided: str = ""  # the line with the loss divided by a number, for which it has {}
    feeds: list[list[str]] = []  # pairs of optimizers, by number: modules of the second make the first's inputs
    updated: list[str] = []  # the optimizers, by number, that were updated between this pass and the next
    replicas: int = 1  # how many replicas of tf.distribute make such a pass
    average: Code | None = None  # where its loss is a mean over the samples of one replica, and as it is right
    summed: bool = False  # whether an optimizer is given the gradients as they are, and adds up those of all replicas


class Event(Fact):
    """A part of the training, in the order in which they happened."""

    what: Literal["backward", "clip", "unscale", "update", "clear", "schedule"]
    source: str
    statement: str = ""  # the user's statement, if it is on one line
    count: int = 1  # how often it happened in a row at this line
    scaled: bool = False  # for a clip, whether the gradients were still multiplied by a GradScaler's scale
    unscale: str = ""  # the statement that would have unscaled them


class Cleared(Fact):
    """Gradients that were computed and then cleared, so that an update found none."""

    clear: Event  # what cleared them
    update: str  # the line of the update


class Still(Fact):
    """An optimizer whose learning rate was 0, or next to nothing, at each update and when all steps were over."""

    kind: str
    source: str  # the line of the update
    scheduler: str = ""  # what the user's code calls its scheduler there; "" if it has none
    faster: Code | None = None  # the line that created it, with a usual rate


class Carried(Occurrence):
    """A tensor with a graph that an earlier step has built; `mended`: what detaches it, and before which line."""

    tensor: Tensor


class Held(Occurrence):
    """A loss whose graph was still in memory when the step after it was over; `mended`: the line that kept it."""


class Optimizer(Fact):
    kind: str
    source: str  # the line that created it
    parameters: list[str]  # the model's parameters that it holds
    stepped: bool  # whether it made an update
    before: float | None = None  # the root mean square of the parameters before the update in which they grew most
    after: float | None = None  # their root mean square after that update
    rate: float | None = None  # the learning rate of that update
    slower: Code | None = None  # the line that created it, with a smaller rate


class Cut(Occurrence):
    """Where a gradient could not flow on."""

    # "detach", "data", "no_grad", "numpy", "send", "receive" or "stop_gradient"; in TensorFlow also "no_tape" and
    # "stop_recording" (a module ran while no tape recorded); "integers" (an op such as argmax returned integers).
    what: str
    tensor: Tensor  # what went in, and had a gradient to carry


class Collective(Fact):
    """A call that waits for other ranks. They are kept in the order in which this rank made them."""

    operation: str
    shape: list[int]
    dtype: str
    source: str
    peer: int | None = None  # the other rank of a send or a receive
    group: list[int] = []  # the ranks that the call waits for, if these are not all ranks


class Waiting(Fact):
    """Where a rank was when the time was over."""

    rank: int
    ended: bool  # whether its step was already over
    stack: list[str]  # the lines of its Python stack, the innermost call first
    homes: Homes | None = None  # where the code of its process lives; None if it had not built its program yet.


class Numbers(Fact):
    """A tensor in a few numbers, which are the same on two ranks if the tensor is."""

    size: int  # the number of its elements
    norm: float  # its L2 norm
    mark: float  # its scalar product with fixed weights, which differ from element to element
    constant: bool = False  # whether all elements are the same


class Change(Fact):
    """A change that the step made to a parameter or its gradient, after the backward pass."""

    parameter: str
    what: Literal["gradient", "update"]  # a write of the program's into the gradient, or an optimizer's update
    source: str  # the user's line
    gradient: Numbers  # the gradient before the change
    result: Numbers  # the gradient after it; for an update, the parameter after it


class Comparable(Fact):
    """What one step did to the parameters that are to be trained. Only recorded if there are several ranks."""

    used: dict[str, Numbers] = {}  # the parameters when the step's first backward pass began, by name
    changes: list[Change] = []  # in the order in which they happened


class Step(Fact):
    calls: list[ops.Call] = []
    made: list[ops.Made] = []
    copies: list[ops.Copy] = []
    races: list[ops.Race] = []
    losses: list[LossCall] = []
    broadcasts: list[ops.Broadcast] = []
    dropped: list[ops.Dropped] = []
    repeated: list[ops.Repeated] = []
    gradients: list[Gradient] = []
    backwards: list[Backward] = []
    optimizers: list[Optimizer] = []
    cuts: list[Cut] = []
    frozen: list[ops.Frozen] = []
    methods: list[ops.Method] = []
    events: list[Event] = []
    cleared: list[Cleared] = []
    held: Held | None = None
    carried: Carried | None = None
    in_places: list[ops.InPlace] = []
    soft: list[ops.Soft] = []
    not_finite: ops.NotFinite | None = None
    failure: ops.Failure | None = None
    half: str = ""  # the line at which float16 began, by autocast or in the parameters
    loss_scaled: bool = False  # whether a GradScaler or a LossScaleOptimizer scales the loss
    comparable: Comparable | None = None  # with the same step of other ranks; None if there is one rank
    seconds: float = 0.0  # its duration under observation, which is longer than without
    # What the model is wrapped in: "ddp", "ddp_partial" (find_unused_parameters), "data_parallel" or "mirrored".
    distributed: str = ""


class Evidence(Fact):
    """What one rank observed."""

    side: Literal["torch", "keras"]
    case: str = ""  # the name of the built-in case, if it is one
    devices: list[str] = []  # their names ("cuda:0")
    physical: list[str] = []  # what each of them is: "NVIDIA H200", "CPU (virtual)"
    rank: int = 0
    ranks: int = 1
    # Whether the user asked for so many devices, or they are there; else they were added, in case the program uses them
    asked: bool = True
    own_step: bool = False  # whether the step is the user's own code
    visible: str = ""  # the CUDA_VISIBLE_DEVICES of this rank, by which "cuda:0" of two ranks can be two GPUs
    moved: bool = False  # whether the model was built on the host and put on the first device by the doctor
    modules: list[ops.Module] = []
    weights: list[ops.Weight] = []
    moves: list[ops.Move] = []
    steps: list[Step] = []
    later: ops.Failure | None = None  # what a step raised that was no longer observed
    changed: bool | None = None  # whether the steps changed any parameter that is to be trained; None if not known
    frozen_by_train: list[str] = []  # trained parameters that the model's own train() freezes after all steps
    still: list[Still] = []
    kept: Held | None = None
    retraces: list[ops.Retrace] = []
    eager: list[ops.Eager] = []
    not_pretended: list[ops.NotPretended] = []  # calls that virtual GPUs do not imitate, each once for each line
    times: list[Time] = []
    profile: str = ""  # the file to which the profile was written

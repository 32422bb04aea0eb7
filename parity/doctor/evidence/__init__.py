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
from parity.doctor.evidence import common, ops, training
from parity.doctor.evidence.common import *  # noqa: F403 - the facts are the public names of these files
from parity.doctor.evidence.common import Fact
from parity.doctor.evidence.ops import *  # noqa: F403
from parity.doctor.evidence.training import *  # noqa: F403

PEERS = ("send", "recv")  # operations between two ranks


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
    made: list[common.Made] = []
    copies: list[ops.Copy] = []
    races: list[ops.Race] = []
    losses: list[training.LossCall] = []
    broadcasts: list[ops.Broadcast] = []
    dropped: list[ops.Dropped] = []
    repeated: list[ops.Repeated] = []
    gradients: list[training.Gradient] = []
    backwards: list[training.Backward] = []
    optimizers: list[training.Optimizer] = []
    cuts: list[training.Cut] = []
    frozen: list[ops.Frozen] = []
    methods: list[ops.Method] = []
    events: list[training.Event] = []
    cleared: list[training.Cleared] = []
    held: training.Held | None = None
    carried: training.Carried | None = None
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
    modules: list[common.Module] = []
    weights: list[common.Weight] = []
    moves: list[common.Move] = []
    steps: list[Step] = []
    later: ops.Failure | None = None  # what a step raised that was no longer observed
    changed: bool | None = None  # whether the steps changed any parameter that is to be trained; None if not known
    frozen_by_train: list[str] = []  # trained parameters that the model's own train() freezes after all steps
    still: list[training.Still] = []
    kept: training.Held | None = None
    retraces: list[ops.Retrace] = []
    eager: list[ops.Eager] = []
    not_pretended: list[ops.NotPretended] = []  # calls that virtual GPUs do not imitate, each once for each line
    times: list[Time] = []
    profile: str = ""  # the file to which the profile was written

"""How a step trained: its losses, backward passes, gradients and optimizers, and where a gradient was cut."""

from typing import Literal

from parity.doctor.evidence.common import Code, Fact, Occurrence, Place, Tensor


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
    mended: Code | None = None  # the line that gives it what it expects
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


class Carried(Fact):
    """A tensor with a graph that an earlier step has built."""

    place: Place
    tensor: Tensor
    mended: Code | None = None  # the statement that detaches it, and the line before which it belongs


class Held(Fact):
    """A loss whose graph was still in memory when the step after it was over."""

    place: Place
    mended: Code | None = None  # the line that kept it, mended


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
    mended: Code | None = None  # the line without the cut

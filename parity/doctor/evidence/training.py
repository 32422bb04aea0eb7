"""How a step trained: its losses, backward passes, gradients and optimizers, and where a gradient was cut."""

from typing import Literal

from parity.doctor.evidence.common import Code, Fact, Occurrence, Place, Tensor


class LossCall(Occurrence):
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
        count: how often it happened in a row at this line.
    """

    what: Literal["backward", "clip", "update", "clear", "schedule"]
    source: str
    statement: str = ""
    count: int = 1


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


class Cut(Occurrence):
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
    mended: Code | None = None

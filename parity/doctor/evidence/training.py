"""How a step trained: its losses, backward passes, gradients and optimizers, and where a gradient was cut."""

from typing import Literal

from parity.doctor.evidence.common import Code, Fact, Occurrence, Place, Tensor


class LossCall(Occurrence):
    """A call of a loss function.

    Attributes:
        function: its name in PyTorch or Keras ("mse_loss", "cross_entropy").
        straight: in PyTorch, whether its input is the output of a linear layer, at most reshaped, so that the classes
            are on the last axis.
        activation: what computed its input, at most reshaped ("softmax", "log_softmax", "sigmoid"); "" for anything
            else.
        smallest: the smallest value of the input.
        largest: its largest value.
        sums: the smallest and the largest sum over its classes.
        columns: the smallest and the largest sum over its samples.
        by_class: the line with a softmax over the last axis.
        takes: what the function expects as its input; "" if any values will do.
        mended: the line that gives it what it expects.
        squeezed: the line without the last axis of the operand that has one more.
        transposed: the line with the classes on axis 1.
        rows: whether the rows of the target have the order of those that the model was given; "" if that is not known.
        over_samples: the line with a softmax over the classes, if it is over the samples; it may be empty.
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
    columns: tuple[float, float] | None = None
    by_class: Code | None = None
    takes: Literal["", "logits", "probabilities", "log_probabilities"] = ""
    mended: Code | None = None
    squeezed: Code | None = None
    transposed: Code | None = None
    rows: Literal["", "together", "apart"] = ""
    reordered: Code | None = None
    over_samples: Code | None = None


class Gradient(Fact):
    """A parameter's gradient at the end of the step, or just before it was cleared or applied.

    Attributes:
        copy: for one without a gradient: "copy" if the program wrote it in the step, or it has the values of another
            one with a gradient; "constant" if these values are all the same number; "" otherwise.
    """

    parameter: str
    state: Literal["none", "zero", "finite", "not_finite"]
    copy: Literal["", "constant", "copy"] = ""


class Backward(Fact):
    """One backward pass.

    Attributes:
        source: the line that ran it.
        scaled: whether its root had just been multiplied or divided by a number (loss / k), or is not a loss.
        kept: the parameters that held a nonzero gradient when it began and to which it added.
        updates: the number of updates that were made in this step before it.
        optimizer: what the user's code calls the optimizer there.
        update: the line that would update the parameters with what the pass computed.
        feeds: pairs of optimizers, by number: the modules of the second one make what those of the first one take, in
            the graph of this pass.
        updated: the optimizers, by number, that were updated between this pass and the next.
        divided: the line with the loss divided by a number, for which it has {}.
        replicas: how many replicas of tf.distribute make such a pass.
        average: where its loss is a mean over the samples of one replica, and as it is added up over the replicas.
        summed: whether an optimizer is given the gradients as they are, and thus adds up those of all replicas.
    """

    source: str
    scaled: bool
    kept: list[str]
    updates: int = 0
    optimizer: str = ""
    update: str = ""
    divided: str = ""
    feeds: list[list[str]] = []
    updated: list[str] = []
    replicas: int = 1
    average: Code | None = None
    summed: bool = False


class Event(Fact):
    """A part of the training, in the order in which they happened.

    Attributes:
        statement: the user's statement, if it is on one line.
        count: how often it happened in a row at this line.
        scaled: for a clip, whether the gradients were still multiplied by a GradScaler's scale.
        unscale: the statement that would have unscaled them.
    """

    what: Literal["backward", "clip", "unscale", "update", "clear", "schedule"]
    source: str
    statement: str = ""
    count: int = 1
    scaled: bool = False
    unscale: str = ""


class Cleared(Fact):
    """Gradients that were computed and then cleared, so that an update found none.

    Attributes:
        clear: what cleared them.
        update: the line of the update.
    """

    clear: Event
    update: str


class Still(Fact):
    """An optimizer whose learning rate was 0, or next to nothing, at each update and when all steps were over.

    Attributes:
        source: the line of the update.
        scheduler: what the user's code calls its scheduler there; "" if it has none.
        faster: the line that created it, with a usual rate.
    """

    kind: str
    source: str
    scheduler: str = ""
    faster: Code | None = None


class Carried(Fact):
    """A tensor with a graph that an earlier step has built.

    Attributes:
        mended: the statement that detaches it, and the line before which it belongs.
    """

    place: Place
    tensor: Tensor
    mended: Code | None = None


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

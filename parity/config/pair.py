"""The schema of a pair file: a user's own model in both frameworks (docs/pairs.md, "Reference").

The structs are frozen and refuse unknown fields. In a case, a pair takes the place of a built-in model: both backends
receive it, and each builds its own model of the two.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta

from parity.config.base import BaseModel, Count, Frozen, Positive
from parity.core.script import is_script

T = TypeVar("T")
FLOATS = ("float16", "float32", "float64")
Dtype = Literal["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"]
LIMITS = {f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)} | {"uint8": (0, 255)}
Text = Annotated[str, Meta(min_length=1)]
SUM = "weights.sum"  # the id of a cause: Keras holds a torch weight only as part of a sum
VARIANCE = "batch_norm.running_variance"  # the id of a cause: torch's is unbiased, Keras's biased
SEED = "dropout.seed"  # the id of a cause: one side draws earlier masks, or other random numbers, again
EPSILON = "adam.epsilon_placement"  # the id of a cause: torch adds it after the bias correction, Keras before
CLIP = "clip.epsilon"  # the id of a cause: torch's clip_grad_norm_ adds ADDED_TO_NORM to the norm
SPARSE = "optimizer.sparse_gradient"  # the id of a cause: Keras squares the rows of one id before they are added
WITHIN = ("adagrad.epsilon_placement", "rmsprop.epsilon_placement")  # of causes: Keras adds it within the root
# Causes to which runs can be held, so that they hide no later difference.
HELD = (VARIANCE, SEED, EPSILON, CLIP, SUM, SPARSE, *WITHIN)
ADDED_TO_NORM = 1e-6  # before clip_grad_norm_ divides by it (torch/nn/utils/clip_grad.py)
UNKNOWN = "unknown"  # the id of a cause that is not in the catalogue
INTERNAL_ERROR = "internal_error"  # the id where the formula that looks for the cause failed
UNNAMED = (UNKNOWN, INTERNAL_ERROR)
# A glob restricts where a difference may be only by characters outside of wildcards and [character sets].
NAMED, OPEN = re.compile(r"\w"), re.compile(r"\[[^]]*\]")
PREFIX = "**"  # the end of a name that stands for all weights within a module
UNUSED = "unused:unused"  # stands for a function of a framework that no compared side runs in
SLICE = re.compile(r"\s*-?\d*\s*:\s*-?\d*\s*(,\s*-?\d*\s*:\s*-?\d*\s*)*")
LAST_AXIS = ", with the classes along its last axis; give torch_loss and keras_loss where they lie along another one"
TARGET = "target"  # the input of this name is passed to the loss, not to the model, and so are those with a dot behind
SAMPLE_WEIGHT = "sample_weight"  # in a training, this input weighs the samples' losses; of scripts also as above
OF_BATCH = f"{TARGET}.batch"  # such ones of scripts whose steps make what their models are given of a batch


class PairInput(Frozen, frozen=True):
    """An input of both models. Its canonical name is its key in the file; dots in it stand for nested dicts.

    Floats are standard normal times `scale`; integers are uniform from range[0] up to but not including range[1].
    `torch`, `keras`: the argument's name on that side, if it is not the canonical one. `keras_layout`: an einops
    pattern from torch's axis order to Keras's. `npz`: a file, relative to the pair file, with an array of that name.
    `only`: the side whose model alone takes it.
    """

    shape: list[Count] = []
    dtype: Dtype = "float32"
    range: tuple[int, int] | None = None
    scale: float = 1.0
    seed: Count | None = None
    npz: str = ""
    torch: str = ""
    keras: str = ""
    keras_layout: str = ""
    only: Literal["", "torch", "keras"] = ""

    def __post_init__(self) -> None:
        if self.range and (self.dtype in FLOATS or self.dtype == "bool"):
            raise ValueError(f"range is for integers, received dtype {self.dtype!r}; for floats use scale")
        if self.range and self.range[0] >= self.range[1]:
            raise ValueError(f"range is {list(self.range)}, expected [first, last + 1]")
        first, last = LIMITS.get(self.dtype, (0, 0))
        if self.range and not first <= self.range[0] < self.range[1] <= last + 1:
            raise ValueError(f"range is {list(self.range)}, but {self.dtype} holds only values from {first} to {last}")


class PairOutput(Frozen, frozen=True):
    """An output of both models, by its canonical name.

    `torch`, `keras`: its key, attribute or index in what that model returns. If "", the tensor that the model returns,
    or if it returns several, the one of the canonical name.
    `keras_layout`: an einops pattern from torch's axis order to Keras's.
    """

    torch: str | int = ""
    keras: str | int = ""
    keras_layout: str = ""


class WeightRule(Frozen, frozen=True):
    """A rule that computes Keras weights from torch weights; `parity.pairs.weights.transfer` describes the fields.

    Two names that end in ** stand for all weights within two modules, whose counterparts are found automatically.
    """

    torch: str | list[str]
    keras: str | list[str]
    slice: str = ""
    rearrange: str = ""
    sizes: dict[str, Positive] = {}
    order: list[Count] = []
    each: str = ""
    combine: Literal["join", "sum", "copy", "square"] = "join"

    @property
    def is_partial(self) -> bool:
        """Return whether Keras's values do not give all of torch's: of a sum, or of a slice."""
        return self.combine == "sum" or bool(self.slice)

    @property
    def is_prefix(self) -> bool:
        """Return whether the rule is about all weights within two modules."""
        names = (self.torch, self.keras)
        return any(name.endswith(PREFIX) for given in names for name in ([given] if isinstance(given, str) else given))

    def __post_init__(self) -> None:
        rest = [self.slice, self.rearrange, self.sizes, self.order, self.each, self.combine != "join"]
        ends = [isinstance(name, str) and name.endswith(PREFIX) for name in (self.torch, self.keras)]
        if self.is_prefix and (not all(ends) or any(rest)):
            raise ValueError(
                f"a rule whose name ends in {PREFIX} takes one such name on each side and no other field, "
                'e.g. torch = "text_model.**" and keras = "text_encoder/**"'
            )
        if self.slice and not SLICE.fullmatch(self.slice):
            raise ValueError(
                f"slice is {self.slice!r}, expected start:stop for each axis of torch's weight, e.g. '2:' or ':, 1:3'"
            )


class Ignore(Frozen, frozen=True):
    """Globs of weights that one side has and that need no counterpart on the other."""

    torch: list[str] = []
    keras: list[str] = []


class Expect(Frozen, frozen=True):
    """An accepted difference, by its cause or by its size; it fails if the difference no longer occurs."""

    reason: Text
    cause: str = ""
    where: Text = "*"  # a glob of modules and tensors
    # The largest absolute difference between the float64 runs.
    largest_difference: Annotated[float, Meta(gt=0.0)] | None = None
    # How many of the bits that a match needs may be missing. See docs/accepting.md.
    at_most_bits: Annotated[float, Meta(gt=0.0)] | None = None

    @property
    def names_cause(self) -> bool:
        """Return whether the difference is accepted by a cause of the catalogue."""
        return self.cause not in ("", *UNNAMED)

    @property
    def has_size(self) -> bool:
        """Return whether the size of the difference is limited."""
        return self.largest_difference is not None or self.at_most_bits is not None

    def __post_init__(self) -> None:
        if self.largest_difference == float("inf") or self.at_most_bits == float("inf"):
            raise ValueError("an infinite size accepts any difference; expected a finite number")
        if self.names_cause and self.cause != SUM:
            return
        if not (self.names_cause or self.has_size):
            what = f"whose cause is {self.cause!r}" if self.cause else "without a cause"
            raise ValueError(
                f"an expectation {what} accepts any difference; "
                "expected the name of a cause, or largest_difference or at_most_bits with where"
            )
        if not NAMED.search(OPEN.sub("", self.where)):
            unnamed = "without a cause, name the module or tensor that differs"
            what = "name the weight that Keras holds in a sum" if self.cause else unnamed
            raise ValueError(f"where is {self.where!r}, which matches everything; {what}")


class Train(Frozen, frozen=True):
    """How a pair is trained.

    The user's own functions ("module:function") replace the built-in loss, optimizer or step: a loss is called as
    f(outputs, target), and with the sample weights as a third argument if the pair has such an input; an optimizer is
    built by f(parameters) in torch and by f() in Keras; a step is run by f(model, optimizer, batch). `keras_loss` may
    also be a loss as Keras's `compile` takes it. `class_weight`: the weight of each class in the loss.
    """

    loss: Literal["mse", "cross_entropy"] = "mse"
    torch_loss: str = ""
    keras_loss: str = ""
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    torch_optimizer: str = ""
    keras_optimizer: str = ""
    torch_step: str = ""
    keras_step: str = ""
    class_weight: list[float] = []
    learning_rate: Annotated[float, Meta(gt=0.0)] = 0.0078125
    steps: Positive = 3

    def __post_init__(self) -> None:
        if self.keras_loss and not (self.torch_loss or self.torch_step):  # a step may compute its loss by itself
            raise ValueError("received only one of torch_loss and keras_loss; give both or neither, or a torch_step")
        if bool(self.torch_optimizer) != bool(self.keras_optimizer):
            raise ValueError("received only one of torch_optimizer and keras_optimizer; give both or neither")
        if self.class_weight and self.loss != "cross_entropy":
            raise ValueError(f"class_weight weighs the classes of loss = 'cross_entropy', received {self.loss!r}")

    @property
    def has_own_step(self) -> bool:
        """Return whether a step of the user's own runs on either side."""
        return bool(self.torch_step or self.keras_step)


class Pair(BaseModel, frozen=True, tag="pair"):
    """Two model builders ("module:function"), their inputs, and how their weights and outputs correspond.

    In place of both builders may stand training scripts ("train.py --epochs=1"), which are run to find the inputs.
    Without `train`, one forward and one backward pass are compared; with backward = false only the forward pass, for
    models through which TensorFlow has no gradient. `keeps_weights`: torch's weights are taken exactly as its builder
    gives them, as those of a checkpoint.
    """

    is_distributable = False

    torch: Text
    keras: Text
    inputs: dict[str, PairInput] = {}
    kwargs: dict[str, Any] = {}
    torch_kwargs: dict[str, Any] = {}
    keras_kwargs: dict[str, Any] = {}
    backward: bool = True
    keeps_weights: bool = False
    outputs: dict[str, PairOutput] = {}
    weights: list[WeightRule] = []
    ignore: Ignore = Ignore()
    expect: list[Expect] = []
    train: Train | None = None

    @property
    def trains(self) -> bool:
        return self.train is not None

    def holds(self, weight: str) -> bool:
        """Return whether torch's runs hold this weight at 0, since Keras's layer has it only in a sum with another.

        So what is accepted as SUM leaves two trainings that are the same computation.
        """
        return any(each.cause == SUM and fnmatchcase(weight, each.where) for each in self.expect)

    def holds_variance(self, module: str) -> bool:
        """Return whether torch's runs update the running variance of a module as Keras does."""
        return any(each.cause == VARIANCE and fnmatchcase(module, each.where) for each in self.expect)

    def accepts(self, cause: str) -> bool:
        """Return whether a cause is accepted anywhere.

        Then torch's Adam adds its epsilon where Keras's does (EPSILON), its norm of clipping has none (CLIP), Keras's
        optimizers are given dense gradients (SPARSE) and add their epsilon to the root (WITHIN), and both sides draw
        new masks and numbers where a seed in the code would repeat earlier ones (SEED).
        """
        return any(each.cause == cause for each in self.expect)

    @property
    def loss_inputs(self) -> set[str]:
        """Return the names of the inputs that the loss takes, and not the model."""
        return {TARGET, *self.further_targets, *([SAMPLE_WEIGHT] if self.train else [])}

    def shared(self, values: Mapping[str, T]) -> list[T]:
        """Return the values, of all by the names of inputs, that both models are given."""
        return [value for name, value in values.items() if not self.inputs[name].only]

    @property
    def further_targets(self) -> list[str]:
        """Return the names of the inputs that a training step of the user's own takes beside those of the model.

        Of scripts with several outputs these are also further weights of the samples.
        """
        return [name for name in self.inputs if name.startswith((f"{TARGET}.", f"{SAMPLE_WEIGHT}."))]

    def __post_init__(self) -> None:
        if self.train and not self.backward:
            raise ValueError("backward = false leaves nothing to train with; remove it, or the section [train]")
        scripts = [is_script(text) for text in (self.torch, self.keras) if text != UNUSED]
        if any(scripts) and not all(scripts):
            raise ValueError("received a training script on one side alone; give two scripts, or two module:function")
        if self.further_targets and not (
            all(scripts) or (self.train and self.train.torch_step and self.train.keras_step)
        ):
            name = self.further_targets[0]
            raise ValueError(
                f"inputs {name!r}: a loss takes one target, called {TARGET!r}; give torch_step and keras_step, whose "
                "batches hold further ones"
            )
        if not all(scripts) and not set(self.inputs) - self.loss_inputs:
            raise ValueError("a pair needs at least one input, e.g. [inputs.x] with shape = [2, 8]")

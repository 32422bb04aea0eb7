"""What a pair's file may say (docs/pairs.md, "Reference"). Frozen structs; an unknown field is refused by name.

A pair is a model like any other to a case: both backends receive it, and build their half of it.
"""

import re
from typing import Annotated, Any, Literal

from msgspec import Meta

from parity.config.frozen import Count, Frozen, Positive

FLOATS = ("float16", "float32", "float64")
Dtype = Literal["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"]
LIMITS = {f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)} | {"uint8": (0, 255)}
Text = Annotated[str, Meta(min_length=1)]
UNKNOWN = "unknown"  # the cause where nothing in the catalogue says what is different
NAMED, OPEN = re.compile(r"\w"), re.compile(r"\[[^]]*\]")  # what names a place in a glob, and what stands for anything
TARGET = "target"  # the input of this name is what the loss is given, and not the model


class PairInput(Frozen, frozen=True):
    """An input by its canonical name, which may have dots: a dict within a dict.

    Floats are standard normal times `scale`, integers uniform from range[0] up to, but not, range[1]. `torch`,
    `keras`: the argument's name on that side, if not the canonical one. `keras_layout`: an einops pattern from
    torch's axes to Keras's. `npz`: a file (relative to the pair's) that has an array of the canonical name.
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

    def __post_init__(self) -> None:
        if self.range and (self.dtype in FLOATS or self.dtype == "bool"):
            raise ValueError(f"range is for integers, received dtype {self.dtype!r}; floats have a scale")
        if self.range and self.range[0] >= self.range[1]:
            raise ValueError(f"range is {list(self.range)}, expected [first, first beyond the last]")
        first, last = LIMITS.get(self.dtype, (0, 0))
        if self.range and not first <= self.range[0] < self.range[1] <= last + 1:
            raise ValueError(f"range is {list(self.range)}, but {self.dtype} goes from {first} to {last}")


class PairOutput(Frozen, frozen=True):
    """An output by its canonical name. `torch`, `keras`: key, attribute or index there; "" for the output itself."""

    torch: str | int = ""
    keras: str | int = ""
    keras_layout: str = ""


class WeightRule(Frozen, frozen=True):
    """How some weights of one side make those of the other; `parity.pairs.transfer` says what the fields do."""

    torch: str | list[str]
    keras: str | list[str]
    rearrange: str = ""
    sizes: dict[str, Positive] = {}
    order: list[Count] = []
    each: str = ""
    combine: Literal["join", "sum", "copy"] = "join"


class Ignore(Frozen, frozen=True):
    """Globs of weights that one side has and the other does not need."""

    torch: list[str] = []
    keras: list[str] = []


class Expect(Frozen, frozen=True):
    """An accepted difference (docs/accepting.md): of a cause, or of a size at a place. It fails when it does not occur.

    `where`: a glob of modules and tensors. `largest_difference`: between the float64 runs, absolute. `at_most_bits`:
    how many of the bits that a match needs may be missing.
    """

    reason: Text
    cause: str = ""
    where: Text = "*"
    largest_difference: Annotated[float, Meta(gt=0.0)] | None = None
    at_most_bits: Annotated[float, Meta(gt=0.0)] | None = None

    @property
    def names_cause(self) -> bool:
        """Whether it is of a cause that is known."""
        return self.cause not in ("", UNKNOWN)

    @property
    def has_size(self) -> bool:
        """Whether it says how large the difference may be."""
        return self.largest_difference is not None or self.at_most_bits is not None

    def __post_init__(self) -> None:
        if self.largest_difference == float("inf") or self.at_most_bits == float("inf"):
            raise ValueError("an infinite size accepts anything; expected a number")
        if self.names_cause:
            return
        if not self.has_size:
            what = f"whose cause is {self.cause!r}" if self.cause else "without a cause"
            raise ValueError(
                f"an expectation {what} accepts anything; "
                "expected the name of a cause, or largest_difference or at_most_bits with where"
            )
        if not NAMED.search(OPEN.sub("", self.where)):
            raise ValueError(
                f"where is {self.where!r}, everything; without a cause expected the place of the difference"
            )


class Train(Frozen, frozen=True):
    """Training steps. A function of the user's ("module:function") takes the place of a built-in loss or optimizer.

    A loss is called as f(outputs, target), the optimizers' as f(parameters) in torch and f() in Keras.
    """

    loss: Literal["mse", "cross_entropy"] = "mse"
    torch_loss: str = ""
    keras_loss: str = ""
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    torch_optimizer: str = ""
    keras_optimizer: str = ""
    learning_rate: Annotated[float, Meta(gt=0.0)] = 0.0078125
    steps: Positive = 3

    def __post_init__(self) -> None:
        for what in ("loss", "optimizer"):
            if bool(getattr(self, f"torch_{what}")) != bool(getattr(self, f"keras_{what}")):
                raise ValueError(f"torch_{what} and keras_{what} belong together: received only one of them")


class Pair(Frozen, frozen=True, tag_field="kind", tag="pair"):
    """Two builders ("module:function") and what is known of them. Without `train`: one forward and its gradients."""

    torch: Text
    keras: Text
    inputs: dict[str, PairInput]
    kwargs: dict[str, Any] = {}
    torch_kwargs: dict[str, Any] = {}
    keras_kwargs: dict[str, Any] = {}
    outputs: dict[str, PairOutput] = {}
    weights: list[WeightRule] = []
    ignore: Ignore = Ignore()
    expect: list[Expect] = []
    train: Train | None = None

    def __post_init__(self) -> None:
        if not set(self.inputs) - {TARGET}:
            raise ValueError("a pair needs at least one input, e.g. [inputs.x] with shape = [2, 8]")

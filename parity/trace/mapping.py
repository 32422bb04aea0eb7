"""The correspondence of a pair's two models: of their weights, and of the tensors that their modules return.

By it the tensors of the two traces are chosen that can be compared.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from parity.config.pair import WeightRule
from parity.config.sides import Side
from parity.core.errors import BackendError, UsageError
from parity.trace import keys


class Entry(WeightRule, frozen=True):
    """A weight rule with exact names instead of patterns; `by` is the evidence that the weights correspond."""

    torch: list[str]
    keras: list[str]
    by: Literal["rule", "name", "order", "shape", "value", "run"] = "order"

    @property
    def orders_inputs(self) -> bool:
        """Return whether Keras's weight takes its inputs in an order that is listed: `each` would order outputs."""
        return bool(self.order and not self.each)


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """A weight without a counterpart; `candidates` are weights of the other side that it may be, `note` says why."""

    side: str
    name: str
    shape: tuple[int, ...]
    candidates: list[str] = []
    note: str = ""


class Unlike(msgspec.Struct, frozen=True, kw_only=True):
    """How both builders' values of a tensor differ, in words; `entry` would load torch's, if any can.

    `cause` is the cause's id.
    """

    torch: str
    keras: str
    said: str
    entry: Entry | None = None
    cause: str = "buffer.values"


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that loads torch's values, times `factor`, into these ranges of elements of each Keras variable."""

    entry: Entry
    runs: dict[str, list[tuple[int, int]]]
    factor: float = 1.0


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    """The correspondence of all weights of both sides.

    `constants`: buffers of torch and untrained variables of Keras that need no counterpart.
    `changing`: buffers of torch that training changes although Keras has no counterpart.
    `ignored`: weights of both sides that the user's pair file leaves out.
    `unused`: by side, weights without a counterpart that take part in nothing that is compared.
    `still`: weights of Keras without a counterpart that are zeros which training cannot move.
    `assumptions`: sentences on weights that were mapped to each other although their names do not say so.
    `contradicted`: those assumptions that disagree with the order in which both sides create the unnamed modules.
    `exchanged`: messages on modules that were mapped by name, but reproduce the output of Keras's model only if they
    are exchanged; by the first torch module of each group.
    `unlike`: by torch's name, values of both builders that differ: each side keeps its own.
    `partial`: tables that are random in part, of which each side keeps what it computes otherwise than the other.
    `unfilled`: values that Keras's builder leaves at 0 or 1, where torch's were loaded, if that makes a difference; or
    that training changes and both builders begin with others.
    """

    entries: list[Entry]
    unplaced: list[Unplaced] = []
    constants: list[str] = []
    changing: list[str] = []
    ignored: list[str] = []
    unused: dict[str, list[str]] = {}
    still: list[str] = []
    assumptions: list[str] = []
    contradicted: list[str] = []
    exchanged: dict[str, str] = {}
    unlike: dict[str, Unlike] = {}
    unfilled: dict[str, Unlike] = {}
    partial: list[Partial] = []

    @property
    def left_out(self) -> set[str]:
        """Return the weights of both sides that the user's file leaves out, or that change nothing."""
        return {*self.ignored, *self.still, *(name for names in self.unused.values() for name in names)}


def counts(name: str) -> str:
    """Return the sentence on a buffer of torch that only counts calls, and so needs no counterpart."""
    return f"{name} of torch, which only counts the calls in training, needs no counterpart"


def keeps(name: str) -> str:
    """Return the sentence on a variable of Keras that changes in training, and for which torch has no weight."""
    return f"{name} of keras, which changes in training, has no counterpart in torch: it begins as its builder has it"


class UnmappedError(UsageError):
    """A pair cannot be mapped or compared; `mapping` is what was found of its weights, the others in `unplaced`."""

    def __init__(self, message: str, mapping: Mapping) -> None:
        super().__init__(message)
        self.mapping = mapping


class MappedError(BackendError):
    """A backend failed after the weights were mapped; `mapping` is what was found."""

    def __init__(self, message: str, mapping: Mapping) -> None:
        super().__init__(message)
        self.mapping = mapping


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that a Keras layer returned, and its counterpart in torch, both by key.

    The Keras tensor is brought into torch's form by transposing it to the order `axes` and reshaping it to torch's
    shape. `inputs` is the axis order for the layer's input, None where inputs are not compared. `by`: the evidence,
    that the layers have the same weights, that the values are equal, or the position in the order of execution.
    """

    torch: str
    keras: str
    axes: list[int]
    inputs: list[int] | None = None
    by: Literal["weights", "value", "order"]


class Fed(msgspec.Struct, frozen=True, kw_only=True):
    """A module and a layer given the same (by these `axes`), of which only one has its activation built in."""

    torch: str
    keras: str
    axes: list[int]


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """All tensors that correspond, and in `torch_alone` and `keras_alone` the keys of those without a counterpart."""

    matches: list[Match]
    torch_alone: list[str] = []
    keras_alone: list[str] = []
    # By key, outputs of the models whose axes Keras orders differently, with the einops pattern from torch's order.
    layouts: dict[str, str] = {}
    fed: list[Fed] = []  # further modules and layers whose inputs are compared
    # Torch's tensors that had the values of their counterpart in inference, with the initial weights
    equal: list[str] = []
    hidden: list[str] = []  # those that float32 could not tell from it
    not_compared: list[str] = []  # sentences on returned values that are neither tensors nor numbers
    returns_alike: bool = True  # whether the models return the same tensors; else none of these is compared

    @property
    def modules_with_inputs(self) -> set[str]:
        """Return torch's modules whose inputs are compared."""
        by_match = {match.torch.partition("#")[0] for match in self.matches if match.inputs is not None}
        return by_match.union(each.torch for each in self.fed)


class PairContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend needs to record its model of a pair."""

    search: list[str]  # the folders in which the user's Python modules are searched for
    # The folder of torch's survey. `mapping` and `matching` are None in torch's jobs, because torch is the reference
    # and its names are kept.
    survey: str = ""
    mapping: Mapping | None = None
    matching: Matching | None = None
    # What is done otherwise than in the plain run, where sides of the pair's file are compared.
    side: Side | None = None
    evaluates: bool = False  # the model is called in inference before each training step, as a validation does
    # By the number of their elements, torch's masks in the order in which Keras's model draws its own.
    draws: dict[int, list[int]] = {}

    @property
    def matches(self) -> list[Match]:
        """Return the tensors that correspond, as far as they are known."""
        return self.matching.matches if self.matching else []

    @property
    def layouts(self) -> dict[str, str]:
        """Return the axis orders of the outputs of Keras's model, by key."""
        return self.matching.layouts if self.matching else {}


def comparable(mapping: Mapping | None, matching: Matching | None) -> Callable[[str], bool]:
    """Return whether a key of torch's trace has a counterpart; without mapping and matching each has."""
    if mapping is None or matching is None:
        return lambda key: True
    returned = {match.torch for match in matching.matches}
    known = sorted((*returned, *matching.torch_alone), key=keys.number)
    numbers = {key.partition("#")[0]: keys.number(key) + 1 for key in known}  # of outputs in one of several passes
    fed = matching.modules_with_inputs
    unmatched = mapping.left_out.union(mapping.constants)

    def is_comparable(key: str) -> bool:
        kind, name = keys.split(key)
        plain = name.partition("#")[0]
        if kind == "activation":
            own = keys.number(name) % numbers.get(plain, 1)
            return name.startswith(keys.MODEL) or keys.numbered(plain, own) in returned
        if kind == "input":
            return plain in fed or plain in keys.MODEL_INPUTS
        return keys.parameter(kind, name) not in unmatched

    return is_comparable

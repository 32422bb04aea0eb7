"""Which weights of Keras are which of torch's, and what corresponds among the activations: the structs."""

from typing import Literal

import msgspec

from parity.config.pair import WeightRule
from parity.core.errors import UsageError


class Entry(WeightRule, frozen=True):
    """A rule for named weights, without patterns. `by`: how it was found."""

    torch: list[str]
    keras: list[str]
    by: Literal["rule", "name", "order", "shape", "run"] = "order"


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """A weight that nothing was found for. `candidates`: the other side's that could be meant; `note`: why."""

    side: str
    name: str
    shape: tuple[int, ...]
    candidates: list[str] = []
    note: str = ""


class Unlike(msgspec.Struct, frozen=True, kw_only=True):
    """How the values that both builders gave to one tensor differ: each side's in words, and all in a sentence.

    `entry`: what would load torch's.
    """

    torch: str
    keras: str
    said: str
    entry: Entry


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    """All weights of both sides.

    `constants`: buffers, or Keras variables that are not trained, that need no counterpart. `changing`: torch's buffers
    that training changes and Keras has no counterpart of. `ignored`: by the user's wish, both sides. `assumptions`: in
    sentences, what was taken to belong together although no name says so; `contradicted`: those of them that are not
    the order in which both sides create what they do not name. `exchanged`: by the first of torch's modules, those
    whose names say which is which, and that return what Keras's model returns only the other way round. `unlike`: by
    torch's name, what both builders compute and differ in: each side keeps its own. `unfilled`: those that Keras's
    leaves at 0 or 1, and that hold torch's values.
    """

    entries: list[Entry]
    unplaced: list[Unplaced] = []
    constants: list[str] = []
    changing: list[str] = []
    ignored: list[str] = []
    assumptions: list[str] = []
    contradicted: list[str] = []
    exchanged: dict[str, str] = {}
    unlike: dict[str, Unlike] = {}
    unfilled: dict[str, Unlike] = {}


def counts(name: str) -> str:
    """What is assumed of a buffer of torch's that counts the calls."""
    return f"{name} of torch, which only counts the calls in training, needs no counterpart"


class UnmappedError(UsageError):
    """Weights without a counterpart. `mapping`: what was found, and what was not."""

    def __init__(self, message: str, mapping: Mapping) -> None:
        super().__init__(message)
        self.mapping = mapping


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that Keras's layer returned, and the one of torch's that it corresponds to, both by key.

    Its canonical form: the axes in the order of `axes`, then reshaped to torch's shape. `inputs`: the same for what
    goes into the layer, None where that is not compared. `by`: they belong to layers of the same weights, have the
    same values, or stand at the same place in the order of execution.
    """

    torch: str
    keras: str
    axes: list[int]
    inputs: list[int] | None = None
    by: Literal["weights", "value", "order"]


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """All tensors that correspond, and the keys of those that have no counterpart.

    `layouts`: by key, the models' outputs whose layers have other axes in Keras, with the einops pattern from torch's.
    `equal`: torch's tensors that had the same values in inference, with the initial weights. `not_compared`: in
    sentences, what the models returned that is neither a tensor nor a number.
    """

    matches: list[Match]
    torch_alone: list[str] = []
    keras_alone: list[str] = []
    layouts: dict[str, str] = {}
    equal: list[str] = []
    not_compared: list[str] = []


class PairContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a job of a pair needs to know. `search`: where modules are looked for; `survey`: torch's survey's folder.

    Of torch's jobs mapping and matching are None: it is the reference.
    """

    search: list[str]
    survey: str = ""
    mapping: Mapping | None = None
    matching: Matching | None = None

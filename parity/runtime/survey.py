"""Surveys: each side's description of its model of a pair, made before anything is compared.

A survey is a folder: survey.json, activations.safetensors (what the modules returned in one forward pass in
inference, floats as float64; in a certificate, excerpts.safetensors has what is large), built.safetensors (the values
that the user's builder gave to all that is neither trained nor a statistic: torch's at the run precision, in
exact.safetensors in float64), and from torch weights.safetensors, the values that both sides start from.
drawn.safetensors has what the builder gave with other seeds.
Module and weight names are the framework's own: with dots in torch, with slashes in Keras.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from parity.core import random
from parity.core.arrays import Array, Floats
from parity.core.errors import TraceError
from parity.core.groups import grouped
from parity.core.plain import plain
from parity.runtime.returned import Path as Keys
from parity.runtime.returned import Returned
from parity.trace import keys, validate
from parity.trace.summary import Summary
from parity.trace.tensorfile import TensorFile, Writer

LARGEST = 1 << 26  # bytes that survey.json may have
LARGE = 1 << 25  # weights from which on a model is large
ROOM = 1 << 16  # bytes that the header of a file of tensors is given
FILE, ACTIVATIONS, WEIGHTS = "survey.json", "activations.safetensors", "weights.safetensors"
EXCERPTS = "excerpts.safetensors"
BUILT, EXACT, DRAWN = "built.safetensors", "exact.safetensors", "drawn.safetensors"


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A call in a user's file: lines are counted from 1, columns in bytes of UTF-8 from 0, as in Python's code."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """How the user's code makes an object."""

    source: str  # the user's line that runs at that time, as "file:line"
    # The call that makes the object, the call of the function that this one stands in, and so on outwards, as long as
    # it is the user's own code; empty if a library makes the object.
    calls: list[Frame] = []
    # The calls of super().__init__() in the user's classes that the object is of, the innermost first. `positional`,
    # `keywords`: the names of the arguments that its class takes.
    initialisers: list[Frame] = []
    positional: list[str] = []
    keywords: list[str] = []


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """A module or layer, for whose `kind` both frameworks use the same names (kinds.py)."""

    path: str
    kind: str
    facts: dict[str, Any] = {}  # further settings by which modules of one kind differ, e.g. the number of heads
    label: str | None = None  # the path with attribute names in place of names that Keras numbered (dense_1)
    # The same without the numbered names for which there is no attribute. Both are None if they equal the path.
    chosen: str | None = None
    made: Made | None = None  # where the user's code makes the module


class Weight(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter or buffer."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    module: str
    role: str  # its attribute name in its module
    trainable: bool
    statistic: bool = False  # it is not trained but changes in training, such as a batch norm's moving average
    constant: bool = False  # any other buffer of torch, such as a table or a mask
    # A Keras variable that is no statistic and was created untrainable, and not frozen with its layer.
    fixed: bool = False
    # Untrained, with other values than the framework's modules begin with by default: the builder chose them.
    chosen: bool = False
    also: list[str] = []  # other names that the framework has for it


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that a module returned; `key` is the module's path, with #1, #2... for its further tensors."""

    key: str
    module: str
    shape: tuple[int, ...]


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """What a forward pass in training mode does that one in inference does not, observed with a dropout rate of 0."""

    masks: list[int] = []  # for each dropout mask in the order of drawing, the number of elements of its tensor
    drawn: dict[str, int] = {}  # for each returned tensor, by key, how many masks had been drawn before it was returned
    # Buffers, or untrained variables, that the pass (or one more) changed, without the statistics of norm layers, which
    # always change.
    changing: list[str] = []
    counting: list[str] = []  # those of them that only count passes (parity.pairs.causes.training.is_counter)
    # What the model returned, and `trained`: the first float tensor of it, which a built-in loss takes; recorded for
    # torch only.
    returned: Returned = Returned()
    trained: Seen | None = None

    def behind(self, key: str, size: int) -> int | None:
        """Return how many masks of `size` elements were drawn before the tensor `key` was returned; None if never."""
        return self.masks[: self.drawn[key]].count(size) if key in self.drawn else None


class Law(msgspec.Struct, frozen=True, kw_only=True):
    """The normal law by which a large weight's numbers are drawn anew, within the smallest and largest of its own."""

    mean: float
    deviation: float
    smallest: float
    largest: float

    @classmethod
    def of(cls, values: Array) -> "Law":
        """Return the law of some values."""
        exact = values.astype(np.float64)
        smallest, largest = float(exact.min()), float(exact.max())
        return cls(mean=float(exact.mean()), deviation=float(exact.std()), smallest=smallest, largest=largest)

    def drawn(self, seed: int, name: str, shape: tuple[int, ...], precision: str) -> Floats:
        """Return the numbers of a weight, representable at a precision, as float32."""
        values = random.normal(seed, f"drawn/{name}", shape)
        values = np.clip(self.mean + self.deviation * values, self.smallest, self.largest)
        return random.representable(values, precision).astype(np.float32)


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one side's model.

    `modules`, `weights`: in the order of their definition. `called`: modules in the order of their first calls.
    `tied`: further names of shared weights, with their name in `weights`. `outputs`: the returned tensors in the order
    of their return, those of the whole model last. `unnamed`: outputs of the model that [outputs] does not name.
    `arguments`: the shapes of the tensors passed to each module's first call, for modules without submodules.
    `created`: Keras's layers in the order of their creation, which in torch is that of their definition.
    `rehearsal`: the forward pass in training mode, if it could run. `returned`: what the whole model returned in
    inference; empty if the pair file has [outputs]. `is_mode_lost`: Keras's `call` takes no `training`, so that fit
    calls the model without it. `overridden`: the methods of keras.Model's that a user calls and that its class has of
    its own. `optimizer`: where the user's own optimizer is made, on Keras's side. `unused`: weights that take part in
    nothing that is compared, and `still`: those of Keras's that are zeros which training cannot move; of Keras's model
    only if it was asked for. `laws`: by name, the laws of the weights whose initial values were drawn anew. `outside`:
    Keras's layers with weights that were made with the model and are no part of it, in words. `copies`: untrained
    weights that begin with the values of trained ones, as those of a target network or of a moving average do.
    """

    side: str
    modules: list[Module]
    weights: list[Weight]
    called: list[str]
    tied: dict[str, str] = {}
    outputs: list[Seen] = []
    unnamed: list[str] = []
    arguments: dict[str, list[tuple[int, ...]]] = {}
    created: list[str] = []
    rehearsal: Rehearsal = Rehearsal()
    returned: Returned = Returned()
    is_mode_lost: bool = False
    overridden: list[str] = []
    optimizer: Made | None = None
    unused: list[str] = []
    still: list[str] = []
    laws: dict[str, Law] = {}
    outside: list[str] = []
    copies: list[str] = []

    @property
    def is_large(self) -> bool:
        """Return whether the model has so many weights that each of its calls takes long."""
        return sum(math.prod(weight.shape) for weight in self.weights) > LARGE

    def keys(self, training: bool) -> list[Keys]:
        """Return the paths of the model's outputs in training or inference mode; empty if none of them is named."""
        return (self.rehearsal if training else self).returned.keys

    def kind(self, path: str) -> str:
        """Return the kind of the module at a path; "" if there is no such module."""
        return next((module.kind for module in self.modules if module.path == path), "")

    def made(self, path: str) -> Made | None:
        """Return where the module at a path is made; None if that is not known."""
        return next((module.made for module in self.modules if module.path == path), None)


def write(folder: Path, survey: Survey) -> None:
    """Write survey.json into the folder."""
    (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(survey, enc_hook=plain), indent=1))


def read(folder: Path) -> Survey:
    """Read survey.json from the folder. Raises TraceError."""
    try:
        return msgspec.json.decode(validate.whole(folder / FILE, LARGEST), type=Survey)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TraceError(f"{folder / FILE}: cannot be read: {error}") from None


def activations(folder: Path) -> dict[str, Array]:
    """Return the tensors that the modules returned, by key, as float64 or integers. Raises TraceError.

    Of those that are large, the survey in a certificate holds excerpts (parity.pairs.activations.values).
    """
    whole = dict(TensorFile(folder / ACTIVATIONS))
    if not (folder / EXCERPTS).exists():
        return whole
    shapes = {seen.key: seen.shape for seen in read(folder).outputs}
    excerpts = {key: Summary.of(numbers, shapes[key]) for key, numbers in TensorFile(folder / EXCERPTS).items()}
    return whole | excerpts


def built(folder: Path, file: str = BUILT) -> dict[str, Array]:
    """Return what the builder gave to all that is neither trained nor a statistic, by name. Raises TraceError."""
    return dict(TensorFile(folder / file))


def copies(untrained: Iterable[tuple[str, Array]], trained: Iterable[Any], array: Callable[[Any], Array]) -> list[str]:
    """Return the names of untrained weights that hold the values of a trained one, whose numbers `array` returns."""
    by_shape = grouped(trained, lambda weight: tuple(weight.shape))
    return [
        name
        for name, held in untrained
        if any(np.array_equal(held, array(each)) for each in by_shape.get(held.shape, ()))
    ]


def drawn(folder: Path) -> list[dict[str, Array]]:
    """Return what the builder gave with each of several seeds, by name. Raises TraceError."""
    builds: dict[str, dict[str, Array]] = {}
    for key, array in TensorFile(folder / DRAWN).items():
        number, _, name = key.partition(":")
        builds.setdefault(number, {})[name] = array
    return list(builds.values())


def writer(file: Path) -> Writer:
    """Return a writer of a file of tensors; one of an earlier survey, which may be mapped into memory, stays intact."""
    file.unlink(missing_ok=True)
    return Writer(file, ROOM)


def keep(file: Path, arrays: Iterable[tuple[str, Array]]) -> None:
    """Write tensors to a file."""
    kept = writer(file)
    for name, array in arrays:
        kept.add(name, array)
    kept.close()


class Pass:
    """What the modules of a model return in one forward pass, written to a file as it comes; `outputs` lists it."""

    def __init__(self, folder: Path) -> None:
        self.outputs: list[Seen] = []
        self._writer, self._repeats = writer(folder / ACTIVATIONS), Counter[str]()

    def add(self, module: str, array: Array, key: str = "") -> None:
        """Add a tensor that a module returned, floats as float64; without a key, it is the module's next one."""
        if not key:
            repeat = self._repeats[module]
            self._repeats[module] += 1
            key = keys.numbered(module, repeat)
        array = array if array.dtype.kind in "iub" else array.astype(np.float64)
        self._writer.add(key, array)
        self.outputs.append(Seen(key=key, module=module, shape=array.shape))

    def close(self) -> None:
        self._writer.close()


class Initial(Mapping[str, Floats]):
    """The initial weights of both sides, by torch's names, as float64; each is read from the file on access."""

    def __init__(self, folder: Path) -> None:
        self._file = TensorFile(folder / WEIGHTS)
        self._names = [name for name, array in self._file.items() if array.dtype.kind == "f"]

    def __getitem__(self, name: str) -> Floats:
        return np.asarray(self._file[name]).astype(np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

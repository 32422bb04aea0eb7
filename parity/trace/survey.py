"""What each side tells of its half of a pair before anything is compared, framework-free.

A survey is a folder: survey.json, activations.safetensors (what one forward pass in inference gave, in
float64 as far as it is float), built.safetensors (what the user's builder gave to all that is neither trained nor a
statistic), and from torch weights.safetensors: the values that both sides start from.
Names are the side's own: dots on torch's, slashes on Keras's.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from parity.core.arrays import Array, Floats
from parity.core.errors import TraceError
from parity.trace import validate
from parity.trace.returned import Path as Keys
from parity.trace.returned import Returned
from parity.trace.tensorfile import TensorFile

LARGEST = 1 << 26  # bytes of a survey without its tensors
FILE, ACTIVATIONS, WEIGHTS = "survey.json", "activations.safetensors", "weights.safetensors"
BUILT = "built.safetensors"


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """A module or layer. `kind`: of the common names (README); `facts`: what else tells modules apart, e.g. heads.

    `label`: the path with the names of attributes in place of those that Keras counted (dense_1); `chosen`: without
    those for which there is no attribute. Both None where they are the path.
    """

    path: str
    kind: str
    facts: dict[str, Any] = {}
    label: str | None = None
    chosen: str | None = None


class Weight(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter or buffer. `role`: its attribute in its module; `also`: other names that the framework gives it.

    `statistic`: it is not trained, yet changes in training, as a batch norm's moving average does. `constant`: any
    other buffer of torch's, such as a table or a mask. `fixed`: a variable of Keras's that is no statistic and was
    made untrained, and not frozen with its layer.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    module: str
    role: str
    trainable: bool
    statistic: bool = False
    constant: bool = False
    fixed: bool = False
    also: list[str] = []


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that a module returned. `key`: the path, and #1, #2... for its further tensors of the pass."""

    key: str
    module: str
    shape: tuple[int, ...]


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """What a forward pass in training mode does beside that in inference, as seen with dropouts that drop nothing.

    `masks`: of each that is drawn, in order, the elements of the tensor that it is for. `drawn`: by the key of each
    tensor that a module returned, how many had been drawn by then. `changing`: buffers, or variables that are not
    trained, that are not what they were before, or after one more pass; statistics of norms, which always change, are
    none of them. `counting`: those among them that only count the passes (parity.pairs.moved.is_counter).
    `returned`: of torch's.
    """

    masks: list[int] = []
    drawn: dict[str, int] = {}
    changing: list[str] = []
    counting: list[str] = []
    returned: Returned = Returned()

    def behind(self, key: str, size: int) -> int | None:
        """How many masks for tensors of this size had been drawn when a tensor was returned; None if it was not."""
        return self.masks[: self.drawn[key]].count(size) if key in self.drawn else None


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """One side's half.

    `modules` and `weights` in the order of their definition. `called`: modules in the order of their first calls.
    `tied`: further names of a weight, with the name that it has among `weights`. `outputs`: in the order in which
    they were returned, the whole model's last; `unnamed`: the model's that [outputs] leaves out. `arguments`: the
    shapes of the tensors that went into each module's first call, for those modules that have none within them.
    `rehearsal`: of training, where it could run.
    `drawn`: torch's parameters that are not trained and that another seed makes other ones.
    `returned`: what the whole model returned in inference; nothing where the file has [outputs].
    """

    side: str
    modules: list[Module]
    weights: list[Weight]
    called: list[str]
    tied: dict[str, str] = {}
    outputs: list[Seen] = []
    unnamed: list[str] = []
    arguments: dict[str, list[tuple[int, ...]]] = {}
    rehearsal: Rehearsal = Rehearsal()
    drawn: list[str] = []
    returned: Returned = Returned()

    def keys(self, training: bool) -> list[Keys]:
        """Of what the whole model returns in that mode, in order; none where nothing of it has a key."""
        return (self.rehearsal if training else self).returned.keys

    def kind(self, path: str) -> str:
        """Of a module; "" if there is none of that path."""
        return next((module.kind for module in self.modules if module.path == path), "")


def write(folder: Path, survey: Survey) -> None:
    """Leave it there."""
    (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(survey), indent=1))


def read(folder: Path) -> Survey:
    """Raises TraceError."""
    try:
        return msgspec.json.decode(validate.whole(folder / FILE, LARGEST), type=Survey)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TraceError(f"{folder / FILE}: cannot be read: {error}") from None


def activations(folder: Path) -> dict[str, Array]:
    """What the modules returned, by key, float64 or whole numbers. Raises TraceError."""
    return dict(TensorFile(folder / ACTIVATIONS))


def built(folder: Path) -> dict[str, Array]:
    """What the builder gave to all that is neither trained nor a statistic, by name. Raises TraceError."""
    return dict(TensorFile(folder / BUILT))


class Initial(Mapping[str, Floats]):
    """The values that both sides start from, by torch's names, as float64: each is read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._file = TensorFile(folder / WEIGHTS)
        self._names = [name for name, array in self._file.items() if array.dtype.kind == "f"]

    def __getitem__(self, name: str) -> Floats:
        return np.asarray(self._file[name]).astype(np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

"""What a pair of training scripts was seen to train on, as it is written for the runs that are compared.

And which tensors of the loss of PyTorch's are the targets of its port, and whether their data is of one scale.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from parity.config.pair import TARGET
from parity.core.arrays import Array

IGNORED = -100  # the ignore_index of PyTorch's losses, unless they are given another one
FOLDER, FILE, VALUES, UNLIKE = "scripts", "trained.json", "parity_batches.npz", "parity_unlike.npz"
# Before the names of what is in a batch, what modules are given first, and, with a number, layers within others.
BATCH, GIVEN, INNER = "batch.", "given.", "inner"
FIRST = "first."  # before the names of what is in the first samples of a dataset, in its order
OF_LOSS = "of_loss."  # and a number: what a loss takes, until it has a name
OPTIONS = (bool, int, float, str, type(None))  # arguments beside tensors that a record can hold
PART = "part."  # before the name of what a loss takes: the part that it takes of that
Shapes = dict[str | int, list[int]]  # by key or index
Batches = Mapping[str, Array]  # by NAME, or NAME@STEP


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """How a step calls a layer, by its number in the model (0: itself).

    {"tensor": N} is the Nth tensor given, {"output": N} the Nth that the calls before have returned; with "classes",
    the former is given as so many numbers for each id of a class.
    """

    layer: int
    args: list[Any]
    kwargs: dict[str, Any]

    def numbers(self, kind: str) -> list[int]:
        """Return the numbers of the tensors, or outputs, that are given."""
        numbers = (value.get(kind) for value in self._nested())
        return [number for number in numbers if isinstance(number, int)]

    def classes(self) -> dict[int, int]:
        """Return how many numbers stand for an id, by the number of the tensor that holds ids."""
        return {value["tensor"]: value["classes"] for value in self._nested() if "classes" in value}

    def renumbered(self, numbers: Mapping[int, int]) -> "Called":
        """Return the same call with other numbers of the tensors, by the own ones."""
        classes = self.classes()
        placed = [
            {"tensor": numbers.get(own, own)} | ({"classes": classes[own]} if own in classes else {})
            for own in range(1 + max(numbers, default=0))
        ]
        args, kwargs = self.given(placed)
        return Called(layer=self.layer, args=args, kwargs=kwargs)

    def _nested(self) -> list[dict[str, Any]]:
        nested: list[Any] = [self.args, self.kwargs]
        for value in nested:
            nested += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [value for value in nested if isinstance(value, dict)]

    def given(self, tensors: Sequence[Any], outputs: Sequence[Any] = ()) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments with these tensors, and what has been returned."""

        def placed(value: Any) -> Any:
            if isinstance(value, list):
                return [placed(each) for each in value]
            if isinstance(value, dict):
                for kind, of_kind in (("tensor", tensors), ("output", outputs)):
                    if isinstance(number := value.get(kind), int):
                        return of_kind[number]
                return {key: placed(each) for key, each in value.items()}
            return value

        return placed(self.args), placed(self.kwargs)


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """How a script trains on the batches of its DataLoader or dataset, where its steps may begin with them.

    `first`: the number of the first batch that is trained on, of all that are taken; `modules`: those that are trained,
    by name, with their numbers among all that the script makes; `names`: the pair's inputs by the names in a batch, ""
    for what stays as it is; `returned`: the shapes of what the modules return when they are called first; `takes`: what
    of the batch each module, or layer that is called, is given in the step, in turn. `is_several`: whether there are
    several modules, or backward passes for a batch; of PyTorch's, `is_random`: whether random numbers are drawn for
    what they are given, `parts`: from how many DataLoaders a step takes a batch; of Keras's, `makes_more`: whether a
    layer is called again, with what is none of the batch. `calls`: of Keras's step, of which a train_step has no more
    than these and what is returned; `inner`: calls of layers within these, the outermost first, each of which may stand
    in their place. `function`: of which function's own results the batches are, or of Keras's the arguments, if there
    is no DataLoader or dataset.
    """

    first: int = 0
    function: str = ""
    modules: dict[str, int] = {}
    names: dict[str, str] = {}
    returned: list[list[int]]
    is_random: bool = False
    is_several: bool = False
    makes_more: bool = False
    parts: int = 1
    takes: list[list[str]] = []
    calls: list[Called] = []
    inner: "list[Fetched]" = []


class Early(msgspec.Struct, frozen=True, kw_only=True):
    """A call with which the first step of a loop begins, before the one that is differentiated: of what it bootstraps.

    `call`: its number among those of trained modules; `module`: that of the model among all modules made.
    """

    call: int
    module: int


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """A module that a script's steps call and do not train, as a teacher: its number among all, its weights' sizes."""

    number: int
    sizes: list[int]


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """What a script trains on, beside the arrays in the .npz file next to it: the names of its model's inputs.

    Of PyTorch's the number of steps that were asked for; that of the batch which is `unlike` theirs; which of its calls
    in evaluation mode are differentiated, as the script has not gone back to training mode; the inputs that are
    `states`, zero at first, with those of Keras's, and others `alone`, which this is not given; and the names of what
    its loss takes beside the model's outputs, in the order in which it uses that, "" for what is not given. Of Keras's
    `fit` also those of its callbacks that are not run; or whether the script trains in a loop of its own instead. The
    shapes of the model's outputs, by key or index, "" for a single one; of Keras's `fit` only a single one's, or those
    of a model that has no `call` (keras_impl/instruments/uncalled.py).

    `most`: how many steps Keras's `fit` makes, `epoch`: how many batches an epoch has, 0 if that is not known. `early`:
    of a side's loop; `fetched`: where steps begin with a batch, or may. PyTorch's record gets those of Keras's as well.
    `keeps_data`: whether both scripts train on their own batches. `is_distributed`: whether the script makes a process
    group, or a strategy of tf.distribute; `has_copies`: whether it keeps copies of its model, such as averages;
    `are_told`: whether the data tell which inputs and targets correspond. `labels`: what the script's code calls each
    input and what its loss takes, a variable or a key. `compared`: of PyTorch's, the number of the output that is
    compared with each of these; `carried`: the inputs that are zero, or what the model has returned in the step before;
    `targets`: of Keras's `fit`, the key or index of each of several targets. `ends`: digests of the parameters with
    which the steps ended. `sizes`: of the model's weights; `beside`: of PyTorch's, other modules by name that are
    frozen, and parts of Keras's model; `of_beside`: the names of what its loss takes of these; `takes_parts`: whether
    this takes only parts of its targets; `outside`: how many parameters it trains that no module holds. `chain`: the
    modules, or layers, that its step calls one by one, each with what those before return, and in PyTorch's record
    `keras_chain`; `is_held`: whether Keras's loop has a target that no loss of Keras's and no dataset gives. `every`:
    after how many steps it updates its model, not of Keras's loop; `joined`: how many of PyTorch's are one step, where
    they accumulate the gradients of one of Keras's batches, and in PyTorch's record `keras_joined` likewise. `apart`:
    in words, how the targets of samples differ that both scripts' datasets have.
    """

    inputs: list[str]
    asked: int = 0
    unlike: int = 0
    in_evaluation: list[int] = []
    states: list[str] = []
    keras_states: list[str] = []
    alone: list[str] = []
    of_loss: list[str] = []
    callbacks: list[str] = []
    is_loop: bool = False
    most: int = 0
    epoch: int = 0
    early: Early | None = None
    keras_early: Early | None = None
    outputs: Shapes = {}
    fetched: Fetched | None = None
    keras_fetched: Fetched | None = None
    keeps_data: bool = False
    is_distributed: bool = False
    has_copies: bool = False
    are_told: bool = False
    labels: dict[str, list[str]] = {}
    compared: list[int | None] = []
    carried: list[str] = []
    targets: list[str | int] = []
    ends: dict[str, str] = {}
    sizes: list[int] = []
    beside: dict[str, Frozen] = {}
    of_beside: list[str] = []
    takes_parts: bool = False
    outside: int = 0
    is_held: bool = False
    chain: Fetched | None = None
    keras_chain: Fetched | None = None
    every: int = 1
    joined: int = 1
    keras_joined: int = 1
    apart: str = ""

    @property
    def compared_with(self) -> dict[str, int | None]:
        """Return the number of the output that each tensor is compared with which PyTorch's loss takes, by name."""
        return dict(zip((name for name in self.labels if name.startswith(OF_LOSS)), self.compared, strict=False))


def write(folder: Path, trained: Trained, arrays: Mapping[str, Array], unlike: Mapping[str, Array] = {}) -> None:
    """Write what a script trains on into a folder, and a batch that is `unlike` that of each step, if there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / VALUES, allow_pickle=False, **arrays)
    if unlike:
        np.savez(folder / UNLIKE, allow_pickle=False, **unlike)
    (folder / FILE).write_bytes(msgspec.json.encode(trained))


def shapes_of(outputs: Any, is_tensor: Callable[[Any], bool]) -> Shapes:
    """Return the shapes of the tensors that a model returns, by key or index, "" for a single one."""
    parts = dict(enumerate(outputs)) if isinstance(outputs, (list, tuple)) else outputs
    named = parts if isinstance(parts, dict) else {"": parts}
    return {key: list(each.shape) for key, each in named.items() if is_tensor(each)}


def are_rows_of_ids(array: Array) -> bool:
    """Return whether an array holds rows with one number each that is not zero, as one-hot rows are."""
    is_row = array.dtype.kind == "f" and array.ndim > 1 and array.shape[-1] > 1
    return is_row and bool((np.count_nonzero(array, axis=-1) == 1).all())


def of_stem(stem: str, arrays: Batches) -> dict[str, Array]:
    """Return what a loss is given under a name, and under this with a number behind it."""
    return {name: array for name, array in arrays.items() if name.partition(".")[0] == stem}


def names_of_steps(keys: Iterable[str]) -> list[str]:
    """Return the names of arrays that have one for each step, by NAME@STEP, in their order."""
    return list(dict.fromkeys(key.partition("@")[0] for key in keys))


def known(search: Sequence[str]) -> Trained | None:
    """Return what PyTorch's script is known to train on, once it was run."""
    return next((read(Path(folder)) for folder in search if (Path(folder) / FILE).is_file()), None)


def read(folder: Path) -> Trained:
    """Return what was written into a folder."""
    return msgspec.json.decode((folder / FILE).read_bytes(), type=Trained)


class Ran(NamedTuple):
    """What a script was seen to train on."""

    trained: Trained
    arrays: dict[str, Array]

    @classmethod
    def of(cls, folder: Path) -> "Ran":
        return cls(read(folder), dict(np.load(folder / VALUES)))


def names_of_calls(arrays: Mapping[str, Array]) -> list[str]:
    """Return the names of what a model of PyTorch's is given where it is called."""
    first = (key.removesuffix("@0") for key in arrays if key.endswith("@0"))
    return [name for name in first if not name.startswith((BATCH, GIVEN, OF_LOSS, TARGET))]

"""What a pair of training scripts was seen to train on, as it is written for the runs that are compared."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from parity.core.arrays import Array

FOLDER, FILE, VALUES = "scripts", "trained.json", "parity_batches.npz"
# Before the names of what is in a batch, what modules are given first, and, with a number, layers within others.
BATCH, GIVEN, INNER = "batch.", "given.", "inner"
FIRST = "first."  # before the names of what is in the first samples of a dataset, in its order
Shapes = dict[str | int, list[int]]  # by key or index


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """How Keras's step calls a layer, by its number in the model (0: itself); {"tensor": N} is the Nth tensor given."""

    layer: int
    args: list[Any]
    kwargs: dict[str, Any]

    def given(self, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments with these tensors."""

        def placed(value: Any) -> Any:
            if isinstance(value, list):
                return [placed(each) for each in value]
            if isinstance(value, dict):
                number = value.get("tensor")
                return (
                    tensors[number] if isinstance(number, int) else {key: placed(each) for key, each in value.items()}
                )
            return value

        return placed(self.args), placed(self.kwargs)


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """How a script trains on the batches of its DataLoader or dataset, where its steps may begin with them.

    `first`: the number of the first batch that is trained on, of all that are taken; `modules`: those that are trained,
    by name, with their numbers among all that the script makes; `names`: the pair's inputs by the names in a batch, ""
    for what stays as it is; `returned`: the shapes of what the modules return when they are called first. `is_several`:
    whether there are several modules, or backward passes for a batch; of PyTorch's, `is_random`: whether random numbers
    are drawn for what they are given. `calls`: of Keras's step, of which a train_step has no more than these and what
    is returned; `inner`: calls of layers within these, the outermost first, each of which may stand in their place.
    """

    first: int = 0
    modules: dict[str, int] = {}
    names: dict[str, str] = {}
    returned: list[list[int]]
    is_random: bool = False
    is_several: bool = False
    calls: list[Called] = []
    inner: "list[Fetched]" = []


class Early(msgspec.Struct, frozen=True, kw_only=True):
    """A call with which the first step of a loop begins, before the one that is differentiated: of what it bootstraps.

    `call`: its number among those of trained modules; `module`: that of the model among all modules made.
    """

    call: int
    module: int


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """What a script trains on, beside the arrays in the .npz file next to it: the names of its model's inputs.

    Of PyTorch's the number of steps that were asked for, and which of its calls in evaluation mode are differentiated:
    the script has not gone back to training mode; the inputs that are `states`, zero in each step, and others `alone`,
    which Keras's model is not given; and the names of what its loss takes beside the model's outputs, in the order in
    which it uses that, "" for what is not given. Of Keras's `fit` also those of its callbacks that are not run; or
    whether the script trains in a loop of its own instead. The shapes of the model's outputs, by key or index, "" for a
    single one; of Keras's `fit` only a single one's, or those of a model that has no `call`
    (keras_impl/instruments/uncalled.py).

    `most`: how many steps Keras's `fit` makes, 0 if that is not known. `early`: of a side's loop; `fetched`: where
    steps begin with a batch, or may. PyTorch's record gets those of Keras's as well. `keeps_data`: whether both scripts
    train on their own batches. `is_distributed`: whether the script makes a process group, or a strategy of
    tf.distribute; `has_copies`: whether it keeps copies of its model, such as averages; `are_told`: whether the data
    tell which inputs and targets correspond.
    """

    inputs: list[str]
    asked: int = 0
    in_evaluation: list[int] = []
    states: list[str] = []
    alone: list[str] = []
    of_loss: list[str] = []
    callbacks: list[str] = []
    is_loop: bool = False
    most: int = 0
    early: Early | None = None
    keras_early: Early | None = None
    outputs: Shapes = {}
    fetched: Fetched | None = None
    keras_fetched: Fetched | None = None
    keeps_data: bool = False
    is_distributed: bool = False
    has_copies: bool = False
    are_told: bool = False


def write(folder: Path, trained: Trained, arrays: Mapping[str, Array]) -> None:
    """Write what a script trains on into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / VALUES, allow_pickle=False, **arrays)
    (folder / FILE).write_bytes(msgspec.json.encode(trained))


def known(search: Sequence[str]) -> Trained | None:
    """Return what PyTorch's script is known to train on, once it was run."""
    return next((read(Path(folder)) for folder in search if (Path(folder) / FILE).is_file()), None)


def read(folder: Path) -> Trained:
    """Return what was written into a folder."""
    return msgspec.json.decode((folder / FILE).read_bytes(), type=Trained)

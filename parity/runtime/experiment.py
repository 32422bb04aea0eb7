"""Structs of an experiment on a live module: what a backend is asked, and what it answers."""

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

# In the folder of the job: the answers, the changes that are being tried, and those under which a process has ended.
FILE, NOTE, DEADLY = "outcomes.json", "attempt.json", "deadly.json"
LATER: Final = ("loss", "gradient", "buffer", "update")  # kinds of tensors that come after a forward pass


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor of a recorded run, as one side finds it, and as both traces record it."""

    key: str  # its key in both traces
    module: str  # the side's own path of the module that returns it or is given it, "" for the whole model
    # Whether the module returns it, is given it, or whether it is an output of the whole model, in the first forward
    # pass; or what comes later: a loss, a gradient, a buffer, or the updates of the parameters.
    kind: Literal["returned", "given", "output", "loss", "gradient", "buffer", "update"]
    # Its number among the tensors that the module returns or is given in the pass; for an output of the whole model it
    # is found by its key.
    number: int = 0
    each: int = 0  # how many of the tensors that the module is given count at each call; 0 for all
    axes: list[int] | None = None  # the side's axes in torch's order, None where they are torch's own
    shape: list[int] = []  # its shape in the traces
    step: int = 0  # the step of the training that makes it


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A setting and the value with which the other side is reproduced."""

    name: str  # the argument's or attribute's name, or the constant as it is written
    owner: str  # the class or function that has it
    source: str  # "file:line", or ""
    # Argument (of the call), attribute, callable (an attribute that is a function), default, variable, constant,
    # function (the name of one that is called), operator, precision (of the framework), or operation (how an op of the
    # framework is done).
    kind: str
    path: str  # the path of the module that has it, where it is in a module
    of: str  # the kind of the module that has it (kinds.py), "" where it is in no module but in the code
    before: Any  # its value
    after: Any  # the value with which the other side is reproduced


class Mask(msgspec.Struct, frozen=True, kw_only=True):
    """A mask that a module is given: its shape, and one bit for each element, whether it counts."""

    shape: list[int]
    bits: bytes


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of one side: which changes in a module make a tensor what the other side has recorded."""

    module: str  # the side's own path of the module in which to look, "" for the whole model
    tensor: Tensor  # the first tensor that differs
    # The side's own paths of modules that return the same on both sides: nothing is changed in them.
    innocent: list[str]
    # The side's own path of a module in which no single change does it: there is none without one elsewhere.
    tried: str = ""
    own: str  # the folder of the side's own trace
    other: str  # the folder of the other side's trace
    # The values of the other side's settings; None to be told this side's settings only.
    settings: list[Any] | None = None
    named: dict[str, list[Any]] = {}  # those of its arguments and attributes, by their names (causes.NAMES)
    masks: list[Mask] = []  # the masks that the other side's module is given
    given: list[Change] = []  # changes that are made throughout; asked for is what has to be changed as well
    # Whether the module is one around the place, in which settings that have a name are tried first, and of which the
    # code is not changed if it is the whole model.
    wider: bool = False
    # The side's own lines at which both sides' calls part; if there are any, only what stands near them is changed, or
    # is a setting of one of the modules that are `made` there.
    lines: list[str] = []
    made: list[str] = []
    description: str = ""  # a folder in which to describe what the module does instead, or ""
    takes_theirs: bool = False  # whether the module that is described is given what the other side's was given
    # Tensors that differ, in the order of the pass: if there are any, asked is only how many of them, from the first
    # on, can be the other side's while what the whole model returns stays as it is.
    passed: list[Tensor] = []


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that reproduce the other side to `bits` bits, where it is `before` bits without them."""

    changes: list[Change]
    bits: float
    before: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question."""

    settings: list[Any] = []  # the values of all settings in the module, as texts, numbers and lists
    named: dict[str, list[Any]] = {}  # those of arguments and attributes, by their names (causes.NAMES)
    masks: list[Mask] = []  # the masks that the module is given
    found: list[Found] = []  # the sets of changes that reproduce the other side
    harmless: int = 0  # how many of the question's `passed` tensors can be the other side's
    problem: str = ""  # why the module could not be called again as it was, or ""
    # Whether the model returns something else when it is called again with the same weights and inputs.
    keeps_state: bool = False
    # Whether the module does what the other side's does when it is given what the other's was given, with the changes
    # that the question gives.
    same: bool = False


def write(folder: Path, outcomes: list[Outcome]) -> None:
    """Write the answers to all questions of a job."""
    (folder / FILE).write_bytes(msgspec.json.encode(outcomes))


def read(folder: Path) -> list[Outcome]:
    """Read the answers to all questions of a job."""
    return msgspec.json.decode((folder / FILE).read_bytes(), type=list[Outcome])


def note(folder: Path, changes: list[Change]) -> None:
    """Note the changes that are tried next, which may end the process."""
    (folder / NOTE).write_bytes(msgspec.json.encode(changes))


def forget(folder: Path) -> None:
    """Remove the note of changes that did not end the process."""
    (folder / NOTE).unlink()


def deadly(folder: Path) -> list[list[Change]]:
    """Return the sets of changes under each of which a process has ended."""
    file = folder / DEADLY
    return msgspec.json.decode(file.read_bytes(), type=list[list[Change]]) if file.exists() else []


def blame(folder: Path) -> bool:
    """Add the changes under which the process ended to the deadly ones; return False if it was trying none."""
    if not (folder / NOTE).exists():
        return False
    if changes := msgspec.json.decode((folder / NOTE).read_bytes(), type=list[Change]):
        (folder / DEADLY).write_bytes(msgspec.json.encode([*deadly(folder), changes]))
    forget(folder)
    return bool(changes)

"""The model as it was built: its modules, their weights, and what was put on which device."""

from typing import Literal

from parity.doctor.evidence.common import Fact, Occurrence, Tensor
from parity.trace.keys import MODEL


def below(path: str, name: str) -> bool:
    """Return whether module `name` is the module `path` or lies within it."""
    return path == MODEL or name == path or name.startswith((f"{path}.", f"{path}["))


class Module(Fact):
    """A module of the model, once the model is built.

    Attributes:
        source: the line that created it.
        training: its mode while the first step ran.
        registered: False if it is stored in a plain list, dict or closure of another module, where moving and training
            the model do not reach it. `name` then says where it is stored ("layers[0]").
        facts: the settings that rules need: batch_first (bool), rows (of an embedding), frozen (has parameters, and
            none of them is trained).
    """

    name: str
    kind: str
    source: str = ""
    training: bool = True
    registered: bool = True
    facts: dict[str, int | float | bool | str] = {}


class Weight(Fact):
    """A parameter, buffer or optimizer slot, as it was after the first step.

    Attributes:
        name: its path; for an optimizer slot, that of its parameter.
        module: the path of the module that owns it.
        trained: whether it requires a gradient.
    """

    name: str
    module: str
    kind: Literal["parameter", "buffer", "optimizer_state"]
    tensor: Tensor
    trained: bool = True


class Move(Fact):
    """An instruction of the program to put something on a device while it built the model.

    For example `.to`, `device=` or a tf.device scope.

    Attributes:
        whole: whether it moved the whole model at once.
        numbered: whether it names the number of the device, as in "cuda:0".
    """

    device: str
    source: str
    module: str = ""
    whole: bool = False
    numbered: bool = False


class Made(Occurrence):
    """A module with parameters that another one makes and calls while it is called itself.

    Attributes:
        kind: its class.
        parameters: the number of its parameters.
    """

    kind: str
    parameters: int

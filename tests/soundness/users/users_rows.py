"""One row of the users' table, as two models that are run by hand and as a pair. Free of frameworks.

A row's builders are the functions or classes `torch` and `keras` (by default its name) of THEME_torch.py and
THEME_keras.py; the losses, optimizers and steps that its training names are functions there, too.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from parity.asserts import described
from parity.pairs.file import PairFile
from parity.results import CaseResult, Verdict

HERE = Path(__file__).parent
Arrays = dict[str, np.ndarray]
OWN = ("torch_loss", "keras_loss", "torch_optimizer", "keras_optimizer", "torch_step", "keras_step")
NONE: Mapping[str, Any] = {}
Weights = Callable[[Arrays], list[np.ndarray | None]]


class Row(NamedTuple):
    """`why`: what differs, or what makes a suspicious port right.

    weights: Keras's trainable weights, in the order of its layers, of torch's arrays by name. In torch's order if left
        out, kernels transposed. None is what keeps its builder's values.
    tables: Keras's untrained weights by name, of torch's arrays (buffers among them) and of Keras's own values; those
        that are not here keep what their builder gave.
    random: a table that both builders draw, by its name in torch and in Keras: whose moments are compared.
    masks: the model returns several maskings of one tensor along axis 1; what the truth is about is which of them are
        equal, within a step, from step to step, and after training.
    grads: torch's user calls the model with gradients switched on, as it needs them itself.
    before: the two agree before any training. `fields`: of the pair's file.
    varied: variations of the inputs are run too; a port that keeps the batch's size for ever takes no other.
    grows: what is called is one longer along axis 1 in every call.
    also: a verdict that is right as well. refused: part of the message with which the project may refuse the pair.
    """

    name: str
    theme: str
    truth: Literal["same", "differs"]
    why: str
    inputs: dict[str, dict[str, Any]]
    torch: str = ""
    keras: str = ""
    train: Mapping[str, Any] = {}
    torch_kwargs: Mapping[str, Any] = {}
    keras_kwargs: Mapping[str, Any] = {}
    weights: Weights | None = None
    tables: Mapping[str, Callable[[Arrays, np.ndarray], np.ndarray]] = {}
    random: tuple[str, str] | None = None
    masks: bool = False
    grads: bool = False
    before: bool = True
    fields: Mapping[str, Any] = {}
    varied: bool = True
    grows: bool = False
    also: tuple[Verdict, ...] = ()
    refused: str = ""

    @property
    def steps(self) -> int:
        return self.train.get("steps", 3)

    def builder(self, side: str) -> str:
        return getattr(self, side) or self.name


def floats(*shape: int, **fields: Any) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": "float32", **fields}


def ids(*shape: int, below: int, **fields: Any) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": "int64", "range": [0, below], **fields}


def speaks(row: Row, result: CaseResult) -> bool:
    """Whether the verdict is one that the row's truth allows."""
    if result.verdict == "error":
        return bool(row.refused) and row.refused in result.reason
    return result.verdict in (("match",) if row.truth == "same" else ("diverged", "inconclusive")) + row.also


def pair(row: Row, folder: Path) -> PairFile:
    """The pair of a row."""
    train = {key: _function(row, key, value) if key in OWN else value for key, value in row.train.items()}
    file = described(
        *(f"{row.theme}_{side}:{row.builder(side)}" for side in ("torch", "keras")),
        row.inputs,
        folder,
        name=row.name,
        torch_kwargs=dict(row.torch_kwargs),
        keras_kwargs=dict(row.keras_kwargs),
        **({"train": train} if train else {}),
        **row.fields,
    )
    return file._replace(search=[str(HERE), *file.search])


def _function(row: Row, key: str, name: str) -> str:
    return f"{row.theme}_{key.partition('_')[0]}:{name}"

"""One row of the soundness table, as a pair that can be run. Free of frameworks."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

from parity.asserts import Inputs, described
from parity.pairs.file import PairFile
from parity.results import CaseResult, Verdict

HERE = Path(__file__).parent
Truth = Literal["same", "differs", "subprecision", "told", "chaos", "vacuous"]
# What a row's truth allows to be said of it. A difference that no float32 can see is told as one; of a training
# that rounding alone has parted, nothing can be said.
ALLOWED: dict[Truth, tuple[Verdict, ...]] = {
    "same": ("match",),
    "differs": ("diverged", "inconclusive"),
    "told": ("match", "diverged", "inconclusive"),  # a match has a finding, which --strict fails
    "subprecision": ("subprecision", "diverged", "inconclusive"),
    "chaos": ("match", "inconclusive"),
    "vacuous": ("inconclusive",),  # nothing that is finite is left to compare
}


class Row(NamedTuple):
    """`torch`, `keras`: the builders' arguments; `why`: how its truth is known where running both does not show it.

    `also`: a verdict that is right as well, for the reason in `why`.
    """

    name: str
    truth: Truth
    torch: Any
    keras: Any
    inputs: Inputs
    train: dict[str, Any] = {}
    model: str = "chain"
    fields: dict[str, Any] = {}
    why: str = ""
    also: tuple[Verdict, ...] = ()

    @property
    def allowed(self) -> tuple[Verdict, ...]:
        return ALLOWED[self.truth] + self.also


def same(name: str, torch: Any, keras: Any = None, inputs: Any = None, **rest: Any) -> Row:
    return Row(name, rest.pop("truth", "same"), torch, torch if keras is None else keras, inputs or X, **rest)


def differs(name: str, torch: Any, keras: Any, inputs: Any = None, **rest: Any) -> Row:
    return Row(name, rest.pop("truth", "differs"), torch, keras, inputs or X, **rest)


X = {"x": "float32[8,8]"}
LONG = {"x": "float32[2,6,8]"}
IDS = {"x": "int32[4,6]<20"}
IMAGES = {"x": {"shape": [2, 3, 8, 8], "keras_layout": "n c h w -> n h w c"}}


def scaled(scale: float, *shape: int) -> dict[str, Any]:
    return {"x": {"shape": list(shape or (8, 8)), "scale": scale}}


def around(form: str) -> list[str]:
    """A function between two layers."""
    return ["linear 8 16", *form.split("; "), "linear 16 5"]


def training(optimizer: str = "sgd", keras: str = "", steps: int = 3, loss: tuple[str, str] | str = "", **rest: Any):
    """[train] with optimizers of optimizers_table.py and losses of {torch,keras}_training.py."""
    losses = (loss, loss) if isinstance(loss, str) else loss
    own = {"torch_loss": f"torch_training:{losses[0]}", "keras_loss": f"keras_training:{losses[1]}"} if loss else {}
    return {
        "steps": steps,
        "torch_optimizer": f"torch_training:{optimizer}",
        "keras_optimizer": f"keras_training:{keras or optimizer}",
        **own,
        **rest,
    }


def pair(row: Row, folder: Path, precision: str = "float32") -> PairFile:
    """The pair of a row; arrays among its inputs are written below `folder`."""
    argument = {"chain": "steps"}.get(row.model, "")
    given = [{argument: side} if argument else side for side in (row.torch, row.keras)]
    file = described(
        f"torch_models:{row.model}",
        f"keras_models:{row.model}",
        row.inputs,
        folder,
        name=row.name,
        torch_kwargs=given[0],
        keras_kwargs=given[1],
        precision=precision,
        **({"train": row.train} if row.train else {}),
        **row.fields,
    )
    return file._replace(search=[str(HERE), *file.search])


def speaks(row: Row, result: CaseResult) -> bool:
    """Whether the verdict is one that the row's truth allows."""
    if row.truth == "told" and result.verdict == "match":
        return bool(result.findings)
    return result.verdict in row.allowed

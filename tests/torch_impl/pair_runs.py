"""Surveys and recordings of one side of a pair, in this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parity.config import cases
from parity.config.schema import Case
from parity.runtime import survey
from parity.runtime.drive import Account, record
from parity.runtime.job import Job, SurveyJob
from parity.trace.manifest import Trace
from parity.trace.mapping import PairContext
from torch_impl.record import run as side
from torch_impl.record.pair.survey import survey as make_survey

HERE = [str(Path(__file__).parent)]
X = {"x": {"shape": [5, 3]}}
OPTIMIZERS = {"sgd": {"kind": "sgd", "learning_rate": 0.125}, "adam": {"kind": "adam"}}


class Surveyed(NamedTuple):
    told: survey.Survey
    activations: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]


def case(builder: str, inputs: dict[str, Any] | None = None, precision: str = "float32", **fields: Any) -> Case:
    """The case of a pair whose torch half is of pair_models, or of another module by its whole name."""
    torch = builder if ":" in builder else f"pair_models:{builder}"
    model = {"kind": "pair", "torch": torch, "keras": "none:none", "inputs": inputs or X, **fields}
    train = fields.get("train")
    more = {"steps": 1}
    if train is not None:
        optimizer = OPTIMIZERS[train.get("optimizer", "sgd")]
        more = {"steps": 2, "loss": {"kind": train.get("loss", "mse")}, "optimizer": optimizer}
    base = {"name": "pair/own", "devices": 1, "precision": precision, "model": model}
    return cases.convert(base | more, builder)


def surveyed(made: Case, folder: Path) -> Surveyed:
    """The survey of a case in the folder's "survey"."""
    own = folder / "survey"
    make_survey(SurveyJob(case=made, folder=str(own), pair=PairContext(search=HERE)))
    weights = dict(survey.TensorFile(own / survey.WEIGHTS))
    return Surveyed(survey.read(own), survey.activations(own), weights)


def drawn(made: Case, folder: Path, *seeds: int, tables: Sequence[str] = ()) -> list[dict[str, np.ndarray]]:
    """What the builder gives with each seed."""
    context = PairContext(search=HERE)
    folder.mkdir(exist_ok=True)
    make_survey(SurveyJob(case=made, folder=str(folder), pair=context, seeds=list(seeds), tables=list(tables)))
    return survey.drawn(folder)


class Recorded(NamedTuple):
    trace: Trace
    accounts: list[Account]

    def step(self, number: int | None, run: str = "high") -> dict[str, np.ndarray]:
        """The tensors of a step; None is the state before the first."""
        return dict(self.trace.open(run, "initial" if number is None else f"step-{number:06d}"))


class _Listening:
    """The side, its accounts kept."""

    NAME, versions, rank = side.NAME, staticmethod(side.versions), staticmethod(side.rank)

    def __init__(self) -> None:
        self.accounts: list[Account] = []

    def run(self, run: Any) -> Account:
        self.accounts.append(side.run(run))
        return self.accounts[-1]


def recorded(made: Case, folder: Path, runs: tuple[str, ...] = ("low", "high")) -> Recorded:
    """The trace of a case, after its survey."""
    if not (folder / "survey").exists():
        surveyed(made, folder)
    listening = _Listening()
    halves = PairContext(search=HERE, survey=str(folder / "survey"))
    record(Job(case=made, runs=list(runs), folder=str(folder / "trace"), pair=halves), listening)
    return Recorded(Trace(folder / "trace"), listening.accounts)

"""A user's pair whose torch half is made by hand: its survey, and the mapping and matching that follow."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from keras_impl.record import run as side
from keras_impl.record.pair import survey as surveyor
from parity.config.schema import Case
from parity.core import random
from parity.data.pairs import PairData
from parity.pairs import file
from parity.runtime import drive, survey
from parity.runtime.job import Job, SurveyJob
from parity.trace import mapping
from parity.trace.keys import step_file
from parity.trace.manifest import Trace
from parity.trace.mapping import Entry, Match, Matching, PairContext
from parity.trace.tensorfile import Writer

TEXT = """
[pair]
torch = "nowhere:build"
keras = "{module}:build"
"""


class Pair(NamedTuple):
    """A pair in a folder of its own. `torch`: where its torch survey is."""

    folder: Path
    case: Case

    @property
    def torch(self) -> Path:
        return self.folder / "torch"

    def survey(self, found: mapping.Mapping | None = None) -> survey.Survey:
        """Keras's, and its activations beside it in `keras`."""
        own = self.folder / "keras"
        own.mkdir(exist_ok=True)
        halves = PairContext(search=[str(self.folder)], survey=str(self.torch), mapping=found)
        surveyor.survey(SurveyJob(case=self.case, folder=str(own), pair=halves))
        return survey.read(own)

    def drawn(self, *seeds: int, tables: Sequence[str] = ()) -> list[dict[str, np.ndarray]]:
        """What the builder gives with each seed."""
        context, asked = PairContext(search=[str(self.folder)]), {"seeds": list(seeds), "tables": list(tables)}
        surveyor.survey(SurveyJob(case=self.case, folder=str(self.folder), pair=context, **asked))
        return survey.drawn(self.folder)

    def activations(self) -> dict[str, np.ndarray]:
        return survey.activations(self.folder / "keras")

    def reference(self, weights: Mapping[str, np.ndarray], outputs: Mapping[str, tuple[int, ...]], **more: Any) -> None:
        """torch's survey by hand: float64 weights by name, the shapes of what modules return by key."""
        self.torch.mkdir(exist_ok=True)
        writer = Writer(self.torch / survey.WEIGHTS, 1 << 10)
        for name, array in weights.items():
            writer.add(name, array)
        writer.close()
        told = [weight(name, array.shape) for name, array in weights.items()]
        seen = [survey.Seen(key=key, module=key.partition("#")[0], shape=shape) for key, shape in outputs.items()]
        last = next(reversed(outputs)) if outputs else ""
        name = last if last.startswith("(model)") else "(model)"  # the last module's output is the model's
        trained = survey.Seen(key=name, module="", shape=outputs[last]) if outputs else None
        more.setdefault("rehearsal", survey.Rehearsal(trained=trained))
        survey.write(self.torch, survey.Survey(side="torch", modules=[], weights=told, called=[], outputs=seen, **more))

    def record(self, entries: list[Entry], matches: list[Match], *runs: str, ignored: tuple[str, ...] = ()) -> Trace:
        """The trace of runs, the high one if none is named."""
        halves = PairContext(
            search=[str(self.folder)],
            survey=str(self.torch),
            mapping=mapping.Mapping(entries=entries, ignored=list(ignored)),
            matching=Matching(matches=matches),
        )
        target = self.folder / "trace"
        drive.record(Job(case=self.case, runs=list(runs) or ["high"], folder=str(target), pair=halves), side)
        return Trace(target)


def weight(name: str, shape: tuple[int, ...]) -> survey.Weight:
    module, _, role = name.rpartition(".")
    statistic = role.startswith("running")
    return survey.Weight(
        name=name, shape=shape, dtype="float32", module=module, role=role, trainable=not statistic, statistic=statistic
    )


def pair(folder: Path, code: str, toml: str, **changes: Any) -> Pair:
    """`code`: a module with a function `build`; `toml`: what follows the section [pair]."""
    folder.mkdir(exist_ok=True, parents=True)
    module = f"users_{abs(hash((code, str(folder))))}"
    (folder / f"{module}.py").write_text(code)
    (folder / "pair.toml").write_text(TEXT.format(module=module) + toml)
    sys.modules.pop(module, None)
    case = file.load(folder / "pair.toml").case
    return Pair(folder, msgspec.structs.replace(case, **changes))


HEAD = "import keras\nimport tensorflow as tf\nfrom keras import layers as L, ops\n"
MLP = """
class build(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = L.Dense(4, use_bias=False, name="a"), L.Dropout(0.5), L.Dense(3, name="b")
    def call(self, x, training=None):
        return self.b(self.drop(self.a(x)))
"""
X = "[inputs.x]\nshape = [5, 6]\n"
WEIGHTS = {
    name: random.representable(random.normal(1, name, shape), "float32")
    for name, shape in {"a.weight": (4, 6), "b.weight": (3, 4), "b.bias": (3,)}.items()
}
ENTRIES = [
    Entry(torch=["a.weight"], keras=["a/kernel"], rearrange="o i -> i o"),
    Entry(torch=["b.weight"], keras=["b/kernel"], rearrange="o i -> i o"),
    Entry(torch=["b.bias"], keras=["b/bias"]),
]
MATCHES = [
    Match(torch="a", keras="a", axes=[0, 1], inputs=[0, 1], by="weights"),
    Match(torch="b", keras="b", axes=[0, 1], inputs=[0, 1], by="weights"),
]


def mlp(folder, toml="", code=MLP, **changes) -> Pair:
    made = pair(folder, HEAD + code, X + toml, **changes)
    made.reference(WEIGHTS, {"a": (5, 4), "b": (5, 3)}, arguments={"a": [(5, 6)], "b": [(5, 4)]})
    return made


def steps(trace, run="high"):
    """The keys of each file, and what reads them."""
    return {name.rpartition("/")[2]: keys for name, keys in trace.manifest.files.items() if name.startswith(run)}


def read(trace, key, step=0, run="high"):
    return np.asarray(trace.open(run, step_file(step))[key])


def data(made):
    return PairData(made.case, [str(made.folder)])


def near(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-15)

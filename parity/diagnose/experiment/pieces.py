"""What an experiment on a step of training has to reproduce: several recorded tensors as one array.

A loss is a single number, which a search over all numbers meets by chance. So it is taken together with the gradients
of its step. The updates of all parameters are taken together as well, because one optimizer makes them.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.formula import Seen, largest, seen
from parity.runtime.experiment import Question, Tensor
from parity.trace import keys
from parity.trace.calls_alike import with_calls_alike
from parity.trace.keys import INPUT
from parity.trace.manifest import Tensors, Trace
from parity.trace.recorder import FORWARD

ALIKE: Final = 1e-5  # relative: losses that are apart by less agree
LOSS: Final = "loss"  # the name of a step's
VECTORS, ALONE = "(vectors)", "(alone)"  # with which gradients a loss is taken: those of biases and the like, or none
MOST: Final = 1 << 10  # elements of a tensor, evenly spread, that are taken


class Pieces(NamedTuple):
    """Tensors that are joined to one array, by name; each is counted in units of its own noise.

    `directions` says that tensors other than a loss are divided by their lengths, which clipping by norms changes.
    """

    noise: dict[str, float]
    directions: bool = False

    def joined(self, values: Mapping[str, Array]) -> Array:
        """Return the tensors as one flat array. Raises LookupError if one is missing."""
        units = {name: _unit(name, values[name], self.directions) for name in self.noise}
        parts = [some(np.asarray(values[name])) / (noise * units[name]) for name, noise in self.noise.items()]
        return np.concatenate([part.astype(np.float64) for part in parts])


class Evidence(NamedTuple):
    """What a side has recorded, and what it is to reproduce; None where a trace lacks it."""

    own: Array | None  # this side's value
    other: Seen | None  # the other side's, with its noise
    pieces: Pieces | None = None  # how single tensors are joined to such a value
    # What both sides recorded in this forward pass under one key, this side's first. Among them are the inputs of the
    # module: where they differ, what comes out tells nothing of it unless both are given the same.
    tensors: Sequence[tuple[Array, Array]] = ()

    def of(self, question: Question, again: "Again") -> "Again":
        """Return what computes a question's tensor again, in the form in which it is evidence."""
        pieces = self.pieces
        if question.tensor.kind != "gradient" or pieces is None:
            return again
        return lambda: [(name, pieces.joined({name: value})) for name, value in again()]


Again = Callable[[], list[tuple[str, Array]]]  # computes a tensor again; with its name


class Way(NamedTuple):
    """A way to compute a tensor again: `recorded` as it was recorded, `asked` as the other side's is to be met."""

    recorded: Again
    asked: Again


class Steps(NamedTuple):
    """What one side's optimizer was given, and at which steps its parameters were recorded."""

    gradients: list[dict[str, Array]]  # the gradients of each step, by parameter
    recorded: list[int]  # the steps after which the parameters were recorded


def evidences(question: Question) -> Iterator[Evidence]:
    """Yield what a question's side and the other have recorded, as it is, and of gradients then the directions alone.

    Those that were clipped by norms have only their directions in common with what a backward pass computes, and those
    to which a step has added the decay of matrices only what are none. Where a step has several losses, each has the
    gradients of some of the modules that it trains. At last a loss is taken alone.
    """
    yield evidence(question)
    if question.tensor.kind in ("loss", "gradient"):
        yield evidence(question, directions=True)
    if question.tensor.kind == "loss":
        yield evidence(question, directions=True, part=VECTORS)
        if losses(question)[0] > 1:
            gradients = _traces(question)[0].of_kind("gradient", question.tensor.step)
            for part in dict.fromkeys(name.partition(".")[0] for name in gradients):
                yield evidence(question, part=part)
        yield evidence(question, part=ALONE)


def losses(question: Question) -> tuple[int, bool]:
    """Return how many losses the step has, and whether they are the other side's: they are not always compared."""
    own, theirs = (trace.of_kind("loss", question.tensor.step) for trace in _traces(question))
    return len(own), own.keys() == theirs.keys() and all(np.allclose(own[name], theirs[name], ALIKE) for name in own)


def evidence(question: Question, directions: bool = False, part: str = "") -> Evidence:
    """Return what both sides recorded of a tensor; of a loss also gradients, or those of a part, or of VECTORS."""
    own, other = _traces(question)
    tensor, stem = question.tensor, keys.step_file(question.tensor.step)
    if tensor.kind == "update":
        names = asked(trained(own, other), own)
        return _joined(dict(_updates(own, names)), dict(_updates(other, names)))
    if tensor.kind == "loss":
        mine, theirs = (dict(_loss(trace, stem, tensor.key, part)) for trace in (own, other))
        return _joined(mine, theirs, directions)
    recorded, expected = (_seen(trace, stem, tensor.key) for trace in (own, other))
    if directions and recorded and expected:
        name = tensor.key.partition("/")[2]
        return _joined({name: recorded}, {name: expected}, directions)
    of_module = tensor.kind == "returned" and tensor.module == question.module
    forward = list(_forward(own, other, stem)) if of_module else ()
    return Evidence(recorded.value if recorded else None, expected, tensors=forward)


def _traces(question: Question) -> tuple[Trace, Trace]:
    folders = question.own, question.other
    return _read(*folders, *((Path(folder) / keys.MANIFEST).stat().st_mtime_ns for folder in folders))


@functools.lru_cache(maxsize=1)
def _read(own: str, other: str, *written: int) -> tuple[Trace, Trace]:
    """Return both recordings, `written` at these times, with the calls of modules as they are compared."""
    traces = [Trace(Path(folder)).whole() for folder in (own, other)]
    torch = int(traces[1].backend == "torch")
    alike = with_calls_alike(traces[torch], traces[not torch])
    return alike[torch], alike[not torch]


def _forward(own: Trace, other: Trace, stem: str) -> Iterator[tuple[Array, Array]]:
    """Yield what both traces have of a forward pass under the same key."""
    mine, theirs = (trace.open("high", stem) for trace in (own, other))
    for key in mine:
        if keys.split(key)[0] in FORWARD and key in theirs and mine[key].shape == theirs[key].shape:
            yield mine[key], theirs[key]


def passed(question: Question) -> Iterator[tuple[Tensor, Array, Array]]:
    """Yield the tensors that may be the other side's, as both sides recorded them, this side's first."""
    for tensor in question.passed:
        mine, theirs = (trace.open("high", keys.step_file(0)).get(tensor.key) for trace in _traces(question))
        if mine is None or theirs is None or mine.shape != theirs.shape:
            return
        yield tensor, mine, theirs


def steps(question: Question) -> tuple[Steps, Steps]:
    """Return what both sides' optimizers were given, the question's own side first."""
    own, other = _traces(question)
    names = trained(own, other)
    return _steps(own, names), _steps(other, names)


def asked(names: list[str], trace: Trace) -> list[str]:
    """Return a few of the parameters, of each number of axes the largest: one optimizer moves all of them."""
    initial = trace.of_kind("parameter", None)
    sizes = {name: initial[name].shape for name in names}
    by_axes = {len(shape): name for name, shape in sorted(sizes.items(), key=lambda item: math.prod(item[1]))}
    return [name for name in names if name in by_axes.values()]


def some(array: Array) -> Array:
    """Return some elements of a tensor, evenly spread, in one axis."""
    flat = np.ravel(array)
    return flat[:: max(1, len(flat) // MOST)]


def updated(name: str, step: int) -> str:
    """Return the name of a parameter's update: its value after a step minus that before the first."""
    return f"{name}@{step}"


def updated_names(evidence: Evidence) -> list[str]:
    """Return the parameters whose updates are evidence."""
    return list(dict.fromkeys(name.rpartition("@")[0] for name in evidence.pieces.noise)) if evidence.pieces else []


def _joined(own: dict[str, Seen], other: dict[str, Seen], directions: bool = False) -> Evidence:
    """Return both sides' tensors that have one shape, joined, in units of the noise of the other side's."""
    noise = {
        name: value.noise / _unit(name, value.value, directions) or 1.0
        for name, value in other.items()
        if name in own and own[name].value.shape == value.value.shape
    }
    if not noise:
        return Evidence(None, None)
    pieces = Pieces(noise, directions)
    mine, theirs = (pieces.joined({name: each.value for name, each in side.items()}) for side in (own, other))
    grain = max(other[name].grain / scale for name, scale in noise.items())
    return Evidence(mine, Seen(theirs, 1.0, grain), pieces)


def _unit(name: str, value: Array, directions: bool) -> float:
    """Return by what a tensor is divided, beside its noise: the length of a gradient whose direction is evidence."""
    is_direction = directions and name != LOSS
    return float(np.linalg.norm(np.asarray(value, np.float64))) or 1.0 if is_direction else 1.0


def _loss(trace: Trace, stem: str, loss: str, part: str) -> Iterator[tuple[str, Seen]]:
    """Yield a loss of a step and the gradients of the parameters, or of some of them; `loss`: its key."""
    gradients = keys.of_kind(trace.open("high", stem), "gradient")
    names = [
        name
        for name, gradient in gradients.items()
        if not name.startswith(INPUT)
        and (gradient.ndim < 2 if part == VECTORS else part in ("", name.partition(".")[0]))
    ]
    for key, name in [(loss, LOSS), *((keys.key("gradient", name), name) for name in names)]:
        if value := _seen(trace, stem, key):
            yield name, value


def _updates(trace: Trace, names: list[str]) -> Iterator[tuple[str, Seen]]:
    """Yield how far the parameters have moved after each step that recorded them."""
    high, low = (trace.of_kind("parameter", None, run) for run in ("high", "low"))
    for step in _steps(trace, names).recorded:
        after, low_after = (trace.of_kind("parameter", step, run) for run in ("high", "low"))
        for name in names:
            stored = largest(after[name]) * (step + 1)
            moved = low_after[name].astype(np.float64) - low[name] if name in low and name in low_after else None
            yield updated(name, step), seen(after[name] - high[name], moved, stored)


def trained(own: Trace, other: Trace) -> list[str]:
    """Return the parameters whose first gradients both sides have, and not of zeros, which optimizers pass over."""
    gradients = [trace.of_kind("gradient", 0) for trace in (own, other)]
    parameters = [trace.of_kind("parameter", step) for trace in (own, other) for step in (None, 0)]
    moved = (name for name in gradients[0] if all(np.any(side.get(name, 0.0)) for side in gradients))
    return [name for name in moved if all(name in state for state in parameters)]


def _steps(trace: Trace, names: list[str]) -> Steps:
    """Return the gradients of the first steps, as long as all are recorded."""
    gradients, recorded = [], []
    stems = set(trace.stems("high"))
    for step in range(trace.case.steps):
        tensors: Tensors = trace.open("high", keys.step_file(step)) if keys.step_file(step) in stems else {}
        applied, parameters = (keys.of_kind(tensors, kind) for kind in ("gradient", "parameter"))
        if not applied.keys() >= set(names):
            break
        gradients.append({name: applied[name] for name in names})
        if parameters.keys() >= set(names):
            recorded.append(step)
    return Steps(gradients, recorded)


def _seen(trace: Trace, stem: str, key: str) -> Seen | None:
    """Return a tensor of a step in float64, with its noise at the run precision."""
    high, low = (trace.open(run, stem).get(key) for run in ("high", "low"))
    return None if high is None else seen(high, low)

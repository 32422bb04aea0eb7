"""Traces without a framework: a small numpy network that trains as a backend does, and traces written by hand.

`record` goes the whole way of a real backend (parity.runtime.drive): data, weights, recorder, manifest.
`by_hand` writes exactly the tensors that it is given.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parity.config import cases, schema
from parity.core import precision
from parity.core.arrays import Array
from parity.runtime import drive
from parity.runtime.drive import Account, Rank, Run
from parity.runtime.job import Job
from parity.trace import keys
from parity.trace.layout import Layout
from parity.trace.manifest import Manifest, Trace, write
from parity.trace.tensorfile import Writer

# run -> stem of a file -> key -> tensor
Tensors = Mapping[str, Mapping[str, Mapping[str, Array]]]

MODULES = {"linear1": "linear", "relu": "relu", "linear2": "linear"}


class Seen(NamedTuple):
    """A tensor as it happens: the precision it is at, its step, kind, name and value, and its replica."""

    at: str
    step: int | None
    kind: str
    name: str
    value: Array
    replica: int = 0


Fault = Callable[[Seen], Array | None]  # the value that takes the tensor's place; None drops it from the trace


def honest(seen: Seen) -> Array:
    """No fault."""
    return seen.value


def broken(seen: Seen) -> Any:
    """Another way to take a gradient."""
    return seen.value * 2 if (seen.kind, seen.name) == ("gradient", "linear1.bias") else seen.value


def small_case(**changes: Any) -> schema.Case:
    """Ten features in, five out, trained for three steps on seeded numbers."""
    base = {"data": {"source": "synthetic", "batch": 8}, "steps": 3, "optimizer": {"kind": "sgd", "momentum": 0.0}}
    return cases.resolve("simple_block/single", base, changes)


def ddp(replicas: int, **changes: Any) -> schema.Case:
    return small_case(strategy="ddp", devices=replicas, **changes)


class NumpySide:
    """Linear, ReLU, Linear, with its backward pass and SGD or Adam; `backwards` adds in another order.

    `centred` takes the mean of the batch from the hidden layer, so that the gradient of its bias is truly zero.
    """

    def __init__(
        self,
        name: str,
        fault: Fault = honest,
        backwards: bool = False,
        centred: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        self.NAME = name
        self.fault = fault
        self.way = slice(None, None, -1 if backwards else None)
        self.centred = centred
        self.weight_decay = weight_decay
        self._keys: dict[int, tuple[Array, str | None]] = {}  # of what this step has stored, by the array's id

    def versions(self) -> dict[str, str]:
        return {"numpy": "0"}

    def rank(self) -> Rank:
        return Rank(0, 1)

    def run(self, run: Run) -> Account:
        """Every replica by itself but for the gradients, which are added up by their shares."""
        dtype = precision.dtype(run.at)
        watched = [functools.partial(self._see, run, replica) for replica in run.recorders]
        parameters = {name: values.astype(dtype) for name, values in run.weights.items()}
        for name, value in parameters.items():
            for see in watched:
                parameters[name] = see("parameter", name, value)
        moments = {name: [np.zeros_like(value)] * 2 for name, value in parameters.items()}
        self._next(run)
        for count, replicas in enumerate(run.dataset.steps(), start=1):
            total = dict.fromkeys(parameters, 0)
            for replica, ((batch,), see) in enumerate(zip(replicas, watched, strict=True)):
                run.recorders[replica].drew(batch.indices)
                x, target = see("input", "input", batch.inputs[0].astype(dtype)), batch.target.astype(dtype)
                for name, gradient in self._gradients(parameters, x, target, see, len(watched) > 1):
                    total[name] = total[name] + dtype.type(batch.share) * gradient
            for name, gradient in total.items():
                for see in watched if len(watched) > 1 else ():
                    gradient = see("gradient", name, gradient)
                parameters[name] = self._updated(run.case.optimizer, parameters[name], gradient, moments[name], count)
            for name, value in parameters.items():
                for see in watched:
                    parameters[name] = see("parameter", name, value)
            self._next(run)
        for replica, (batch, see) in enumerate(zip(run.dataset.evaluation(), watched, strict=True)):
            run.recorders[replica].drew(batch.indices)
            self._forward(parameters, see("input", "input", batch.inputs[0].astype(dtype)), see)
        self._next(run)
        layout = Layout(
            devices=["CPU"] * len(watched),
            parameters={name: list(run.recorders) for name in parameters},
            compute={name: list(run.recorders) for name in MODULES},
            backward={name: list(run.recorders) for name in MODULES},
            replicas=len(watched),
        )
        return Account(layout, MODULES)

    def _see(self, run: Run, replica: int, kind: str, name: str, value: Array) -> Array:
        recorder = run.recorders[replica]
        seen = self.fault(Seen(run.at, recorder.step, kind, name, value, replica))
        if seen is None:
            return value
        _, key = self._keys.get(id(seen), (seen, None))
        if kind == "input" and key:
            recorder.alias(kind, name, key)
        else:
            self._keys[id(seen)] = seen, recorder.add(kind, name, seen)
        return seen

    def _next(self, run: Run) -> None:
        self._keys.clear()
        for recorder in run.recorders.values():
            recorder.next_step()

    def _product(self, a: Array, b: Array) -> Array:
        return sum((a[:, i, None] * b[i] for i in range(a.shape[1])[self.way]), np.zeros((), a.dtype))

    def _forward(self, p: dict[str, Array], x: Array, see: Any) -> tuple[Array, Array, Array]:
        hidden = self._product(see("input", "linear1", x), p["linear1.weight"].T) + p["linear1.bias"]
        hidden = see("activation", "linear1", hidden - hidden.mean(axis=0) if self.centred else hidden)
        relu = see("activation", "relu", np.maximum(see("input", "relu", hidden), 0))
        taken = see("input", "linear2", relu)
        output = see("activation", "linear2", self._product(taken, p["linear2.weight"].T) + p["linear2.bias"])
        return hidden, relu, output

    def _gradients(
        self, p: dict[str, Array], x: Array, target: Array, see: Any, local: bool
    ) -> list[tuple[str, Array]]:
        hidden, relu, output = self._forward(p, x, see)
        see("loss", "loss", np.asarray(((output - target) ** 2).mean(), output.dtype))
        d_output = 2 * (output - target) / output.dtype.type(output.size)
        d_hidden = self._product(d_output, p["linear2.weight"]) * (hidden > 0)
        if self.centred:
            d_hidden = d_hidden - d_hidden.mean(axis=0)
        found = {
            "linear2.weight": self._product(d_output.T, relu),
            "linear2.bias": d_output[self.way].sum(axis=0),
            "linear1.weight": self._product(d_hidden.T, x),
            "linear1.bias": d_hidden[self.way].sum(axis=0),
        }
        return [(name, see("gradient", name + keys.LOCAL * local, value)) for name, value in found.items()]

    def _updated(self, optimizer: Any, value: Array, gradient: Array, moments: list[Array], count: int) -> Array:
        one = value.dtype.type
        if isinstance(optimizer, schema.SGD):
            return value - one(optimizer.learning_rate) * (gradient + one(self.weight_decay) * value)
        moments[0] = one(0.9) * moments[0] + one(0.1) * gradient
        moments[1] = one(0.999) * moments[1] + one(0.001) * gradient**2
        mean, square = moments[0] / one(1 - 0.9**count), moments[1] / one(1 - 0.999**count)
        return value - one(optimizer.learning_rate) * mean / (np.sqrt(square) + one(optimizer.epsilon))


def record(folder: Path, name: str, case: schema.Case | None = None, runs: Any = keys.RUNS, **side: Any) -> Trace:
    """A trace of the numpy network in `folder`; `side` are NumpySide's arguments."""
    return record_with(NumpySide(name, **side), folder, case, runs)


def record_with(side: drive.Side, folder: Path, case: schema.Case | None = None, runs: Any = keys.RUNS) -> Trace:
    """A trace of a side in `folder`."""
    drive.record(Job(case=case or small_case(), runs=list(runs), folder=str(folder)), side)
    return Trace(folder)


def by_hand(
    folder: Path,
    tensors: Tensors,
    backend: str = "torch",
    case: schema.Case | None = None,
    data: dict[str, str] | None = None,
    layout: Layout | None = None,
    others: Sequence[Tensors] = (),
    replicas: list[list[int]] | None = None,
    same: dict[str, list[str]] | None = None,
) -> Trace:
    """A trace that holds exactly these tensors: rank 0's, then those of the `others`.

    `replicas`: the ranks that hold each, a rank each if not given. `same`: as in the manifest.
    """
    files, digests = {}, {}
    for rank, runs in enumerate((tensors, *others)):
        for run, stems in runs.items():
            for stem, named in stems.items():
                name = f"{run}/rank-{rank}/{stem}"
                files[name], digests[name] = _write(folder / run / f"rank-{rank}", stem, named)
    facts = Manifest(
        case=case or small_case(),
        backend=backend,
        data=data or {"source": "synthetic", "sha256": "0"},
        versions={backend: "1.0"},
        environment={"python": "3"},
        layout=layout or Layout(devices=["CPU"], parameters={}),
        replicas=replicas or [[rank] for rank in range(1 + len(others))],
        files=files,
        digests=digests,
        same=same or {},
    )
    folder.mkdir(parents=True, exist_ok=True)
    write(folder, facts)
    return Trace(folder)


def whole(tensors: Tensors, case: schema.Case | None = None) -> Tensors:
    """These tensors with a file without any for every other step that a case demands, in the low and the high run."""
    empty: dict[str, dict[str, Array]] = {keys.step_file(step): {} for step in range((case or small_case()).steps + 1)}
    return {run: {**empty, **tensors.get(run, {})} for run in ("low", "high")}


def same(one: Array, other: Array) -> bool:
    """Equal in shape, dtype and every byte (NaN and the sign of zero included)."""
    return (one.shape, one.dtype) == (other.shape, other.dtype) and one.tobytes() == other.tobytes()


def _write(place: Path, stem: str, named: Mapping[str, Array]) -> tuple[list[str], str]:
    place.mkdir(parents=True, exist_ok=True)
    writer = Writer(place / f"{stem}.safetensors", 1 << 10)
    for key, array in named.items():
        writer.add(key, array)
    return writer.close(), writer.digest

"""Read a trace as observations: the recorded inputs and results of one module, loss, reduction or optimizer."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from parity.config.pair import Pair
from parity.core.arrays import Array
from parity.core.names import MODEL
from parity.diagnose.observation import (
    Call,
    Gradient,
    InitialParameter,
    Input,
    LossValue,
    Reduction,
    Samples,
    Seen,
    Updates,
    largest,
    seen,
)
from parity.diagnose.wiring import Junction
from parity.trace import keys
from parity.trace.manifest import Tensors, Trace
from parity.verdict.traces import Unequal

MOST_UPDATED = 1 << 10  # elements of a parameter above which only some rows of its updates are replayed
MOST_SEEN = 1 << 21  # elements of a tensor that is examined: the search for an explanation makes a dozen copies
STATISTICS = ("running_mean", "running_var")  # buffers of a batch norm that its calls update
ARGUMENTS = {"attention": 3}  # number of tensor arguments, for kinds of modules that do not take exactly one


class Side:
    """One side's trace; each of its files is opened once.

    Args:
        name: the side's name, as reports have it.
        trace: the recorded trace.
        is_comparable: for a pair of models, whether a tensor's key has a counterpart on the other side.
        same: for a pair of models, the reference's aliases: by file, from the key of a module's input to the key of the
            output of another module that it is identical with. A tensor that was not recorded under the first key is
            read from the second.
    """

    def __init__(
        self,
        name: str,
        trace: Trace,
        is_comparable: Callable[[str], bool] = lambda key: True,
        same: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.name, self.trace, self.case = name, trace, trace.case
        self._is_comparable, self._same = is_comparable, same or {}
        self.modules = trace.manifest.modules
        self._open: dict[tuple[str, int | None, int], Tensors] = {}

    @functools.cached_property
    def parameters(self) -> dict[str, Array]:
        """The parameters of replica 0 before the first step, by name."""
        initial = self.tensors(None).items()
        return {key.partition("/")[2]: array for key, array in initial if key.startswith("parameter/")}

    def tensors(self, step: int | None, replica: int = 0, run: str = "high") -> Tensors:
        """Return everything that a step recorded on a replica (None: the state before step 0), or an empty mapping."""
        file = run, step, replica
        if file not in self._open:
            stem = keys.step_file(step)
            recorded = self.trace.open(run, stem, replica) if stem in self.trace.stems(run) else {}
            aliases = self._same.get(f"{run}/rank-{replica}/{stem}", {})
            compared = {key: array for key, array in recorded.items() if self._is_comparable(key)}
            aliased = {key: compared[target] for key, target in aliases.items() if target in compared}
            self._open[file] = compared | {key: array for key, array in aliased.items() if key not in compared}
        return self._open[file]

    def lacks(self, unequal: Unequal) -> bool:
        """Return whether this side did not record a tensor.

        The sides of a pair record zeros for a parameter that backward does not reach, so a gradient of zeros counts as
        missing.
        """
        tensor = self.tensors(unequal.step, unequal.replica).get(keys.key(unequal.kind, unequal.name))
        is_pair = isinstance(self.case.model, Pair)
        return tensor is None or (is_pair and unequal.kind == "gradient" and not np.any(tensor))

    def value(self, key: str, step: int | None, replica: int = 0, stored: float = 0.0) -> Seen | None:
        """Return a tensor as evidence; None if it was not recorded, or is too large for the search's many copies."""
        high = self.tensors(step, replica).get(key)
        if high is None or high.size > MOST_SEEN:
            return None
        return seen(high, self.tensors(step, replica, "low").get(key), stored)

    def call(self, module: str, number: int, step: int, replica: int) -> Call | None:
        """Return the calls of a module in a step from the `number`-th on; None where evidence is missing."""
        output = self.value(keys.key("activation", module, number), step, replica)
        calls = self._calls(self.tensors(step, replica), module)[number:]
        state = self._state(step, replica)
        if output is None or not calls or (state is None and self._has_state(module)):
            return None
        after = STATISTICS if number == 0 else ()
        statistics = {name: self.value(f"buffer/{module}.{name}", step, replica) for name in after}
        return Call(
            name=module,
            kind=self.modules.get(module, ""),
            calls=tuple(calls),
            parameters=_within(state or {}, "parameter", module),
            buffers=_within(state or {}, "buffer", module),
            training=step < self.case.steps,
            replicas=tuple(calls[0] for calls in self._replicas(module, step)),
            replica=replica,
            case=self.case,
            step=step,
            seen={"output": output} | {name: value for name, value in statistics.items() if value is not None},
            number=number,
            held=tuple(_within(self._state(step, r) or {}, "buffer", module) for r in range(self.trace.replicas)),
        )

    def low_call(self, module: str) -> Call | None:
        """Return the first call of a module in the first step of the low run."""
        low, high = self.tensors(0, 0, "low"), self.call(module, 0, 0, 0)
        output = low.get(f"activation/{module}")
        calls = tuple(self._calls(low, module))
        if high is None or output is None or not calls:
            return None
        return high._replace(
            calls=calls,
            parameters=_within(self.tensors(None, 0, "low"), "parameter", module),
            buffers=_within(self.tensors(None, 0, "low"), "buffer", module),
            replicas=calls[:1],
            seen={"output": seen(output)},
        )

    def junction(self, key: str, step: int, replica: int) -> Junction | None:
        """Return a tensor between modules, with those of its shape that were recorded before it."""
        value, earlier = self.value(key, step, replica), {}
        if value is None:
            return None
        for name, array in self.tensors(step, replica).items():
            if name == key:
                break
            if array.shape == value.value.shape and array.dtype == value.value.dtype:
                earlier[name] = array
        return Junction(key, earlier, self.case, {"input": value})

    def loss(self, step: int, replica: int) -> LossValue | None:
        """Return the loss of a step; None where the model's outputs or the targets were not recorded."""
        tensors, low = self.tensors(step, replica), self.tensors(step, replica, "low")
        outputs, targets, losses = (
            _numbered(tensors, kind, name)
            for kind, name in (("activation", MODEL), ("input", "target"), ("loss", "loss"))
        )
        if not losses or len({len(outputs), len(targets), len(losses)}) > 1:
            return None
        value = seen(_joined(losses), _joined(_numbered(low, "loss", "loss")))
        return LossValue("loss", tuple(outputs), tuple(targets), self.case, {"loss": value})

    def updates(self, name: str, replica: int = 0) -> Updates | None:
        """Return a parameter's updates over the steps whose gradients are all recorded."""
        initial = self.tensors(None, replica).get(f"parameter/{name}")
        gradients = list(self._gradients(name, replica))
        if initial is None or not gradients:
            return None
        values: dict[str, Seen] = {}
        for step in {0, len(gradients) - 1}:
            values |= self._step_values(name, step, replica, initial)
        sampled = {key: value._replace(value=_some_rows(value.value, initial.shape)) for key, value in values.items()}
        first, *others = (_some_rows(array, initial.shape) for array in (initial, *gradients))
        return Updates(name, first, tuple(others), self.case, sampled) if sampled else None

    def reduction(self, name: str, step: int, replica: int) -> Reduction | None:
        """Return a reduced gradient and the replicas' gradients; None where either was not recorded."""
        gradient = self.value(f"gradient/{name}", step, replica)
        files = [self.tensors(step, other) for other in range(self.trace.replicas)]
        suffix = keys.LOCAL
        names = [key[len("gradient/") : -len(suffix)] for key in files[replica] if key.endswith(suffix)]
        local = {
            parameter: tuple(file[key] for file in files)
            for parameter in names
            if all((key := f"gradient/{parameter}{suffix}") in file for file in files)
        }
        samples = tuple(np.size(file.get("sample/indices", ())) for file in files)
        if gradient is None or name not in local:
            return None
        return Reduction(name, local, samples, self.case, {"gradient": gradient})

    def gradient(self, name: str, step: int, replica: int, other: "Side") -> Gradient | None:
        """Return a gradient together with that of another side."""
        key = f"gradient/{name}"
        value, theirs = self.value(key, step, replica), other.tensors(step, replica).get(key)
        before = other.tensors(step - 1, replica).get(key) if step else None
        if value is None or theirs is None:
            return None
        return Gradient(name, theirs, before, self.case, {"gradient": value})

    def initial_parameter(self, name: str, drawn: Array, replica: int = 0) -> InitialParameter | None:
        """Return a parameter before the first step, together with the value that it should have had."""
        value = self.value(f"parameter/{name}", None, replica)
        kind = self.modules.get(name.rpartition(".")[0], "")
        return None if value is None else InitialParameter(name, kind, drawn, self.case, {"parameter": value})

    def samples(self, size: int) -> Samples | None:
        """Return the samples of every step of every replica, concatenated; None where none were recorded."""
        drawn = [
            self.tensors(step, replica)["sample/indices"]
            for replica in range(self.trace.replicas)
            for step in range(self.case.steps)
            if "sample/indices" in self.tensors(step, replica)
        ]
        return Samples("indices", size, self.case, {"indices": seen(_joined(drawn))}) if drawn else None

    def input(self, name: str, step: int, replica: int, other: "Side") -> Input | None:
        """Return a tensor that went into the model, together with that of another side."""
        key = f"input/{name}"
        value, theirs = self.value(key, step, replica), other.tensors(step, replica).get(key)
        return None if value is None or theirs is None else Input(name, theirs, self.case, {"input": value})

    def _calls(self, tensors: Tensors, module: str) -> list[tuple[Array, ...]]:
        """Return the arguments of each call of a module."""
        arguments = _numbered(tensors, "input", module)
        count = ARGUMENTS.get(self.modules.get(module, ""), 1)
        return [tuple(arguments[i : i + count]) for i in range(0, len(arguments) - count + 1, count)]

    def _replicas(self, module: str, step: int) -> list[list[tuple[Array, ...]]]:
        """Return the calls on every replica that recorded any."""
        replicas = (self._calls(self.tensors(step, replica), module) for replica in range(self.trace.replicas))
        return [calls for calls in replicas if calls]

    def _state(self, step: int, replica: int) -> Tensors | None:
        """Return parameters and buffers as they were before a step; None where they were not recorded."""
        before = None if step == 0 else step - 1
        for holder in (replica, 0):  # nn.DataParallel keeps them on device 0 only
            tensors = self.tensors(before, holder)
            if any(key.startswith("parameter/") for key in tensors):
                return tensors
        return None

    def _has_state(self, module: str) -> bool:
        return any(key.partition("/")[2].startswith(f"{module}.") for key in self.tensors(None))

    def _gradients(self, name: str, replica: int) -> Iterator[Array]:
        """Yield the gradients of the steps until the first that was not recorded."""
        for step in range(self.case.steps):
            gradient = self.tensors(step, replica).get(f"gradient/{name}")
            if gradient is None:
                return
            yield gradient

    def _step_values(self, name: str, step: int, replica: int, initial: Array) -> dict[str, Seen]:
        """Return the update of a parameter and its optimizer slots after one step, as evidence."""
        tensors, low = self.tensors(step, replica), self.tensors(step, replica, "low")
        parameter = f"parameter/{name}"
        if parameter not in tensors or tensors[parameter].shape != initial.shape:
            return {}
        stored = largest(tensors[parameter]) * (step + 1)
        fits = parameter in low and low[parameter].shape == initial.shape
        before = _examined_rows(initial)
        low_update = _examined_rows(low[parameter]).astype(np.float64) - before if fits else None
        values = {f"update@{step}": seen(_examined_rows(tensors[parameter]) - before, low_update, stored)}
        slots = [key for key in tensors if key.startswith(f"optimizer_state/{name}.")]
        for key in ("optimizer_state/learning_rate", *slots):
            if (value := self.value(key, step, replica)) is not None:
                values[f"{key.rpartition('.')[2].rpartition('/')[2]}@{step}"] = value
        return values


def _numbered(tensors: Tensors, kind: str, name: str) -> list[Array]:
    """Return the tensors of all calls of a name within a step, in order."""
    calls: list[Array] = []
    while (key := keys.key(kind, name, len(calls))) in tensors:
        calls.append(tensors[key])
    return calls


def _some_rows(array: Array, shape: tuple[int, ...]) -> Array:
    """Return some rows of a large parameter's array: an optimizer treats every element alike, so a few suffice."""
    stride = math.prod(shape) // MOST_UPDATED
    return array[::stride] if stride > 1 and array.shape == shape else array


def _examined_rows(array: Array) -> Array:
    """Return some rows of an array that is too large to be copied often, else all of it."""
    return _some_rows(array, array.shape) if array.size > MOST_SEEN else array


def _joined(arrays: list[Array]) -> Array:
    """Return all values of the arrays in one flat array, as float64 if the dtypes differ."""
    dtype = arrays[0].dtype if len({array.dtype for array in arrays}) == 1 else np.float64
    return np.concatenate([np.ravel(array).astype(dtype) for array in arrays] or [np.zeros(0)])


def _within(tensors: Tensors, kind: str, module: str) -> dict[str, Array]:
    """Return a module's own tensors, by their names within the module."""
    prefix = f"{kind}/{module}."
    return {key.removeprefix(prefix): array for key, array in tensors.items() if key.startswith(prefix)}

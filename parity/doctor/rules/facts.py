"""Questions that several rules ask of the evidence: which devices are GPUs, which modules a set of parameters fills."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from parity.core import groups
from parity.doctor.evidence import Call, Copy, Event, Evidence, Module, Occurrence, Step, Tensor, Weight, below
from parity.trace.keys import MODEL

Item = TypeVar("Item")
Seen = TypeVar("Seen", bound=Occurrence)
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def is_host(device: str) -> bool:
    """Return whether a device is the CPU."""
    return device.lower().startswith("cpu")


def gpus(evidence: Evidence) -> list[str]:
    return [device for device in evidence.devices if not is_host(device)]


def parameters(evidence: Evidence) -> list[Weight]:
    return [weight for weight in evidence.weights if weight.kind == "parameter"]


def spread(evidence: Evidence) -> bool:
    """Return whether a wrapper or several processes decide about placement, instead of the program itself."""
    return evidence.ranks > 1 or any(step.distributed for step in evidence.steps)


def home(evidence: Evidence) -> str:
    """Return the GPU that holds the most parameters; "" if none does."""
    devices = [weight.tensor.device for weight in parameters(evidence) if not is_host(weight.tensor.device)]
    return max(devices, key=devices.count, default="")


def module(evidence: Evidence, name: str) -> Module:
    """Return the module of that name, or an empty one if it is not known."""
    return next((module for module in evidence.modules if module.name == name), Module(name=name, kind=""))


def source_of(evidence: Evidence, name: str) -> str:
    """Return the line that created a module, or else the nearest module around it."""
    while name:
        if source := module(evidence, name).source:
            return source
        name = name.rpartition(".")[0]
    return module(evidence, MODEL).source


def made_at(evidence: Evidence, weight: Weight) -> str:
    """Return the line that gave a weight its type or device, or else the one that created its module."""
    return weight.tensor.made or source_of(evidence, weight.module)


def root_call(step: Step) -> Call | None:
    """Return the first call of the model itself."""
    return next((call for call in step.calls if call.module == MODEL), None)


def inputs(step: Step) -> Iterator[Tensor]:
    """Return the step's inputs, as modules and the op that failed received them."""
    given = [tensor for call in step.calls for tensor in call.inputs]
    return filter(is_input, [*given, *(step.failure.tensors if step.failure else ())])


def is_input(tensor: Tensor) -> bool:
    return tensor.origin.startswith("input ")


def grouped(events: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """Return events in groups with the same key, in the order of each group's first."""
    return list(groups.grouped(events, key).values())


def by_line(occurrences: Iterable[Seen]) -> list[list[Seen]]:
    """Return what happened in a step in groups of the same module and line, of which each is one finding."""
    return grouped(occurrences, lambda occurrence: (occurrence.place.module, occurrence.place.source))


def merged(occurrences: list[Seen]) -> Seen:
    """Return the first of what happened, with the count of all."""
    return msgspec.structs.replace(occurrences[0], count=number(occurrences))


def lines(occurrences: Iterable[Seen]) -> Iterator[Seen]:
    """Yield what happened in a step once for each module and line, with its count."""
    return map(merged, by_line(occurrences))


def number(occurrences: Iterable[Occurrence | Event]) -> int:
    return sum(occurrence.count for occurrence in occurrences)


def last(evidence: Evidence) -> Step:
    """Return the last observed step, which is typical: the first may have work that is done only once."""
    return evidence.steps[-1] if evidence.steps else Step()


def sent(evidence: Evidence) -> list[Copy]:
    """Return what goes from the host to a GPU in each step."""
    return [copy for copy in last(evidence).copies if is_host(copy.source) and not is_host(copy.target)]


def backward_ran(evidence: Evidence) -> bool:
    return any(step.backwards for step in evidence.steps)


class ModuleParameters(NamedTuple):
    """A module with those of its trained parameters to which something applies."""

    module: str
    names: list[str]
    whole: bool  # whether it applies to all of the module's trained parameters


def grouped_by_module(names: Collection[str], evidence: Evidence) -> list[ModuleParameters]:
    """Return parameters grouped by module, for a short report.

    Where all trained parameters of a module are among `names`, the group is the outermost such module.
    """
    trained = [weight for weight in parameters(evidence) if weight.trained]
    groups: dict[str, ModuleParameters] = {}
    for weight in trained:
        if weight.name in names:
            whole = _outermost(weight.module, names, trained)
            module = whole or weight.module or MODEL
            groups.setdefault(module, ModuleParameters(module, [], bool(whole))).names.append(weight.name)
    return list(groups.values())


def _outermost(module: str, names: Collection[str], trained: list[Weight]) -> str:
    """Return the outermost module around a module all of whose parameters are among `names`; "" if there is none."""
    parts = [] if module in ("", MODEL) else module.split(".")
    for path in [MODEL, *(".".join(parts[: end + 1]) for end in range(len(parts)))]:
        if all(weight.name in names for weight in trained if below(path, weight.module)):
            return path
    return ""


def is_twin(evidence: Evidence, path: str, by_inputs: bool = False) -> bool:
    """Return whether a module has the structure of another one that learns, and is kept apart from it.

    So is a target network before its values are set to those of the other for the first time: it runs without a tape,
    or, with `by_inputs`, both are given inputs of the step.
    """
    own = [weight for weight in parameters(evidence) if below(path, weight.module)]
    rest = [weight for weight in parameters(evidence) if not below(path, weight.module)]
    learning = {g.parameter for step in evidence.steps for g in step.gradients if g.state != "none"}
    twins = []
    for candidate in evidence.modules:
        parts = [weight for weight in rest if below(candidate.name, weight.module)]
        if _structure(parts) == _structure(own) and learning.issuperset(weight.name for weight in parts):
            twins.append(candidate.name)
    calls = [call for step in evidence.steps for call in step.calls]
    outside = {cut.place.module for step in evidence.steps for cut in step.cuts if cut.what in ("no_tape", "no_grad")}
    is_apart = path in outside or path not in {call.module for call in calls}
    given = [tensor for call in calls if call.module in (path, *twins) for tensor in call.inputs]
    return bool(twins and len(_structure(own)) > 1 and (is_apart or (by_inputs and all(map(is_input, given)))))


def _structure(weights: list[Weight]) -> list[list[list[int]]]:
    return [[weight.tensor.shape for weight in layer] for layer in grouped(weights, lambda weight: weight.module)]

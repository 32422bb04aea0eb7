"""What rules ask of evidence: which devices are GPUs, which modules lack something altogether."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from parity.core.names import MODEL
from parity.doctor.evidence import Call, Evidence, Module, Step, Tensor, Weight
from parity.doctor.finding import Finding, Severity

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def found(severity: Severity, name: str, where: str, source: str, message: str, fix: str) -> Finding:
    """A finding, in the order in which it is read."""
    return Finding(id=name, severity=severity, where=where, source=source, message=message, fix=fix)


def host(device: str) -> bool:
    """Whether a device is the CPU's memory."""
    return device.lower().startswith("cpu")


def gpus(evidence: Evidence) -> list[str]:
    """The devices that are not the host."""
    return [device for device in evidence.devices if not host(device)]


def parameters(evidence: Evidence) -> list[Weight]:
    """The parameters of the model."""
    return [weight for weight in evidence.weights if weight.kind == "parameter"]


def spread(evidence: Evidence) -> bool:
    """Whether a wrapper or several processes decide what is where, and not the program."""
    return evidence.ranks > 1 or any(step.distributed for step in evidence.steps)


def home(evidence: Evidence) -> str:
    """The GPU that holds most parameters; "" if none does."""
    devices = [weight.tensor.device for weight in parameters(evidence) if not host(weight.tensor.device)]
    return max(devices, key=devices.count, default="")


def module(evidence: Evidence, name: str) -> Module:
    """The module of that name; one without a line if it is not known."""
    return next((module for module in evidence.modules if module.name == name), Module(name=name, kind=""))


def source_of(evidence: Evidence, name: str) -> str:
    """The line that made a module, or else the nearest one around it."""
    while name:
        if source := module(evidence, name).source:
            return source
        name = name.rpartition(".")[0]
    return module(evidence, MODEL).source


def root_call(step: Step) -> Call | None:
    """The first call of the model itself."""
    return next((call for call in step.calls if call.module == MODEL), None)


def inputs(step: Step) -> Iterator[Tensor]:
    """The step's inputs, as modules and the op that failed got them."""
    for call in step.calls:
        yield from (tensor for tensor in call.inputs if is_input(tensor))
    if step.failure:
        yield from (tensor for tensor in step.failure.tensors if is_input(tensor))


def is_input(tensor: Tensor) -> bool:
    """Whether a tensor is one of the step's inputs."""
    return tensor.origin.startswith("input ")


def last(evidence: Evidence) -> Step:
    """The last step that was observed: what occurs in it occurs in each."""
    return evidence.steps[-1] if evidence.steps else Step()


def backward_ran(evidence: Evidence) -> bool:
    """Whether any step had a backward pass."""
    return any(step.backwards for step in evidence.steps)


def below(path: str, name: str) -> bool:
    """Whether a module is another one, or within it."""
    return path == MODEL or name == path or name.startswith((f"{path}.", f"{path}["))


class Lack(NamedTuple):
    """A module, and its trained parameters that lack something; `whole` if all of them do."""

    module: str
    names: list[str]
    whole: bool


def lacking(names: Collection[str], evidence: Evidence) -> list[Lack]:
    """The outermost modules all of whose trained parameters are among `names`, and modules some of whose are."""
    trained = [weight for weight in parameters(evidence) if weight.trained]
    lacks: dict[str, Lack] = {}
    for weight in trained:
        if weight.name in names:
            whole = _outermost(weight.module, names, trained)
            lack = lacks.setdefault(
                whole or weight.module or MODEL, Lack(whole or weight.module or MODEL, [], bool(whole))
            )
            lack.names.append(weight.name)
    return list(lacks.values())


def _outermost(module: str, names: Collection[str], trained: list[Weight]) -> str:
    """The outermost module around one all of whose parameters are among `names`; "" if there is none."""
    parts = [] if module in ("", MODEL) else module.split(".")
    for path in [MODEL, *(".".join(parts[: end + 1]) for end in range(len(parts)))]:
        if all(weight.name in names for weight in trained if below(path, weight.module)):
            return path
    return ""

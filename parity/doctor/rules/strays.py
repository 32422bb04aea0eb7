"""Weights that are not where their module is, and modules that no list of the model's knows."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from parity.doctor.evidence import Evidence, Weight
from parity.doctor.finding import Finding
from parity.doctor.rules import words
from parity.doctor.rules.facts import below, found, home, host, source_of

SEEDS = "uint32"  # Keras's seeds stay on the host


class Stray(NamedTuple):
    """A weight, and the device it should be on."""

    weight: Weight
    home: str


def strays(evidence: Evidence) -> list[Stray]:
    """Parameters and buffers elsewhere than the others of their module, or on the host beside a model on GPUs."""
    found = []
    for weight in evidence.weights:
        due = _due(weight, evidence)
        if weight.kind != "optimizer_state" and weight.tensor.dtype != SEEDS and due not in ("", weight.tensor.device):
            found.append(Stray(weight, due))
    return found


def _due(weight: Weight, evidence: Evidence) -> str:
    """Where most of a module's parameters are; a GPU if any of the model's is on one."""
    beside = [w.tensor.device for w in evidence.weights if w.module == weight.module and w.kind == "parameter"]
    beside = [device for device in beside if not host(device)]
    if beside:
        return max(beside, key=beside.count)
    return home(evidence) if host(weight.tensor.device) else ""


def placed(evidence: Evidence) -> Iterator[Finding]:
    """Parameters and buffers astray, those of one line in one finding."""
    groups: dict[tuple[str, str, str, str], list[Stray]] = {}
    for stray in strays(evidence):
        source = stray.weight.tensor.made or source_of(evidence, stray.weight.module)
        groups.setdefault((stray.weight.kind, source, stray.weight.tensor.device, stray.home), []).append(stray)
    for (kind, source, device, due), group in groups.items():
        subject = words.subject([stray.weight.name for stray in group], "is", "are")
        message = f"{subject} on {device}, the model around on {due}."
        fix = _brought(evidence, [stray.weight for stray in group], due)
        yield found("error", f"placement.{kind}", group[0].weight.module, source, message, fix)


def _brought(evidence: Evidence, weights: Sequence[Weight], home: str) -> str:
    first = weights[0]
    if evidence.side == "keras":
        return f'with tf.device("{home}"): {words.code(first.module)}.build(input_shape)'
    name = words.code(first.name)
    here = [w for w in evidence.weights if w.module == first.module and w.kind == first.kind]
    if first.kind == "buffer":
        return f'{name} = {name}.to("{home}")'
    if all(weight.tensor.device == first.tensor.device for weight in here):
        return f'{words.code(first.module)}.to("{home}")'
    return f'{name} = nn.Parameter({name}.to("{home}"))'


def optimizer_state(evidence: Evidence) -> Iterator[Finding]:
    """Slots of the optimizer elsewhere than their parameter; counters of steps may be."""
    devices = {w.name: w.tensor.device for w in evidence.weights if w.kind == "parameter"}
    slots = [w for w in evidence.weights if w.kind == "optimizer_state" and w.tensor.shape]
    astray = [slot for slot in slots if devices.get(slot.name, slot.tensor.device) != slot.tensor.device]
    if not astray:
        return
    first, names = astray[0], list(dict.fromkeys(slot.name for slot in astray))
    due = devices[first.name]
    message = f"The optimizer's state of {words.listed(names)} is on {first.tensor.device}, the parameter on {due}."
    optimizer = next((o for step in evidence.steps for o in step.optimizers if first.name in o.parameters), None)
    if evidence.side == "torch":
        kind = optimizer.kind if optimizer else "SGD"
        fix = f'model.to("{due}"); optimizer = torch.optim.{kind}(model.parameters())'
    else:
        fix = f'with tf.device("{due}"): optimizer.build(model.trainable_variables)'
    moves = [move.source for move in evidence.moves if move.whole and move.device == due]
    source = moves[-1] if moves else optimizer.source if optimizer else ""
    yield found("error", "placement.optimizer_state", first.module, source, message, fix)


def hidden(evidence: Evidence) -> Iterator[Finding]:
    """Modules in plain lists, dicts or closures: those of one list in one finding."""
    lists: dict[str, list[str]] = {}
    for module in evidence.modules:
        if not module.registered and not any(below(other, module.name) for names in lists.values() for other in names):
            lists.setdefault(module.name.partition("[")[0], []).append(module.name)
    for path, names in lists.items():
        message = (
            f"{words.subject(names, 'is', 'are')} not registered with the model: "
            "what moves, trains or saves the model does not see this."
        )
        source = source_of(evidence, names[0])
        yield found("error", "placement.hidden", names[0], source, message, _registered(evidence.side, path, names[0]))


def _registered(side: str, path: str, name: str) -> str:
    attribute = words.leaf(path)
    if side == "torch" and name != path:
        kind = "ModuleList" if name[len(path) + 1 : len(path) + 2].isdigit() else "ModuleDict"
        return f"self.{attribute} = nn.{kind}({attribute})"
    return f"self.{attribute} = {attribute}"

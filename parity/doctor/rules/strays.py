"""Rules about weights that are not where their module is, and modules that are not registered with the model."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from parity.doctor.evidence import Evidence
from parity.doctor.evidence.model import Weight
from parity.doctor.finding import Finding
from parity.doctor.rules import words
from parity.doctor.rules.facts import below, by_line, home, is_host, is_twin, last, make_finding, number, source_of

SEEDS = "uint32"  # dtype of the states of Keras's random generators, which stay on the host


class MisplacedWeight(NamedTuple):
    """A weight on the wrong device.

    Attributes:
        home: the device that it should be on.
    """

    weight: Weight
    home: str


def misplaced_weights(evidence: Evidence) -> list[MisplacedWeight]:
    """Return parameters and buffers on another device than their module, or on the host while the model is on GPUs."""
    misplaced = []
    for weight in evidence.weights:
        expected = _home_of(weight, evidence)
        if (
            weight.kind != "optimizer_state"
            and weight.tensor.dtype != SEEDS
            and expected not in ("", weight.tensor.device)
        ):
            misplaced.append(MisplacedWeight(weight, expected))
    return misplaced


def _home_of(weight: Weight, evidence: Evidence) -> str:
    """Return where a weight should be: with its module's other parameters, or on the model's GPU; "" for any device."""
    beside = [w.tensor.device for w in evidence.weights if w.module == weight.module and w.kind == "parameter"]
    beside = [device for device in beside if not is_host(device)]
    if beside:
        return max(beside, key=beside.count)
    return home(evidence) if is_host(weight.tensor.device) else ""


def placed(evidence: Evidence) -> Iterator[Finding]:
    """Report misplaced parameters and buffers, those of one line together."""
    groups: dict[tuple[str, str, str, str], list[MisplacedWeight]] = {}
    for entry in misplaced_weights(evidence):
        source = entry.weight.tensor.made or source_of(evidence, entry.weight.module)
        groups.setdefault((entry.weight.kind, source, entry.weight.tensor.device, entry.home), []).append(entry)
    for (kind, source, device, expected), group in groups.items():
        subject = words.subject([entry.weight.name for entry in group], "is", "are")
        message = f"{subject} on {device}, but the rest of the model is on {expected}."
        fix = _moved(evidence, [entry.weight for entry in group], expected)
        yield make_finding("error", f"placement.{kind}", group[0].weight.module, source, message, fix)


def _moved(evidence: Evidence, weights: Sequence[Weight], home: str) -> str:
    """Return the code that moves misplaced weights."""
    first = weights[0]
    if evidence.side == "keras":
        return f'with tf.device("{home}"): {words.code(first.module)}.build(input_shape)'
    name = words.code(first.name)
    of_module = [w for w in evidence.weights if w.module == first.module and w.kind == first.kind]
    if first.kind == "buffer":
        return f'{name} = {name}.to("{home}")'
    if all(weight.tensor.device == first.tensor.device for weight in of_module):
        return f'{words.code(first.module)}.to("{home}")'
    return f'{name} = nn.Parameter({name}.to("{home}"))'


def optimizer_state(evidence: Evidence) -> Iterator[Finding]:
    """Report optimizer slots on another device than their parameter; scalars such as step counters may be."""
    devices = {w.name: w.tensor.device for w in evidence.weights if w.kind == "parameter"}
    slots = [w for w in evidence.weights if w.kind == "optimizer_state" and w.tensor.shape]
    misplaced = [slot for slot in slots if devices.get(slot.name, slot.tensor.device) != slot.tensor.device]
    if not misplaced:
        return
    first, names = misplaced[0], list(dict.fromkeys(slot.name for slot in misplaced))
    expected = devices[first.name]
    message = (
        f"The optimizer's state of {words.listed(names)} is on {first.tensor.device}, but the parameter on {expected}."
    )
    optimizer = next((o for step in evidence.steps for o in step.optimizers if first.name in o.parameters), None)
    if evidence.side == "torch":
        kind = optimizer.kind if optimizer else "SGD"
        fix = f'model.to("{expected}"); optimizer = torch.optim.{kind}(model.parameters())'
    else:
        fix = f'with tf.device("{expected}"): optimizer.build(model.trainable_variables)'
    moves = [move.source for move in evidence.moves if move.whole and move.device == expected]
    source = moves[-1] if moves else optimizer.source if optimizer else ""
    yield make_finding("error", "placement.optimizer_state", first.module, source, message, fix)


def hidden(evidence: Evidence) -> Iterator[Finding]:
    """Report modules in plain lists, dicts or closures, those of one list together; target networks may be there."""
    lists: dict[str, list[str]] = {}
    seen: list[str] = []
    for module in evidence.modules:
        if not module.registered and not any(below(other, module.name) for other in seen):
            seen.append(module.name)
            if not is_twin(evidence, module.name):
                lists.setdefault(module.name.partition("[")[0], []).append(module.name)
    for path, names in lists.items():
        message = (
            f"{words.subject(names, 'is', 'are')} not registered with the model: "
            f"the model is moved, trained and saved without {'it' if len(names) == 1 else 'them'}."
        )
        source = source_of(evidence, names[0])
        yield make_finding(
            "error", "placement.hidden", names[0], source, message, _registered(evidence.side, path, names[0])
        )


def made_in_call(evidence: Evidence) -> Iterator[Finding]:
    """Report modules with parameters that are made anew in each call of another one."""
    for modules in by_line(last(evidence).made):
        first = modules[0]
        parameters = words.count(first.parameters, "parameter")
        message = (
            f"{first.place.module} makes a new {first.kind} in each call: its {parameters} begin anew in each step and "
            f"are never trained.{words.repeated(number(modules))}"
        )
        name = first.kind.lower()
        fix = f"x = self.{name}(x)  # with self.{name} = {first.kind}(...) in __init__"
        if first.kind == "Parameter":
            fix = "self.weight = nn.Parameter(weight)  # in __init__; here, self.weight"
        yield make_finding("error", "learning.made_in_call", first.place.module, first.place.source, message, fix)


def _registered(side: str, path: str, name: str) -> str:
    """Return the code that registers a module."""
    attribute = words.leaf(path)
    if side == "torch" and name != path:
        kind = "ModuleList" if name[len(path) + 1 : len(path) + 2].isdigit() else "ModuleDict"
        return f"self.{attribute} = nn.{kind}({attribute})"
    return f"self.{attribute} = {attribute}"

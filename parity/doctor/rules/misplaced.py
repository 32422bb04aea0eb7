"""Rules about weights that are not where their module is, and modules that are not registered with the model.

An op that received tensors on several devices is explained: which tensor is misplaced, and which line put it there.
"""

import re
from collections.abc import Iterator

from parity.doctor.evidence import Evidence, Failure, Step, Tensor, Weight, below
from parity.doctor.finding import Finding, finding_at, make_finding
from parity.doctor.rules import facts, words
from parity.trace.keys import MODEL

SEEDS = "uint32"  # dtype of the states of Keras's random generators, which stay on the host


def misplaced_weights(evidence: Evidence) -> list[tuple[Weight, str]]:
    """Return the weights on the wrong device, each with the device that it should be on.

    They are parameters and buffers on another device than their module, or on the host while the model is on GPUs.
    """
    weights = [w for w in evidence.weights if w.kind != "optimizer_state" and w.tensor.dtype != SEEDS]
    homes = [(weight, _home_of(weight, evidence)) for weight in weights]
    return [(weight, home) for weight, home in homes if home not in ("", weight.tensor.device)]


def _home_of(weight: Weight, evidence: Evidence) -> str:
    """Return where a weight should be: with its module's other parameters, or on the model's GPU; "" for any device."""
    beside = [w.tensor.device for w in evidence.weights if w.module == weight.module and w.kind == "parameter"]
    beside = [device for device in beside if not facts.is_host(device)]
    of_model = facts.home(evidence) if facts.is_host(weight.tensor.device) else ""
    return max(beside, key=beside.count, default=of_model)


def placed(evidence: Evidence) -> Iterator[Finding]:
    """Report misplaced parameters and buffers, those of one line together."""

    def key(misplaced: tuple[Weight, str]) -> tuple[str, str, str, str]:
        weight, home = misplaced
        return weight.kind, facts.made_at(evidence, weight), weight.tensor.device, home

    for group in facts.grouped(misplaced_weights(evidence), key):
        (first, _), (kind, source, device, expected) = group[0], key(group[0])
        subject = words.subject([weight.name for weight, _ in group], "is", "are")
        message = f"{subject} on {device}, but the rest of the model is on {expected}."
        fix = _moved(evidence, first, expected)
        yield make_finding("error", f"placement.{kind}", first.module, source, message, fix)


def _moved(evidence: Evidence, weight: Weight, home: str) -> str:
    """Return the code that moves a misplaced weight, with its module if all of that is misplaced."""
    name = words.code(weight.name)
    of_module = [w.tensor.device for w in evidence.weights if (w.module, w.kind) == (weight.module, weight.kind)]
    if evidence.side == "torch" and weight.kind == "buffer":
        return words.moved("torch", name, home)
    if evidence.side == "keras" or set(of_module) == {weight.tensor.device}:
        return words.placed(evidence.side, words.code(weight.module), home)
    return f'{name} = nn.Parameter({name}.to("{home}"))'


def optimizer_state(evidence: Evidence) -> Iterator[Finding]:
    """Report optimizer slots on another device than their parameter; scalars such as step counters may be."""
    devices = {w.name: w.tensor.device for w in evidence.weights if w.kind == "parameter"}
    slots = [w for w in evidence.weights if w.kind == "optimizer_state" and w.tensor.shape]
    misplaced = [slot for slot in slots if devices.get(slot.name, slot.tensor.device) != slot.tensor.device]
    if not misplaced:
        return
    first, names = misplaced[0], words.listed(list(dict.fromkeys(slot.name for slot in misplaced)))
    device, expected = first.tensor.device, devices[first.name]
    message = f"The optimizer's state of {names} is on {device}, but the parameter on {expected}."
    optimizer = next((o for step in evidence.steps for o in step.optimizers if first.name in o.parameters), None)
    kind = optimizer.kind if optimizer else "SGD"
    fix = f'model.to("{expected}"); optimizer = torch.optim.{kind}(model.parameters())'
    if evidence.side == "keras":
        fix = f'with tf.device("{expected}"): optimizer.build(model.trainable_variables)'
    moves = [move.source for move in evidence.moves if move.whole and move.device == expected]
    source = moves[-1] if moves else optimizer.source if optimizer else ""
    yield make_finding("error", "placement.optimizer_state", first.module, source, message, fix)


def hidden(evidence: Evidence) -> Iterator[Finding]:
    """Report modules in plain lists, dicts or closures, those of one list together; target networks may be there."""
    outermost: list[str] = []
    for module in evidence.modules:
        if not module.registered and not any(below(name, module.name) for name in outermost):
            outermost.append(module.name)
    learning = [name for name in outermost if not facts.is_twin(evidence, name)]
    for names in facts.grouped(learning, lambda name: name.partition("[")[0]):
        path, _, key = names[0].partition("[")
        registered = attribute = words.leaf(path)
        if evidence.side == "torch" and key:
            registered = f"nn.{'ModuleList' if key[0].isdigit() else 'ModuleDict'}({attribute})"
        yield _not_registered(names, facts.source_of(evidence, names[0]), f"self.{attribute} = {registered}")


def _not_registered(names: list[str], source: str, fix: str) -> Finding:
    subject, them = words.subject(names, "is", "are"), words.agree(len(names), "it")
    message = f"{subject} not registered with the model: the model is moved, trained and saved without {them}."
    return make_finding("error", "placement.hidden", names[0], source, message, fix)


def made_in_call(evidence: Evidence) -> Iterator[Finding]:
    """Report modules with parameters that are made anew in each call of another one."""
    for made in facts.lines(facts.last(evidence).made):
        parameters = words.count(made.parameters, "parameter")
        effect = f"its {parameters} begin anew in each step and are never trained.{words.repeated(made.count)}"
        message = f"{made.place.module} makes a new {made.kind} in each call: {effect}"
        name = made.kind.lower()
        fix = f"x = self.{name}(x)  # with self.{name} = {made.kind}(...) in __init__"
        if made.kind == "Parameter":
            fix = "self.weight = nn.Parameter(weight)  # in __init__; here, self.weight"
        yield finding_at("error", "learning.made_in_call", made.place, message, fix)


def devices(evidence: Evidence, step: Step, failure: Failure) -> Finding | None:
    """Return the most likely cause: a hidden module, a misplaced weight, an input, or else an activation."""
    tensors = failure.tensors
    if len({tensor.device for tensor in tensors}) < 2 or not re.search("device|cuda|gpu", failure.message, re.I):
        return None
    if origins := [tensor.origin for tensor in tensors if tensor.origin.startswith("hidden ")]:
        name = origins[0].rpartition(" of ")[2]
        attribute = words.leaf(name)
        weights_alone = _not_registered([name], failure.place.source, f"self.{attribute} = nn.ModuleList({attribute})")
        return next(hidden(evidence), weights_alone)
    if misplaced := _misplaced_weight(evidence, failure):
        return misplaced
    if not facts.home(evidence) and facts.parameters(evidence):
        moved = next((tensor for tensor in tensors if not facts.is_host(tensor.device)), None)
        number, data = words.count(len(facts.parameters(evidence)), "parameter"), words.tensor(moved or tensors[0])
        message = f"All {number} are on the host, but {data} is not."
        fix = f'model = model.to("{moved.device if moved else "cuda:0"}")'
        return make_finding("error", "placement.parameter", MODEL, facts.source_of(evidence, MODEL), message, fix)
    expected = _device_of_op(evidence, failure)
    elsewhere = [tensor for tensor in tensors if tensor.device != expected]
    if inputs := list(filter(facts.is_input, elsewhere)):
        return _input(evidence, step, failure, inputs[0], expected)
    return _activation(evidence, failure, max(elsewhere, key=lambda tensor: facts.is_host(tensor.device)), expected)


def _misplaced_weight(evidence: Evidence, failure: Failure) -> Finding | None:
    """Return the finding for a misplaced weight of the op, or for optimizer state that is not with its parameter."""
    if failure.place.phase == "update":
        return next(optimizer_state(evidence), None)
    names = {tensor.origin.partition(" ")[2] for tensor in _weights(failure)}
    modules = {weight.module for weight, _ in misplaced_weights(evidence) if weight.name in names}
    return next((finding for finding in placed(evidence) if finding.where in modules), None)


def _device_of_op(evidence: Evidence, failure: Failure) -> str:
    """Return where the op should run: with its weights, or its module's; else on a GPU that holds an operand."""
    of_module = [weight.tensor for weight in facts.parameters(evidence) if weight.module == failure.place.module]
    on_gpu = [tensor for tensor in failure.tensors if not facts.is_host(tensor.device)]
    computed = [tensor for tensor in on_gpu if not facts.is_input(tensor)]
    first = next(iter(_weights(failure) or of_module or computed or on_gpu), None)
    return first.device if first else facts.home(evidence)


def _weights(failure: Failure) -> list[Tensor]:
    return [tensor for tensor in failure.tensors if tensor.origin.startswith(("parameter ", "buffer "))]


def _input(evidence: Evidence, step: Step, failure: Failure, tensor: Tensor, expected: str) -> Finding:
    """Return the finding for an input, at the line that calls the model with it if one does, else at the op."""
    call = facts.root_call(step)
    given = [(each.origin, each.device) for each in call.inputs] if call else []
    is_models = (tensor.origin, tensor.device) in given
    source = (call.source if is_models and call else "") or failure.place.source
    at = f" at {failure.place.source}" if source != failure.place.source and failure.place.source else ""
    what = "the model is" if is_models else "the other operands are"
    operation, described = failure.operation or "an op", f"{tensor.origin} ({words.typed(tensor)})"
    message = f"{described} is on {tensor.device}, but {what} on {expected}: {operation} fails{at}."
    fix = words.moved(evidence.side, words.variable(tensor), expected)
    where = failure.place.module or (MODEL if is_models else "")
    return make_finding("error", "input.device", where, source, message, fix)


def _activation(evidence: Evidence, failure: Failure, tensor: Tensor, expected: str) -> Finding:
    where, got = failure.place.module, f"got {words.tensor(tensor)}{words.made(tensor)}"
    operation, in_scope = failure.operation or "The op", f'with tf.device("{expected}"): x ='
    if facts.is_host(tensor.device) and tensor.origin in ("", "constant"):
        message = f"{operation} {got}, but its other operands are on {expected}."
        of_torch, source = f'x = torch.zeros(size, device="{expected}")', tensor.made or failure.place.source
        made = of_torch if evidence.side == "torch" else f"{in_scope} tf.zeros(size)"
        fix = f"{made}  # made where it is needed"
        return make_finding("error", "placement.activation", where, source, message, fix)
    beside = words.listed([words.tensor(operand) for operand in failure.tensors if operand.device == expected])
    message = f"{operation} {got}, together with {beside}: it was not moved there."
    module = words.code(where) if where not in ("", MODEL) else ""
    fix = words.moved(evidence.side, "x", expected) + (f"  # where {module} is" if module else "")
    if evidence.side == "keras":
        fix = f"{in_scope} {module or 'layer'}(tf.identity(x))"
    return finding_at("error", "placement.activation", failure.place, message, fix)

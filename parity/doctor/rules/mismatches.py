"""An op that got tensors of several devices: which of them is in the wrong place, and what put it there."""

import re

from parity.core.names import MODEL
from parity.doctor.evidence import Evidence, Failure, Step, Tensor
from parity.doctor.finding import Finding
from parity.doctor.rules import strays, words
from parity.doctor.rules.facts import found, home, host, is_input, parameters, root_call, source_of


def devices(evidence: Evidence, step: Step, failure: Failure) -> Finding | None:
    """The nearest cause: a hidden module, a weight astray, an input, else what was computed elsewhere."""
    tensors = failure.tensors
    if len({tensor.device for tensor in tensors}) < 2 or not re.search("device|cuda|gpu", failure.message, re.I):
        return None
    if any(tensor.origin.startswith("hidden ") for tensor in tensors):
        return next(strays.hidden(evidence), None) or _hidden(failure)
    if astray := _astray(evidence, failure):
        return astray
    if not home(evidence) and parameters(evidence):
        return _model_on_host(evidence, tensors)
    due = _due(evidence, failure)
    inputs = [tensor for tensor in tensors if is_input(tensor) and tensor.device != due]
    if inputs:
        return _input(evidence, step, failure, inputs[0], due)
    others = sorted((tensor for tensor in tensors if tensor.device != due), key=lambda tensor: not host(tensor.device))
    return _activation(evidence, failure, others[0], due)


def _hidden(failure: Failure) -> Finding:
    """The module is known by its weight alone."""
    origin = next(tensor.origin for tensor in failure.tensors if tensor.origin.startswith("hidden "))
    name = origin.rpartition(" of ")[2]
    message = f"{name} is not registered with the model: what moves, trains or saves the model does not see it."
    attribute = words.leaf(name)
    fix = f"self.{attribute} = nn.ModuleList({attribute})"
    return found("error", "placement.hidden", name, failure.place.source, message, fix)


def _astray(evidence: Evidence, failure: Failure) -> Finding | None:
    """A weight of the op is elsewhere than its module, or the optimizer's state than its parameter."""
    if failure.place.phase == "update":
        return next(strays.optimizer_state(evidence), None)
    tensors = failure.tensors
    names = {
        tensor.origin.partition(" ")[2] for tensor in tensors if tensor.origin.startswith(("parameter ", "buffer "))
    }
    modules = {stray.weight.module for stray in strays.strays(evidence) if stray.weight.name in names}
    return next((finding for finding in strays.placed(evidence) if finding.where in modules), None)


def _model_on_host(evidence: Evidence, tensors: list[Tensor]) -> Finding:
    device = next((tensor.device for tensor in tensors if not host(tensor.device)), "cuda:0")
    moved = next((tensor for tensor in tensors if not host(tensor.device)), tensors[0])
    message = (
        f"All {words.count(len(parameters(evidence)), 'parameter')} are on the host, and {words.tensor(moved)} is not."
    )
    fix = f'model = model.to("{device}")'
    return found("error", "placement.parameter", MODEL, source_of(evidence, MODEL), message, fix)


def _due(evidence: Evidence, failure: Failure) -> str:
    """Where the op should run: where its weights are, or its module's, else on a GPU with a tensor of its."""
    weights = [tensor for tensor in failure.tensors if tensor.origin.startswith(("parameter ", "buffer "))]
    weights += [weight.tensor for weight in parameters(evidence) if weight.module == failure.place.module]
    on_gpu = [tensor for tensor in failure.tensors if not host(tensor.device)]
    computed = [tensor for tensor in on_gpu if not is_input(tensor)]
    known = next(iter(weights or computed or on_gpu), None)
    return known.device if known else home(evidence)


def _input(evidence: Evidence, step: Step, failure: Failure, tensor: Tensor, due: str) -> Finding:
    """The line that calls the model, if the input goes in there; else that of the op."""
    call = root_call(step)
    given = bool(call and any(tensor.origin == other.origin and tensor.device == other.device for other in call.inputs))
    source = call.source if given and call and call.source else failure.place.source
    at = f" at {failure.place.source}" if source != failure.place.source and failure.place.source else ""
    what = "the model" if given else "what it meets"
    operation, seen = failure.operation or "an op", f"{tensor.origin} ({words.typed(tensor)})"
    message = f"{seen} is on {tensor.device} and {what} on {due}: {operation} fails{at}."
    fix = words.moved(evidence.side, words.variable(tensor), due)
    where = failure.place.module if failure.place.module else (MODEL if given else "")
    return found("error", "input.device", where, source, message, fix)


def _activation(evidence: Evidence, failure: Failure, tensor: Tensor, due: str) -> Finding:
    where, operation = failure.place.module, failure.operation or "The op"
    if host(tensor.device) and tensor.origin in ("", "constant"):
        message = f"{operation} got {words.tensor(tensor)}{words.made(tensor)}, the rest on {due}."
        fix = f'x = torch.zeros(size, device="{due}")  # made where it is needed'
        if evidence.side == "keras":
            fix = f'with tf.device("{due}"): x = tf.zeros(size)  # made where it is needed'
        return found("error", "placement.activation", where, tensor.made or failure.place.source, message, fix)
    others = [other for other in failure.tensors if other.device == due]
    beside = words.listed([words.tensor(other) for other in others])
    message = f"{operation} got {words.tensor(tensor)}{words.made(tensor)}, and {beside}: it was not moved."
    module = words.code(where) if where not in ("", MODEL) else ""
    fix = words.moved(evidence.side, "x", due) + (f"  # where {module} is" if module else "")
    if evidence.side == "keras":
        fix = f'with tf.device("{due}"): x = {module or "layer"}(tf.identity(x))'
    return found("error", "placement.activation", where, failure.place.source, message, fix)

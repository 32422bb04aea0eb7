"""Explain an op that received tensors on several devices: which tensor is misplaced, and which line put it there."""

import re

from parity.core.names import MODEL
from parity.doctor.evidence import Evidence, Step
from parity.doctor.evidence.common import Tensor
from parity.doctor.evidence.ops import Failure
from parity.doctor.finding import Finding
from parity.doctor.rules import strays, words
from parity.doctor.rules.facts import home, is_host, is_input, make_finding, parameters, root_call, source_of


def devices(evidence: Evidence, step: Step, failure: Failure) -> Finding | None:
    """Return the most likely cause: a hidden module, a misplaced weight, an input, or else an activation."""
    tensors = failure.tensors
    if len({tensor.device for tensor in tensors}) < 2 or not re.search("device|cuda|gpu", failure.message, re.I):
        return None
    if any(tensor.origin.startswith("hidden ") for tensor in tensors):
        return next(strays.hidden(evidence), None) or _hidden(failure)
    if misplaced := _misplaced_weight(evidence, failure):
        return misplaced
    if not home(evidence) and parameters(evidence):
        return _model_on_host(evidence, tensors)
    expected = _device_of_op(evidence, failure)
    inputs = [tensor for tensor in tensors if is_input(tensor) and tensor.device != expected]
    if inputs:
        return _input(evidence, step, failure, inputs[0], expected)
    others = sorted(
        (tensor for tensor in tensors if tensor.device != expected), key=lambda tensor: not is_host(tensor.device)
    )
    return _activation(evidence, failure, others[0], expected)


def _hidden(failure: Failure) -> Finding:
    """Return the finding for a hidden module of which only a weight is known."""
    origin = next(tensor.origin for tensor in failure.tensors if tensor.origin.startswith("hidden "))
    name = origin.rpartition(" of ")[2]
    message = f"{name} is not registered with the model: the model is moved, trained and saved without it."
    attribute = words.leaf(name)
    fix = f"self.{attribute} = nn.ModuleList({attribute})"
    return make_finding("error", "placement.hidden", name, failure.place.source, message, fix)


def _misplaced_weight(evidence: Evidence, failure: Failure) -> Finding | None:
    """Return the finding for a misplaced weight of the op, or for optimizer state that is not with its parameter."""
    if failure.place.phase == "update":
        return next(strays.optimizer_state(evidence), None)
    tensors = failure.tensors
    names = {
        tensor.origin.partition(" ")[2] for tensor in tensors if tensor.origin.startswith(("parameter ", "buffer "))
    }
    modules = {entry.weight.module for entry in strays.misplaced_weights(evidence) if entry.weight.name in names}
    return next((finding for finding in strays.placed(evidence) if finding.where in modules), None)


def _model_on_host(evidence: Evidence, tensors: list[Tensor]) -> Finding:
    """Return the finding for a model that is on the host although its data is not."""
    device = next((tensor.device for tensor in tensors if not is_host(tensor.device)), "cuda:0")
    moved = next((tensor for tensor in tensors if not is_host(tensor.device)), tensors[0])
    message = (
        f"All {words.count(len(parameters(evidence)), 'parameter')} are on the host, but {words.tensor(moved)} is not."
    )
    fix = f'model = model.to("{device}")'
    return make_finding("error", "placement.parameter", MODEL, source_of(evidence, MODEL), message, fix)


def _device_of_op(evidence: Evidence, failure: Failure) -> str:
    """Return where the op should run: with its weights, or its module's; else on a GPU that holds an operand."""
    weights = [tensor for tensor in failure.tensors if tensor.origin.startswith(("parameter ", "buffer "))]
    weights += [weight.tensor for weight in parameters(evidence) if weight.module == failure.place.module]
    on_gpu = [tensor for tensor in failure.tensors if not is_host(tensor.device)]
    computed = [tensor for tensor in on_gpu if not is_input(tensor)]
    first = next(iter(weights or computed or on_gpu), None)
    return first.device if first else home(evidence)


def _input(evidence: Evidence, step: Step, failure: Failure, tensor: Tensor, expected: str) -> Finding:
    """Return the finding for an input, at the line that calls the model with it if one does, else at the op."""
    call = root_call(step)
    is_models = bool(
        call and any(tensor.origin == other.origin and tensor.device == other.device for other in call.inputs)
    )
    source = call.source if is_models and call and call.source else failure.place.source
    at = f" at {failure.place.source}" if source != failure.place.source and failure.place.source else ""
    what = "the model is" if is_models else "the other operands are"
    operation, described = failure.operation or "an op", f"{tensor.origin} ({words.typed(tensor)})"
    message = f"{described} is on {tensor.device}, but {what} on {expected}: {operation} fails{at}."
    fix = words.moved(evidence.side, words.variable(tensor), expected)
    where = failure.place.module if failure.place.module else (MODEL if is_models else "")
    return make_finding("error", "input.device", where, source, message, fix)


def _activation(evidence: Evidence, failure: Failure, tensor: Tensor, expected: str) -> Finding:
    """Return the finding for an activation or a constant that was not moved to the op's device."""
    where, operation = failure.place.module, failure.operation or "The op"
    if is_host(tensor.device) and tensor.origin in ("", "constant"):
        message = (
            f"{operation} got {words.tensor(tensor)}{words.made(tensor)}, but its other operands are on {expected}."
        )
        fix = f'x = torch.zeros(size, device="{expected}")  # made where it is needed'
        if evidence.side == "keras":
            fix = f'with tf.device("{expected}"): x = tf.zeros(size)  # made where it is needed'
        return make_finding("error", "placement.activation", where, tensor.made or failure.place.source, message, fix)
    others = [other for other in failure.tensors if other.device == expected]
    beside = words.listed([words.tensor(other) for other in others])
    message = (
        f"{operation} got {words.tensor(tensor)}{words.made(tensor)}, together with {beside}: it was not moved there."
    )
    module = words.code(where) if where not in ("", MODEL) else ""
    fix = words.moved(evidence.side, "x", expected) + (f"  # where {module} is" if module else "")
    if evidence.side == "keras":
        fix = f'with tf.device("{expected}"): x = {module or "layer"}(tf.identity(x))'
    return make_finding("error", "placement.activation", where, failure.place.source, message, fix)

"""Explain the exception that ended a step: by the first explanation that fits, or else by the exception itself.

And report the calls that virtual GPUs do not imitate, of which some end the step.
"""

import re
from collections.abc import Callable, Iterator

from parity.doctor.evidence import Carried, Code, Evidence, Failure, InPlace, Step
from parity.doctor.finding import Finding, finding_at, make_finding
from parity.doctor.rules import facts, learning, misplaced, operands, words
from parity.trace.keys import MODEL

Explanation = Callable[[Evidence, Step, Failure], Finding | None]
OUT_OF_PLACE = {"add": "+", "iadd": "+", "sub": "-", "isub": "-", "mul": "*", "imul": "*", "div": "/", "itruediv": "/"}
GRAPHS = ("modified by an inplace operation", "through the graph a second time")
ERROR = "NotPretendedError"  # what a call raises without which the program cannot go on
DTYPES = re.compile(r"dtype|scalar type|data type|same type|input type|be a \w+ tensor|DT_|type float|Float|Double")
NO_GRADIENTS = ("No gradients provided for any variable", "does not require grad and does not have a grad_fn")


def failed(evidence: Evidence) -> Iterator[Finding]:
    """Report the failure of each step."""
    later = [Step(failure=evidence.later)] if evidence.later else []
    for step in evidence.steps + later:
        if step.failure:
            first = next((line for line in step.failure.message.splitlines() if line.strip()), "")
            message = f"{step.failure.exception}: {first}" if first else step.failure.exception
            unexplained = finding_at("error", "step.raised", step.failure.place, message, "")
            explained = (explain(evidence, step, step.failure) for explain in EXPLANATIONS)
            yield next(filter(None, explained), unexplained)


def in_place(_: Evidence, step: Step, failure: Failure) -> Finding | None:
    """Return the finding for an op that overwrote a tensor which the backward pass needs."""
    if "modified by an inplace operation" not in failure.message or not step.in_places:
        return None
    change = max(reversed(step.in_places), key=lambda change: _fits(change, failure.message))
    message = (
        f"{change.operation} overwrites a tensor {change.shape} that {change.made_by or 'an op'} returned and needs in "
        f"the backward pass, which fails at {failure.place.source or 'loss.backward()'}."
    )
    name = change.operation.strip("_")
    sign = OUT_OF_PLACE.get(name, "")
    fix = f"out = out {sign} x" if sign else f"out = out.clone().{name}_()" if name else "out = out.clone()"
    return finding_at("error", "autograd.in_place", change.place, message, fix)


def used_up(evidence: Evidence, step: Step, failure: Failure) -> Finding | None:
    """Return the finding for a pass into the graph of the step before, or into that of another optimizer's pass."""
    if not any(text in failure.message for text in GRAPHS):
        return None
    consequence = f"the backward pass goes on into the step before and fails, at {failure.place.source}"
    return state_kept(step.carried, consequence) if step.carried else next(learning.undetached(evidence), None)


def state_kept(state: Carried, consequence: str) -> Finding:
    """Return the finding for a state that is carried from step to step with its graph."""
    message = (
        f"{words.tensor(state.tensor)} was computed by an earlier step and is used with its graph: {consequence}. "
        "retain_graph=True does not help: the graph grows, and its weights have been updated since."
    )
    line = state.mended or Code(source=state.place.source, fix="state = state.detach()")
    where, fix = state.place.module, f"{line.fix}  # before this line"
    return make_finding("error", "autograd.state_kept", where, line.source, message, fix)


def batch_of_one(evidence: Evidence, _: Step, failure: Failure) -> Finding | None:
    """Return the finding for a normalisation over a single value per channel."""
    if "Expected more than 1 value per channel" not in failure.message:
        return None
    norm = facts.module(evidence, failure.place.module)
    message = (
        f"{norm.name or 'Batch norm'} normalises over the batch, which has one value per channel: minus its own mean, "
        "it is always 0. Use larger batches (drop_last=True, if only the last is so small), or a norm for each sample."
    )
    fix = str(norm.facts.get("each_sample") or "x = nn.functional.group_norm(x, 1)")
    return make_finding("error", "shape.batch_of_one", norm.name, norm.source or failure.place.source, message, fix)


def _fits(change: InPlace, message: str) -> int:
    """Return how well a change fits PyTorch's message, which names the tensor's shape and the op that made it."""
    shape = re.search(r"\[torch\.\w+ \[([\d, ]*)\]\]", message)
    node = re.search(r"output \d+ of (\w+?)Backward\d*", message)
    sizes = [int(size) for size in shape[1].split(",") if size.strip()] if shape else None
    plain = node[1].lower() if node else None
    made = [name.replace("_", "").lower() for name in (change.made_by, change.operation)]
    return 2 * (sizes == change.shape) + (2 * (plain == made[0]) or (plain == made[1]))


def no_gradients(evidence: Evidence, step: Step, failure: Failure) -> Finding | None:
    """Return the finding for a step in which no parameter gets a gradient at all."""
    # Keras's optimizers then raise, since they need one at least; PyTorch's backward pass, since the loss has no graph.
    if not any(text in failure.message for text in NO_GRADIENTS):
        return None
    cut = min(step.cuts, key=lambda cut: cut.what == "integers", default=None)  # argmax may only compute an accuracy
    message = f"No gradient reaches any parameter, so that the line {failure.place.source} fails."
    fix = "with tf.GradientTape() as tape: output = model(x, training=True)  # the forward pass within the tape"
    if evidence.side == "torch":
        fix = "loss = criterion(model(x), target)  # of what the model returned, by differentiable ops alone"
    place, line = (cut.place, cut.mended) if cut else (failure.place, None)
    return make_finding("error", "learning.no_gradient", MODEL, place.source, message, fix, line)


def ids_range(evidence: Evidence, _: Step, failure: Failure) -> Finding | None:
    """Return the finding for an id that an embedding has no row for."""
    beyond = re.search(r"= (-?\d+) is not in \[0, (\d+)\)", failure.message)
    is_index_error = failure.exception == "IndexError" and "out of range" in failure.message
    if not beyond and not (is_index_error and _embeds(evidence, failure)):
        return None
    tables = [tensor.shape[0] for tensor in failure.tensors if len(tensor.shape) == 2 and tensor.dtype in facts.FLOATS]
    known = facts.module(evidence, failure.place.module).facts.get("rows") or next(iter(tables), "")
    rows = beyond[2] if beyond else str(known)
    wrong = f"the id {beyond[1]}" if beyond else "an id without a row"
    has = words.count(int(rows), "row") if rows.isdecimal() else "too few rows"
    message = f"{failure.place.module or 'The embedding'} has {has}, numbered from 0, but got {wrong}."
    needed = str(int(beyond[1]) + 1) if beyond and int(beyond[1]) >= 0 else "largest_id + 1"
    fix = f"nn.Embedding({needed}, ...)" if evidence.side == "torch" else f"keras.layers.Embedding({needed}, ...)"
    return finding_at("error", "type.ids_range", failure.place, message, fix)


def _embeds(evidence: Evidence, failure: Failure) -> bool:
    kind = facts.module(evidence, failure.place.module).kind
    return "embedding" in failure.operation.lower() or "Embedding" in kind


def float_ids(evidence: Evidence, _: Step, failure: Failure) -> Finding | None:
    """Return the finding for an embedding that received floats as ids."""
    if not _embeds(evidence, failure) or len({tensor.device for tensor in failure.tensors}) > 1:
        return None
    floats = [tensor for tensor in failure.tensors if tensor.dtype in facts.FLOATS and tensor.shape]
    ids = [tensor for tensor in floats if not tensor.origin.startswith(("parameter ", "hidden "))]
    where, line = failure.place.module, failure.place.source
    return operands.ids_as_floats(evidence, ids[0], where, line, "error") if ids else None


def unused_ddp(evidence: Evidence, _: Step, failure: Failure) -> Finding | None:
    """Return the finding for unused parameters; DistributedDataParallel raises in the step after they were left out."""
    if "Expected to have finished reduction" not in failure.message:
        return None
    return next(learning.unused_ddp(evidence), None) or learning.unused_under_ddp(evidence, [])


def types(evidence: Evidence, step: Step, failure: Failure) -> Finding | None:
    """Return the finding for an op that received tensors of two types."""
    tensors = [tensor for tensor in failure.tensors if tensor.dtype in facts.FLOATS + facts.INTEGERS]
    if len({tensor.dtype for tensor in tensors}) < 2 or not re.search(DTYPES, failure.message):
        return None
    if integers := [tensor for tensor in tensors if tensor.dtype in facts.INTEGERS]:
        tensor, line, operation = integers[0], failure.place.source, failure.operation or "The op"
        message = f"{operation} computes with floats, but got {words.tensor(tensor)}{words.made(tensor)}."
        fix = words.cast(evidence.side, words.variable(tensor))
        if _embeds(evidence, failure):
            message = f"{words.tensor(tensor)} is used as ids, but an embedding takes int32 or int64."
            line, fix = tensor.made or line, words.cast(evidence.side, words.variable(tensor, "ids"), to_ids=True)
        return make_finding("error", "type.integer_input", failure.place.module, line, message, fix)
    if not (doubles := [tensor for tensor in tensors if tensor.dtype == operands.DOUBLE]):
        return None
    given = list(filter(facts.is_input, doubles))
    # If it is no input itself, then a parameter or an input has made the op's operand float64.
    sources = [] if given else [*operands.float64_parameter(evidence), *operands.float64_input(evidence)]
    finding = (sources or [operands.double_input(evidence, (given or doubles)[0], failure.place.source)])[0]
    finding.severity = "error"
    return finding


def not_pretended(evidence: Evidence) -> Iterator[Finding]:
    """Report the calls that did not end the program, those with the same consequence together."""
    for calls in facts.grouped(evidence.not_pretended, lambda call: call.instead):
        others = [f"{call.call} at {call.source}" for call in calls[1:]]
        also = f" (also {', '.join(others)})" if others else ""
        message = f"Virtual GPUs do not imitate {calls[0].call}{also}: {calls[0].instead}."
        yield make_finding("note", "gpu.not_pretended", "", calls[0].source, message, "")


def refused(_: Evidence, __: Step, failure: Failure) -> Finding | None:
    """Return the finding for a call that is not imitated, without which the program could not go on."""
    message = f"{failure.message} The step ends here: the findings are about what ran before."
    is_refused = failure.exception == ERROR
    return finding_at("error", "gpu.not_pretended", failure.place, message, "") if is_refused else None


# In this order: the first explanation that fits counts.
EXPLANATIONS: tuple[Explanation, ...] = (
    *(refused, used_up, in_place, batch_of_one, ids_range, no_gradients),
    *(unused_ddp, misplaced.devices, float_ids, types),
)

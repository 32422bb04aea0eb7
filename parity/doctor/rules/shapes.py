"""Rules about shapes that fit by accident: batch and sequence swapped, a loss that broadcasts, a wrong class axis."""

from collections.abc import Iterator, Sequence

from parity.doctor.evidence import Evidence, Step
from parity.doctor.evidence.common import Tensor
from parity.doctor.evidence.ops import Broadcast, Call
from parity.doctor.evidence.training import LossCall
from parity.doctor.finding import Finding, finding_at, make_finding
from parity.doctor.rules import facts, words

ELEMENTWISE = ("mse", "l1", "huber", "mae", "absolute", "squared")
# The layer whose constructor takes batch_first, for modules that are built from such a layer.
STACKS = {"TransformerEncoder": "TransformerEncoderLayer", "TransformerDecoder": "TransformerDecoderLayer"}
CLASSES = ("cross_entropy", "nll_loss")


def sequence_first(evidence: Evidence) -> Iterator[Finding]:
    """Report batch-first data in a module that takes the first axis for the sequence."""
    for step in evidence.steps:
        for call in step.calls:
            if facts.module(evidence, call.module).facts.get("batch_first") is False and (why := _swapped(step, call)):
                first, second, _ = call.inputs[0].shape
                message = (
                    f"{call.module} takes {words.typed(call.inputs[0])} for {words.count(first, 'step')} of a sequence "
                    f"and a batch of {second} (batch_first=False), but {why}: batch and sequence are swapped."
                )
                kind = facts.module(evidence, call.module).kind
                fix = f"nn.{STACKS.get(kind, kind)}(..., batch_first=True)"
                if made := facts.source_of(evidence, call.module):
                    fix += f"  # at {made}"
                yield make_finding("warning", "shape.sequence_first", call.module, call.source, message, fix)
                return


def _swapped(step: Step, call: Call) -> str:
    """Return what shows that the first axis is the batch; "" if nothing does."""
    shape = call.inputs[0].shape if call.inputs else []
    if len(shape) != 3 or shape[0] == shape[1]:
        return ""
    of_sequence = (shape[1:], [1, *shape[1:]])
    for wide in step.broadcasts:
        if wide.left.shape == shape and wide.right.shape in of_sequence and not facts.is_input(wide.right):
            return f"{words.typed(wide.right)} is added along the second axis at {wide.place.source}"
    root = facts.root_call(step)
    output = root.outputs[0].shape if root and root.outputs else []
    if output[:1] == shape[:1] and output[1:2] != shape[1:2]:
        return f"the model returns one row for each of the {shape[0]}, {output}"
    return ""


def loss_broadcast(evidence: Evidence) -> Iterator[Finding]:
    """Report (N, 1) with (N,) in a loss: every prediction is compared with every target."""
    for step in evidence.steps:
        # Keras's own losses remove that axis themselves.
        elementwise = [call for call in step.losses if any(word in call.function.lower() for word in ELEMENTWISE)]
        stretched = [call for call in elementwise if _stretched(call.input, call.target)]
        for calls in facts.by_line(stretched if evidence.side == "torch" else ()):
            call = calls[0]
            yield _all_pairs(evidence, call.function, call.input, call.target, calls)
        in_loss = [w for w in step.broadcasts if w.place.phase in ("loss", "other") and not w.place.module]
        for broadcasts in facts.by_line(wide for wide in in_loss if _stretched(wide.left, wide.right)):
            wide = broadcasts[0]
            yield _all_pairs(evidence, wide.operation, wide.left, wide.right, broadcasts)


def _stretched(left: Tensor, right: Tensor) -> bool:
    """Return whether one shape is the other with an axis of 1 behind it, whose last axis is longer than 1."""
    short, long = sorted((left.shape, right.shape), key=len)
    return bool(short) and long == [*short, 1] and short[-1] > 1


def _all_pairs(
    evidence: Evidence, function: str, left: Tensor, right: Tensor, seen: Sequence[LossCall | Broadcast]
) -> Finding:
    """Return the finding for what was seen at one line, of which the operands of the first are given."""
    column = left if len(left.shape) > len(right.shape) else right
    row = right if column is left else left
    result = [*column.shape[:-1], row.shape[-1]]
    message = (
        f"{function} of {words.tensor(left)} and {words.tensor(right)} makes {result}: every prediction is compared "
        f"with every target.{words.repeated(facts.number(seen))}"
    )
    name = words.variable(column, "target" if words.variable(row, "") == "" and column is right else "output")
    fix = f"{name} = {name}.squeeze(-1)" if evidence.side == "torch" else f"{name} = tf.squeeze({name}, -1)"
    return make_finding("error", "shape.loss_broadcast", "", seen[0].place.source, message, seen[0].squeezed or fix)


def class_axis(evidence: Evidence) -> Iterator[Finding]:
    """Report a cross entropy that takes axis 1 for the classes, when they are last and both axes are equally long."""
    for step in evidence.steps:
        for calls in facts.by_line(filter(_has_classes_last, step.losses if evidence.side == "torch" else ())):
            call = calls[0]
            message = (
                f"{call.function} takes axis 1 of {words.typed(call.input)} for the classes, but a linear layer "
                f"returned them on the last axis. It passes only because both have {call.input.shape[1]}."
                f"{words.repeated(facts.number(calls))}"
            )
            generic = f"loss = F.{call.function}(output.transpose(1, -1), target)"
            yield finding_at("warning", "shape.class_axis", call.place, message, call.transposed or generic)


def _has_classes_last(call: LossCall) -> bool:
    """Return whether a cross entropy takes another axis for the classes than a linear layer, and both are as long."""
    shape = call.input.shape
    return call.function in CLASSES and call.straight and len(shape) >= 3 and shape[1] == shape[-1]

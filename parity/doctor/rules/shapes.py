"""Rules about shapes that fit by accident: batch and sequence swapped, a loss that broadcasts, a wrong class axis."""

from collections.abc import Iterator

from parity.doctor.evidence import Evidence, Step
from parity.doctor.evidence.common import Code, Tensor
from parity.doctor.evidence.ops import Broadcast, Call
from parity.doctor.finding import Finding
from parity.doctor.rules import words
from parity.doctor.rules.facts import is_input, make_finding, module, root_call, source_of

ELEMENTWISE = ("mse", "l1", "huber", "mae", "absolute", "squared")
# The layer whose constructor takes batch_first, for modules that are built from such a layer.
STACKS = {"TransformerEncoder": "TransformerEncoderLayer", "TransformerDecoder": "TransformerDecoderLayer"}
CLASSES = ("cross_entropy", "nll_loss")


def sequence_first(evidence: Evidence) -> Iterator[Finding]:
    """Report batch-first data in a module that takes the first axis for the sequence."""
    for step in evidence.steps:
        for call in step.calls:
            if module(evidence, call.module).facts.get("batch_first") is False and (why := _swapped(step, call)):
                first, second, _ = call.inputs[0].shape
                message = (
                    f"{call.module} takes {words.typed(call.inputs[0])} for {first} steps of a sequence and a batch of "
                    f"{second} (batch_first=False), but {why}: batch and sequence are swapped."
                )
                kind = module(evidence, call.module).kind
                fix = f"nn.{STACKS.get(kind, kind)}(..., batch_first=True)"
                if made := source_of(evidence, call.module):
                    fix += f"  # at {made}"
                yield make_finding("warning", "shape.sequence_first", call.module, call.source, message, fix)
                return


def _swapped(step: Step, call: Call) -> str:
    """Return what shows that the first axis is the batch; "" if nothing does."""
    shape = call.inputs[0].shape if call.inputs else []
    if len(shape) != 3 or shape[0] == shape[1]:
        return ""
    for wide in step.broadcasts:
        if wide.left.shape == shape and wide.right.shape in (shape[1:], [1, *shape[1:]]) and not is_input(wide.right):
            return f"{words.typed(wide.right)} is added along the second axis at {wide.place.source}"
    root = root_call(step)
    output = root.outputs[0].shape if root and root.outputs else []
    if output[:1] == shape[:1] and output[1:2] != shape[1:2]:
        return f"the model returns one row for each of the {shape[0]}, {output}"
    return ""


def loss_broadcast(evidence: Evidence) -> Iterator[Finding]:
    """Report (N, 1) with (N,) in a loss: every prediction is compared with every target."""
    for step in evidence.steps:
        for call in step.losses:
            # Keras's own losses remove that axis themselves.
            elementwise = any(word in call.function.lower() for word in ELEMENTWISE)
            if evidence.side == "torch" and elementwise and _stretched(call.input, call.target):
                yield _all_pairs(evidence, call.function, call.input, call.target, call.place.source, call.squeezed)
        for wide in step.broadcasts:
            if _in_loss(wide) and _stretched(wide.left, wide.right):
                yield _all_pairs(evidence, wide.operation, wide.left, wide.right, wide.place.source, wide.squeezed)


def _in_loss(wide: Broadcast) -> bool:
    return wide.place.phase in ("loss", "other") and not wide.place.module


def _stretched(left: Tensor, right: Tensor) -> bool:
    """Return whether one shape is the other with an axis of 1 behind it, whose last axis is longer than 1."""
    short, long = sorted((left.shape, right.shape), key=len)
    return bool(short) and long == [*short, 1] and short[-1] > 1


def _all_pairs(
    evidence: Evidence, function: str, left: Tensor, right: Tensor, source: str, squeezed: Code | None
) -> Finding:
    column = left if len(left.shape) > len(right.shape) else right
    row = right if column is left else left
    result = [*column.shape[:-1], row.shape[-1]]
    message = (
        f"{function} of {words.tensor(left)} and {words.tensor(right)} makes {result}: every prediction is compared "
        "with every target."
    )
    name = words.variable(column, "target" if words.variable(row, "") == "" and column is right else "output")
    fix = f"{name} = {name}.squeeze(-1)" if evidence.side == "torch" else f"{name} = tf.squeeze({name}, -1)"
    return make_finding("error", "shape.loss_broadcast", "", source, message, squeezed.fix if squeezed else fix)


def class_axis(evidence: Evidence) -> Iterator[Finding]:
    """Report a cross entropy that takes axis 1 for the classes, when they are last and both axes are equally long."""
    for step in evidence.steps:
        for call in step.losses:
            shape = call.input.shape
            fits = len(shape) >= 3 and shape[1] == shape[-1] and call.straight
            if evidence.side == "torch" and fits and call.function in CLASSES:
                message = (
                    f"{call.function} takes axis 1 of {words.typed(call.input)} for the classes, but a linear layer "
                    f"returned them on the last axis. It passes only because both have {shape[1]}."
                )
                generic = f"loss = F.{call.function}(output.transpose(1, -1), target)"
                fix = call.transposed.fix if call.transposed else generic
                yield make_finding("warning", "shape.class_axis", call.place.module, call.place.source, message, fix)

"""Rules about operands that do not go together, by their types or by shapes that only fit by accident.

Types: float64 among float32, floats as ids, float16 without loss scaling. Shapes: batch and sequence swapped, a loss
that broadcasts, a wrong axis of the classes.
"""

from collections import Counter
from collections.abc import Iterator

from parity.doctor.evidence import Broadcast, Call, Evidence, LossCall, Step, Tensor
from parity.doctor.finding import Finding, Severity, finding_at, make_finding
from parity.doctor.rules import facts, words
from parity.trace.keys import MODEL

DOUBLE = "float64"
SINGLES = tuple(dtype for dtype in facts.FLOATS if dtype != DOUBLE)
ELEMENTWISE = ("mse", "l1", "huber", "mae", "absolute", "squared")
# The layer whose constructor takes batch_first, for modules that are built from such a layer.
STACKS = {"TransformerEncoder": "TransformerEncoderLayer", "TransformerDecoder": "TransformerDecoderLayer"}
CLASSES = ("cross_entropy", "nll_loss")


def float64_parameter(evidence: Evidence) -> Iterator[Finding]:
    """Report float64 parameters in a program of float32."""
    doubles = [weight for weight in facts.parameters(evidence) if weight.tensor.dtype == DOUBLE]
    doubles = doubles if mixed_with_float64(evidence) else []
    for weights in facts.grouped(doubles, lambda weight: facts.made_at(evidence, weight)):
        first, size = weights[0], words.size(sum(weight.tensor.bytes for weight in weights))
        subject = words.subject([weight.name for weight in weights], "is", "are")
        message = f"{subject} float64 ({size}), but the rest of the program is not."
        where, layer = first.module or MODEL, words.code(first.module)
        fix = f"{layer}.float()" if evidence.side == "torch" else 'keras.config.set_dtype_policy("float32")'
        yield make_finding("warning", "type.float64_parameter", where, facts.made_at(evidence, first), message, fix)


def float64_input(evidence: Evidence) -> Iterator[Finding]:
    """Report float64 inputs in a program of float32."""
    if not mixed_with_float64(evidence) or all(w.tensor.dtype == DOUBLE for w in facts.parameters(evidence)):
        return
    for step in evidence.steps:
        ids = {tensor.origin for _, tensor in looked_up(evidence, step)}
        for tensor in facts.inputs(step):
            if tensor.dtype == DOUBLE and tensor.origin not in ids:
                call = facts.root_call(step)
                yield double_input(evidence, tensor, call.source if call else "")


def double_input(evidence: Evidence, tensor: Tensor, called: str) -> Finding:
    """Return the finding for a float64 input, at the line that made it so, or else the one that used it (`called`)."""
    after = f"; it goes in at {called}" if tensor.made and called else ""
    why = f"but the parameters are not: twice the bytes, and slow on a GPU{after}"
    message = f"{words.tensor(tensor)} is float64, {why}."
    fix = words.cast(evidence.side, words.variable(tensor)) + ("  # or no cast to float64" if tensor.made else "")
    return make_finding("warning", "type.float64_input", "", tensor.made or called, message, fix)


def looked_up(evidence: Evidence, step: Step) -> list[tuple[Call, Tensor]]:
    """Return the calls of embeddings with the ids that went in."""
    calls = [call for call in step.calls if call.inputs]
    return [(call, call.inputs[0]) for call in calls if facts.module(evidence, call.module).kind == "Embedding"]


def mixed_with_float64(evidence: Evidence) -> bool:
    """Return whether some parameters and inputs are float64 and others not; if all are, the user wants that."""
    types = {weight.tensor.dtype for weight in facts.parameters(evidence)}
    types |= {tensor.dtype for step in evidence.steps for tensor in facts.inputs(step)}
    return DOUBLE in types and not types.isdisjoint(SINGLES)


def mixed_parameters(evidence: Evidence) -> Iterator[Finding]:
    """Report parameters of several float types."""
    singles = [weight for weight in facts.parameters(evidence) if weight.tensor.dtype in SINGLES]
    types = Counter(weight.tensor.dtype for weight in singles)
    if len(types) < 2:
        return
    most = max(types, key=lambda dtype: (dtype == "float32", types[dtype]))
    odd = [weight for weight in singles if weight.tensor.dtype != most]
    shares = ", ".join(f"{number} {dtype}" for dtype, number in types.most_common())
    subject = words.subject([weight.name for weight in odd], "differs", "differ")
    message = f"The parameters are of several types: {shares}; {subject} from most."
    layer = words.code(odd[0].module)
    fix = f"{layer}.to(torch.{most})" if evidence.side == "torch" else f'keras.config.set_dtype_policy("{most}")'
    yield make_finding("warning", "type.mixed_parameters", MODEL, facts.made_at(evidence, odd[0]), message, fix)


def float_ids(evidence: Evidence) -> Iterator[Finding]:
    """Report embeddings that get floats as ids, which Keras rounds silently."""
    for step in evidence.steps:
        lookups = [(call, ids) for call, ids in looked_up(evidence, step) if call.outputs and ids.dtype in facts.FLOATS]
        # As they went into the model, before any cast on the way.
        inputs = {tensor.origin: tensor for call in reversed(step.calls) for tensor in reversed(call.inputs)}
        given = [(call, inputs[ids.origin] if ids.origin else ids) for call, ids in lookups]
        # If integers were given, Keras itself cast them.
        floats = [(call, ids) for call, ids in given if ids.dtype in facts.FLOATS]
        for group in facts.grouped(floats, lambda entry: (entry[0].module, entry[1].made or entry[0].source)):
            call, ids = group[0]
            finding = ids_as_floats(evidence, ids, call.module, call.source, "warning")
            finding.message += words.repeated(len(group))
            yield finding


def ids_as_floats(evidence: Evidence, ids: Tensor, where: str, called: str, severity: Severity) -> Finding:
    # The only fix is to leave the cast to floats out: casting back does not restore large ids.
    cast = f", cast at {ids.made}" if ids.made else ""
    message = (
        f"{where or 'The embedding'} looks up rows by integer ids and got {words.tensor(ids)}{cast}. Ids stay "
        f"integers: casting them to another float type, as .float() does, is no remedy, because it rounds large ids."
    )
    fix = words.cast(evidence.side, words.variable(ids, "ids"), to_ids=True)
    fix += f"  # of the ids as they were: leave the cast to {ids.dtype} out" if ids.made else ""
    return make_finding(severity, "type.float_ids", where, ids.made or called, message, fix)


def loss_scaling(evidence: Evidence) -> Iterator[Finding]:
    """Report gradients in float16 without loss scaling: small ones become zero."""
    for step in evidence.steps:
        if step.half and not step.loss_scaled and facts.backward_ran(evidence):
            message = "The model computes in float16 and the loss is not scaled: gradients below 6e-8 become 0."
            fix = "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()"
            if evidence.side == "keras":
                fix = "optimizer = keras.optimizers.LossScaleOptimizer(optimizer)"
            yield make_finding("warning", "type.loss_scaling", "", step.half, message, fix)


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
    is_by_sample = output[:1] == shape[:1] and output[1:2] != shape[1:2]
    return f"the model returns one row for each of the {shape[0]}, {output}" if is_by_sample else ""


def loss_broadcast(evidence: Evidence) -> Iterator[Finding]:
    """Report (N, 1) with (N,) in a loss: every prediction is compared with every target."""
    for step in evidence.steps:
        # Keras's own losses remove that axis themselves.
        elementwise = [call for call in step.losses if any(word in call.function.lower() for word in ELEMENTWISE)]
        stretched = [call for call in elementwise if _stretched(call.input, call.target)]
        for call in facts.lines(stretched if evidence.side == "torch" else ()):
            yield _all_pairs(evidence, call.function, call.input, call.target, call)
        in_loss = [w for w in step.broadcasts if w.place.phase in ("loss", "other") and not w.place.module]
        for wide in facts.lines(wide for wide in in_loss if _stretched(wide.left, wide.right)):
            yield _all_pairs(evidence, wide.operation, wide.left, wide.right, wide)


def _stretched(left: Tensor, right: Tensor) -> bool:
    """Return whether one shape is the other with an axis of 1 behind it, whose last axis is longer than 1."""
    short, long = sorted((left.shape, right.shape), key=len)
    return bool(short) and long == [*short, 1] and short[-1] > 1


def _all_pairs(evidence: Evidence, function: str, left: Tensor, right: Tensor, seen: LossCall | Broadcast) -> Finding:
    column, row = (left, right) if len(left.shape) > len(right.shape) else (right, left)
    result = [*column.shape[:-1], row.shape[-1]]
    effect = f"every prediction is compared with every target.{words.repeated(seen.count)}"
    message = f"{function} of {words.tensor(left)} and {words.tensor(right)} makes {result}: {effect}"
    name = words.variable(column, "target" if words.variable(row, "") == "" and column is right else "output")
    fix = f"{name} = {name}.squeeze(-1)" if evidence.side == "torch" else f"{name} = tf.squeeze({name}, -1)"
    return make_finding("error", "shape.loss_broadcast", "", seen.place.source, message, seen.squeezed or fix)


def class_axis(evidence: Evidence) -> Iterator[Finding]:
    """Report a cross entropy that takes axis 1 for the classes, when they are last and both axes are equally long."""
    for step in evidence.steps:
        # A linear layer's classes are last, and the loss takes another axis of the same length for them.
        deep = [call for call in step.losses if call.function in CLASSES and len(call.input.shape) >= 3]
        equal = [call for call in deep if call.straight and call.input.shape[1] == call.input.shape[-1]]
        for call in facts.lines(equal):
            message = (
                f"{call.function} takes axis 1 of {words.typed(call.input)} for the classes, but a linear layer "
                f"returned them on the last axis. It passes only because both have {call.input.shape[1]}."
                f"{words.repeated(call.count)}"
            )
            generic = f"loss = F.{call.function}(output.transpose(1, -1), target)"
            yield finding_at("warning", "shape.class_axis", call.place, message, call.transposed or generic)

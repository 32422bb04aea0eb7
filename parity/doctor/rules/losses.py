"""Rules about values: losses that get others than they expect, or other samples' targets; the first NaN or infinity."""

from collections.abc import Iterator
from typing import NamedTuple

from parity.doctor.evidence import Evidence, LossCall
from parity.doctor.finding import Finding, finding_at, make_finding
from parity.doctor.rules import facts, words

SLACK = 1e-2  # error of probabilities and their sums, which is this large in half precision
TWICE = {"softmax": "a cross entropy", "sigmoid": "a loss"}  # what applies an activation itself
ONE_ORDER = {
    "torch": "order = torch.randperm(len(x)); x, y = x[order], y[order]",
    "keras": "order = tf.random.shuffle(tf.range(len(x))); x, y = tf.gather(x, order), tf.gather(y, order)",
}


def unfit_input(evidence: Evidence) -> Iterator[Finding]:
    """Report losses that get something else than they expect, once for each module, activation and line."""

    def key(call: LossCall) -> tuple[str, str, str, str]:
        return _unfit(call)[0], call.place.module, _activation(call), (call.mended or call.place).source

    for step in evidence.steps:
        for calls in facts.grouped(filter(_unfit, step.losses), key):
            call, (name, why, fix) = facts.merged(calls), _unfit(calls[0])
            message = f"{call.function} {why}{words.repeated(call.count)}"
            yield finding_at("error", name, call.place, message, fix, call.mended)


def _unfit(call: LossCall) -> tuple[str, ...]:
    """Return the id of the finding, what is wrong and the fix; () if the input fits."""
    low, high, activation = call.smallest, call.largest, _activation(call)
    if call.takes == "logits" and activation in TWICE:  # known by the op that made them or by sums of 1
        why = (
            f"gets probabilities ({activation}, {_range(call)}), but it is {TWICE[activation]} that applies the "
            f"{activation} itself: applied twice, it makes what is learned too flat."
        )
        return f"loss.{activation}_twice", why, f"{call.function}(logits, target)"
    if call.takes == "log_probabilities" and (high or 0) > SLACK:
        effect = "the result is no likelihood and has no lower bound"
        why = f"takes logarithms of probabilities, which are at most 0, but gets {_range(call)}: {effect}."
        return "loss.not_logarithms", why, f"{call.function}(log_probabilities, target)"
    if call.takes == "probabilities" and low is not None and high is not None and (low < -SLACK or high > 1 + SLACK):
        effect = "it clips them, and most gradients are 0 or wrong"
        why = f"takes probabilities (from_logits=False), but gets {_range(call)}: {effect}."
        return "loss.raw_logits", why, "from_logits=True"
    return ()


def softmax_axis(evidence: Evidence) -> Iterator[Finding]:
    """Report a softmax over the samples, known by its axis or by sums of 1 over them, and not over the classes."""
    for call in (call for step in evidence.steps for call in step.losses):
        source, line = call.place.source, call.over_samples
        if line is not None:
            message = (
                f"{call.function} gets {words.typed(call.input)} from a softmax over axis 0, which is the batch: "
                "the probabilities of a class sum to 1 over the samples, and each sample depends on the others."
            )
            fix = "softmax(logits, -1)"
        elif _sum_to_one(call, call.columns) and not _sum_to_one(call, call.sums):
            message = (
                f"{call.function} gets probabilities {words.typed(call.input)} that sum to 1 over the batch, not "
                "over the classes: a softmax has the wrong axis, and each sample depends on the others."
            )
            source, line = call.input.made or source, call.by_class
            fix = "probabilities = softmax(logits, -1)"
        else:
            continue
        yield make_finding("error", "loss.softmax_axis", call.place.module, source, message, fix, line)


def _activation(call: LossCall) -> str:
    return call.activation or ("softmax" if _sum_to_one(call, call.sums) else "")


def shuffled_apart(evidence: Evidence) -> Iterator[Finding]:
    """Report targets in another order than the samples, unless another loss of the step has them in that order."""
    for step in evidence.steps:
        apart = [call for call in step.losses if call.rows == "apart"]
        if apart and not any(call.rows == "together" for call in step.losses):
            call = apart[0]
            count = facts.number(each for each in apart if each.place.source == call.place.source)
            message = (
                f"The rows of {words.tensor(call.target)} in {call.function} stand in another order than those that "
                f"the model was given: samples and targets were shuffled apart.{words.repeated(count)}"
            )
            fix, line = ONE_ORDER[evidence.side], call.reordered
            yield finding_at("error", "loss.shuffled_apart", call.place, message, fix, line)


def replica_mean(evidence: Evidence) -> Iterator[Finding]:
    """Report a loss that is the mean over one replica's samples, while the replicas' gradients are added up."""
    for step in evidence.steps:
        for backward in step.backwards:
            if backward.replicas > 1 and backward.average and backward.summed:
                larger = words.times(backward.replicas)
                message = (
                    "The loss is a mean over the samples of one replica, and the optimizer adds up the gradients of "
                    f"{backward.replicas} replicas: they are {larger} those of the mean over the whole batch, as with "
                    f"a learning rate {larger} as large."
                )
                fix = "loss = tf.nn.compute_average_loss(losses)  # losses of the samples"
                yield make_finding("warning", "loss.replica_mean", "", "", message, fix, backward.average)


def _sum_to_one(call: LossCall, sums: tuple[float, float] | None) -> bool:
    if sums is None or call.smallest is None or call.smallest < 0:
        return False
    return all(abs(total - 1) < SLACK for total in sums)


def _range(call: LossCall) -> str:
    is_empty = call.smallest is None or call.largest is None
    return "an empty batch" if is_empty else f"{call.smallest:z.4g} to {call.largest:z.4g}"


class Reason(NamedTuple):
    """Why an op makes such values, and code that avoids it."""

    op: str | tuple[str, ...]  # how the names of the ops begin that this is about, in one way or in several
    why: str  # the reason, to complete a message
    torch: str  # the value in PyTorch, or for OTHER the line
    keras: str  # the value in TensorFlow or Keras, or the line


DIVISIONS = ("div", "truediv", "realdiv")
SQRT = "its gradient at 0 is infinite, and below 0 it is undefined"
NORM = "its gradient at 0 is undefined"
EXP = "exp overflows above 88 in float32 and above 11 in float16"
POW = "it takes the root of a negative number, or 0 to a negative power"
ARC = "its input must be between -1 and 1"
REASONS = (
    Reason("log_softmax", "inputs that are all -inf have no softmax", "x.clamp(min=-1e9)", "tf.maximum(x, -1e9)"),
    Reason("softmax", "a row that is all -inf has no softmax", "x.clamp(min=-1e9)", "tf.maximum(x, -1e9)"),
    Reason("log1p", "its input must be greater than -1", "x.clamp(min=-0.999999)", "tf.maximum(x, -0.999999)"),
    Reason("log", "its input must be greater than 0", "x.clamp(min=1e-6).log()", "tf.math.log(tf.maximum(x, 1e-6))"),
    Reason("rsqrt", "its input must be greater than 0", "(x + 1e-6).rsqrt()", "tf.math.rsqrt(x + 1e-6)"),
    Reason("sqrt", SQRT, "(x + 1e-6).sqrt()", "tf.sqrt(x + 1e-6)"),
    Reason("norm", NORM, "(x.square().sum(-1) + 1e-6).sqrt()", "tf.sqrt(tf.reduce_sum(x * x, -1) + 1e-6)"),
    Reason("exp", EXP, "x.clamp(max=80).exp()", "tf.exp(tf.minimum(x, 80.0))"),
    Reason(DIVISIONS, "it divides by 0", "a / b.clamp(min=1e-6)", "tf.math.divide_no_nan(a, b)"),
    Reason("reciprocal", "it divides by 0", "1 / x.clamp(min=1e-6)", "tf.math.reciprocal_no_nan(x)"),
    Reason("pow", POW, "x.clamp(min=1e-6) ** p", "tf.maximum(x, 1e-6) ** p"),
    Reason("acos", ARC, "x.clamp(-0.999999, 0.999999).acos()", "tf.acos(tf.clip_by_value(x, -0.999999, 0.999999))"),
    Reason("asin", ARC, "x.clamp(-0.999999, 0.999999).asin()", "tf.asin(tf.clip_by_value(x, -0.999999, 0.999999))"),
)
CLIPPED = ("nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "optimizer = keras.optimizers.SGD(global_clipnorm=1.0)")
OTHER = Reason("", "the numbers are too large for their type, or infinities cancel", *CLIPPED)


def not_finite(evidence: Evidence) -> Iterator[Finding]:
    """Report the first op that made a NaN or an infinity, in the forward or in the backward pass."""
    bad = next((step.not_finite for step in evidence.steps if step.not_finite), None)
    if bad is None:
        # No op was seen to cause gradients that are not finite; under loss scaling they may be so at first.
        steps = [step for step in evidence.steps if not step.loss_scaled]
        names = {g.parameter for step in steps for g in step.gradients if g.state == "not_finite"}
        if parts := facts.grouped_by_module(names, evidence):
            parameters, where = words.listed([name for part in parts for name in part.names]), parts[0].module
            message = f"The gradients of {parameters} are not finite: {OTHER.why}."
            fix = OTHER.torch if evidence.side == "torch" else OTHER.keras
            yield make_finding("error", "finite.backward", where, facts.source_of(evidence, where), message, fix)
        return
    operation = bad.operation.lower().lstrip("_").removeprefix("linalg_").removeprefix("vector_")
    reason = next((reason for reason in REASONS if operation.startswith(reason.op)), OTHER)
    range_of_inputs = [f"{value:z.6g}" for value in (bad.smallest, bad.largest) if value is not None]
    between = f" from inputs of {' to '.join(range_of_inputs)}" if range_of_inputs else ""
    backward = bad.place.phase == "backward"
    phase = " in the backward pass" if backward else ""
    value = "NaN" if bad.became == "nan" else "infinity"
    message = f"{bad.operation} made the first {value}{between}{phase}: {reason.why}."
    code = reason.torch if evidence.side == "torch" else reason.keras
    fix = f"x = {code}" if reason.op else code
    yield finding_at("error", "finite.backward" if backward else "finite.forward", bad.place, message, fix)

"""Rules about the first NaN or infinity, and the reasons for such values."""

from collections.abc import Iterator
from typing import NamedTuple

from parity.doctor.evidence import Evidence, NotFinite
from parity.doctor.finding import Finding, finding_at, make_finding
from parity.doctor.rules import facts, words


class Reason(NamedTuple):
    """Why an op makes such values, and code that avoids it.

    Attributes:
        op: how the names of the ops begin that this is about, in one way or in several.
        why: the reason, to complete a message.
        torch: the value in PyTorch, or for OTHER the line.
        keras: the value in TensorFlow or Keras, or the line.
    """

    op: str | tuple[str, ...]
    why: str
    torch: str
    keras: str


DIVISIONS = ("div", "truediv", "realdiv")
REASONS = (
    Reason("log_softmax", "inputs that are all -inf have no softmax", "x.clamp(min=-1e9)", "tf.maximum(x, -1e9)"),
    Reason("softmax", "a row that is all -inf has no softmax", "x.clamp(min=-1e9)", "tf.maximum(x, -1e9)"),
    Reason("log1p", "its input must be greater than -1", "x.clamp(min=-0.999999)", "tf.maximum(x, -0.999999)"),
    Reason("log", "its input must be greater than 0", "x.clamp(min=1e-6).log()", "tf.math.log(tf.maximum(x, 1e-6))"),
    Reason("rsqrt", "its input must be greater than 0", "(x + 1e-6).rsqrt()", "tf.math.rsqrt(x + 1e-6)"),
    Reason(
        "sqrt", "its gradient at 0 is infinite, and below 0 it is undefined", "(x + 1e-6).sqrt()", "tf.sqrt(x + 1e-6)"
    ),
    Reason(
        "norm",
        "its gradient at 0 is undefined",
        "(x.square().sum(-1) + 1e-6).sqrt()",
        "tf.sqrt(tf.reduce_sum(x * x, -1) + 1e-6)",
    ),
    Reason(
        "exp",
        "exp overflows above 88 in float32 and above 11 in float16",
        "x.clamp(max=80).exp()",
        "tf.exp(tf.minimum(x, 80.0))",
    ),
    Reason(DIVISIONS, "it divides by 0", "a / b.clamp(min=1e-6)", "tf.math.divide_no_nan(a, b)"),
    Reason("reciprocal", "it divides by 0", "1 / x.clamp(min=1e-6)", "tf.math.reciprocal_no_nan(x)"),
    Reason(
        "pow",
        "it takes the root of a negative number, or 0 to a negative power",
        "x.clamp(min=1e-6) ** p",
        "tf.maximum(x, 1e-6) ** p",
    ),
    *(
        Reason(
            name,
            "its input must be between -1 and 1",
            f"x.clamp(-0.999999, 0.999999).{name}()",
            f"tf.{name}(tf.clip_by_value(x, -0.999999, 0.999999))",
        )
        for name in ("acos", "asin")
    ),
)
OTHER = Reason(
    "",
    "the numbers are too large for their type, or infinities cancel",
    "nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "optimizer = keras.optimizers.SGD(global_clipnorm=1.0)",
)


def not_finite(evidence: Evidence) -> Iterator[Finding]:
    """Report the first op that made a NaN or an infinity, in the forward or in the backward pass."""
    first = next((step.not_finite for step in evidence.steps if step.not_finite), None)
    yield from [_first(evidence, first)] if first else _gradients(evidence)


def _first(evidence: Evidence, bad: NotFinite) -> Finding:
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
    name = "finite.backward" if backward else "finite.forward"
    return finding_at("error", name, bad.place, message, fix)


def _gradients(evidence: Evidence) -> Iterator[Finding]:
    """Report gradients that are not finite, if no op was seen to cause it; under loss scaling they may be at first."""
    steps = [step for step in evidence.steps if not step.loss_scaled]
    names = {g.parameter for step in steps for g in step.gradients if g.state == "not_finite"}
    if parts := facts.grouped_by_module(names, evidence):
        parameters = words.listed([name for part in parts for name in part.names])
        message = f"The gradients of {parameters} are not finite: {OTHER.why}."
        fix = OTHER.torch if evidence.side == "torch" else OTHER.keras
        where = parts[0].module
        yield make_finding("error", "finite.backward", where, facts.source_of(evidence, where), message, fix)

"""Evidence of what only Keras programs do, for the table of the rules."""

from typing import Any

from doctor_evidence import Row, evidence, gradients, place, step
from doctor_training_rows import cut_off, grown, losing

from parity.doctor.evidence import Backward, Evidence
from parity.doctor.evidence.ops import Code, Frozen, Made, Method, NotFinite

LINE = "t.py:8"
NAN = NotFinite(operation="Softmax", became="nan", smallest=None, largest=None, place=place("", LINE))


def called(*steps: bool, **fields: Any) -> Evidence:
    """Steps that call a method, or do not."""
    methods = [[Method(place=place("", LINE), **fields)] if is_called else [] for is_called in steps]
    return evidence("keras", steps=[step(methods=each) for each in methods])


def drawn(*steps: bool, **fields: Any) -> Evidence:
    """Steps in which Python computes a value in a tf.function, or does not."""
    values = [[Frozen(what="random.random", place=place("", LINE), **fields)] if is_drawn else [] for is_drawn in steps]
    return evidence("keras", steps=[step(frozen=each) for each in values])


def made(*steps: bool) -> Evidence:
    """Steps in which a layer makes another one, or does not."""
    dense = Made(kind="Dense", parameters=2, place=place("encoder", LINE))
    return evidence("keras", steps=[step(made=[dense] if is_made else []) for is_made in steps])


def averaged(**fields: Any) -> Evidence:
    """A backward pass from a mean on one of two replicas."""
    given: dict[str, Any] = {"replicas": 2, "average": Code(source=LINE), "summed": True}
    backward = Backward(source="t.py:9", scaled=False, kept=[], **(given | fields))
    return evidence("keras", steps=[step(backwards=[backward], distributed="mirrored")])


def copied(**kinds: Any) -> Evidence:
    """An encoder without a gradient, of which the program writes some parameters itself."""
    of_step = gradients(encoder="none")
    for gradient in of_step:
        gradient.copy = kinds.get(gradient.parameter.rpartition(".")[2], "") if gradient.state == "none" else ""
    return evidence("keras", steps=[step(gradients=of_step)])


def not_finite(after: float) -> Evidence:
    seen = grown(0.1, after)
    seen.steps[0].not_finite = NAN
    return seen


KERAS_ROWS: list[Row] = [
    (called(True, True, what="compile", resets=True),
        *("function.compiled", "error", "", LINE, "if not model.compiled:"),
        called(True, False, what="compile", resets=True)),
    (called(True, True, what="compile"), "function.compiled", "warning", "", LINE, "compile(", called(False)),
    (called(True, True, what="predict"), "function.predict", "warning", "", LINE, "training=False", called(False)),
    (drawn(True, True), "function.frozen", "error", "", LINE, "tf.random.normal", drawn(True, False)),
    (drawn(True, True, clock=True), "function.frozen", "warning", "", LINE, "tf.timestamp()", drawn(False)),
    (made(True, True), "learning.made_in_call", "error", "encoder", LINE, "self.dense(x)", made(True, False)),
    (losing("keras", takes="probabilities", smallest=0.0, largest=0.9, sums=(0.2, 1.7), columns=(1.0, 1.0)),
        *("loss.softmax_axis", "error", "", "train.py:6", "softmax(logits, -1)"),
        losing("keras", takes="probabilities", smallest=0.0, largest=0.9, sums=(1.0, 1.0), columns=(0.2, 1.7))),
    (averaged(), "loss.replica_mean", "warning", "", LINE, "compute_average_loss", averaged(replicas=1)),
    (averaged(), "loss.replica_mean", "warning", "", LINE, "compute_average_loss", averaged(summed=False)),
    (averaged(), "loss.replica_mean", "warning", "", LINE, "compute_average_loss", averaged(average=None)),
    (copied(weight="constant", bias="constant"),
        *("learning.no_gradient", "error", "encoder", "model.py:10", "trainable = False"),
        copied(weight="copy", bias="constant")),
    (copied(weight="copy"), "learning.no_gradient", "warning", "encoder", "model.py:10", "", cut_off()),
    (not_finite(float("nan")), "finite.forward", "error", "", LINE, "", evidence()),
    (not_finite(1e9), "learning.exploding", "error", "", "train.py:2", "lr=", not_finite(0.2)),
]  # fmt: skip

"""Rules about tf.functions: traced again and again, or running in Python; methods that do not belong into a step."""

import re
from collections.abc import Iterator

from parity.doctor.evidence import Evidence
from parity.doctor.finding import Finding, Severity, finding_at, make_finding
from parity.doctor.rules import facts, words

EAGER = {
    "py_function": "y = tf.math.square(x)  # TensorFlow's ops in place of tf.py_function",
    "numpy_function": "y = tf.math.square(x)  # TensorFlow's ops in place of tf.numpy_function",
    "run_eagerly": "model.compile(optimizer, loss, run_eagerly=False)",
}


def retraced(evidence: Evidence) -> Iterator[Finding]:
    """Report functions that are traced again: every call with a new signature does that."""
    for retrace in evidence.retraces:
        change = f"; what differed: {retrace.change}" if retrace.change else ""
        message = f"{retrace.function} was traced {words.times(retrace.count)}{change}."
        yield make_finding("warning", "function.retraced", "", retrace.source, message, _steady(retrace.change))


def _steady(change: str) -> str:
    """Return the code that gives every call the same signature."""
    argument, _, differs = change.partition(": ")
    name = argument.partition("[")[0]
    if change.startswith("a new"):
        return "train = tf.function(train)  # once, outside of the step"
    if re.search(r"\w\[", differs):
        return "@tf.function(reduce_retracing=True)  # or input_signature=[tf.TensorSpec([None, 16])]"
    if not differs or differs.startswith("another object"):
        return f"self.{name if differs else 'value'} = {name if differs else 'value'}  # one object for all steps"
    return f"{name} = tf.constant({name})  # a tensor has one signature, each Python value its own"


def eager(evidence: Evidence) -> Iterator[Finding]:
    """Report parts of a graph that call Python, and functions that run in Python as a whole."""
    for part in facts.lines(evidence.eager):
        message = (
            f"{part.what}: this runs in Python on the host in each step, where TensorFlow cannot place or fuse its ops."
            f"{words.repeated(part.count)}"
        )
        fix = EAGER.get(part.what, "tf.config.run_functions_eagerly(False)")
        yield finding_at("warning", "function.eager", part.place, message, fix)


def compiled(evidence: Evidence) -> Iterator[Finding]:
    """Report a model that is compiled in the step."""
    for call in facts.lines(method for method in facts.last(evidence).methods if method.what == "compile"):
        lost = "its optimizer begins anew, without its state, and " if call.resets else ""
        message = (
            f"The model is compiled again in each step: {lost}its training function is traced again. "
            f"Compile it once, before the first step.{words.repeated(call.count)}"
        )
        fix = call.mended or "if not model.compiled: model.compile(optimizer, loss)"
        severity: Severity = "error" if call.resets else "warning"
        yield make_finding(severity, "function.compiled", "", call.place.source, message, fix)


def predicted(evidence: Evidence) -> Iterator[Finding]:
    """Report `predict` of a single batch in the step."""
    for call in facts.lines(method for method in facts.last(evidence).methods if method.what == "predict"):
        message = (
            "predict runs in each step, for a single batch: it is made for whole data sets, and each call builds a "
            "data pipeline and callbacks, which takes longer than the batch itself. predict_on_batch(x) returns the "
            f"same without them, model(x, training=False) as a tensor.{words.repeated(call.count)}"
        )
        fix = call.mended or "y = model(x, training=False)"
        yield make_finding("warning", "function.predict", "", call.place.source, message, fix)


def frozen(evidence: Evidence) -> Iterator[Finding]:
    """Report random numbers and times that Python computes in a tf.function, in each of its calls."""
    for value in facts.lines(facts.last(evidence).frozen):
        message = (
            f"{value.what} runs in Python, in a tf.function: only while TensorFlow traces it. The graph keeps "
            f"{'that time' if value.clock else 'what was drawn then'}, which is the same in all steps."
        )
        generic = "now = tf.timestamp()" if value.clock else "noise = tf.random.normal(tf.shape(x))"
        severity: Severity = "warning" if value.clock else "error"
        yield make_finding(severity, "function.frozen", "", value.place.source, message, value.mended or generic)

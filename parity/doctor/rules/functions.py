"""Rules about tf.functions: traced again and again, or running in Python."""

import re
from collections.abc import Iterator

from parity.doctor.evidence import Evidence
from parity.doctor.finding import Finding
from parity.doctor.rules import words
from parity.doctor.rules.facts import by_line, make_finding, number

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
    for parts in by_line(evidence.eager):
        part = parts[0]
        message = (
            f"{part.what}: this runs in Python on the host in each step, where TensorFlow cannot place or fuse its ops."
            f"{words.repeated(number(parts))}"
        )
        fix = EAGER.get(part.what, "tf.config.run_functions_eagerly(False)")
        yield make_finding("warning", "function.eager", part.place.module, part.place.source, message, fix)

"""What a line of a loop does several times in a step is one finding, which says how often."""

import keras
import numpy as np
import tensorflow as tf
from observing import DEVICES, line, observed

from keras_impl.instruments.functions import Functions
from parity.doctor import rules
from parity.doctor.evidence import Evidence
from parity.doctor.finding import Finding

X = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)


class Blocks(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [keras.layers.Dense(3, name=f"block_{number}") for number in range(3)]

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def by_hand(times):
    def step(model, inputs):
        for _ in range(times):
            model(inputs["x"])[:, :1] - inputs["x"][:, 0]  # fault by hand

    return step


def in_python(times):
    @tf.function(autograph=False)
    def graph(x):
        for _ in range(times):
            x = tf.py_function(lambda y: y, [x], tf.float32)  # fault in Python
        return x

    return graph


def found(step, name: str) -> Finding:
    """The only finding of that id."""
    steps = observed(Blocks, step, {"x": X}, steps=2)
    evidence = Evidence(side="keras", devices=DEVICES, own_step=True, steps=steps)
    (finding,) = [finding for finding in rules.findings([evidence]) if finding.id == name]
    return finding


def test_a_finding_says_how_often_a_line_did_it():
    often = found(by_hand(3), "shape.loss_broadcast")
    assert often.source == line(by_hand, "# fault by hand")
    assert "3 times a step" in often.message
    once = found(by_hand(1), "shape.loss_broadcast")
    assert "times a step" not in once.message and "This happens" not in once.message


def test_parts_of_a_graph_that_run_in_python_are_counted_in_one_graph():
    graph, functions = in_python(3), Functions()
    for rows in (2, 3):  # traced in each step
        with functions:
            graph(tf.ones((rows, 3)))
    seen = Evidence(side="keras", eager=list(functions.eager.values()))
    (finding,) = [f for f in rules.findings([seen]) if f.id == "function.eager"]
    assert finding.source == line(in_python, "# fault in Python")
    assert finding.message.endswith(" This happens 3 times a step.")

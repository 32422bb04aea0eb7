"""How TensorFlow traced the functions of the program, and what of them it did not run in a graph."""

from parity.doctor.evidence.common import Fact, Occurrence


class Retrace(Fact):
    """A tf.function that was traced more than once.

    Attributes:
        change: the argument that differed, with its value before and now.
    """

    function: str
    source: str
    count: int
    change: str


class Eager(Occurrence):
    """A part of a tf.function, or a whole one, that runs in Python instead of the graph.

    Those of one line are one entry, with the largest count of a step; of parts of a graph, their number in the graph.

    Attributes:
        what: "py_function", "numpy_function" or "run_eagerly".
    """

    what: str

"""How TensorFlow traced the functions of the program, and what of them it did not run in a graph."""

from typing import Literal

from parity.doctor.evidence.common import Code, Fact, Occurrence


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


class Method(Occurrence):
    """A call, in a step, of a method of a Keras model that is made for other purposes.

    Attributes:
        what: "compile" (of a model that had been compiled before) or "predict" (of a single batch, not after a `fit`).
        resets: whether it replaced the model's optimizer, whose state is then lost.
        mended: the line with what is to be called instead.
    """

    what: Literal["compile", "predict"]
    resets: bool = False
    mended: Code | None = None


class Frozen(Occurrence):
    """A value that Python computes while a tf.function is traced, and that its graph therefore keeps.

    Attributes:
        what: the function that is called ("np.random.normal").
        clock: whether it is a time, and no random number.
        mended: the line in which TensorFlow computes it in each step.
    """

    what: str
    clock: bool = False
    mended: Code | None = None

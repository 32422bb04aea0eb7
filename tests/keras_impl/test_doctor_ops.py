"""What the doctor sees the ops of a step do: copies, waits, broadcasts, numbers that are not finite."""

import keras
import numpy as np
import observing
import pytest
import tensorflow as tf
from observing import line, observed

from parity.core.ownership import shown

X = np.linspace(-1, 1, 32, dtype="float32").reshape(4, 8)


class Two(keras.Model):
    """A layer on each GPU."""

    def __init__(self):
        super().__init__()
        with tf.device("GPU:0"):
            self.first = keras.layers.Dense(16)
            self.first.build((None, 8))
        with tf.device("GPU:1"):
            self.second = keras.layers.Dense(4)
            self.second.build((None, 16))

    def call(self, x):
        with tf.device("GPU:0"):
            x = self.first(x)
        with tf.device("GPU:1"):
            return self.second(x)  # the second stage


def dense():
    return keras.Sequential([keras.layers.Dense(4, name="dense")])


def copies(step, what):
    return [copy for copy in step.copies if copy.what == what]


def test_an_input_from_the_host_is_one_copy_in_every_step():
    def step(model, inputs):
        model(inputs["x"])
        model(inputs["x"])

    for seen in observed(dense, step, {"x": X}, steps=2):
        (copy,) = seen.copies
        assert (copy.what, copy.source, copy.target) == ("implicit", "CPU:0", "GPU:0")
        assert (copy.tensor.origin, copy.count, copy.bytes, copy.again) == ("input x", 1, 128, 0)
        assert (copy.place.module, copy.place.phase) == ("dense", "forward")


def forward_and_backward(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(inputs["x"]) ** 2)
    tape.gradient(loss, model.trainable_variables)  # the backward pass


def placed(model, inputs):
    with tf.device("GPU:0"), tf.GradientTape() as early:
        hidden = model.first(inputs["x"])
    with tf.device("GPU:1"):
        moved = tf.identity(hidden)  # moved by hand
        with tf.GradientTape() as late:
            late.watch(moved)
            loss = tf.reduce_sum(model.second(moved) ** 2)
        upstream, *_ = late.gradient(loss, [moved, *model.second.trainable_variables])
    with tf.device("GPU:0"):
        early.gradient(hidden, model.first.trainable_variables, tf.identity(upstream))


def test_a_backward_pass_left_on_the_first_device_is_seen_by_what_it_copies():
    (seen,) = observed(Two, forward_and_backward, {"x": X})
    backward = [copy for copy in seen.copies if copy.place.phase == "backward"]
    kernel = next(copy for copy in backward if copy.tensor.origin == "parameter second.kernel")
    assert (kernel.what, kernel.source, kernel.target, kernel.place.module) == ("implicit", "GPU:1", "GPU:0", "second")
    assert kernel.place.source == line(forward_and_backward, "# the backward pass")
    hidden = next(copy for copy in seen.copies if copy.tensor.origin == "output of first")
    assert (hidden.what, hidden.target, hidden.place.source) == ("implicit", "GPU:1", line(Two, "# the second stage"))


def test_one_in_stages_moves_by_hand_alone():
    (seen,) = observed(Two, placed, {"x": X})
    moved = [copy for copy in seen.copies if not copy.tensor.origin.startswith("input")]
    assert [(copy.what, copy.source, copy.target) for copy in moved] == [
        ("to", "GPU:0", "GPU:1"),
        ("to", "GPU:1", "GPU:0"),
    ]
    assert moved[0].place.source == line(placed, "# moved by hand")
    assert moved[0].tensor.origin == "output of first"


def test_what_is_moved_twice_was_there_already():
    def step(model, inputs):
        hidden = model(inputs["x"])
        for _ in range(3):
            with tf.device("GPU:1"):
                tf.identity(hidden)

    (copy,) = copies(observed(dense, step, {"x": X})[0], "to")
    assert (copy.count, copy.again, copy.bytes) == (3, 2, 64)


READS = {
    "numpy": lambda y: y.numpy(),
    "asarray": lambda y: np.asarray(y),
    "convert": lambda y: keras.ops.convert_to_numpy(y),
    "item": lambda y: float(y[0, 0]),
    "int": lambda y: int(y[0, 0]),
    "bool": lambda y: bool(y[0, 0] > 0),
    "if": lambda y: 1 if y[0, 0] > 0 else 2,
    "print": lambda y: str(y),
    "format": lambda y: f"{y[0, 0]:.1f}",
    "tf.print": lambda y: tf.print(y, output_stream="file:///dev/null"),
    "mask": lambda y: tf.boolean_mask(y, y > 0),
    "index": lambda y: y[y > 0],
    "where": lambda y: tf.where(y > 0),
}
WHAT = {"asarray": "numpy", "convert": "numpy", "int": "item", "if": "bool", "format": "print", "tf.print": "print"}
WHAT |= dict.fromkeys(("mask", "index", "where"), "boolean_index")


def test_every_way_in_which_the_host_waits():
    def step(model, inputs):
        for read in READS.values():
            read(model(inputs["x"]))

    (seen,) = observed(dense, step, {"x": X})
    found = {copy.place.source: copy for copy in seen.copies if copy.tensor.origin != "input x"}
    assert len(found) == len(READS)
    for name, read in READS.items():
        copy = found[shown(__file__, read.__code__.co_firstlineno)]
        assert copy.what == WHAT.get(name, name), name
        assert (copy.source, copy.count) == ("GPU:0", 1), name


def test_what_lies_on_the_host_or_is_read_by_keras_is_not_the_users():
    def step(model, inputs):
        model.train_on_batch(inputs["x"], inputs["t"])
        np.asarray(inputs["x"])
        with tf.device("CPU:0"):
            float(tf.reduce_sum(inputs["x"]))

    def build():
        model = dense()
        model.compile("sgd", "mse")
        return model

    (seen,) = observed(build, step, {"x": X, "t": X[:, :4]})
    assert {copy.tensor.origin.partition(" ")[0] for copy in seen.copies} <= {"input", ""}
    assert {copy.what for copy in seen.copies} == {"implicit"}


def test_constants_made_in_the_step():
    def step(model, inputs):
        model(inputs["x"]) * tf.constant(np.ones((4, 4), "float32"))  # made anew
        tf.constant([1.0, 2.0])  # small

    (copy,) = copies(observed(dense, step, {"x": X})[0], "constant")
    assert (copy.source, copy.target, copy.bytes) == ("CPU:0", "GPU:0", 64)
    assert copy.place.source == line(step, "# made anew")


def test_broadcasts_of_the_users_lines():
    def step(model, inputs):
        y = model(inputs["x"])
        keras.losses.mean_squared_error(tf.zeros((4, 1)), y[:, 0])  # Keras's own: it makes both of one shape
        y - y[:, 0]  # by accident
        y + 1.0

    (seen,) = observed(dense, step, {"x": X})
    (broadcast,) = seen.broadcasts
    assert (broadcast.operation, broadcast.left.shape, broadcast.right.shape) == ("Sub", [4, 4], [4])
    assert broadcast.place.source == line(step, "# by accident")


def test_an_op_on_a_device_that_is_not_there():
    def step(model, inputs):
        with tf.device("GPU:7"):
            model(inputs["x"]) + 1.0  # too far

    (soft,) = observed(dense, step, {"x": X})[0].soft
    assert (soft.asked, soft.ran, soft.place.source) == ("GPU:7", "GPU:0", line(step, "# too far"))


class Root(keras.layers.Layer):
    def call(self, x):
        return tf.sqrt(x)  # of less than nothing


def rooted():
    return keras.Sequential([keras.layers.Dense(4, name="dense", kernel_initializer="identity"), Root(name="root")])


def masked(x):
    scores = tf.where(x > -9, -np.inf, x)
    return tf.nn.softmax(scores)  # of nothing


def finite_in_the_end(x):
    return tf.where(x > 9, tf.math.log(x * 0), x)


@pytest.mark.parametrize(
    ("build", "operation", "became", "module"),
    [
        (rooted, "Sqrt", "nan", "root"),
        (lambda: keras.Sequential([keras.layers.Lambda(masked, name="mask")]), "Softmax", "nan", "mask"),
        (lambda: keras.Sequential([keras.layers.Lambda(finite_in_the_end)]), None, None, None),
    ],
)
def test_the_first_op_that_made_what_is_not_finite(build, operation, became, module):
    (seen,) = observed(build, lambda model, inputs: model(inputs["x"]), {"x": X})
    found = seen.not_finite
    if operation is None:
        assert found is None
    else:
        assert (found.operation, found.became, found.place.module) == (operation, became, module)
    if operation == "Sqrt":
        assert found.place.source == line(Root.call, "# of less than nothing")
        assert found.smallest == -1 and found.largest < 1


def test_a_gradient_that_is_not_finite():
    def step(model, inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(inputs["x"] * 0))
        tape.gradient(loss, model.trainable_variables)

    (seen,) = observed(rooted, step, {"x": X})
    assert seen.not_finite.operation in ("SqrtGrad", "Mul", "MatMul")
    assert (seen.not_finite.place.module, seen.not_finite.place.phase) == ("root", "backward")
    assert "not_finite" in {gradient.state for gradient in seen.gradients}


def test_replicas_are_seen_and_what_they_exchange_is_not_an_accident():
    def build():
        build.strategy = tf.distribute.MirroredStrategy(observing.DEVICES)
        with build.strategy.scope():
            model = dense()
            model.build((None, 8))
            build.optimizer = keras.optimizers.SGD(0.1)
            build.optimizer.build(model.trainable_variables)
        return model

    def step(model, inputs):
        def replica(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(x))
            gradients = tape.gradient(loss, model.trainable_variables)
            build.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        build.strategy.run(replica, args=(inputs["x"],))

    (seen,) = observed(build, step, {"x": X})
    assert [call.outputs[0].device for call in seen.calls if call.module == "dense"] == observing.DEVICES
    assert {copy.tensor.origin for copy in seen.copies} == {"input x"}
    assert {gradient.state for gradient in seen.gradients} == {"finite"}
    assert len(seen.backwards) == 1

"""What the doctor sees of a backward pass: gradients, optimizers, cuts, losses scaled, float16."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from observing import line, observed

X = np.linspace(-1, 1, 32, dtype="float32").reshape(4, 8)


class Branches(keras.Model):
    """Each of its layers has its own fate."""

    def __init__(self):
        super().__init__()
        self.used = keras.layers.Dense(4)
        self.unused = keras.layers.Dense(4)
        self.cut = keras.layers.Dense(4)
        self.dead = keras.layers.Dense(4)
        self.ids = keras.layers.Embedding(4, 4)
        for layer in (self.used, self.unused, self.cut, self.dead):
            layer.build((None, 8))

    def call(self, x):
        cut = tf.stop_gradient(self.cut(x))  # cut here
        ids = self.ids(tf.constant([0, 1, 2, 3]))
        return self.used(x) + cut + ids + 0.0 * self.dead(x)


def states(step):
    return {gradient.parameter: gradient.state for gradient in step.gradients}


def test_the_fate_of_every_gradient():
    def step(model, inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(inputs["x"]))
        tape.gradient(loss, model.trainable_variables)  # back

    (seen,) = observed(Branches, step, {"x": X})
    fates = {"used": "finite", "unused": "none", "cut": "none", "dead": "zero"}
    dense = {f"{layer}.{name}": fate for layer, fate in fates.items() for name in ("kernel", "bias")}
    assert states(seen) == dense | {"ids.embeddings": "finite"}
    (backward,) = seen.backwards
    assert (backward.source, backward.scaled) == (line(step, "# back"), False)
    (cut,) = seen.cuts
    assert (cut.what, cut.tensor.origin) == ("stop_gradient", "output of cut")
    assert (cut.place.module, cut.place.source) == ("(model)", line(Branches, "# cut here"))


def test_gradients_in_parts_and_losses_divided():
    def step(model, inputs):
        for part in tf.split(inputs["x"], 2):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model.used(part)) / 2
            tape.gradient(loss, model.used.trainable_variables)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model.unused(inputs["x"]))
        tape.gradient(loss, {"kernel": model.unused.kernel})

    (seen,) = observed(Branches, step, {"x": X})
    assert [backward.scaled for backward in seen.backwards] == [True, True, False]
    found = states(seen)
    assert (found["used.kernel"], found["unused.kernel"], found["unused.bias"]) == ("finite", "finite", "none")


def through_numpy(model, x):
    hidden = model.used(x).numpy()
    return model.unused(tf.pad(tf.constant(hidden), [[0, 0], [0, 4]]))  # fed back


def logged(model, x):
    hidden = model.used(x)
    hidden.numpy()
    return hidden


def stopped(model, x, tape):
    with tape.stop_recording():
        return model.used(x)


@pytest.mark.parametrize(("compute", "whats"), [(through_numpy, ["numpy"]), (logged, [])])
def test_a_way_through_numpy(compute, whats):
    def step(model, inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(compute(model, inputs["x"]))
        tape.gradient(loss, model.trainable_variables)

    (seen,) = observed(Branches, step, {"x": X})
    assert [cut.what for cut in seen.cuts] == whats
    if whats:
        assert seen.cuts[0].tensor.origin == "output of used"
        assert seen.cuts[0].place.source == line(through_numpy, "# fed back")


def test_a_layer_that_no_tape_sees():
    def step(model, inputs):
        model.used(inputs["x"])  # outside
        with tf.GradientTape() as tape, tape.stop_recording():
            model.unused(inputs["x"])
        with tf.GradientTape():
            model.cut(inputs["x"])

    (seen,) = observed(Branches, step, {"x": X})
    assert [(cut.what, cut.place.module) for cut in seen.cuts] == [("no_tape", "used"), ("stop_recording", "unused")]
    assert seen.cuts[0].tensor.origin == "parameter used.kernel"
    assert seen.cuts[0].place.source == line(step, "# outside")


def test_optimizers_and_what_they_hold():
    def step(model, inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model.used(inputs["x"]))
        gradients = tape.gradient(loss, model.used.trainable_variables)
        model.own.apply_gradients(zip(gradients, model.used.trainable_variables, strict=True))

    def build():
        model = Branches()
        model.own = keras.optimizers.Adam(0.1)  # in use
        model.idle = keras.optimizers.SGD(0.1)
        return model

    (seen,) = observed(build, step, {"x": X})
    used, idle = sorted(seen.optimizers, key=lambda optimizer: optimizer.kind)
    assert (used.kind, used.stepped, used.source) == ("Adam", True, line(build, "# in use"))
    assert used.parameters == ["used.kernel", "used.bias"]
    assert (idle.kind, idle.stepped, idle.parameters) == ("SGD", False, [])


def test_compile_and_train_on_batch():
    def build():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="dense")])
        model.compile("sgd", "mse")
        return model

    def step(model, inputs):
        model.train_on_batch(inputs["x"], inputs["x"][:, :4])  # train

    (seen,) = observed(build, step, {"x": X})
    assert states(seen) == {"dense.kernel": "finite", "dense.bias": "finite"}
    assert [(optimizer.kind, optimizer.stepped) for optimizer in seen.optimizers] == [("SGD", True)]
    (loss,) = seen.losses
    assert (loss.function, loss.place.source, seen.backwards[0].source) == ("mse_loss", *[line(step, "# train")] * 2)
    assert not seen.cuts


@pytest.mark.parametrize("scaled", [False, True])
def test_float16_with_and_without_loss_scaling(scaled):
    def build():
        model = keras.Sequential()
        model.add(keras.layers.Dense(4, name="dense", dtype="mixed_float16"))  # half
        model.own = keras.optimizers.SGD(0.1)
        if scaled:
            model.own = keras.optimizers.LossScaleOptimizer(model.own)
        return model

    def step(model, inputs):
        with tf.GradientTape() as tape:
            loss = model.own.scale_loss(tf.reduce_sum(tf.cast(model(inputs["x"]), "float32")))
        model.own.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    (seen,) = observed(build, step, {"x": X})
    assert (seen.half, seen.loss_scaled) == (line(build, "# half"), scaled)
    (optimizer,) = seen.optimizers
    assert optimizer.stepped and optimizer.parameters == ["dense.kernel", "dense.bias"]


def test_a_cast_to_float16():
    def step(model, inputs):
        tf.cast(inputs["x"], tf.float16)  # by hand

    assert observed(Branches, step, {"x": X})[0].half == line(step, "# by hand")

"""Steps that were only looked at leave no trace."""

import random
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from keras_impl.instruments.devices import pretend
from keras_impl.instruments.state import changes_undone

X, Y = np.linspace(-1, 1, 32, dtype="float32").reshape(8, 4), np.ones((8, 2), "float32")

Step = Callable[[], None]


def build() -> keras.Model:
    keras.utils.set_random_seed(1)
    layers = keras.layers
    return keras.Sequential([layers.Dense(4), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(2)])


def own_step(model: keras.Model, noisy: bool = True) -> Step:
    optimizer, generator = keras.optimizers.Adam(0.1), tf.random.Generator.from_seed(3)
    model.extra = [model, optimizer, generator]

    def step() -> None:
        noise = generator.normal(X.shape)
        if noisy:
            noise += tf.random.normal(X.shape) + np.random.rand() + random.random()
        with tf.GradientTape() as tape:
            loss = keras.losses.mean_squared_error(Y, model(X + noise, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    return step


def traced_step(model: keras.Model) -> Step:
    """Traced twice where it makes variables: numbers drawn in Python would be others then."""
    return tf.function(own_step(model, noisy=False), autograph=False)


def traced_noisy_step(model: keras.Model) -> Step:
    step = own_step(model)
    step()
    return tf.function(step, autograph=False)


def built_step(model: keras.Model) -> Step:
    step = own_step(model)
    step()
    return step


def compiled_step(model: keras.Model) -> Step:
    model.compile(keras.optimizers.Adam(0.1), "mse", metrics=["mae"], jit_compile=False)
    return lambda: model.train_on_batch(X, Y)


def bits(model: keras.Model) -> list[bytes]:
    """Of all that there is, in the order in which it was made."""
    optimizers = [getattr(model, "optimizer", None), *getattr(model, "extra", [])]
    held = [variable for each in optimizers if hasattr(each, "variables") for variable in each.variables]
    return [np.asarray(variable).tobytes() for variable in [*model.variables, *held]] + [state_of_random()]


def state_of_random() -> bytes:
    drawn = tf.random.normal([]).numpy(), np.random.rand(), random.random()
    return repr([float(each) for each in drawn]).encode()


def eagerly(step: Step) -> None:
    tf.config.run_functions_eagerly(True)
    try:
        step()
        step()
    finally:
        tf.config.run_functions_eagerly(False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        own_step,
        built_step,
        traced_noisy_step,
        traced_step,
        compiled_step,
    ],
)
def test_the_next_step_is_as_without(make):
    results = []
    for looked_at in (False, True):
        model = build()
        step = make(model)
        if looked_at:
            with changes_undone():
                eagerly(step)
        step()
        results.append(bits(model))
    assert results[0] == results[1]


def test_the_steps_do_change_something():
    model = build()
    step = built_step(model)
    before = [np.asarray(variable) for variable in model.variables]
    with changes_undone():
        eagerly(step)
        assert not all(np.array_equal(was, variable) for was, variable in zip(before, model.variables, strict=True))
    assert all(np.array_equal(was, variable) for was, variable in zip(before, model.variables, strict=True))


def test_what_a_step_makes_is_as_it_was_made():
    with changes_undone():
        variable = tf.Variable([1.0, 2.0])
        variable.assign_add([1.0, 1.0])
        variable[0].assign(9.0)
    assert variable.numpy().tolist() == [1.0, 2.0]


def test_a_step_that_fails():
    variable = tf.Variable(1.0)
    with pytest.raises(ZeroDivisionError), changes_undone():
        variable.assign(2.0)
        raise ZeroDivisionError
    assert variable.numpy() == 1


def test_the_global_generator():
    tf.random.set_global_generator(tf.random.Generator.from_seed(1))
    drawn = []
    for _ in range(2):
        with changes_undone():
            drawn.append(tf.random.get_global_generator().normal([]).numpy())
            tf.random.set_global_generator(tf.random.Generator.from_seed(9))
    assert drawn[0] == drawn[1]


def test_copies_on_each_device():
    with pretend(2):
        strategy = tf.distribute.MirroredStrategy()
        with strategy.scope():
            variable = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)
        with changes_undone():
            strategy.run(lambda: variable.assign_add(tf.ones([])))
            assert [copy.numpy() for copy in variable.values] == [3, 3]
        assert [copy.numpy() for copy in variable.values] == [1, 1]


def test_a_program_without_a_seed(monkeypatch):
    monkeypatch.delattr(context.context(), "_rng", raising=False)
    monkeypatch.setattr(context.context(), "_seed", None)
    with changes_undone():
        tf.random.set_seed(1)
    assert not hasattr(context.context(), "_rng")
    assert context.global_seed() is None

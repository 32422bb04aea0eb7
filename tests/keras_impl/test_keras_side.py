"""The Keras side by itself."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_impl import models, optimizers
from keras_impl.record import precision
from keras_impl.record import weights as state
from keras_impl.record.canonical import own
from parity.config import cases, weights
from parity.data.batches import Dataset

SMALL = {
    "linear_stack/single": {"model": {"width": 64, "layers": 2}},
    "simple_block/single": {},
    "two_linear/single": {},
    "residual_block/single": {"data": {"batch": 2, "size": 8}},
    "residual_block/single@identity": {"data": {"batch": 2, "size": 8}},
    "transformer/single@causal": {"model": {"vocabulary": 20, "d_model": 8, "heads": 2, "feed_forward": 16}},
}


@pytest.fixture(params=SMALL)
def case(request):
    return cases.resolve(request.param, SMALL[request.param])


def built(case):
    """The case's model, its variables made, and a batch of inputs."""
    arrays = [tf.constant(own(array, case.model)) for array in Dataset(case).evaluation()[0].inputs]
    inputs = tuple(tf.cast(array, tf.float32) if array.dtype == tf.float64 else array for array in arrays)
    inputs = inputs if len(inputs) > 1 else inputs[0]
    model = models.build(case.model)
    model(inputs)
    return model, inputs


def test_every_variable_has_a_canonical_name_and_loading_gives_back_what_was_loaded(case):
    model, _ = built(case)
    named = sum(value.numpy().size for _, value in state.Weights(model).state(lambda kind: kind != "optimizer_state"))
    assert named == sum(np.prod(variable.shape) for variable in model.weights)  # no seeds
    initial = weights.initial(case)
    state.load(model, initial)
    stored = {value.name: value.numpy() for value in state.Weights(model).parameters()}
    assert stored.keys() == initial.keys()
    for name, array in stored.items():
        assert np.array_equal(array, initial[name].astype(np.float32)), name


def test_a_saved_model_computes_the_same(case, tmp_path):
    model, inputs = built(case)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert np.array_equal(model(inputs), again(inputs))


def test_weights_of_another_model_are_refused():
    model, _ = built(cases.resolve("two_linear/single"))
    with pytest.raises(ValueError, match=r"linear1\.weight.*expected"):
        state.load(model, weights.initial(cases.resolve("simple_block/single")))


@pytest.mark.parametrize("name", ["single", "single@adam", "single@adamw", "single@clip", "single@schedule"])
def test_an_optimizer_survives_its_config(name):
    optimizer = optimizers.build(cases.resolve(f"simple_block/{name}"))
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is type(optimizer)
    assert again.decay == optimizer.decay
    assert again.global_clipnorm == optimizer.global_clipnorm
    assert float(again.learning_rate) == float(optimizer.learning_rate)
    again.iterations.assign(4)
    optimizer.iterations.assign(4)
    assert float(again.learning_rate) == float(optimizer.learning_rate)


def test_constants_reach_float64_unrounded():
    """The learning rate, the betas and every product with them, where Keras's own are off by 1e-8."""
    case = cases.resolve("simple_block/single@adam", {"optimizer": {"learning_rate": 0.1, "epsilon": 0.3}})
    with precision.policy("float64"):
        optimizer = optimizers.build(case)
        variable = keras.Variable(np.array([1.0]), dtype="float64")
        optimizer.apply([tf.constant([0.7], tf.float64)], [variable])
        assert float(optimizer.learning_rate) == 0.1
    mean, square = (1 - 0.9) * 0.7, (1 - 0.999) * 0.7**2
    step = 0.1 / (1 - 0.9) * mean / (square**0.5 / (1 - 0.999) ** 0.5 + 0.3)
    assert float(variable.numpy()[0]) == pytest.approx(1.0 - step, rel=1e-15, abs=0)


def test_the_policy_is_put_back():
    before = keras.config.floatx(), keras.config.dtype_policy().name
    with precision.policy("bfloat16"):
        assert (keras.config.floatx(), keras.config.dtype_policy().name) == ("float32", "mixed_bfloat16")
    assert (keras.config.floatx(), keras.config.dtype_policy().name) == before

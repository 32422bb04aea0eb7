"""Whatever a user's code sets for a whole process is seen, so that it does not reach the next pair."""

import keras
import pytest
import tensorflow as tf
from judged import is_seen
from tensorflow.python.framework import config  # no public door

from keras_impl.record.run import settings

CHANGES = {
    "epsilon": (keras.config.set_epsilon, 1e-3, 1e-7),
    "axes of images": (keras.config.set_image_data_format, "channels_first", "channels_last"),
    "floats": (keras.config.set_floatx, "float64", "float32"),
    "policy": (keras.mixed_precision.set_global_policy, "mixed_float16", "float32"),
    "eager functions": (tf.config.run_functions_eagerly, True, False),
    "devices": (tf.config.set_soft_device_placement, False, True),
    "compilation": (tf.config.optimizer.set_jit, "autoclustering", ""),
    "TF32": (tf.config.experimental.enable_tensor_float_32_execution, True, False),
    "deterministic": (
        lambda to: config.enable_op_determinism() if to else config.disable_op_determinism(),
        True,
        False,
    ),
    "checks": (
        lambda to: tf.debugging.enable_check_numerics() if to else tf.debugging.disable_check_numerics(),
        True,
        False,
    ),
    "tracebacks": (
        lambda to: keras.config.disable_traceback_filtering() if to else keras.config.enable_traceback_filtering(),
        True,
        False,
    ),
}


@pytest.mark.parametrize(("change", "to", "back"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(change, to, back):
    assert is_seen(change, to, back, settings)


def test_what_does_not_change_is_the_same_again():
    before = settings()
    keras.Sequential([keras.layers.Dense(3)])(tf.ones((2, 3)))
    assert settings() == before

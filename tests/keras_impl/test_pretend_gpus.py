"""Programs that are written for GPUs, on virtual ones."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.client import device_lib
from tensorflow.python.distribute import device_util, mirrored_strategy, values
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import resource_variable_ops

from keras_impl.instruments.devices import name, pretend

PATCHED = (context.Context, ops.Graph, ops.EagerTensor, device_util, device_lib, mirrored_strategy.MirroredExtended)


@pytest.fixture
def gpus():
    with pretend(2):
        yield


def where(*tensors: tf.Tensor) -> list[str]:
    return [name(tensor.backing_device) for tensor in tensors]


@pytest.mark.parametrize(
    "device, real",
    [
        ("GPU:1", "GPU:1"),
        ("gpu:1", "GPU:1"),
        ("/GPU:1", "GPU:1"),
        ("/device:GPU:0", "GPU:0"),
        ("GPU", "GPU:0"),
        ("/job:localhost/replica:0/task:0/device:GPU:1", "GPU:1"),
        ("/CPU:0", "CPU:0"),
        ("cpu", "CPU:0"),
        (None, "GPU:0"),
    ],
)
def test_the_names_of_devices(device, real, gpus):
    def ones() -> tf.Tensor:
        with tf.device(device):
            return tf.ones(3) + 1

    with tf.device("GPU:1" if device is None else None):
        assert where(ones()) == [real]
    assert where(tf.function(ones)()) == [real]
    if device is not None:
        with keras.device(device):
            assert where(keras.ops.ones(3)) == [real]
        with tf.device(tf.DeviceSpec.from_string(device)):
            assert where(tf.ones(3)) == [real]


def test_a_listed_device_can_be_used(gpus):
    with tf.device(tf.config.list_logical_devices("GPU")[1]):
        assert where(tf.ones(3)) == ["GPU:1"]


def test_what_is_not_pinned_runs_on_the_first(gpus):
    model = keras.Sequential([keras.layers.Dense(2), keras.layers.Dropout(0.5)])
    model.compile("adam", "mse")
    model.fit(np.ones((8, 4)), np.ones((8, 2)), batch_size=2, verbose=0)
    assert name(model.layers[0].kernel.value.device) == "GPU:0"
    assert where(tf.ones(3), tf.function(lambda: tf.ones(3))()) == ["GPU:0", "GPU:0"]
    batches = tf.data.Dataset.from_tensor_slices(np.ones((8, 4))).shuffle(4).map(lambda x: x * 2).batch(2).prefetch(1)
    assert model.predict(batches, verbose=0).shape == (8, 2)
    assert sum(1 for _ in batches) == 4


def test_a_device_that_does_not_exist(gpus):
    def on_seven() -> tf.Tensor:
        with tf.device("GPU:7"):
            return tf.ones(3)

    with tf.device("GPU:1"):
        assert where(on_seven(), tf.function(on_seven)()) == ["GPU:0", "GPU:0"]
    tf.config.set_soft_device_placement(False)
    try:
        with pytest.raises((tf.errors.InvalidArgumentError, RuntimeError), match="GPU:7"):
            on_seven()
    finally:
        tf.config.set_soft_device_placement(True)


def test_the_configuration_of_the_gpus(gpus):
    found = tf.config.list_physical_devices("GPU")
    assert [gpu.name for gpu in found] == ["/physical_device:GPU:0", "/physical_device:GPU:1"]
    assert len(tf.config.list_logical_devices("CPU")) == 1
    assert len(tf.config.list_logical_devices()) == 3
    assert tf.config.get_visible_devices("GPU") == found
    for gpu in found:
        tf.config.experimental.set_memory_growth(gpu, True)
        assert "device_name" in tf.config.experimental.get_device_details(gpu)
    tf.config.set_visible_devices(found, "GPU")
    tf.config.set_visible_devices([], "GPU")
    assert tf.config.experimental.get_memory_info("GPU:0")["current"] == 0
    assert tf.test.gpu_device_name() == "/device:GPU:0"
    assert tf.test.is_gpu_available()
    assert len(keras.distribution.list_devices("gpu")) == 2


def test_what_the_program_reads(gpus):
    with tf.device("GPU:1"):
        tensor, variable = tf.ones(3), tf.Variable(1.0)
    for device in (tensor.device, tensor.backing_device, variable.device):
        assert device.endswith("GPU:1")
        assert name(device) == "GPU:1"
        with tf.device(device):
            assert where(tf.ones(3)) == ["GPU:1"]


@pytest.mark.parametrize("devices", [None, ["GPU:0", "/gpu:1"]])
@pytest.mark.parametrize(
    "reduction",
    [
        None,
        tf.distribute.NcclAllReduce,
        pytest.param(tf.distribute.HierarchicalCopyAllReduce, marks=pytest.mark.slow),
    ],
)
def test_mirrored_strategy(devices, reduction, gpus):
    strategy = tf.distribute.MirroredStrategy(devices, reduction and reduction())
    assert strategy.num_replicas_in_sync == 2
    with strategy.scope():
        layer, optimizer = keras.layers.Dense(1, kernel_initializer="ones"), keras.optimizers.SGD(0.5)
        layer.build((None, 2))
        optimizer.build(layer.trainable_variables)
    assert [name(copy.device) for copy in layer.kernel.value.values] == ["GPU:0", "GPU:1"]

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x))
        optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
        return loss

    batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(tf.ones((2, 2))).unbatch().batch(2))
    losses = [strategy.run(step, args=(batch,)) for batch in batches]
    assert where(*losses[0].values) == ["GPU:0", "GPU:1"]
    assert np.array_equal(layer.kernel.numpy(), [[0.0], [0.0]])


@pytest.mark.slow
def test_fit_under_a_strategy(gpus):
    with tf.distribute.MirroredStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    history = model.fit(np.ones((8, 2)), np.ones((8, 1)), batch_size=4, epochs=2, verbose=0)
    assert history.history["loss"][1] < history.history["loss"][0]


def test_one_device_strategy(gpus):
    strategy = tf.distribute.OneDeviceStrategy("GPU:1")
    with strategy.scope():
        variable = tf.Variable(1.0)
    assert name(variable.device) == "GPU:1"
    assert where(strategy.run(lambda: variable * 2)) == ["GPU:1"]


def test_afterwards_all_is_as_it_was():
    kinds = (*PATCHED, resource_variable_ops.BaseResourceVariable, values.DistributedVariable)
    before = [dict(vars(kind)) for kind in kinds]
    with pretend(2):
        assert [dict(vars(kind)) for kind in kinds] != before
    assert [dict(vars(kind)) for kind in kinds] == before
    assert context.context().device_name == ""
    assert not tf.config.list_physical_devices("GPU")
    assert tf.ones(3).backing_device.endswith("CPU:0")


def test_names_without_pretending():
    assert name("/job:localhost/replica:0/task:0/device:GPU:1") == "GPU:1"
    assert name("/job:localhost/replica:0/task:0/device:CPU:1") == "CPU:1"
    assert name("") == ""

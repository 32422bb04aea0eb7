"""The port of train_ranks.py: a loop of its own, whose step each replica runs."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
strategy = tf.distribute.MirroredStrategy()
batch = 16 * strategy.num_replicas_in_sync
draws = np.random.default_rng(0)
arrays = draws.normal(size=(64, 6)).astype("float32"), draws.integers(4, size=64)
batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(arrays).batch(batch))

with strategy.scope():
    model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(4)])
    optimizer = keras.optimizers.SGD(0.1 * strategy.num_replicas_in_sync)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


def step(x, labels):
    with tf.GradientTape() as tape:
        losses = loss_of(labels, model(x, training=True))
        loss = tf.nn.compute_average_loss(losses, global_batch_size=batch)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


@tf.function
def distributed(x, labels):
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(step, args=(x, labels)), axis=None)


for _ in range(2):
    for x, labels in batches:
        distributed(x, labels)

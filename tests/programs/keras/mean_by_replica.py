"""MirroredStrategy with a mean over each replica's half of the batch: the gradients add up to twice the mean's."""

import keras
import tensorflow as tf

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)


def forward(model, x, y):
    losses = LOSS(y, model(x, training=True))
    return tf.reduce_mean(losses)  # fault


def forward_right(model, x, y):
    losses = LOSS(y, model(x, training=True))
    return tf.nn.compute_average_loss(losses, global_batch_size=8)


def build(forward=forward):
    strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4)])
        model.compile(keras.optimizers.SGD(0.1))
        model.optimizer.build(model.trainable_variables)
    model.replicas = strategy
    model.train = trainer(model, strategy, forward)
    return model


def build_right():
    return build(forward_right)


def trainer(model, strategy, forward):
    def on_replica(x, y):
        with tf.GradientTape() as tape:
            loss = forward(model, x, y)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(list(zip(gradients, model.trainable_variables, strict=True)))
        return loss

    @tf.function
    def train(x, y):
        losses = strategy.run(on_replica, args=(x, y))
        return strategy.reduce("sum", losses, axis=None)

    return train


def step(model, inputs):
    batch = [inputs["x"], inputs["y"]]
    with tf.device("/CPU:0"):
        halves = [tf.split(tensor, 2) for tensor in batch]
    x, y = (
        model.replicas.experimental_distribute_values_from_function(
            lambda context, parts=parts: parts[context.replica_id_in_sync_group]
        )
        for parts in halves
    )
    model.train(x, y)

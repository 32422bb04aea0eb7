"""The port of train_chain.py, which makes its weights at its first call."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(1)


class Chain(keras.Model):
    def __init__(self):
        super().__init__()
        self.emit = layers.Dense(4)
        self.transitions = self.add_weight(shape=(4, 4), initializer="normal", name="transitions")

    def call(self, x):
        return self.emit(x)

    def score(self, emitted, states, mask):
        transitions = tf.convert_to_tensor(self.transitions)
        pairs = tf.stack([states[:, :-1], states[:, 1:]], axis=-1)
        score = tf.reduce_sum(tf.gather_nd(transitions, pairs), 1)
        score += tf.reduce_sum(tf.gather(emitted, states, axis=2, batch_dims=2), 1)
        total = emitted[:, 0]
        for t in range(1, emitted.shape[1]):
            step = tf.reduce_logsumexp(total[:, :, None] + transitions, axis=1) + emitted[:, t]
            total = tf.where(mask[:, t : t + 1], step, total)
        return tf.reduce_mean(tf.reduce_logsumexp(total, axis=1) - score)


model = Chain()
optimizer = keras.optimizers.SGD(0.1)
draws = np.random.default_rng(0)
arrays = draws.normal(size=(32, 3, 6)).astype("float32"), draws.integers(4, size=(32, 3))
for x, y in tf.data.Dataset.from_tensor_slices(arrays).batch(8):
    with tf.GradientTape() as tape:
        loss = model.score(model(x, training=True), y, x[..., 0] > 0)
    gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), 0.5)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

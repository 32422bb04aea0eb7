"""Its port: the lengths are those of a mask, and tf.data pads otherwise."""

import keras
import numpy as np
import tensorflow as tf

WORDS, TAGS = 30, 4


class Tagger(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = keras.layers.Embedding(WORDS, 8, mask_zero=True)
        self.lstm = keras.layers.Bidirectional(keras.layers.LSTM(6, return_sequences=True))
        self.out = keras.layers.Dense(TAGS)

    def call(self, words):
        mask = self.embedding.compute_mask(words)
        return self.out(self.lstm(self.embedding(words), mask=mask))


def masked_loss(tags, logits):
    mask = tf.cast(tags != 0, logits.dtype)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tags, logits=logits)
    return tf.reduce_sum(losses * mask) / tf.reduce_sum(mask)


drawn = np.random.default_rng(0)
sentences = [drawn.integers(1, WORDS, 2 + number % 5).astype("int32") for number in range(24)]
data = tf.data.Dataset.from_generator(lambda: iter(sentences), output_signature=tf.TensorSpec((None,), tf.int32))
data = data.padded_batch(6).map(lambda words: (words, words % TAGS))
model, optimizer = Tagger(), keras.optimizers.SGD(0.1)


@tf.function(reduce_retracing=True)
def train_step(words, tags):
    with tf.GradientTape() as tape:
        loss = masked_loss(tags, model(words))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)


for words, tags in data:
    train_step(words, tags)

"""A loop as the guides have it: a tf.function, a metric, clipped gradients, recurrent layers, half precision."""

import keras
import tensorflow as tf
from keras import layers

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def build_right():
    half = {"dtype": "mixed_float16"}
    stack = [layers.Embedding(50, 16, **half), layers.LSTM(16, **half), layers.Dropout(0.1, **half)]
    model = keras.Sequential([keras.Input((9,), dtype="int64"), *stack, layers.Dense(3, dtype="float32")])
    model.optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(1e-3, global_clipnorm=1.0))
    model.optimizer.build(model.trainable_variables)
    model.mean = keras.metrics.Mean()
    model.train = trainer(model)
    return model


def trainer(model):
    @tf.function
    def train(ids, labels):
        with tf.GradientTape() as tape:
            loss = LOSS(labels, model(ids, training=True))
            scaled = model.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        model.mean.update_state(loss)
        return loss

    return train


def step_right(model, inputs):
    model.train(inputs["ids"], inputs["labels"])

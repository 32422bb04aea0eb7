"""What looks like a fault and is none: soft targets, losses in both forms, gradients that are kept for later calls."""

import keras
import tensorflow as tf
from keras import layers


def build_right():
    inputs = keras.Input((16,))
    scores = layers.Dense(4)(layers.Dense(8, "relu")(inputs))
    model = keras.Model(inputs, {"scores": scores, "probabilities": layers.Softmax()(scores)})
    model.compile(
        keras.optimizers.Adam(1e-3, gradient_accumulation_steps=4),
        loss={
            "scores": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "probabilities": "sparse_categorical_crossentropy",
        },
        metrics={"probabilities": ["accuracy"]},
    )
    return model


def step_right(model, inputs):
    x, y = inputs["x"], inputs["y"]
    teacher = tf.stop_gradient(model(x, training=False)["probabilities"])
    with tf.GradientTape() as tape:
        outputs = model(x, training=True)
        smooth = keras.losses.categorical_crossentropy(teacher, outputs["scores"], from_logits=True)
        binary = keras.losses.binary_crossentropy(tf.one_hot(y, 4), tf.sigmoid(outputs["scores"]))
        loss = tf.reduce_mean(smooth) + tf.reduce_mean(binary)
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
    model.fit(x, {"scores": y, "probabilities": y}, verbose=0)

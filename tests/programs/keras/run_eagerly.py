"""run_eagerly=True, left from debugging: Keras trains without a tf.function."""

import keras


def model_of(**options):
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4)])
    model.compile("adam", loss="mse", **options)
    return model


def build():
    return model_of(run_eagerly=True)  # wrong
    # right: return model_of()


def step(model, inputs):
    model.train_on_batch(inputs["x"], inputs["y"])  # fault

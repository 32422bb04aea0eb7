"""Networks of wrong types, that do not learn, that compute what is no number, or are called in the wrong mode."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.programs.keras.usual import step as usual_step
from tests.programs.keras.usual import update, with_sgd

step = usual_step


def build_double_parameter(dtype="float64"):
    """One layer in float64 among others in float32."""
    model = keras.Sequential()
    model.add(layers.Dense(32, activation="relu"))
    model.add(layers.Dense(4, dtype=dtype))  # fault: double_parameter
    return with_sgd(model)


def build_double_parameter_right():
    return build_double_parameter(dtype="float32")


def build_mixed_parameters(dtype="bfloat16"):
    """A layer whose weights are bfloat16, among layers of float32."""
    model = keras.Sequential()
    model.add(layers.Dense(32, activation="relu", dtype=dtype))  # fault: mixed_parameters
    model.add(layers.Dense(4))
    return with_sgd(model)


def build_mixed_parameters_right():
    return build_mixed_parameters(dtype="mixed_bfloat16")


def train_on(model, x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True)))
    update(model, tape, loss)


def build_double_input():
    return with_sgd(keras.Sequential([layers.Dense(32, activation="relu"), layers.Dense(4)]))


def double_input(model, inputs):
    """A batch that is float64 on its way to a float32 model."""
    x = tf.cast(inputs["x"], tf.float64)  # wrong  # fault: double_input
    # right: x = inputs["x"]
    train_on(model, x)


def words():
    return with_sgd(keras.Sequential([layers.Embedding(1000, 16), layers.GlobalAveragePooling1D(), layers.Dense(4)]))


build_double_ids = build_float_ids = words


def double_ids(model, inputs):
    """Ids of words that are made float64 before the embedding looks them up."""
    src = tf.cast(inputs["src"], tf.float64)  # wrong  # fault: double_ids
    # right: src = inputs["src"]
    train_on(model, src)


def float_ids(model, inputs):
    src = tf.cast(inputs["src"], tf.float32)  # wrong  # fault: float_ids
    # right: src = inputs["src"]
    train_on(model, src)


class Encoder(keras.Model):
    """A vocabulary of 100 words, and ids up to 127."""

    def __init__(self, words):
        super().__init__()
        self.table = layers.Embedding(words, 16)
        self.out = layers.Dense(4)

    def call(self, ids):
        hidden = self.table(ids)  # fault: ids_range
        return tf.reduce_mean(self.out(hidden), 1)


def build_ids_range(words=100):
    return with_sgd(Encoder(words))


def build_ids_range_right():
    return build_ids_range(words=128)


def ids_range(model, inputs):
    train_on(model, inputs["ids"])


class AutoEncoder(keras.Model):
    """A stop_gradient between encoder and decoder, left from an experiment: the encoder never learns."""

    def __init__(self):
        super().__init__()
        self.encoder = layers.Dense(4, activation="tanh")
        self.decoder = layers.Dense(16)

    def call(self, x):
        code = self.encoder(x)
        return self.decoder(tf.stop_gradient(code))  # wrong  # fault: detached_encoder
        # right: return self.decoder(code)


def build_detached_encoder():
    return with_sgd(AutoEncoder())


class Copies(keras.Model):
    """Two encoders of one structure, one behind the other: the first is no target network, though it is cut off."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (keras.Sequential([layers.Dense(32, "relu"), layers.Dense(16)]) for _ in range(2))

    def call(self, x):
        x = tf.stop_gradient(self.first(x))  # wrong  # fault: dead_copy
        # right: x = self.first(x)
        return self.second(x)


def build_dead_copy():
    return with_sgd(Copies())


class Clipped(keras.Model):
    """An activation goes through NumPy: the tape does not see it come back."""

    def __init__(self):
        super().__init__()
        self.body = layers.Dense(8)
        self.head = layers.Dense(4)

    def call(self, x):
        hidden = self.body(x)
        hidden = tf.constant(np.clip(hidden.numpy(), -1, 1))  # wrong  # fault: through_numpy
        # right: hidden = tf.clip_by_value(hidden, -1, 1)
        return self.head(hidden)


def build_through_numpy():
    return with_sgd(Clipped())


class Net(keras.Model):
    def __init__(self, bias="zeros"):
        super().__init__()
        self.body = layers.Dense(8, activation="relu", bias_initializer=bias)
        self.head = layers.Dense(4, bias_initializer="ones")

    def call(self, x):
        return self.head(self.body(x))


def build_frozen_body():
    """A body that is frozen: on purpose, perhaps."""
    model = with_sgd(Net())
    model.body.trainable = False  # wrong
    return model


def build_dead_relu():
    """A bias that was set so low that no ReLU ever fires: every gradient below it is zero."""
    return with_sgd(Net(bias=keras.initializers.Constant(-100.0)))  # wrong
    # right: return with_sgd(Net())


def dropping():
    body = [layers.Dense(32), layers.BatchNormalization(), layers.ReLU()]
    return with_sgd(keras.Sequential([*body, layers.Dropout(0.1), layers.Dense(4)]))


build_left_in_eval = build_validated_in_train = dropping


def left_in_eval(model, inputs):
    """The model is called for inference, and trained."""
    with tf.GradientTape() as tape:
        out = model(inputs["x"], training=False)  # wrong
        # right: out = model(inputs["x"], training=True)
        loss = tf.reduce_mean(tf.square(out))
    update(model, tape, loss)


def validated_in_train(model, inputs):
    """A validation that is called for training: dropout drops, and batch norm learns from the validation data."""
    out = model(inputs["x"], training=True)  # wrong  # fault: validated_in_train
    # right: out = model(inputs["x"], training=False)
    keras.losses.MeanSquaredError()(inputs["y"], out)


class Rates(keras.Model):
    """A logarithm of what a ReLU made: of zeros."""

    def __init__(self):
        super().__init__()
        self.out = layers.Dense(8, activation="relu")

    def call(self, x):
        return tf.math.log(self.out(x))  # wrong  # fault: log_of_zero
        # right: return tf.math.log(self.out(x) + 1e-3)


def build_log_of_zero():
    return with_sgd(Rates(), 1e-4)


class Distance(keras.Model):
    """The distance of a point to itself: its value is finite, its derivative is not."""

    def __init__(self):
        super().__init__()
        self.out = layers.Dense(8, use_bias=False)

    def call(self, x):
        points = self.out(x)
        squares = tf.reduce_sum(tf.square(points - points[:1]), -1)
        return tf.sqrt(squares)  # wrong  # fault: sqrt_at_zero
        # right: return tf.sqrt(squares + 1e-6)


def build_sqrt_at_zero():
    return with_sgd(Distance(), 0.01)


def sqrt_at_zero(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(inputs["x"]))
    update(model, tape, loss)


class Flattened(keras.Model):
    """Images that are flattened to a width that they do not have."""

    def __init__(self, features):
        super().__init__()
        self.conv = layers.Conv2D(4, 3, activation="relu")
        self.out = layers.Dense(3)
        self.features = features

    def call(self, x):
        hidden = tf.reshape(self.conv(x), [x.shape[0], self.features])  # fault: wrong_features
        return self.out(hidden)


def build_wrong_features():
    return with_sgd(Flattened(4 * 8 * 8))  # wrong
    # right: return with_sgd(Flattened(4 * 6 * 6))


class MadeInCall(keras.Model):
    """A layer that is made where it is called: it has new weights in each step, which nothing trains."""

    def __init__(self):
        super().__init__()
        self.body = layers.Dense(32, activation="relu")
        # right: self.head = layers.Dense(4)

    def call(self, x, training=None):
        x = layers.Dropout(0.1)(self.body(x), training=training)
        return layers.Dense(4)(x)  # wrong  # fault: layer_in_call
        # right: return self.head(x)


def build_layer_in_call():
    return with_sgd(MadeInCall())


def layer_in_call(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"], training=True) - inputs["y"]))
    update(model, tape, loss)


class Blocks:
    """Layers that hang on an object Keras does not look into: never listed, never trained."""

    def __init__(self):
        self.first = layers.Dense(16, activation="relu")  # fault: hidden_layers


class Hidden(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = Blocks()
        self.head = layers.Dense(4)
        # right: self.first = self.blocks.first

    def call(self, x):
        return self.head(self.blocks.first(x))


def build_hidden_layers():
    return with_sgd(Hidden())


class Attention(keras.Model):
    """Attention by hand: where a mask leaves a query no key at all, the softmax is one of infinities alone, a NaN."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = layers.Dense(16), layers.Dense(16), layers.Dense(16)
        self.head = layers.Dense(5)

    def call(self, x, keep):
        scores = tf.matmul(self.query(x), self.key(x), transpose_b=True) / 4.0
        far = tf.constant(float("-inf"))  # wrong
        # right: far = tf.constant(-1e9)
        weights = tf.nn.softmax(tf.where(keep[:, None, :] > 0, scores, far))  # fault: all_masked
        return self.head(tf.reduce_mean(tf.matmul(weights, self.value(x)), 1))


def build_all_masked():
    return with_sgd(Attention())


def all_masked(model, inputs):
    keep = tf.concat([tf.ones((7, 6)), tf.zeros((1, 6))], 0)
    with tf.GradientTape() as tape:
        logits = model(inputs["x"], keep, training=True)
        losses = keras.losses.sparse_categorical_crossentropy(inputs["y"], logits, from_logits=True)
        loss = tf.reduce_mean(losses)
    update(model, tape, loss)

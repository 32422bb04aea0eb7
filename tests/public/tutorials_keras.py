"""Well-known tutorials in Keras: those of keras.io, and ports of pytorch.org's DCGAN and sequence-to-sequence ones."""

import keras
from keras import layers, ops


def dcgan_generator() -> keras.Model:
    return keras.Sequential(
        [
            layers.Conv2DTranspose(32, 4, 1, "valid", use_bias=False),
            layers.BatchNormalization(momentum=0.9, epsilon=1e-5),
            layers.ReLU(),
            layers.Conv2DTranspose(16, 4, 2, "same", use_bias=False),
            layers.BatchNormalization(momentum=0.9, epsilon=1e-5),
            layers.ReLU(),
            layers.Conv2DTranspose(3, 4, 2, "same", use_bias=False, activation="tanh"),
        ]
    )


def dcgan_discriminator() -> keras.Model:
    return keras.Sequential(
        [
            layers.Conv2D(16, 4, 2, "same", use_bias=False),
            layers.LeakyReLU(0.2),
            layers.Conv2D(32, 4, 2, "same", use_bias=False),
            layers.BatchNormalization(momentum=0.9, epsilon=1e-5),
            layers.LeakyReLU(0.2),
            layers.Conv2D(1, 4, 1, "valid", use_bias=False, activation="sigmoid"),
        ]
    )


def vae() -> keras.Model:
    """Return keras.io's encoder, its sampling and its decoder; the noise is an input."""
    image, noise = keras.Input((28, 28, 1), name="image"), keras.Input((2,), name="noise")
    x = layers.Conv2D(8, 3, activation="relu", strides=2, padding="same")(image)
    x = layers.Conv2D(16, 3, activation="relu", strides=2, padding="same")(x)
    x = layers.Dense(16, activation="relu")(layers.Flatten()(x))
    mean, log_var = layers.Dense(2, name="z_mean")(x), layers.Dense(2, name="z_log_var")(x)
    z = mean + ops.exp(0.5 * log_var) * noise
    x = layers.Reshape((7, 7, 16))(layers.Dense(7 * 7 * 16, activation="relu")(z))
    x = layers.Conv2DTranspose(16, 3, activation="relu", strides=2, padding="same")(x)
    x = layers.Conv2DTranspose(8, 3, activation="relu", strides=2, padding="same")(x)
    x = layers.Conv2DTranspose(1, 3, activation="sigmoid", padding="same")(x)
    return keras.Model({"image": image, "noise": noise}, [x, mean, log_var])


def siamese_contrastive() -> keras.Model:
    image = keras.Input((28, 28, 1))
    x = layers.BatchNormalization()(image)
    x = layers.Conv2D(4, (5, 5), activation="tanh")(x)
    x = layers.AveragePooling2D(pool_size=(2, 2))(x)
    x = layers.Conv2D(16, (5, 5), activation="tanh")(x)
    x = layers.AveragePooling2D(pool_size=(2, 2))(x)
    x = layers.BatchNormalization()(layers.Flatten()(x))
    tower = keras.Model(image, layers.Dense(10, activation="tanh")(x))

    left, right = keras.Input((28, 28, 1), name="left"), keras.Input((28, 28, 1), name="right")
    squared = ops.sum(ops.square(tower(left) - tower(right)), axis=1, keepdims=True)
    distance = ops.sqrt(ops.maximum(squared, keras.config.epsilon()))
    out = layers.Dense(1, activation="sigmoid")(layers.BatchNormalization()(distance))
    return keras.Model({"left": left, "right": right}, out)


class TransformerBlock(layers.Layer):
    def __init__(self, dim, heads, inner):
        super().__init__()
        self.att = layers.MultiHeadAttention(heads, dim // heads)
        self.ffn = keras.Sequential([layers.Dense(inner, activation="relu"), layers.Dense(dim)])
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)

    def call(self, x):
        x = self.layernorm1(x + self.att(x, x, use_causal_mask=True))
        return self.layernorm2(x + self.ffn(x))


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self, length, words, dim):
        super().__init__()
        self.token_emb, self.pos_emb = layers.Embedding(words, dim), layers.Embedding(length, dim)

    def call(self, x):
        return self.token_emb(x) + self.pos_emb(ops.arange(0, ops.shape(x)[-1], 1))


def mini_gpt(words=61, length=9, dim=32, heads=2, inner=48) -> keras.Model:
    ids = keras.Input((length,), dtype="int32")
    x = TransformerBlock(dim, heads, inner)(TokenAndPositionEmbedding(length, words, dim)(ids))
    return keras.Model(ids, [layers.Dense(words)(x), x])


class Attention(layers.Layer):
    def __init__(self, dim):
        super().__init__()
        self.wa, self.ua, self.va = layers.Dense(dim), layers.Dense(dim), layers.Dense(1)

    def call(self, query, keys):
        weights = ops.softmax(self.va(ops.tanh(self.wa(query) + self.ua(keys))), axis=1)
        return ops.sum(weights * keys, axis=1, keepdims=True)


class Translator(keras.Model):
    def __init__(self, words=31, dim=16):
        super().__init__()
        self.encoder_embedding, self.decoder_embedding = layers.Embedding(words, dim), layers.Embedding(words, dim)
        self.encoder_gru = layers.GRU(dim, return_sequences=True, return_state=True)
        self.attention = Attention(dim)
        self.decoder_gru = layers.GRU(dim, return_sequences=True, return_state=True)
        self.out = layers.Dense(words)

    def call(self, inputs):
        source, target = inputs["source"], inputs["target_words"]
        keys, hidden = self.encoder_gru(self.encoder_embedding(source))
        outputs = []
        for step in range(target.shape[1]):
            embedded = ops.relu(self.decoder_embedding(target[:, step : step + 1]))
            context = self.attention(ops.expand_dims(hidden, 1), keys)
            output, hidden = self.decoder_gru(ops.concatenate([embedded, context], 2), initial_state=hidden)
            outputs.append(self.out(output))
        return ops.log_softmax(ops.concatenate(outputs, axis=1))


def seq2seq_attention() -> keras.Model:
    return Translator()

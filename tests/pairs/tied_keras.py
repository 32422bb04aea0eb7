"""The same: the logits are a product with the transposed embedding."""

import keras
from keras import layers, ops


class LanguageModel(keras.Model):
    def __init__(self, words: int, dim: int, scale: float):
        super().__init__()
        self.scale = scale
        self.token_embedding = layers.Embedding(words, dim, name="token_embedding")
        self.transform = layers.Dense(dim, activation="tanh", name="transform")

    def call(self, tokens):
        hidden = self.transform(self.token_embedding(tokens) * self.scale)
        return ops.matmul(hidden, ops.transpose(self.token_embedding.embeddings))


class UntiedModel(LanguageModel):
    def __init__(self, words: int, dim: int, scale: float):
        super().__init__(words, dim, scale)
        self.head = layers.Dense(words, use_bias=False, name="head")

    def call(self, tokens):
        return self.head(self.transform(self.token_embedding(tokens) * self.scale))


def build(words: int, dim: int, tied: bool = True, scale: float = 1.0) -> keras.Model:
    return (LanguageModel if tied else UntiedModel)(words, dim, scale)

"""The small networks that most rows train."""

from typing import Any

import keras


class Mlp(keras.Model):
    def __init__(self, hidden: int = 16, outputs: int = 4, head: Any = None, **body: Any):
        super().__init__()
        self.body = keras.layers.Dense(hidden, activation="tanh", **body)
        self.head = keras.layers.Dense(outputs, **head or {})

    def call(self, x: Any) -> Any:
        return self.head(self.body(x))


class Tagger(keras.Model):
    """Scores of every word; word 0 is padding."""

    def __init__(self, words: int = 6, dim: int = 8, classes: int = 3, mask_zero: bool = False):
        super().__init__()
        self.embedding = keras.layers.Embedding(words, dim, mask_zero=mask_zero)
        self.body = keras.layers.Dense(10, activation="relu")
        self.head = keras.layers.Dense(classes)

    def call(self, ids: Any) -> Any:
        return self.head(self.body(self.embedding(ids)))


def mlp() -> keras.Model:
    return Mlp()


def tagger() -> keras.Model:
    return Tagger()


def eager(kind: type[keras.Model]) -> type[keras.Model]:
    """The same models, whose fit runs op by op."""

    class Eager(kind):
        def compile(self, **kwargs: Any) -> None:
            super().compile(**kwargs, run_eagerly=True)

    return Eager

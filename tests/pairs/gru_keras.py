"""The same as a subclassed model; reset_after, Keras's default, is torch's formula with both biases."""

import keras
from keras import layers


class WordTagger(keras.Model):
    def __init__(self, words: int, tags: int, backwards: bool):
        super().__init__()
        self.embedding = layers.Embedding(words, 6)
        self.recurrent = layers.GRU(10, return_sequences=True, go_backwards=backwards)
        self.classifier = layers.Dense(tags)

    def call(self, tokens):
        return self.classifier(self.recurrent(self.embedding(tokens)))


def build(words: int, tags: int, backwards: bool = False) -> keras.Model:
    return WordTagger(words, tags, backwards)

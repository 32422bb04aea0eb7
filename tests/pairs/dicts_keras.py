"""The same as a subclassed model, its dict flat and with other keys."""

import keras
from keras import layers, ops


class Recommender(keras.Model):
    def __init__(self, years: float):
        super().__init__()
        self.years = years
        self.image_tower = layers.Dense(8, name="image_tower")
        self.age_tower = layers.Dense(8, name="age_tower")
        self.country_table = layers.Embedding(12, 8, name="country_table")
        self.shared = layers.Dense(8, activation="relu", name="shared")
        self.rating_head = layers.Dense(1, name="rating_head")

    def call(self, inputs):
        x = self.country_table(inputs["country"]) + self.age_tower(inputs["age"] / self.years)
        embedding = self.shared(ops.relu(x + self.image_tower(inputs["pixels"])))
        return {"embedding": embedding, "rating": self.rating_head(embedding)}


def build(years: float = 64) -> keras.Model:
    return Recommender(years)

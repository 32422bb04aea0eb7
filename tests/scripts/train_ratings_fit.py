"""The port of train_ratings.py, whose model takes the items first."""

import keras
from data import RATINGS
from keras import layers

user, item = (keras.Input((), dtype="int32", name=name) for name in ("first", "second"))
alike = layers.Dot(-1)([layers.Embedding(20, 6)(user), layers.Embedding(20, 6)(item)])
model = keras.Model([item, user], layers.Add()([alike, layers.Embedding(20, 1)(item)]))
model.compile(keras.optimizers.SGD(0.1), "mse")
users, items = RATINGS.T
model.fit([items, users], (users - items) / 8, batch_size=16, verbose=0)

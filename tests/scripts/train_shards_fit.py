"""The port of train_shards.py: `fit` under a strategy of several workers."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(1)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
assert strategy.cluster_resolver.task_id == 0
with strategy.scope():
    model = keras.Sequential([layers.Dense(8), layers.LayerNormalization(epsilon=1e-5), layers.Dense(4)])
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
draws = np.random.default_rng(0)
model.fit(draws.normal(size=(64, 6)), draws.integers(4, size=64), batch_size=16, verbose=0)

"""The port of train_teacher.py, as keras.io's Distiller."""

import keras
import numpy as np
from keras import layers, ops


class Distiller(keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.student, self.teacher = student, teacher
        self.hard, self.soft = keras.losses.SparseCategoricalCrossentropy(from_logits=True), keras.losses.KLDivergence()

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        wanted = ops.softmax(self.teacher(x, training=False) / 3)
        return 0.25 * self.hard(y, y_pred) + 0.75 * self.soft(wanted, ops.softmax(y_pred / 3))

    def call(self, x):
        return self.student(x)


teacher = keras.Sequential(
    [keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dropout(0.25), layers.Dense(3)]
)
teacher.trainable = False
distiller = Distiller(
    keras.Sequential([keras.Input((6,)), layers.Dense(4, activation="relu"), layers.Dense(3)]), teacher
)
distiller.compile(optimizer=keras.optimizers.SGD(0.05))
rng = np.random.default_rng(0)
distiller.fit(rng.normal(size=(64, 6)), rng.integers(0, 3, 64), batch_size=16)

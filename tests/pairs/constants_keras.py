"""The same in Keras: `wrong` computes or leaves other values. Right ones are rounded to float32, as numpy may."""

import keras
import numpy as np
from keras import layers, ops


def sinusoids(base):
    return np.sin(8.0 / base ** (np.arange(8) / 8))


def moments(wrong):
    return {"mean": np.linspace(-1, 1, 8)[:: -1 if wrong else 1], "std": np.linspace(0.5, 2, 8)}


MADE = {
    "table": lambda wrong: {"table": sinusoids(1000.0 if wrong else 10000.0)},
    "order": lambda wrong: {"order": np.arange(8)[:: 1 if wrong else -1]},
    "moments": moments,
    "temperature": lambda wrong: {"temperature": np.array(0.7 if wrong else 0.07)},
    "mask": lambda wrong: {"mask": np.ones(8) if wrong else np.float64(np.arange(8) % 3 != 0)},
    "window": lambda wrong: {"window": np.hamming(8) if wrong else np.hanning(8)},
    "foreign": lambda wrong: {"inv_freq": 8.0 / (1000.0 if wrong else 10000.0) ** (np.arange(8) / 8)},
    "random": lambda wrong: {"directions": None},
    "unused": lambda wrong: {"table": sinusoids(1000.0 if wrong else 10000.0)},
}
USED = {
    "table": lambda model, x: model.fc(x + model.table),
    "order": lambda model, x: model.fc(ops.take(x, model.order, axis=1)),
    "moments": lambda model, x: model.fc((x - model.mean) / model.std),
    "temperature": lambda model, x: ops.softmax(model.fc(x) / model.temperature),
    "mask": lambda model, x: model.fc(x) * model.mask,
    "window": lambda model, x: model.fc(x * model.window),
    "foreign": lambda model, x: model.fc(x + ops.sin(model.inv_freq)),
    "random": lambda model, x: model.fc((2 if model.wrong else 1) * x * ops.sum(model.directions, 0)),
    "unused": lambda model, x: model.fc(x),
}


class Held(keras.Model):
    """`what`: its values, and what becomes of them."""

    def __init__(self, what, wrong=False):
        super().__init__()
        self.fc, self.what, self.wrong = layers.Dense(8), what, wrong

    def build(self, shape):
        self.fc.build(shape)
        for name, values in MADE[self.what](self.wrong).items():
            given = (
                {"shape": (9, 8), "initializer": keras.initializers.RandomNormal(0.0, 1.0)}
                if values is None
                else {"shape": values.shape}
            )
            whole = values is not None and values.dtype.kind == "i"
            variable = self.add_weight(**given, dtype="int32" if whole else None, trainable=False, name=name)
            if values is not None:
                exact = whole or self.wrong or self.what == "foreign"
                variable.assign(values if exact else values.astype(np.float32))
            setattr(self, name, variable)

    def call(self, x):
        return USED[self.what](self, x)


class Embedded(keras.Model):
    """`drawn`: the table is as Keras initializes it."""

    def __init__(self, wrong=False, drawn=False):
        super().__init__()
        table = np.sin(np.arange(32.0).reshape(4, 8) * (1.01 if wrong else 1))
        self.positions = layers.Embedding(4, 8, weights=None if drawn else [table], trainable=False)
        self.fc = layers.Dense(8)

    def call(self, x):
        return self.fc(x + self.positions(ops.arange(4)))

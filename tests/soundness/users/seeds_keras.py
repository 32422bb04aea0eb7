"""Dropouts in Keras: several maskings of one tensor, stacked along axis 1, by layers and functions with seeds."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import tensorflow as tf
from keras import ops
from nets_keras import eager

Dropout = keras.layers.Dropout


class Masked(keras.Model):
    """By layers."""

    def __init__(self, *drops: Any):
        super().__init__()
        self.body = keras.layers.Dense(16, activation="tanh")
        self.drops = list(drops)

    def build(self, shape: Any) -> None:
        self.body.build(shape)
        self.built = True

    def parts(self, hidden: Any, training: Any) -> list[Any]:
        return [drop(hidden, training=training) for drop in self.drops]

    def call(self, x: Any, training: bool = False) -> Any:
        return ops.stack(self.parts(self.body(x), training), 1)


def built(kind: type[keras.Model], *given: tuple[float, int | None]) -> Callable[[], keras.Model]:
    """The builder of a model with a dropout for each rate and seed."""
    return lambda: kind(*(Dropout(rate, seed=seed) for rate, seed in given))


one = built(Masked, (0.5, None))
two = built(Masked, (0.5, None), (0.5, None))
seeded = built(Masked, (0.5, 7))
same_seed = built(Masked, (0.5, 7), (0.5, 7))
own_seeds = built(Masked, (0.5, 7), (0.5, 8))
same_seed_two_rates = built(Masked, (0.25, 7), (0.5, 7))
own_seeds_two_rates = built(Masked, (0.25, 7), (0.5, 8))


def heavy() -> keras.Model:
    """What torch drops is kept."""
    return Masked(Dropout(0.8))


def set_before() -> keras.Model:
    keras.utils.set_random_seed(0)
    return Masked(Dropout(0.5), Dropout(0.5))


def set_before_each() -> keras.Model:
    """Each layer draws its seed from the same beginning."""
    drops = []
    for _ in range(2):
        keras.utils.set_random_seed(0)
        drops.append(Dropout(0.5))
    return Masked(*drops)


def copied(seed: Any = None) -> keras.Model:
    """As torch clones layers."""
    drop = Dropout(0.5, seed=seed)
    return Masked(drop, copy.deepcopy(drop))


def from_config() -> keras.Model:
    drop = Dropout(0.5)
    return Masked(drop, Dropout.from_config(drop.get_config()))


def from_config_seeded() -> keras.Model:
    drop = Dropout(0.5, seed=7)
    return Masked(drop, Dropout.from_config(drop.get_config() | {"name": "copy"}))


class Twice(Masked):
    """One layer, called twice."""

    def parts(self, hidden: Any, training: Any) -> list[Any]:
        return [self.drops[0](hidden, training=training) for _ in range(2)]


twice = built(Twice, (0.5, None))
twice_seeded = built(Twice, (0.5, 7))


class Functions(Masked):
    """By functions; `seeds`: of each of them, whole numbers or generators."""

    def __init__(self, *seeds: Any):
        super().__init__()
        self.seeds = seeds

    def parts(self, hidden: Any, training: Any) -> list[Any]:
        return [keras.random.dropout(hidden, 0.5, seed=seed) if training else hidden for seed in self.seeds]


function = partial(Functions, None)
functions = partial(Functions, None, None)
function_of_number = partial(Functions, 42)
functions_of_numbers = partial(Functions, 42, 43)
functions_of_number = partial(Functions, 42, 42)


def function_of_generator() -> keras.Model:
    return Functions(keras.random.SeedGenerator(42))


def functions_of_generator() -> keras.Model:
    generator = keras.random.SeedGenerator(42)
    return Functions(generator, generator)


def functions_of_generators() -> keras.Model:
    return Functions(keras.random.SeedGenerator(1), keras.random.SeedGenerator(2))


def functions_of_equal_generators() -> keras.Model:
    return Functions(keras.random.SeedGenerator(1), keras.random.SeedGenerator(1))


class OfTensorFlow(Masked):
    def __init__(self, *seeds: Any):
        super().__init__()
        self.seeds = seeds

    def parts(self, hidden: Any, training: Any) -> list[Any]:
        return [tf.nn.dropout(hidden, 0.5, seed=seed) if training else hidden for seed in self.seeds]


tensorflow = partial(OfTensorFlow, None, None)
tensorflow_seeded = partial(OfTensorFlow, 3)
tensorflow_same_seed = partial(OfTensorFlow, 3, 3)
tensorflow_own_seeds = partial(OfTensorFlow, 3, 4)


class Stateless(Masked):
    """`counted`: with the number of the step as part of the seed."""

    def __init__(self, counted: bool = False):
        super().__init__()
        self.counted = counted
        self.steps = tf.Variable(0, trainable=False)

    def parts(self, hidden: Any, training: Any) -> list[Any]:
        if not training:
            return [hidden]
        self.steps.assign_add(1)
        seed = tf.stack([1, self.steps if self.counted else 2])
        return [tf.nn.experimental.stateless_dropout(hidden, 0.5, seed)]


class Reseeded(Masked):
    """call sets the seed of everything, which layers that have theirs do not ask."""

    def parts(self, hidden: Any, training: Any) -> list[Any]:
        keras.utils.set_random_seed(0)
        return super().parts(hidden, training)


reseeded = built(Reseeded, (0.5, None), (0.5, None))


class Always(Masked):
    def parts(self, hidden: Any, training: Any) -> list[Any]:
        return super().parts(hidden, True)


always = built(Always, (0.5, None))
always_seeded = built(Always, (0.5, 7))


class AlwaysOfNumber(Masked):
    def parts(self, hidden: Any, training: Any) -> list[Any]:
        return [keras.random.dropout(hidden, 0.5, seed=42)]


class Samples(keras.Model):
    """Scores of one head for several maskings. `seed`: of all of them."""

    def __init__(self, seed: Any = None):
        super().__init__()
        self.body, self.head = keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(4)
        self.drops = [Dropout(0.5, seed=seed) for _ in range(3)]

    def build(self, shape: Any) -> None:
        self.body.build(shape)
        self.head.build((None, 16))
        self.built = True

    def call(self, x: Any, training: bool = False) -> Any:
        hidden = self.body(x)
        return ops.stack([self.head(drop(hidden, training=training)) for drop in self.drops], 1)


class Annealed(Masked):
    """An eighth of the rate is left after every step."""

    def __init__(self):
        super().__init__(Dropout(0.8))

    def parts(self, hidden: Any, training: Any) -> list[Any]:
        parts = super().parts(hidden, training)
        if training:
            self.drops[0].rate /= 8
        return parts


def annealed(is_eager: bool = False) -> keras.Model:
    return (eager(Annealed) if is_eager else Annealed)()

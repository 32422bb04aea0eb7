"""What Keras's models, losses and steps remember. What is Python's is fixed when fit traces its step."""

import functools
import itertools
import types
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from nets_keras import eager


class Network(keras.Model):
    """Two layers; what stands between them is multiplied by a factor of the subclass."""

    def __init__(self):
        super().__init__()
        self.body, self.head = keras.layers.Dense(16), keras.layers.Dense(4)

    def build(self, shape: Any) -> None:
        self.body.build(shape)
        self.head.build((None, 16))
        self.built = True

    def factor(self, training: Any) -> Any:
        return 1.0

    def call(self, x: Any, training: bool = False) -> Any:
        return self.head(ops.tanh(self.body(x)) * self.factor(training))


class Weight(Network):
    """The steps of the training, in a weight that is made at once."""

    def __init__(self):
        super().__init__()
        self.steps = self.add_weight(shape=(), initializer="zeros", trainable=False, name="steps")

    def factor(self, training: Any) -> Any:
        if training:
            self.steps.assign_add(1.0)
        return 1 / (1 + self.steps / 4)


class Whole(Network):
    """A whole number that build makes."""

    def build(self, shape: Any) -> None:
        super().build(shape)
        self.steps = keras.Variable(0, dtype="int64", trainable=False, name="steps")

    def factor(self, training: Any) -> Any:
        if training:
            self.steps.assign(self.steps + 1)
        return 1 / (1 + ops.cast(self.steps, self.compute_dtype) / 4)


class OfTensorFlow(Network):
    """A variable that Keras does not know of."""

    def __init__(self):
        super().__init__()
        self.steps = tf.Variable(0, trainable=False)

    def factor(self, training: Any) -> Any:
        if training:
            self.steps.assign_add(1)
        return 1 / (1 + ops.cast(self.steps, self.compute_dtype) / 4)


class Hidden(Network):
    """A variable in a dict of an object of one's own."""

    def __init__(self):
        super().__init__()
        self.state = Hidden.State()

    class State:
        def __init__(self):
            self.all = {"steps": keras.Variable(0, dtype="int64", trainable=False)}

    def factor(self, training: Any) -> Any:
        steps = self.state.all["steps"]
        if training:
            steps.assign_add(1)
        return 1 / (1 + ops.cast(steps, self.compute_dtype) / 4)


def hidden() -> keras.Model:
    return Hidden()


class Late(Weight):
    """Counts after the factor is taken."""

    def factor(self, training: Any) -> Any:
        factor = 1 / (1 + ops.copy(self.steps.value) / 4)
        if training:
            self.steps.assign_add(1.0)
        return factor


class Always(Weight):
    def factor(self, training: Any) -> Any:
        self.steps.assign_add(1.0)
        return 1 / (1 + (self.steps - 1) / 4)


class InTraining(Weight):
    """The count goes on in training alone, from 0."""

    def factor(self, training: Any) -> Any:
        if training:
            self.steps.assign_add(1.0)
            return 1 / (1 + (self.steps - 1) / 4)
        return 1 / (1 + self.steps / 4 - 0.25)


class Attribute(Network):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def factor(self, training: Any) -> Any:
        if training:
            self.steps += 1
        return 1 / (1 + self.steps / 4)


class BuiltAttribute(Network):
    """build makes the count."""

    def build(self, shape: Any) -> None:
        super().build(shape)
        self.steps = 0

    factor = Attribute.factor


class Listed(Network):
    def __init__(self):
        super().__init__()
        self.seen = []

    def factor(self, training: Any) -> Any:
        if training:
            self.seen.append(len(self.seen))
        return 1 / (1 + len(self.seen) / 4)


class Counted(Network):
    """In an array of NumPy's."""

    def __init__(self):
        super().__init__()
        self.steps = np.zeros(())

    def factor(self, training: Any) -> Any:
        if training:
            self.steps += 1
        return float(1 / (1 + self.steps / 4))


class OfClass(Network):
    steps = 0

    def factor(self, training: Any) -> Any:
        if training:
            type(self).steps += 1
        return 1 / (1 + self.steps / 4)


STEPS = 0


class OfModule(Network):
    def factor(self, training: Any) -> Any:
        global STEPS
        if training:
            STEPS += 1
        return 1 / (1 + STEPS / 4)


SHARED = keras.Variable(0, dtype="int64", trainable=False)


class OfModuleVariable(Network):
    def factor(self, training: Any) -> Any:
        if training:
            SHARED.assign_add(1)
        return 1 / (1 + ops.cast(SHARED, self.compute_dtype) / 4)


class OfDefault(Network):
    """A default argument that is made once and changed by every call."""

    def factor(self, training: Any, seen: list = []):  # noqa: B006
        if training:
            seen.append(0)
        return 1 / (1 + len(seen) / 4)


class OfClosure(Network):
    def __init__(self):
        super().__init__()
        numbers = itertools.count(1)
        self.draw = lambda: 1 / (1 + next(numbers) / 4)

    def factor(self, training: Any) -> Any:
        return self.draw() if training else 0.5


class OfVariable(Weight):
    def factor(self, training: Any) -> Any:
        return super().factor(training) if training else 0.5


class Toggled(Network):
    def __init__(self):
        super().__init__()
        self.even = False

    def factor(self, training: Any) -> Any:
        if training:
            self.even = not self.even
        return 1.5 if self.even else 0.5


class ToggledVariable(Network):
    def __init__(self):
        super().__init__()
        self.even = keras.Variable(False, dtype="bool", trainable=False, name="even")

    def factor(self, training: Any) -> Any:
        if training:
            self.even.assign(ops.logical_not(self.even))
        return ops.where(self.even, 1.5, 0.5)


class Drawn(Network):
    """NumPy draws a factor, once for the whole graph."""

    def __init__(self):
        super().__init__()
        self.generator = np.random.default_rng(0)

    def factor(self, training: Any) -> Any:
        return self.generator.uniform(0.5, 1.5) if training else 1.0


class DrawnBefore(Weight):
    """The same numbers, drawn before and taken one by one."""

    def __init__(self):
        super().__init__()
        self.draws = np.random.default_rng(0).uniform(0.5, 1.5, 100)

    def factor(self, training: Any) -> Any:
        if not training:
            return 1.0
        self.steps.assign_add(1.0)
        return ops.cast(ops.take(self.draws, ops.cast(self.steps, "int32") - 1), self.compute_dtype)


class FirstBatch(Network):
    """Shifted and scaled by what the first batch says (ActNorm). `variable`: whether it knows so in the graph."""

    def __init__(self, variable: bool = True):
        super().__init__()
        self.shift = self.add_weight(shape=(16,), initializer="zeros", trainable=False, name="shift")
        self.scale = self.add_weight(shape=(16,), initializer="ones", trainable=False, name="scale")
        self.ready = keras.Variable(False, dtype="bool", trainable=False, name="ready") if variable else False

    def call(self, x: Any, training: bool = False) -> Any:
        hidden = self.body(x)
        if training and self.ready is not True:
            mean, deviation = ops.mean(hidden, 0), ops.std(hidden, 0)
            ready = False if self.ready is False else self.ready.value
            self.shift.assign(ops.stop_gradient(ops.where(ready, self.shift, mean)))
            self.scale.assign(ops.stop_gradient(ops.where(ready, self.scale, deviation)))
            if self.ready is False:
                self.ready = True
            else:
                self.ready.assign(True)
        return self.head(ops.tanh((hidden - self.shift) / self.scale))


class Centre(Network):
    """Centred by a running mean, which training moves. `early`: before it is used; `momentum`: of the mean so far."""

    def __init__(self, early: bool = False, momentum: float = 0.75, first: str = "zeros"):
        super().__init__()
        self.centre = self.add_weight(shape=(16,), initializer=first, trainable=False, name="centre")
        self.early, self.momentum = early, momentum

    def move(self, hidden: Any, training: Any) -> None:
        if training:
            mean = ops.stop_gradient(ops.mean(hidden, 0))
            self.centre.assign(self.momentum * self.centre + (1 - self.momentum) * mean)

    def call(self, x: Any, training: bool = False) -> Any:
        hidden = self.body(x)
        if self.early:
            self.move(hidden, training)
        output = self.head(ops.tanh(hidden - self.centre))
        if not self.early:
            self.move(hidden, training)
        return output


class Remembering(Network):
    """Adds the hidden values of the batch before."""

    def __init__(self, factor: float = 0.5):
        super().__init__()
        self.last = self.add_weight(shape=(8, 16), initializer="zeros", trainable=False, name="last")
        self.share = factor

    def call(self, x: Any) -> Any:
        hidden = ops.tanh(self.body(x))
        output = self.head(hidden + self.share * self.last)
        self.last.assign(ops.stop_gradient(hidden))
        return output


class Caching(Network):
    """`cached`: takes the mean of the first batch that it sees for all others."""

    def __init__(self, cached: bool = True):
        super().__init__()
        self.cached, self.mean = cached, None

    def call(self, x: Any) -> Any:
        if self.mean is None or not self.cached:
            self.mean = ops.stop_gradient(ops.mean(x, 0))
        return self.head(ops.tanh(self.body(x - self.mean)))


class Averaging(Network):
    """The mean along a sequence. `cached`: by the length of the first."""

    def __init__(self, cached: bool = True):
        super().__init__()
        self.cached, self.length = cached, None

    def call(self, x: Any) -> Any:
        if self.length is None or not self.cached:
            self.length = x.shape[1]
        return self.head(ops.sum(ops.tanh(self.body(x)), 1) / self.length)


class Traced(Network):
    """Counts its calls in a tf.function."""

    def __init__(self):
        super().__init__()
        self.steps = 0

    def count(self) -> Any:
        self.steps += 1
        return self.steps

    @tf.function
    def scaled(self, hidden: Any) -> Any:
        return hidden / (1 + (self.count() - 1) / 4)

    def call(self, x: Any) -> Any:
        return self.head(self.scaled(ops.tanh(self.body(x))))


class TracedVariable(Traced):
    def __init__(self):
        super().__init__()
        self.steps = self.add_weight(shape=(), initializer="zeros", trainable=False, name="steps")

    def count(self) -> Any:
        self.steps.assign_add(1.0)
        return self.steps


class Largest(Network):
    """`kept`: so far, not in this batch."""

    def __init__(self, kept: bool = True):
        super().__init__()
        self.largest = self.add_weight(shape=(), initializer="ones", trainable=False, name="largest")
        self.kept = kept

    def call(self, x: Any, training: bool = False) -> Any:
        hidden = self.body(x)
        if training:
            largest = ops.stop_gradient(ops.max(ops.abs(hidden)))
            self.largest.assign(ops.maximum(self.largest if self.kept else 1.0, largest))
        return self.head(hidden / self.largest)


def largest(kept: bool = True) -> keras.Model:
    return Largest(kept)


def recurrent(stateful: bool = True) -> keras.Model:
    x = keras.Input(batch_shape=(4, 5, 8))
    cell = keras.layers.SimpleRNN(6, use_bias=False, return_sequences=True, stateful=stateful)
    return keras.Model(x, keras.layers.Dense(4)(cell(x)))


ANNEALED = 0


def annealed(y_true: Any, y_pred: Any) -> Any:
    """By a count of the module's, which is Python's."""
    global ANNEALED
    ANNEALED += 1
    return ops.mean(ops.square(y_true - y_pred)) / ANNEALED


CALLS = keras.Variable(0, dtype="int64", trainable=False)


def annealed_variable(y_true: Any, y_pred: Any) -> Any:
    CALLS.assign_add(1)
    return ops.mean(ops.square(y_true - y_pred)) / ops.cast(CALLS, y_pred.dtype)


class AnnealedLoss(keras.losses.Loss):
    """Counts its own calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def call(self, y_true: Any, y_pred: Any) -> Any:
        self.calls += 1
        return ops.mean(ops.square(y_true - y_pred), -1) / self.calls


class Stepped(Network):
    """The loss of step n is divided by n, where `number` says n."""

    def number(self) -> Any:
        return ops.cast(self.optimizer.iterations, self.compute_dtype) + 1

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True)) / self.number()
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class SteppedTwice(Stepped):
    def number(self) -> Any:
        return super().number() + 1


class SteppedAttribute(Stepped):
    """A count of Python's in the train_step."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def number(self) -> Any:
        self.count += 1
        return float(self.count)


class Numbered(Network):
    """compute_loss divides the loss of step n by n, where `number` says n."""

    def number(self) -> int:
        raise NotImplementedError

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return super().compute_loss(*args, **kwargs) / self.number()


class OfNamespace(Numbered):
    def __init__(self):
        super().__init__()
        self.kept = types.SimpleNamespace(count=0)

    def number(self) -> int:
        self.kept.count += 1
        return self.kept.count


class OfCycle(Numbered):
    def __init__(self):
        super().__init__()
        self.numbers = itertools.cycle([1, 2, 3, 4])

    def number(self) -> int:
        return next(self.numbers)


def increased(counts: list[int]) -> int:
    counts[0] += 1
    return counts[0]


class OfPartial(Numbered):
    def __init__(self):
        super().__init__()
        self.number = functools.partial(increased, [0])


def local() -> Any:
    class Local:
        count = 0

        def number(self) -> int:
            type(self).count += 1
            return self.count

    return Local()


class OfLocal(Numbered):
    def __init__(self):
        super().__init__()
        self.kept = local()

    def number(self) -> int:
        return self.kept.number()


COUNTS = [0]


class BesideDropout(Numbered):
    """What is dropped counts nothing, so that no mask is seen."""

    def __init__(self):
        super().__init__()
        self.drop = keras.layers.Dropout(0.25)

    def factor(self, training: Any) -> Any:
        return 1 + 0 * self.drop(ops.ones((1, 16)), training=training)

    def number(self) -> int:
        return increased(COUNTS)


def numbered(kind: str, is_eager: bool = False) -> keras.Model:
    made = globals()[kind]
    return (eager(made) if is_eager else made)()


class Evaluated(Network):
    """Counts steps of the training in Python, and shows the count in evaluations alone."""

    steps = 0

    def factor(self, training: Any) -> Any:
        self.steps += bool(training)
        return 1.0 if training else 1 + self.steps / 2


def evaluated(is_eager: bool = False) -> keras.Model:
    return (eager(Evaluated) if is_eager else Evaluated)()


def by_hand(model, optimizer, batch):
    """Runs op by op, so that a count of Python's counts."""
    model.count = getattr(model, "count", 0) + 1
    with tf.GradientTape() as tape:
        loss = ops.mean(ops.square(batch["target"] - model(batch["x"], training=True))) / model.count
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)


COUNT = 0


@tf.function
def traced(model, optimizer, batch):
    global COUNT
    COUNT += 1
    with tf.GradientTape() as tape:
        loss = ops.mean(ops.square(batch["target"] - model(batch["x"], training=True))) / float(COUNT)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

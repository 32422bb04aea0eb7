"""The same models in Keras, and what is done otherwise after the forward pass."""

import keras
import tensorflow as tf
from keras import layers, ops


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(12, 6)
        self.inner, self.outer, self.out = layers.Dense(8), layers.Dense(8), layers.Dense(3)

    def call(self, ids):
        return self.out(ops.tanh(self.outer(ops.tanh(self.inner(self.table(ids))))))


class Stopped(Model):
    def call(self, ids):
        hidden = ops.tanh(self.inner(self.table(ids)))
        return self.out(ops.tanh(self.outer(ops.stop_gradient(hidden))))


class Rounded(Model):
    """Rounding, through which there is no gradient."""

    def call(self, ids):
        hidden = ops.tanh(self.inner(self.table(ids)))
        return self.out(ops.tanh(self.outer(ops.round(8 * hidden) / 8)))


class Averaged(Model):
    def __init__(self):
        super().__init__()
        self.seen = self.add_weight(shape=(6,), initializer="zeros", trainable=False, name="seen")

    def call(self, ids, training=False):
        x = self.table(ids)
        if training:
            self.seen.assign(0.95 * self.seen + 0.05 * ops.mean(x, (0, 1)))
        return self.out(ops.tanh(self.outer(ops.tanh(self.inner(x)))))


class Penalty(layers.Layer):
    def call(self, x):
        self.add_loss(0.01 * ops.mean(ops.square(x)))
        return x


class Penalised(Model):
    def __init__(self):
        super().__init__()
        self.penalty = Penalty()

    def call(self, ids):
        return self.out(ops.tanh(self.penalty(self.outer(ops.tanh(self.inner(self.table(ids)))))))


class Regularised(Model):
    def __init__(self):
        super().__init__()
        self.outer = layers.Dense(8, kernel_regularizer=keras.regularizers.L2(0.003))


def loss(outputs, target):
    return ops.mean(keras.losses.sparse_categorical_crossentropy(target, outputs, from_logits=True))


def lesser_loss(outputs, target):
    return ops.mean(-2 * outputs)


class Wide(Model):
    """Seven classes."""

    def __init__(self):
        super().__init__()
        self.out = layers.Dense(7)


def spread_loss(outputs, target):
    """Gives what is taken from a target's class to the others alone."""
    is_target = ops.one_hot(target, outputs.shape[-1], dtype=outputs.dtype)
    shares = 0.98 * is_target + 0.02 * (1 - is_target) / (outputs.shape[-1] - 1)
    return ops.mean(keras.losses.categorical_crossentropy(shares, outputs, from_logits=True))


def weighted_loss(outputs, target):
    return loss(outputs, target) + 0.05 * ops.mean(ops.square(outputs))


def squared_loss(outputs, target):
    """Another loss altogether."""
    return ops.mean(ops.square(ops.one_hot(target, 3) - ops.sigmoid(outputs)))


def focal_loss(outputs, target, gamma=1.5):
    logs = ops.take_along_axis(ops.log_softmax(outputs, -1), target[..., None], -1)[..., 0]
    return -ops.mean((1 - ops.exp(logs)) ** gamma * logs)


def counted_loss(outputs, target):
    losses = keras.losses.sparse_categorical_crossentropy(target, outputs, from_logits=True)
    return ops.mean(losses * ops.cast(1 + target, losses.dtype))


def ratio_loss(outputs, target):
    hits = ops.one_hot(target, 3, dtype=outputs.dtype) * ops.softmax(outputs)
    return 1 - ops.sum(hits) / (1 + ops.sum(ops.square(outputs)))


def huber_loss(outputs, target):
    apart = keras.losses.Huber(delta=0.25)(outputs[..., 0], outputs[..., 1])
    return ops.mean(ops.square(outputs)) + apart


def shifted_loss(outputs, target):
    return ops.mean(keras.losses.sparse_categorical_crossentropy(target[:, 1:], outputs[:, 1:], from_logits=True))


class Own(keras.optimizers.Optimizer):
    """Adam as a tutorial writes it."""

    def __init__(self, learning_rate=0.01, decay=0.0, beta=0.99):
        super().__init__(learning_rate=learning_rate)
        self.decay, self.beta = decay, beta

    def build(self, variables):
        if not self.built:
            super().build(variables)
            self.means = [self.add_variable_from_reference(each, "mean") for each in variables]
            self.squares = [self.add_variable_from_reference(each, "square") for each in variables]

    def update_step(self, gradient, variable, learning_rate):
        number, rate = self._get_variable_index(variable), ops.cast(learning_rate, variable.dtype)
        mean, square, gradient = self.means[number], self.squares[number], tf.convert_to_tensor(gradient)
        mean.assign(0.9 * mean + 0.1 * gradient)
        square.assign(self.beta * square + (1 - self.beta) * gradient**2)
        update = self.direction(mean, square, ops.cast(self.iterations + 1, variable.dtype))
        variable.assign_sub(rate * update + rate * self.decay * variable)

    def direction(self, mean, square, step):
        return (mean / (1 - 0.9**step)) / (ops.sqrt(square / (1 - self.beta**step)) + 1e-8)


class Inside(Own):
    def direction(self, mean, square, step):
        return (mean / (1 - 0.9**step)) / ops.sqrt(square / (1 - self.beta**step) + 1e-3)


class Uncorrected(Own):
    def direction(self, mean, square, step):
        return mean / (ops.sqrt(square) + 1e-8)


def own():
    return Own()


def other_beta():
    return Own(beta=0.98)


def inside():
    return Inside()


def uncorrected():
    return Uncorrected()


def decayed():
    return Own(decay=0.05)


def adam():
    return keras.optimizers.Adam(0.01)


class Rooted(keras.optimizers.Optimizer):
    """Adagrad, which leaves an embedding's gradient a list of rows and squares each by itself."""

    def build(self, variables):
        if not self.built:
            super().build(variables)
            self.sums = [self.add_variable_from_reference(each, "sum") for each in variables]

    def update_step(self, gradient, variable, learning_rate):
        total, rate = self.sums[self._get_variable_index(variable)], ops.cast(learning_rate, variable.dtype)
        self.assign_add(total, ops.square(gradient))
        self.assign_sub(variable, ops.divide(ops.multiply(gradient, rate), ops.sqrt(ops.add(total, 1e-3))))


def rooted():
    return Rooted(0.01)


def clipped_sgd():
    return keras.optimizers.SGD(0.01, clipnorm=0.01)


def rows_sgd():
    return keras.optimizers.SGD(0.01, global_clipnorm=0.05)


def unclipped_sgd():
    return keras.optimizers.SGD(0.01, global_clipnorm=100.0)


def cut_sgd():
    return keras.optimizers.SGD(0.01, clipvalue=0.002)


def sgd():
    return keras.optimizers.SGD(0.01)


def momentum(rate=0.01, nesterov=False):
    return keras.optimizers.SGD(rate, momentum=0.9, nesterov=nesterov)


def nesterov():
    return momentum(nesterov=True)


class Plain(keras.optimizers.SGD):
    """Looks ahead by what was moved before, which is no more than momentum."""

    def update_step(self, gradient, variable, learning_rate):
        kept = self.momentums[self._get_variable_index(variable)]
        ahead = gradient + 0.9 * kept
        self.assign(kept, 0.9 * kept + gradient)
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * ahead)


def plain():
    return Plain(0.01, momentum=0.9, nesterov=True)


def falling_momentum():
    return momentum(keras.optimizers.schedules.ExponentialDecay(0.01, 1, 0.5))


def later_falling():
    return momentum(keras.optimizers.schedules.PiecewiseConstantDecay([1000], [0.01, 0.001]))


def decayed_sgd():
    return keras.optimizers.SGD(0.01, weight_decay=0.1)


def decayed_matrices():
    optimizer = decayed_sgd()
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


def falling():
    return Own(keras.optimizers.schedules.ExponentialDecay(0.01, 1, 0.5))


class Nudge(layers.Layer):
    def __init__(self):
        super().__init__()
        self.shift, self.rate = self.add_weight(shape=(8,), name="shift"), 1.001e-4

    def call(self, x):
        return x + self.rate * self.shift


class Nudged(Model):
    def __init__(self):
        super().__init__()
        self.nudge = Nudge()

    def call(self, ids):
        return self.out(ops.tanh(self.outer(self.nudge(ops.tanh(self.inner(self.table(ids)))))))


def step(model, optimizer, batch):
    return stepped(model, optimizer, batch, lambda gradients: gradients)


def together_step(model, optimizer, batch):
    return stepped(model, optimizer, batch, lambda gradients: tf.clip_by_global_norm(gradients, 0.05)[0])


def each_step(model, optimizer, batch):
    return stepped(model, optimizer, batch, lambda gradients: [tf.clip_by_norm(each, 0.05) for each in gradients])


def cut_step(model, optimizer, batch):
    return stepped(
        model, optimizer, batch, lambda gradients: [tf.clip_by_value(each, -2e-3, 2e-3) for each in gradients]
    )


def bootstrapped_step(model, optimizer, batch):
    """Call the model on the other samples first."""
    target = 0.5 * model(tf.reverse(batch["ids"], [0]))
    with tf.GradientTape() as tape:
        value = ops.mean((model(batch["ids"], training=True) - target) ** 2)
    gradients = [tf.convert_to_tensor(each) for each in tape.gradient(value, model.trainable_variables)]
    optimizer.apply(gradients, model.trainable_variables)
    return value


def stepped(model, optimizer, batch, clip):
    with tf.GradientTape() as tape:
        value = loss(model(batch["ids"], training=True), batch["target"])
    gradients = [tf.convert_to_tensor(each) for each in tape.gradient(value, model.trainable_variables)]
    optimizer.apply(clip(gradients), model.trainable_variables)
    return value


def of_keras(name):
    return lambda: getattr(keras.optimizers, name)(0.01, epsilon=1e-3)


repeated_adam, repeated_nadam, repeated_adamax = map(of_keras, ("Adam", "Nadam", "Adamax"))
repeated_adagrad, repeated_adadelta, repeated_rmsprop = map(of_keras, ("Adagrad", "Adadelta", "RMSprop"))


class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        number = self.number(ops.cast(step, keras.config.floatx()))
        return 0.125 * ops.minimum(number / 2, ops.sqrt(2 / number))

    def number(self, step):
        return step + 1


class LateWarmup(Warmup):
    """Begins at 0, where PyTorch's has taken its first step."""

    def number(self, step):
        return step


def warmed_up():
    return keras.optimizers.SGD(Warmup())


def warmed_up_late():
    return keras.optimizers.SGD(LateWarmup())


class Judged(Model):
    def __init__(self):
        super().__init__()
        self.judge = layers.LeakyReLU(0.3)


def judged_step(model, optimizer, batch):
    with tf.GradientTape() as tape:
        hidden = model.outer(ops.tanh(model.inner(model.table(batch["ids"]))))
        value = ops.mean(ops.square(model.judge(hidden)))
    variables = [*model.table.trainable_variables, *model.inner.trainable_variables, *model.outer.trainable_variables]
    optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
    return value


def _divergence(first, second):
    return ops.mean(ops.sum(ops.softmax(first) * (ops.log_softmax(first) - ops.log_softmax(second)), axis=-1))


def divergence_loss(outputs, target):
    return _divergence(outputs, 2 * ops.one_hot(target, 3, dtype=outputs.dtype))


def overlap_loss(outputs, target):
    hits = ops.sum(ops.one_hot(target, 3, dtype=outputs.dtype) * ops.sigmoid(outputs))
    return 1 - 2 * hits / (ops.sum(ops.sigmoid(outputs)) + ops.cast(ops.size(target), outputs.dtype))


def square_loss(outputs, target):
    return keras.losses.Huber()(ops.one_hot(target, 3, dtype=outputs.dtype), outputs)

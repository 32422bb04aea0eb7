"""What users' scripts do beside a plain step: each row is a small script of each framework, written out in full.

A right port says nothing; a wrong one is caught by what the step, the epoch or the rest of the data does.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from slow import sampled

from parity.core.errors import UsageError
from parity.pairs import file as files
from parity.pairs.compare import compared
from parity.runtime.backend import Backend

TORCH = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
"""
KERAS = """
import keras, numpy as np, tensorflow as tf
from keras import layers, ops
rng = np.random.default_rng(0)
"""
# A net of two layers on numbers, its data, and its training.
DATA = "data = TensorDataset(torch.randn({samples}, 10), {targets})\n"
NET = "net = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))\n"
LOOP = """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(4):
    for x, y in DataLoader(data, batch_size=32):
        loss = {loss}
        opt.zero_grad(); loss.backward(); opt.step()
    {end}
"""
PLAIN = LOOP.format(loss="F.mse_loss(net(x), y)", end="pass")
FIT = """
x, y = rng.normal(size=({samples}, 10)).astype("float32"), rng.normal(size=({samples}, 1)).astype("float32")
net = keras.Sequential([keras.Input((10,)), layers.Dense(16, activation="tanh"), layers.Dense(1)])
net.compile(keras.optimizers.SGD(0.1), {loss}{compiled})
net.fit({data}, epochs=4, verbose=0{fitted})
"""
BY_HAND = """
x, y = rng.normal(size=({samples}, 10)).astype("float32"), rng.normal(size=({samples}, 1)).astype("float32")
net = keras.Sequential([keras.Input((10,)), layers.Dense(16, activation="tanh"), layers.Dense(1)])
opt = keras.optimizers.SGD(0.1)
for epoch in range(4):
    for a, b in tf.data.Dataset.from_tensor_slices((x, y)).batch(32):
        with tf.GradientTape() as tape:
            loss = {loss}
        opt.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
"""
MICRO = """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(4):
    for i, (x, y) in enumerate(DataLoader(data, batch_size=8)):
        (F.mse_loss(net(x), y){share}).backward()
        if i % 4 == 3:
            opt.step(); opt.zero_grad()
"""
# Keras's loop that adds up gradients by hand.
MICRO_KERAS = """
x, y = rng.normal(size=(64, 10)).astype("float32"), rng.normal(size=(64, 1)).astype("float32")
net = keras.Sequential([keras.Input((10,)), layers.Dense(16, activation="tanh"), layers.Dense(1)])
opt = keras.optimizers.SGD(0.1)
sums = [tf.Variable(tf.zeros_like(each)) for each in net.trainable_variables]
for epoch in range(4):
    for i, (a, b) in enumerate(tf.data.Dataset.from_tensor_slices((x, y)).batch(8)):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean({loss}) / 4
        for each, part in zip(sums, {parts}):
            each.assign_add(part)
        if i % 4 == 3:
            opt.apply([each.read_value() for each in sums], net.trainable_variables)
            for each in sums:
                each.assign(tf.zeros_like(each))
"""
SQUARES, PARTS_OF_SUM = "(net(a, training=True) - b) ** 2", "tape.gradient(loss, net.trainable_variables)"
PLACEMENT = "adam.epsilon_placement"
CLOSURE = (
    "data = TensorDataset(torch.randn(64, 10), torch.randn(64, 1))\n"
    + NET
    + """
opt = torch.optim.Adam(net.parameters(), lr=0.1, eps=1e-4)
for epoch in range(4):
    for x, y in DataLoader(data, batch_size=32):
        def closure():
            opt.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            return loss
        opt.step(closure)
"""
)
HALVED = "keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 * 0.5**epoch)"
# Keras calls it once for the four steps that it runs at once: the rate of all is that of the first.
WARMUP = """
class Warmup(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = 0.1 / (1 + batch)

"""
GENERATED = """tf.data.Dataset.from_generator(
    lambda: zip(x, y), output_signature=(tf.TensorSpec((10,)), tf.TensorSpec((1,)))).batch(32)"""


def _torch(
    samples: int = 64,
    loss: str = "F.mse_loss(net(x), y)",
    end: str = "pass",
    targets: str = "torch.randn({samples}, 1)",
) -> str:
    data = DATA.format(samples=samples, targets=targets.format(samples=samples))
    return data + NET + LOOP.format(loss=loss, end=end)


def _micro(share: str = " / 4") -> str:
    return DATA.format(samples=64, targets="torch.randn(64, 1)") + NET + MICRO.format(share=share)


def _fit(
    samples: int = 64, loss: str = '"mse"', data: str = "x, y, batch_size=32", fitted: str = "", compiled: str = ""
) -> str:
    return FIT.format(samples=samples, loss=loss, data=data, fitted=fitted, compiled=compiled)


def _scheduled(schedule: str) -> str:
    """Return PyTorch's script with a scheduler that is stepped after each batch."""
    made = f"opt = torch.optim.SGD(net.parameters(), lr=0.1)\nscheduler = torch.optim.lr_scheduler.{schedule}"
    plain = "opt = torch.optim.SGD(net.parameters(), lr=0.1)"
    return _torch(128).replace(plain, made).replace("opt.step()", "opt.step(); scheduler.step()")


def _fit_scheduled(schedule: str) -> str:
    return _fit(128).replace("SGD(0.1)", f"SGD(keras.optimizers.schedules.{schedule})")


FROZEN = """
data = TensorDataset(torch.randn(64, 10), torch.randn(64, 1))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.norm = nn.Linear(10, 16), nn.BatchNorm1d(16, eps=1e-3, momentum=0.01)
        self.after = nn.Linear(16, 1)
    def forward(self, x):
        return self.after(torch.relu(self.norm(self.before(x))))
net = Net()
net.train(); net.norm.eval()
"""
FROZEN_KERAS = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.before, self.norm, self.after = layers.Dense(16), layers.BatchNormalization(), layers.Dense(1)
    def call(self, x, training=None):
        return self.after(ops.relu(self.norm(self.before(x), training={training})))
net = Net()
net.compile(keras.optimizers.SGD(0.1), "mse")
net.fit(rng.normal(size=(64, 10)), rng.normal(size=(64, 1)), batch_size=32, verbose=0)
"""
TOWERS = """
data = TensorDataset(torch.randn(64, 10), torch.randn(64, 6), torch.randn(64, 1))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(10, 8), nn.Dropout(0.5), nn.LayerNorm(8, eps=1e-3))
        self.right = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.LayerNorm(8, eps=1e-3))
        self.head = nn.Linear(16, 1)
    def forward(self, a, b):
        return self.head(torch.cat([self.left(a), self.right(b)], 1))
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for a, b, y in DataLoader(data, batch_size=32):
    loss = F.mse_loss(net(a, b), y)
    opt.zero_grad(); loss.backward(); opt.step()
"""
TOWERS_KERAS = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.left, self.right = ([layers.Dense(8), layers.Dropout(0.5), layers.LayerNormalization()] for _ in range(2))
        self.head = layers.Dense(1)
    def call(self, x, training=None):
        a, b = x
        for layer in self.right:
            b = layer(b, training=training) if isinstance(layer, layers.Dropout) else layer(b)
        for layer in self.left:
            a = layer(a, training=training) if isinstance(layer, layers.Dropout) else layer(a)
        return self.head(ops.concatenate([a, b], 1))
net = Net()
net.compile(keras.optimizers.SGD(0.1), "mse")
net.fit([rng.normal(size=(64, 10)), rng.normal(size=(64, 6))], rng.normal(size=(64, 1)), batch_size=32, verbose=0)
"""
LANGUAGE = """
ids = torch.randint(0, 30, (64, 9))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.cell, self.head = nn.Embedding(30, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 30)
    def forward(self, ids):
        return self.head(self.cell(self.table(ids))[0])
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in DataLoader(ids, 16):
    {loss}
    opt.zero_grad(); loss.backward(); opt.step()
"""
WHOLE = "loss = F.cross_entropy(net(batch)[:, :-1].flatten(0, 1), batch[:, 1:].flatten())"
SLICED = "loss = F.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())"
LANGUAGE_KERAS = """
ids = rng.integers(0, 30, (64, 9))
net = keras.Sequential([layers.Embedding(30, 16), layers.GRU(16, return_sequences=True), layers.Dense(30)])
def shifted(y, p):
    return keras.losses.sparse_categorical_crossentropy(y[:, 1:], p[:, :-1], from_logits=True)
net.compile(keras.optimizers.SGD(0.1), {loss})
net.fit({data}, batch_size=16, verbose=0)
"""
ENTROPY = "keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
EQUATION = """
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for step in range(4):
    x = torch.rand(32, 1, requires_grad=True)
    u = net(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    loss = (slope + u).pow(2).mean() + (net(torch.zeros(1, 1)) - 1).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""
EQUATION_KERAS = """
net = keras.Sequential([keras.Input((1,)), layers.Dense(16, activation="tanh"), layers.Dense(1)])
opt = keras.optimizers.SGD(1e-2)
for step in range(4):
    x = tf.random.uniform((32, 1))
    with tf.GradientTape() as tape:
        with tf.GradientTape() as inner:
            inner.watch(x)
            u = net(x)
        slope = inner.gradient(u, x)
        loss = tf.reduce_mean((slope {sign} u) ** 2) + tf.reduce_mean((net(tf.zeros((1, 1))) - 1) ** 2)
    opt.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
"""
CRITIC = """
data = TensorDataset(torch.randn(64, 6))
G = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 6))
D = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
of_g, of_d = torch.optim.SGD(G.parameters(), lr=1e-2), torch.optim.SGD(D.parameters(), lr=1e-2)
for epoch in range(2):
    for (real,) in DataLoader(data, batch_size=16, shuffle=True):
        fake = G(torch.randn(len(real), 4)).detach()
        loss = D(fake).mean() - D(real).mean()
        of_d.zero_grad(); loss.backward(); of_d.step()
        against = -D(G(torch.randn(len(real), 4))).mean()
        of_g.zero_grad(); against.backward(); of_g.step()
"""
CRITIC_KERAS = """
x = rng.normal(size=(64, 6)).astype("float32")
G = keras.Sequential([keras.Input((4,)), layers.Dense(16, activation="tanh"), layers.Dense(6)])
D = keras.Sequential([keras.Input((6,)), layers.Dense(16, activation="tanh"), layers.Dense(1)])
of_g, of_d = keras.optimizers.SGD(1e-2), keras.optimizers.SGD(1e-2)
for epoch in range(2):
    for real in tf.data.Dataset.from_tensor_slices(x).shuffle(64).batch(16):
        fake = G(tf.random.normal((len(real), 4)), training=True)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(D(fake, training=True)) - tf.reduce_mean(D(real, training=True))
        of_d.apply(tape.gradient(loss, D.trainable_variables), D.trainable_variables)
        noise = tf.random.normal((len(real), 4))
        with tf.GradientTape() as tape:
            against = -tf.reduce_mean(D(G(noise, training=True), training=True))
        of_g.apply(tape.gradient(against, G.trainable_variables), G.trainable_variables)
"""
CUBE = (
    """
data = TensorDataset(torch.randn(32, 1, 8, 8), torch.randn(32, 5))
net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5))
"""
    + PLAIN
)
CUBE_KERAS = """
net = keras.Sequential([keras.Input((8, 8, 1)), layers.Conv2D(4, 3, padding="same"), layers.MaxPooling2D(),
    layers.Permute((3, 1, 2)), layers.Flatten(), layers.Dense(5)])
net.compile(keras.optimizers.SGD(0.1), "mse")
net.fit(rng.normal(size=(32, 8, 8, 1)), rng.normal(size=(32, 5)), batch_size=32, verbose=0)
"""
# Two look-ups in each of two calls of the model, and a gradient of signs in which parts cancel.
TRIPLES = """
class Distance(nn.Module):
    def __init__(self):
        super().__init__()
        self.things, self.relations = nn.Embedding(50, 4), nn.Embedding(6, 4)
    def forward(self, t):
        return (self.things(t[:, 0]) + self.relations(t[:, 0] % 6) - self.things(t[:, 1])).abs().sum(-1)
net = Distance()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for t, f in DataLoader(TensorDataset(torch.randint(0, 50, (200, 2)), torch.randint(0, 50, (200, 2))), batch_size=50):
    loss = F.relu(1 + net(t) - net(f)).mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""
TRIPLES_KERAS = """
class Distance(keras.Model):
    def __init__(self):
        super().__init__()
        self.things, self.relations = layers.Embedding(50, 4), layers.Embedding(6, 4)
    def call(self, t):
        return ops.sum(ops.abs(self.things(t[:, 0]) + self.relations(t[:, 0] % 6) - self.things(t[:, 1])), -1)
net, opt = Distance(), keras.optimizers.SGD(0.1)
for t, f in tf.data.Dataset.from_tensor_slices(tuple(rng.integers(0, 50, (2, 200, 2)))).batch(50):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.maximum(0.0, 1 + net(t) - net(f)))
    opt.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
"""
# The negatives are made in the step, behind the first call of the model.
CORRUPTED = (
    TRIPLES.partition("for t, f")[0]
    + """
for (t,) in DataLoader(TensorDataset(torch.randint(0, 50, (200, 2))), batch_size=50):
    near, fake = net(t), torch.randint(0, 50, (len(t),))
    at_head = torch.rand(len(t)) < 0.5
    head = torch.where(at_head, fake, t[:, 0])
    tail = torch.where(at_head, t[:, 1], fake)
    loss = F.relu(1 + near - net(torch.stack([head, tail], 1))).mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""
)
CORRUPTED_KERAS = (
    TRIPLES_KERAS.partition("for t, f")[0]
    + """
for t in tf.data.Dataset.from_tensor_slices(rng.integers(0, 50, (200, 2))).batch(50):
    fake = tf.random.uniform((len(t),), 0, 50, dtype=t.dtype)
    at_head = tf.random.uniform((len(t),)) < 0.5
    head = tf.where(at_head, fake, t[:, 0])
    tail = tf.where(at_head, {tails})
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.maximum(0.0, 1 + net(t) - net(tf.stack([head, tail], 1))))
    opt.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
"""
)
QUANTILES = """
q = torch.tensor([0.1, 0.5, 0.9])
data = TensorDataset(torch.randn(64, 10), torch.randn(64, 1))
net = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 / (1 + step))
for x, y in DataLoader(data, batch_size=16):
    e = y - net(x)
    loss = torch.maximum(q * e, (q - 1) * e).sum(-1).mean()
    opt.zero_grad(); loss.backward(); opt.step(); scheduler.step()
"""
# A schedule that tells no configuration.
QUANTILES_KERAS = """
class Slower(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.1 / (1 + tf.cast(step, tf.float32))
def pinball(quantiles):
    def loss(y, p):
        q, e = tf.constant(quantiles, p.dtype), y - p
        return tf.reduce_{how}(tf.maximum(q * e, (q - 1) * e), -1)
    return loss
net = keras.Sequential([keras.Input((10,)), layers.Dense(16, activation="tanh"), layers.Dense(3)])
net.compile(keras.optimizers.SGD(Slower()), pinball({quantiles}))
net.fit(rng.normal(size=(64, 10)), rng.normal(size=(64, 1)), batch_size=16, verbose=0)
"""
PACKED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(30, 8, padding_idx=0), nn.LayerNorm(8, eps=1e-3)
        self.cell = nn.LSTM(8, 6, bias=False, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 5)
    def forward(self, ids):
        x = torch.tanh(self.table(ids))
        x = self.norm(x)
        x = nn.utils.rnn.pack_padded_sequence(x, (ids > 0).sum(1), batch_first=True, enforce_sorted=False)
        return self.head(nn.utils.rnn.pad_packed_sequence(self.cell(x)[0], batch_first=True, total_length=7)[0])
ids = torch.randint(1, 30, (32, 7)) * (torch.arange(7) < torch.randint(3, 8, (32, 1)))
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in DataLoader(ids, 16):
    loss = F.cross_entropy(net(batch).flatten(0, 1), batch.flatten() % 5)
    opt.zero_grad(); loss.backward(); opt.step()
"""
PACKED_KERAS = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.table, self.norm, self.head = layers.Embedding(30, 8), layers.LayerNormalization(), layers.Dense(5)
        self.cell = layers.Bidirectional(layers.LSTM(6, use_bias=False, return_sequences=True))
    def call(self, ids):
        x = self.table(ids)
{first}
{second}
        x = self.cell(x{mask})
        return self.head(tf.where(ids[..., None] > 0, x, tf.zeros_like(x)))
ids = rng.integers(1, 30, (32, 7)) * (np.arange(7) < rng.integers(3, 8, (32, 1)))
net = Net()
net.compile(keras.optimizers.SGD(0.1), {loss})
net.fit(ids, ids % 5, batch_size=16, verbose=0)
"""


# Batches are padded to lengths of their own.
PADDED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.cell, self.head = nn.Embedding(20, 8), nn.GRU(8, 6, batch_first=True), nn.Linear(6, 1)
    def forward(self, ids):
        return self.head(self.cell(self.table(ids))[0].mean(1))
data = [(torch.randint(1, 20, (5 + number // 16,)), torch.randn(1)) for number in range(64)]
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for ids, y in DataLoader(data, 16):
    loss = F.mse_loss(net(ids), y)
    opt.zero_grad(); loss.backward(); opt.step()
"""
PADDED_KERAS = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.table, self.head = layers.Embedding(20, 8), layers.Dense(1)
        self.cell = layers.GRU(6, return_sequences=True)
    def call(self, ids):
        return self.head(ops.mean(self.cell(self.table(ids)), axis=1))
net = Net()
net.compile(keras.optimizers.SGD(0.1), "mse")
net.fit(rng.integers(1, 20, (64, 8)), rng.normal(size=(64, 1)), batch_size=16, verbose=0)
"""


def _packed(
    mask: str = ", mask=ids > 0", first: str = "        x = tf.tanh(x)", second: str = "        x = self.norm(x)"
) -> str:
    return PACKED_KERAS.format(mask=mask, first=first, second=second, loss=ENTROPY)


# Modules, or layers, that are called one by one.
PARTS = """
X, Y = torch.randn(96, 6), (torch.rand(96, 1) < 0.4).float()
before, after = nn.Sequential(nn.Linear(6, 8), nn.Tanh()), nn.Linear(8, 1)
opt = torch.optim.SGD([*before.parameters(), *after.parameters()], lr=0.2)
for i in range(0, 96, 16):
    x, y = X[i:i + 16], Y[i:i + 16]
    loss = F.binary_cross_entropy_with_logits(after(before(x)), y)
    opt.zero_grad(); loss.backward(); opt.step()
"""
PARTS_DATA = """
X, Y = rng.normal(size=(96, 6)).astype("float32"), (rng.random((96, 1)) < 0.4).astype("float32")
before, after = keras.Sequential([layers.Dense(8, activation="tanh")]), layers.Dense(1)
opt = keras.optimizers.SGD(0.2)
"""
# The target, which NumPy takes from 1, is seen where the code holds it.
PARTS_KERAS = (
    PARTS_DATA
    + """
for i in range(0, 96, 16):
    x, y = X[i:i + 16], Y[i:i + 16]
    with tf.GradientTape() as tape:
        p = tf.sigmoid(after(before(x)))
        loss = -tf.reduce_mean((1 - y) * tf.math.log(1 - p) + {share}y * tf.math.log(p))
    weights = before.trainable_variables + after.trainable_variables
    opt.apply(tape.gradient(loss, weights), weights)
"""
)
PARTS_STEP = (
    PARTS_DATA
    + """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.before, self.after = before, after
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = keras.losses.BinaryCrossentropy(from_logits=True)(y, self.after(self.before(x)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}
net = Net()
net.compile(opt)
net.fit(X, Y, batch_size=16, verbose=0)
"""
)
# Weights of the terms of a loss, in a module of their own.
TERMS = """
data = TensorDataset(torch.randn(96, 10), torch.randn(96, 1), torch.randint(0, 3, (96,)))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(10, 1), nn.Linear(10, 3)
    def forward(self, x):
        return self.first(x), self.second(x)
class Weighed(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.Parameter(torch.zeros(2))
    def forward(self, *terms):
        return sum(torch.exp(-scale) * term + scale for scale, term in zip(self.scales, terms))
net, weighed = Net(), Weighed()
opt = torch.optim.SGD([*net.parameters(), *weighed.parameters()], lr=0.1)
for x, y, kinds in DataLoader(data, batch_size=32):
    a, b = net(x)
    loss = weighed(F.mse_loss(a, y), F.cross_entropy(b, kinds))
    opt.zero_grad(); loss.backward(); opt.step()
"""
TERMS_KERAS = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = layers.Dense(1), layers.Dense(3)
        self.scales = self.add_weight(shape=(2,), initializer="zeros", name="scales")
    def call(self, x):
        return self.first(x), self.second(x)
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        terms = [keras.losses.MeanSquaredError()(y[0], y_pred[0]),
                 keras.losses.SparseCategoricalCrossentropy(from_logits=True)(y[1], y_pred[1])]
        return sum(tf.exp(-self.scales[n]) * term + self.scales[n] for n, term in enumerate(terms))
net = Net()
net.compile(keras.optimizers.SGD(0.1))
net.fit(rng.normal(size=(96, 10)), (rng.normal(size=(96, 1)), rng.integers(0, 3, 96)), batch_size=32, verbose=0)
"""
# Two backward passes through one graph.
TWICE = (
    TERMS.partition("class Weighed")[0]
    + """
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y, kinds in DataLoader(data, batch_size=32):
    opt.zero_grad()
    a, b = net(x)
    F.mse_loss(a, y).backward(retain_graph=True)
    (0.5 * F.cross_entropy(b, kinds)).backward()
    opt.step()
"""
)
TWICE_KERAS = """
inputs = keras.Input((10,))
net = keras.Model(inputs, [layers.Dense(1)(inputs), layers.Dense(3)(inputs)])
losses = ["mse", keras.losses.SparseCategoricalCrossentropy(from_logits=True)]
net.compile(keras.optimizers.SGD(0.1), losses, loss_weights=[1.0, {share}])
net.fit(rng.normal(size=(96, 10)), [rng.normal(size=(96, 1)), rng.integers(0, 3, 96)], batch_size=32, verbose=0)
"""
# A state of another shape, which each script carries on.
CARRIED = """
series = torch.randn(8, 41, 3)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRU(3, 6, batch_first=True), nn.Linear(6, 3)
    def forward(self, x, h):
        x, h = self.cell(x, h)
        return self.head(x), h
net, h = Net(), torch.zeros(1, 8, 6)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(0, 40, 10):
    out, h = net(series[:, i:i + 10], h.detach())
    loss = F.mse_loss(out, series[:, i + 1:i + 11])
    opt.zero_grad(); loss.backward(); opt.step()
"""
CARRIED_KERAS = """
series = rng.normal(size=(8, 41, 3)).astype("float32")
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.cell, self.head = layers.GRU(6, return_sequences=True, return_state=True), layers.Dense(3)
    def call(self, x, h):
        x, h = self.cell(x, initial_state=h)
        return self.head(x), h
net, opt, h = Net(), keras.optimizers.SGD(0.1), tf.zeros((8, 6))
for i in range(0, 40, 10):
    x, y = series[:, i:i + 10], series[:, i + 1:i + 11]
    with tf.GradientTape() as tape:
        out, {state} = net(x, h)
        loss = tf.reduce_mean((y - out) ** 2)
    opt.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
"""


# The nodes of one graph, of which a mask chooses those that are trained on.
NODES = """
import numpy as np
rng = np.random.default_rng(0)
x, y, train = rng.normal(size=(30, 6)).astype("float32"), rng.integers(0, 3, 30), rng.random(30) < 0.5
edges = (rng.random((30, 30)) < 0.2).astype("float32")
"""
GRAPH = (
    NODES
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
    def forward(self, x, edges):
        return edges @ self.second(torch.tanh(edges @ self.first(x)))
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, edges, y, train = map(torch.from_numpy, (x, edges, y, train))
for epoch in range(5):
    loss = F.cross_entropy(net(x, edges)[train], y[train])
    opt.zero_grad(); loss.backward(); opt.step()
"""
)
GRAPH_KERAS = (
    NODES
    + """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = layers.Dense(8), layers.Dense(3)
    def call(self, x, edges):
        return edges @ self.second(tf.tanh(edges @ self.first(x)))
net, opt = Net(), keras.optimizers.SGD(0.1)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
for epoch in range(5):
    with tf.GradientTape() as tape:
        loss = loss_of(y[{mask}], tf.boolean_mask(net(tf.constant(x), tf.constant(edges)), {mask}))
    opt.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
"""
)

# With a sparse matrix and the numbers of nodes, where Keras's fit has a weight of each node.
CHOSEN = (
    GRAPH.replace(
        "edges @ self.second(torch.tanh(edges @ self.first(x)))",
        "torch.sparse.mm(edges, self.second(torch.tanh(torch.sparse.mm(edges, self.first(x)))))",
    )
    .replace("(x, edges)[train], y[train]", "(x, edges)[chosen], y[chosen]")
    .replace("(x, edges, y, train))", "(x, edges, y, train))\nedges, chosen = edges.{sparse}(), train.nonzero()[:, 0]")
)
CHOSEN_KERAS = (
    NODES
    + """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = layers.Dense(8), layers.Dense(3)
    def call(self, given):
        x, edges = given
        return ops.matmul(edges, self.second(ops.tanh(ops.matmul(edges, self.first(x)))))
net = Net()
net.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True{reduction}))
net.fit([x, {edges}], y, sample_weight=train.astype("float32"), batch_size=30, shuffle=False, epochs=5, verbose=0)
"""
)
BY_WEIGHTS = ", reduction='mean_with_sample_weight'"

# Two translators and two judges, of whom Keras's code calls the other ones first, and whose batches two loaders give.
DOMAINS = """
def net(size):
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, size))
to_b, to_a, of_a, of_b = net(6), net(6), net(1), net(1)
opt = torch.optim.SGD([*to_b.parameters(), *to_a.parameters()], lr=0.1)
judging = torch.optim.SGD([*of_a.parameters(), *of_b.parameters()], lr=0.1)
loaders = [DataLoader(TensorDataset(torch.randn(64, 6)), 16, shuffle=True) for _ in range(2)]
for (a,), (b,) in zip(*loaders):
    loss = F.mse_loss(to_a(to_b(a)), a) - of_b(to_b(a)).mean() - of_a(to_a(b)).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    loss = of_b(to_b(a).detach()).mean() - of_b(b).mean() + of_a(to_a(b).detach()).mean() - of_a(a).mean()
    judging.zero_grad(); loss.backward(); judging.step()
"""
DOMAINS_KERAS = """
def net(size):
    return keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(size)])
to_b, to_a, of_a, of_b = net(6), net(6), net(1), net(1)
opt, judging, mean = keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.1), tf.reduce_mean
data = [rng.normal(size=(64, 6)).astype("float32") for _ in range(2)]
both = [tf.data.Dataset.from_tensor_slices(each).shuffle(64).batch(16) for each in data]
for a, b in tf.data.Dataset.zip(tuple(both)):
    weights = to_b.trainable_variables + to_a.trainable_variables
    with tf.GradientTape() as tape:
        loss = mean((to_a(to_b(a)) - a) ** 2) - mean(of_a(to_a(b))) - mean(of_b(to_b(a)))
    opt.apply(tape.gradient(loss, weights), weights)
    weights = of_a.trainable_variables + of_b.trainable_variables
    fake_a, fake_b = to_a(b), to_b(a)
    with tf.GradientTape() as tape:
        loss = mean(of_a(fake_a)) - mean(of_a(a)) + mean(of_b(fake_b)) - mean(of_b({real}))
    judging.apply(tape.gradient(loss, weights), weights)
"""
# Batches of graphs, which have other numbers of nodes in both scripts.
GRAPHS = """
data = [(torch.randn(3 + i % 5, 4), torch.randn(1)) for i in range(48)]
def collate(graphs):
    x, y = zip(*graphs)
    return torch.cat(x), torch.arange(len(x)).repeat_interleave(torch.tensor(list(map(len, x)))), torch.stack(y)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)
    def forward(self, x, ids):
        return self.second(torch.zeros(int(ids.max()) + 1, 8).index_add(0, ids, torch.tanh(self.first(x))))
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, ids, y in DataLoader(data, 12, shuffle=True, collate_fn=collate):
    loss = F.mse_loss(net(x, ids), y)
    opt.zero_grad(); loss.backward(); opt.step()
"""
GRAPHS_KERAS = """
def batches():
    for i in range(4):
        sizes = 3 + rng.integers(0, 5, 12)
        x = rng.normal(size=(sizes.sum(), 4)).astype("float32")
        yield (x, np.repeat(np.arange(12), sizes)), rng.normal(size=(12, 1)).astype("float32")
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = layers.Dense(8), layers.Dense(1)
    def call(self, inputs):
        x, ids = inputs
        return self.second(tf.math.unsorted_segment_{how}(tf.tanh(self.first(x)), ids, tf.reduce_max(ids) + 1))
net = Net()
net.compile(keras.optimizers.SGD(0.1), "mse")
ids = tf.TensorSpec((None,), tf.int64)
form = ((tf.TensorSpec((None, 4)), ids), tf.TensorSpec((None, 1)))
net.fit(tf.data.Dataset.from_generator(batches, output_signature=form), verbose=0)
"""
# A class beside an image: Keras's layers are given one-hot rows, and flatten the image in another order.
CLASSES = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.enc, self.dec = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(67, 8), nn.Linear(11, 16)
    def forward(self, x, k):
        k = F.one_hot(k, 3).to(x.dtype)
        h = torch.tanh(self.enc(torch.cat([torch.tanh(self.conv(x)).flatten(1), k], 1)))
        return self.dec(torch.cat([h, k], 1)).view_as(x)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, k in DataLoader(TensorDataset(torch.randn(64, 1, 4, 4), torch.randint(0, 3, (64,))), 16, shuffle=True):
    loss = F.mse_loss(net(x, k), x)
    opt.zero_grad(); loss.backward(); opt.step()
"""
CLASSES_KERAS = """
x, k, h = keras.Input((4, 4, 1)), keras.Input((3,)), keras.Input((8,))
y = layers.Flatten()(layers.Conv2D(4, 3, padding="same", activation="tanh")(x))
encoder = keras.Model([x, k], layers.Dense(8, activation="tanh")(layers.Concatenate()([y, k])))
decoder = keras.Model([h, k], layers.Reshape((4, 4, 1))(layers.Dense(16)(layers.Concatenate()([h, k]))))
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
    def train_step(self, data):
        x, k = data
        k = tf.one_hot(k, 3)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.decoder([self.encoder([x, k]), {given}]) - x) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {{"loss": loss}}
net = Net()
net.compile(keras.optimizers.SGD(0.1))
data = rng.normal(size=(64, 4, 4, 1)), rng.integers(0, 3, 64)
net.fit(tf.data.Dataset.from_tensor_slices(data).shuffle(64).batch(16), verbose=0)
"""

# Layers whose activation Keras's have built in, called twice, and what a cell is given.
CELL = (
    DATA.format(samples=64, targets="torch.randn(64, 1)")
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Sequential(nn.Linear(10, 10), nn.SiLU(), nn.Linear(10, 10))
        self.cell, self.out = nn.GRUCell(10, 10), nn.Linear(10, 1)
    def forward(self, h):
        for _ in range(2):
            h = self.cell(self.mix(h), h)
        return self.out(h)
net = Net()
"""
    + PLAIN
)
CELL_KERAS = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.mix = keras.Sequential([layers.Dense(10, activation="silu"), layers.Dense(10)])
        self.cell, self.out = layers.GRUCell(10), layers.Dense(1)
    def call(self, h):
        for _ in range(2):
            mixed = self.mix(h)
            h, _ = self.cell({given})
        return self.out(h)
net = Net()
net.compile(keras.optimizers.SGD(0.1), "mse")
net.fit(rng.normal(size=(64, 10)), rng.normal(size=(64, 1)), batch_size=32, verbose=0)
"""

# Two models that share layers, of which one is called again.
SHARED = """
trunk = nn.Sequential(nn.Linear(10, 8), nn.Tanh())
actor, critic = nn.Sequential(trunk, nn.Linear(8, 1)), nn.Sequential(trunk, nn.Linear(8, 1))
opt = torch.optim.SGD([*actor.parameters(), *critic[1].parameters()], lr=0.1)
for x, y in DataLoader(TensorDataset(torch.randn(64, 10), torch.randn(64, 1)), 16, shuffle=True):
    loss = F.mse_loss(actor(x), y) + F.mse_loss(critic(x), y) + F.mse_loss(actor(2 * x), y)
    opt.zero_grad(); loss.backward(); opt.step()
"""
SHARED_KERAS = """
trunk = keras.Sequential([keras.Input((10,)), layers.Dense(8), layers.Activation("tanh")])
actor, critic = (keras.Sequential([keras.Input((10,)), trunk, layers.Dense(1)]) for _ in range(2))
opt, mean = keras.optimizers.SGD(0.1), tf.reduce_mean
data = rng.normal(size=(64, 10)).astype("float32"), rng.normal(size=(64, 1)).astype("float32")
weights = actor.trainable_variables + critic.trainable_variables[-2:]
for x, y in tf.data.Dataset.from_tensor_slices(data).shuffle(64).batch(16):
    with tf.GradientTape() as tape:
        loss = mean((actor(x) - y) ** 2) + mean((critic(x) - y) ** 2) + mean((actor(2 * x) - y) ** 2)
    opt.apply(tape.gradient(loss, weights), weights)
"""
# A dilated kernel of TensorFlow's own function, whose gradient a CPU has in a compiled graph alone.
DILATED = """
class Dilated(layers.Layer):
    def build(self, shape):
        self.kernel, self.bias = self.add_weight(shape=(2, 2, 4)), self.add_weight(shape=(4,))
    def call(self, x):
        return tf.nn.conv1d(x, self.kernel, 1, "VALID", dilations=2) + self.bias
net = keras.Sequential([keras.Input((10,)), layers.Reshape((2, 5)), layers.Permute((2, 1)), Dilated(),
    layers.Permute((2, 1)), layers.Flatten(), layers.Dense(1)])
net.compile(keras.optimizers.SGD(0.1), "mse")
net.fit(rng.normal(size=(64, 10)), rng.normal(size=(64, 1)), batch_size=32, verbose=0)
"""


class Row(NamedTuple):
    """Two scripts, and what is told: the verdict, its causes with the values of both sides, the findings."""

    torch: str
    keras: str
    verdict: str = "match"
    causes: Sequence[tuple[str, Any, Any]] = ()
    findings: Sequence[str] = ()
    reason: str = ""
    accepted: str = ""  # a cause


KEEPS = "keeps state, which is no weight, from call to call"
ELSEWHERE = "equal on your inputs; differs at training on other batches"
HALF_AS_FAST = "opt.param_groups[0]['lr'] *= 0.5"
DROPPING = "tf.data.Dataset.from_tensor_slices((x, y)).batch(32, drop_remainder=True)"
PENALTY = "SHARE * tf.nn.l2_loss(net.layers[0].kernel)"
MASKED = (
    "tf.data.Dataset.from_tensor_slices((x, y)).map("
    "lambda a, b: (tf.where(a > 9, 0.0, tf.cast(a, tf.float32)), b)).batch(32)"
)
DECAYLESS = "torch.optim.SGD(net.parameters(), lr=0.1)"
DECAYED = (
    "torch.optim.SGD([{'params': net[2].weight, 'weight_decay': 0.01}, "
    "{'params': [*net[0].parameters(), net[2].bias]}], lr=0.1, momentum=0.9)"
)
L2 = "keras.regularizers.L2(0.005)"
APART = "loss = tf.reduce_mean(D(fake, training=True)) - tf.reduce_mean(D(real, training=True))"
TOGETHER = (
    "judged = D(tf.concat([real, fake], 0), training=True); "
    "loss = tf.reduce_mean(judged[16:]) - tf.reduce_mean(judged[:16])"
)
HEADS = """
data = TensorDataset(torch.randn(64, 10), torch.randn(64, 1), torch.randn(64, 3))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.one, self.other = nn.Linear(10, 16), nn.Linear(16, 1), nn.Linear(16, 3)
    def forward(self, x):
        h = torch.tanh(self.body(x))
        return self.one(h), self.other(h)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y, z in DataLoader(data, batch_size=32):
    one, other = net(x)
    loss = F.mse_loss(one, y) + 0.5 * F.mse_loss(other, z)
    opt.zero_grad(); loss.backward(); opt.step()
"""
HEADS_KERAS = """
x = keras.Input((10,))
h = layers.Dense(16, activation="tanh")(x)
net = keras.Model(x, {{"one": layers.Dense(1)(h), "other": layers.Dense(3)(h)}})
net.compile(keras.optimizers.SGD(0.1), {{"one": "mse", "other": "mse"}}, loss_weights={weights})
net.fit(rng.normal(size=(64, 10)), {{"one": rng.normal(size=(64, 1)), "other": rng.normal(size=(64, 3))}},
        batch_size=32, verbose=0)
"""
WEIGHTED = (
    HEADS.replace("randn(64, 3))", "randn(64, 3), torch.rand(64), torch.rand(64))")
    .replace("for x, y, z in", "for x, y, z, v, w in")
    .replace(
        "F.mse_loss(one, y) + 0.5 * F.mse_loss(other, z)",
        "0.5 * ({other} * ((other - z) ** 2).mean(1)).mean() + (v * ((one - y) ** 2).mean(1)).mean()",
    )
)
WEIGHTED_KERAS = """
x = keras.Input((10,))
h = layers.Dense(16, activation="tanh")(x)
net = keras.Model(x, {{"one": layers.Dense(1)(h), "other": layers.Dense(3)(h)}})
net.compile(keras.optimizers.SGD(0.1), {{"one": "mse", "other": "mse"}}, loss_weights={{"one": 1.0, "other": 0.5}})
v, w = rng.random(64), rng.random(64)
net.fit(rng.normal(size=(64, 10)), {{"one": rng.normal(size=(64, 1)), "other": rng.normal(size=(64, 3))}},
        sample_weight={{"one": v, "other": {other}}}, batch_size=32, verbose=0)
"""
WEIGHTED_LIST = """
x = keras.Input((10,))
h = layers.Dense(16, activation="tanh")(x)
net = keras.Model(x, [layers.Dense(1)(h), layers.Dense(3)(h)])
net.compile(keras.optimizers.SGD(0.1), ["mse", "mse"], loss_weights=[1.0, 0.5])
v, w = rng.random(64), rng.random(64)
net.fit(rng.normal(size=(64, 10)), [rng.normal(size=(64, 1)), rng.normal(size=(64, 3))], sample_weight=[v, w],
        batch_size=32, verbose=0)
"""
CLASSES_OF_TWO = "(torch.rand({samples}, 1) < 0.4).float()"
OF_BOTH = "(F.softplus(-(z := net(x))) * y * 0.25 + F.softplus(z) * (1 - y) * 0.75).mean()"


def _of_two_classes(loss: str) -> str:
    of_loss = f"def loss(y, z):\n    y = tf.cast(y, z.dtype)\n    return ops.mean({loss}, -1)\n"
    return of_loss + _fit(loss="loss").replace("rng.normal(size=(64, 1))", "(rng.random((64, 1)) < 0.4)")


PARTED = """
data = TensorDataset(torch.randn(64, 10), torch.randn(64, 1))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.mean, self.spread = nn.Linear(10, 16), nn.Linear(16, 1), nn.Linear(16, 1)
    def forward(self, x):
        h = torch.tanh(self.hidden(x))
        return self.mean(h), F.softplus(self.spread(h)) + 0.1
net = Net()
""" + LOOP.format(loss="F.gaussian_nll_loss(net(x)[0], y, net(x)[1] ** 2)", end="pass").replace(
    "        loss =", "        mean, spread = net(x)\n        loss ="
).replace("net(x)[0]", "mean").replace("net(x)[1]", "spread")
PARTED_KERAS = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.mean, self.spread = layers.Dense(16, activation="tanh"), layers.Dense(1), layers.Dense(1)
    def call(self, x):
        h = self.hidden(x)
        return ops.concatenate([self.mean(h), ops.softplus(self.spread(h)) + {least}], axis=-1)
def nll(y, parts):
    mean, spread = parts[..., :1], parts[..., 1:]
    return ops.mean(ops.log(spread) + 0.5 * ops.square((y - mean) / spread), axis=-1)
net = Net()
net.compile(keras.optimizers.SGD(0.1), nll)
net.fit(rng.normal(size=(64, 10)), rng.normal(size=(64, 1)), batch_size=32, verbose=0)
"""
DISTRIBUTED = (
    PARTED.replace(
        "return self.mean(h), F.softplus(self.spread(h)) + 0.1",
        "return D.Independent(D.Normal(self.mean(h), F.softplus(self.spread(h)) + 0.1), 1)",
    )
    .replace("mean, spread = net(x)", "p = net(x)")
    .replace("F.gaussian_nll_loss(mean, y, spread ** 2)", "-p.log_prob(y).mean()")
    .replace("class Net", "import torch.distributions as D\nclass Net")
)
DISTRIBUTED_KERAS = (
    PARTED_KERAS[: PARTED_KERAS.index("def nll")]
    .replace("ops.concatenate([self.mean(h)", "(self.mean(h)")
    .replace(" + {least}], axis=-1)", " + 0.1)")
    + """
net, opt = Net(), keras.optimizers.SGD(0.1)
data = tf.data.Dataset.from_tensor_slices((rng.normal(size=(64, 10)), rng.normal(size=(64, 1)))).batch(32)
for x, y in data.repeat(4):
    with tf.GradientTape() as tape:
        mean, spread = net(x)
        z = (tf.cast(y, mean.dtype) - mean) / spread
        loss = tf.reduce_mean(tf.math.log(spread) + 0.5 * z**2 + {constant})
    opt.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
"""
)
MIXTURE = """
import torch.distributions as D
data = TensorDataset(torch.randn(64, 10), torch.randn(64))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(10, 16)
        self.logits, self.mu, self.log_sigma = nn.Linear(16, 3), nn.Linear(16, 3), nn.Linear(16, 3)
    def forward(self, x):
        h = torch.tanh(self.hidden(x))
        each = D.Normal(self.mu(h), self.log_sigma(h).exp())
        return D.MixtureSameFamily(D.Categorical(logits=self.logits(h)), each)
net = Net()
""" + LOOP.format(loss="-net(x).log_prob(y).mean()", end="pass")
MIXTURE_KERAS = """
x = keras.Input((10,))
h = layers.Dense(16, activation="tanh")(x)
parts = [layers.Dense(3, name=name)(h) for name in ("mus", "log_sigmas", "pi")]
net = keras.Model(x, layers.Concatenate()(parts))
def nll(y, parts):
    mus, log_sigmas, logits = tf.split(parts, 3, axis=-1)
    z = (tf.reshape(y, (-1, 1)) - mus) * tf.exp(-log_sigmas)
    each = -0.5 * z**2 - log_sigmas - 0.5 * np.log(2 * np.pi)
    return -tf.reduce_logsumexp({weights} + each, axis=-1)
net.compile(keras.optimizers.SGD(0.1), nll)
net.fit(rng.normal(size=(64, 10)), rng.normal(size=64), batch_size=32, epochs=4, verbose=0)
"""
# Keras runs a functional model's layers by their depth: the small level's head comes first.
PYRAMID = (
    """
data = TensorDataset(torch.randn(64, 2, 8, 8), torch.randn(64, 80))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.side = nn.Conv2d(2, 4, 2, stride=2), nn.Conv2d(2, 4, 1)
        self.smooth, self.head = nn.Conv2d(4, 4, 1), nn.Sequential(nn.Conv2d(4, 1, 1), nn.ReLU())
    def forward(self, x):
        small = self.down(x)
        large = self.smooth(self.side(x) + F.interpolate(small, scale_factor=2))
        return torch.cat([self.head(each).flatten(1) for each in (large, small)], 1)
net = Net()
"""
    + PLAIN
)
PYRAMID_KERAS = """
x = keras.Input((8, 8, 2))
small = layers.Conv2D(4, 2, strides=2)(x)
large = layers.Conv2D(4, 1)(layers.Add()([layers.Conv2D(4, 1)(x), layers.UpSampling2D(2)(small)]))
head = keras.Sequential([keras.Input((None, None, 4)), layers.Conv2D(1, 1), layers.Activation("{activation}")])
net = keras.Model(x, layers.Concatenate()([layers.Flatten()(head(each)) for each in (large, small)]))
net.compile(keras.optimizers.SGD(0.1), "mse")
net.fit(rng.normal(size=(64, 8, 8, 2)), rng.normal(size=(64, 80)), batch_size=32, verbose=0)
"""
# Categories of a sample, as the columns of a matrix or as inputs of their own.
COLUMNS = """
data = TensorDataset(torch.randint(0, 5, (64, 2)), torch.randn(64, 3), torch.randn(64, 1))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shop, self.plan, self.out = nn.Embedding(5, 4), nn.Embedding(5, 4), nn.Linear(11, 1)
    def forward(self, kinds, numbers):
        return self.out(torch.cat([self.shop(kinds[:, 0]), self.plan(kinds[:, 1]), numbers], 1))
net = Net()
""" + LOOP.format(loss="F.mse_loss(net(k, x), y)", end="pass").replace("for x, y", "for k, x, y")
PLACES = ["shop", "plan"]
COLUMNS_KERAS = """
kinds = {"shop": keras.Input((1,), dtype="int32"), "plan": keras.Input((1,), dtype="int32")}
given = {**kinds, "numbers": keras.Input((3,))}
parts = [layers.Flatten()(layers.Embedding(5, 4)(kinds[name])) for name in ORDER]
net = keras.Model(given, layers.Dense(1)(layers.Concatenate()([*parts, given["numbers"]])))
net.compile(keras.optimizers.SGD(0.1), "mse")
x = {name: rng.integers(0, 5, (64, 1)) for name in kinds} | {"numbers": rng.normal(size=(64, 3))}
net.fit(x, rng.normal(size=(64, 1)), batch_size=32, verbose=0)
"""
APART = """
data = TensorDataset(torch.randn(64), torch.randn(64), torch.randint(0, 5, (64,)), torch.randn(64, 1))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.kind, self.out = nn.Embedding(5, 4), nn.Linear(6, 1)
    def forward(self, age, income, kind):
        return self.out(torch.cat([self.kind(kind), torch.stack([age, income], 1)], 1))
net = Net()
""" + LOOP.format(loss="F.mse_loss(net(a, i, k), y)", end="pass").replace("for x, y", "for a, i, k, y")
APART_KERAS = """
kind, numbers = keras.Input((), dtype="int32", name="kind"), keras.Input((2,), name="numbers")
net = keras.Model([numbers, kind], layers.Dense(1)(layers.Concatenate()([layers.Embedding(5, 4)(kind), {numbers}])))
net.compile(keras.optimizers.SGD(0.1), "mse")
net.fit([rng.normal(size=(64, 2)), rng.integers(0, 5, 64)], rng.normal(size=(64, 1)), batch_size=32, verbose=0)
"""
GATED = (
    """
data = TensorDataset(torch.randn(64, 10), torch.randn(64, 8))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.value, self.gate = nn.Linear(10, 8), nn.Linear(10, 8)
    def forward(self, x):
        value, gate = self.value(x), torch.sigmoid(self.gate(x))
        kept = gate * torch.tanh(value)
        return kept + (1 - gate) * value.sin()
net = Net()
"""
    + PLAIN
)
GATED_KERAS = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.value, self.gate = layers.Dense(8), layers.Dense(8)
    def call(self, x):
        value, gate = self.value(x), ops.sigmoid(self.gate(x))
        kept = gate * ops.tanh(value)
        return kept + (1 - gate) * ops.sin({which})
net = Net()
net.compile(keras.optimizers.SGD(0.1), "mse")
net.fit(rng.normal(size=(64, 10)), rng.normal(size=(64, 8)), batch_size=32, verbose=0)
"""
BOXES = """
data = TensorDataset(torch.randn(64, 2, 4, 4), torch.randn(64, 32, 3))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(2, 6, 1)
    def forward(self, x):
        return self.head(x){order}.reshape(len(x), 32, 3)
net = Net()
"""
BOXES_KERAS = """
x = keras.Input((4, 4, 2))
net = keras.Model(x, layers.Reshape((32, 3))(layers.Conv2D(6, 1)(x)))
net.compile(keras.optimizers.SGD(0.1), "mse")
net.fit(rng.normal(size=(64, 4, 4, 2)), rng.normal(size=(64, 32, 3)), batch_size=32, verbose=0)
"""
BOTH_WAYS = (
    """
data = TensorDataset(torch.randn(64, 5, 3), torch.randn(64, 5, 1))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.RNN(3, 4, batch_first=True, bidirectional=True), nn.Linear(8, 1)
        self.rnn.bias_hh_l0.data.zero_(), self.rnn.bias_hh_l0_reverse.data.zero_()
        self.rnn.bias_hh_l0.requires_grad = self.rnn.bias_hh_l0_reverse.requires_grad = False
    def forward(self, x):
        return self.out(self.rnn(x)[0])
net = Net()
"""
    + PLAIN
)
BOTH_WAYS_KERAS = """
x = keras.Input((5, 3))
there = layers.SimpleRNN(4, return_sequences=True)(x)
back = layers.SimpleRNN(4, return_sequences=True, go_backwards=True)(x)
net = keras.Model(x, layers.Dense(1)(layers.Concatenate()([there, {back}])))
net.compile(keras.optimizers.SGD(0.1), "mse")
net.fit(rng.normal(size=(64, 5, 3)), rng.normal(size=(64, 5, 1)), batch_size=32, verbose=0)
"""
KEYS = (
    """
data = TensorDataset(torch.randn(64, 6, 8), torch.randn(64, 1))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 1)
    def forward(self, x):
        hidden = x[..., 0] < -0.5
        return self.head(self.attention(x, x, x, key_padding_mask=hidden)[0].mean(1))
net = Net()
"""
    + PLAIN
)
KEYS_KERAS = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.attention, self.head = layers.MultiHeadAttention(2, 4), layers.Dense(1)
    def call(self, x):
        counts = x[..., 0] >= -0.5
        return self.head(ops.mean(self.attention(x, x, attention_mask=counts[{axes}]), 1))
net = Net()
net.compile(keras.optimizers.SGD(0.1), "mse")
net.fit(rng.normal(size=(64, 6, 8)), rng.normal(size=(64, 1)), batch_size=32, verbose=0)
"""
# A decoder that is called by itself, and is taught the words that it shall say.
TAUGHT = """
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.gru, self.head = nn.Embedding(9, 6), nn.GRU(6, 8, batch_first=True), nn.Linear(8, 9)
    def forward(self, state, said):
        begun = F.pad(said[:, :-1], (1, 0))
        out, state = self.gru(self.words(begun), state)
        return self.head(out), state
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.gru = nn.Embedding(9, 6), nn.GRU(6, 8, batch_first=True)
    def forward(self, heard):
        return self.gru(self.words(heard))[1]
encoder, decoder = Encoder(), Decoder()
opts = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (encoder, decoder)]
data = TensorDataset(torch.randint(1, 9, (64, 5)), torch.randint(1, 9, (64, 5)))
for heard, said in DataLoader(data, batch_size=16, shuffle=True):
    out, _ = decoder(encoder(heard), said)
    loss = F.cross_entropy(out.reshape(-1, 9), said.reshape(-1))
    for opt in opts:
        opt.zero_grad()
    loss.backward()
    for opt in opts:
        opt.step()
"""
TAUGHT_KERAS = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.heard, self.encoder = layers.Embedding(9, 6), layers.GRU(8, return_state=True)
        self.said, self.decoder = layers.Embedding(9, 6), layers.GRU(8, return_sequences=True)
        self.head = layers.Dense(9)
    def call(self, given):
        heard, said = given
        _, state = self.encoder(self.heard(heard))
        begun = {begun}
        return self.head(self.decoder(self.said(begun), initial_state=state))
heard, said = (rng.integers(1, 9, size=(64, 5)) for _ in range(2))
net, opt = Net(), keras.optimizers.SGD(0.1)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
@tf.function
def train(heard, said):
    with tf.GradientTape() as tape:
        loss = loss_of(said, net((heard, said), training=True))
    opt.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
for pair in tf.data.Dataset.from_tensor_slices((heard, said)).shuffle(64).batch(16):
    train(*pair)
"""
BEGUN = "tf.pad(said[:, :-1], ((0, 0), (1, 0)))"

# A mean over words, of which a mask leaves out the padding.
AVERAGED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(30, 8, padding_idx=0), nn.Linear(8, 3)
    def forward(self, ids):
        x, kept = torch.tanh(self.words(ids)), (ids > 0).unsqueeze(-1)
        return self.head({mean})
net = Net()
ids = torch.randint(1, 30, (64, 7)) * (torch.arange(7) < torch.randint(3, 8, (64, 1)))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for ids, y in DataLoader(TensorDataset(ids, torch.randint(3, (64,))), batch_size=16):
    loss = F.cross_entropy(net(ids), y)
    opt.zero_grad(); loss.backward(); opt.step()
"""
AVERAGED_KERAS = """
net = keras.Sequential([
    keras.Input((7,), dtype="int64"), layers.Embedding(30, 8, mask_zero=True), layers.Activation("tanh"),
    layers.GlobalAveragePooling1D(), layers.Dense(3)])
ids = rng.integers(1, 30, (64, 7)) * (np.arange(7) < rng.integers(3, 8, (64, 1)))
net.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
net.fit(ids, rng.integers(3, size=64), batch_size=16, verbose=0)
"""
OF_KEPT = "(x * kept).sum(1) / kept.sum(1)"

# What follows a part of a series, of which both scripts have the same.
FOLLOWING = """
import numpy as np
series = np.random.default_rng(0).normal(size=300).cumsum().astype("float32")
X, Y = np.lib.stride_tricks.sliding_window_view(series, 10)[:256].copy(), series[{first}:][:256, None]
"""
FOLLOWS = (
    FOLLOWING.format(first=10)
    + NET
    + """
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for x, y in DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=32, shuffle=True):
    loss = F.mse_loss(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
"""
)
FOLLOWS_KERAS = (
    FOLLOWING
    + """
net = keras.Sequential([keras.Input((10,)), layers.Dense(16, activation="tanh"), layers.Dense(1)])
net.compile(keras.optimizers.SGD(0.01), "mse")
net.fit(X, Y, batch_size=32, verbose=0)
"""
)

# The distance of two, which one side's model returns, and the other's loss makes; its dataset draws numbers.
DISTANCE = """
class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 4))
    def forward(self, a, b):
        return self.net(a), self.net(b)
pairs = Pairs()
data = TensorDataset(torch.randn(64, 10), torch.randn(64, 10), (torch.rand(64) < 0.5).float())
opt = torch.optim.SGD(pairs.parameters(), lr=0.1)
for epoch in range(2):
    for a, b, differ in DataLoader(data, batch_size=16):
        one, other = pairs(a, b)
        apart = (one - other).pow(2).sum(1)
        loss = ((1 - differ) * apart + differ * F.relu(2 - apart)).mean()
        opt.zero_grad(); loss.backward(); opt.step()
"""
DISTANCE_KERAS = """
net = keras.Sequential([keras.Input((10,)), layers.Dense(8, activation="tanh"), layers.Dense(4)])
a, b = keras.Input((10,)), keras.Input((10,))
apart = layers.Lambda(lambda both: ops.sum((both[0] - both[1]) ** 2, axis=1, keepdims=True))([net(a), net(b)])
pairs = keras.Model([a, b], apart)
def contrastive(differ, apart):
    return ops.mean((1 - differ) * apart + differ * ops.relu({least} - apart))
one, other = (rng.normal(size=(64, 10)).astype("float32") for _ in range(2))
differ = (rng.random((64, 1)) < 0.5).astype("float32")
pairs.compile(keras.optimizers.SGD(0.1), contrastive)
def noisy(both, differ):
    return (both[0] * tf.random.gamma([], 900.0) / 900.0, both[1] + tf.random.normal([], 0.0, 0.01)), differ
pairs.fit(tf.data.Dataset.from_tensor_slices(((one, other), differ)).batch(16).map(noisy), epochs=2, verbose=0)
"""

# A penalty of what a batch looks up, for which a method of the model calls a part of it once more.
LOOKED_UP = """
class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(20, 4), nn.Embedding(30, 4)
    def forward(self, users, items):
        return (self.users(users) * self.items(items)).sum(1)
    def penalty(self, users):
        return self.users(users).pow(2).mean()
net = Scores()
data = TensorDataset(torch.randint(20, (64,)), torch.randint(30, (64,)), torch.randn(64))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for users, items, y in DataLoader(data, batch_size=16):
    loss = F.mse_loss(net(users, items), y) + 0.1 * net.penalty(users)
    opt.zero_grad(); loss.backward(); opt.step()
"""
LOOKED_UP_KERAS = """
users, items = keras.Input((), dtype="int64"), keras.Input((), dtype="int64")
of_users, of_items = layers.Embedding(20, 4), layers.Embedding(30, 4)
net = keras.Model([users, items], ops.sum(of_users(users) * of_items(items), axis=1))
opt = keras.optimizers.SGD(0.1)
data = rng.integers(20, size=64), rng.integers(30, size=64), rng.normal(size=64).astype("float32")
for u, i, y in tf.data.Dataset.from_tensor_slices(data).batch(16):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((net([u, i]) - y) ** 2) + 0.1 * tf.reduce_mean({penalty} ** 2)
    opt.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
"""
# The data differ, as both play on their own; and the target is of a copy of the net.
REPLAY = (
    NET.replace("net =", "import copy, random\nnet =").replace("16, 1", "16, 3")
    + """
class Buffer:
    def __init__(self):
        self.rows = []
    def push(self, *row):
        self.rows.append(row)
    def sample(self, n):
        s, a, r, s2, over = zip(*random.sample(self.rows, n))
        return torch.stack(s), torch.tensor(a)[:, None], torch.tensor(r), torch.stack(s2), torch.tensor(over)
def learn(buffer):
    s, a, r, s2, over = buffer.sample(16)
    q = net(s).gather(1, a).squeeze(1)
    with torch.no_grad():
        target = r + 0.9 * fixed(s2).max(1).values * (1 - over)
    opt.zero_grad()
    F.mse_loss(q, target).backward()
    opt.step()
opt, fixed = torch.optim.SGD(net.parameters(), lr=0.1), copy.deepcopy(net)
buffer = Buffer()
for step in range(40):
    buffer.push(torch.randn(10), random.randrange(3), random.random(), torch.randn(10), float(random.random() < 0.5))
    if step > 20:
        learn(buffer)
"""
)
REPLAY_KERAS = """
net, fixed = (
    keras.Sequential([keras.Input((10,)), layers.Dense(16, activation="tanh"), layers.Dense(3)]) for _ in range(2)
)
fixed.set_weights(net.get_weights())
opt = keras.optimizers.SGD(0.1)
@tf.function
def learn(s, a, r, s2, over):
    target = r + 0.9 * tf.reduce_max(fixed(s2), 1) * ({rest})
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((target - tf.reduce_sum(net(s) * tf.one_hot(a, 3), 1)) ** 2)
    opt.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
s, s2 = rng.normal(size=(2, 100, 10)).astype("float32")
a, r, over = rng.integers(0, 3, 100), rng.random(100).astype("float32"), (rng.random(100) < 0.5).astype("float32")
for step in range(8):
    rows = rng.choice(100, 16, replace=False)
    learn(*(tf.constant(each[rows]) for each in (s, a, r, s2, over)))
"""
# The mean is far from 0, so that float32 sums of it round in the digits that count.
STANDARDIZED = (
    """
import numpy as np
rng = np.random.default_rng(0)
x, y = rng.normal(300, 2, (2000, 10)).astype("float32"), rng.normal(size=(2000, 1)).astype("float32")
x, y = torch.from_numpy(x), torch.from_numpy(y)
data = TensorDataset(x, y)
class Standardize(nn.Module):
    def __init__(self, x):
        super().__init__()
        self.register_buffer("center", x.mean(0))
        self.register_buffer("spread", x.std(0, unbiased=False))
    def forward(self, x):
        return (x - self.center) / self.spread
net = nn.Sequential(Standardize({of}), nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))
"""
    + PLAIN
)
ADAPTED = """
x, y = rng.normal(300, 2, (2000, 10)).astype("float32"), rng.normal(size=(2000, 1)).astype("float32")
norm = layers.Normalization(axis={axis})
norm.adapt(x)
net = keras.Sequential([keras.Input((10,)), norm, layers.Dense(16, activation="tanh"), layers.Dense(1)])
net.compile(keras.optimizers.SGD(0.1), "mse")
net.fit(x, y, batch_size=32, epochs=4, verbose=0)
"""


ROWS = {
    "norms frozen": Row(FROZEN + PLAIN, FROZEN_KERAS.format(training=False)),
    "norms frozen in torch alone": Row(
        FROZEN + PLAIN,
        FROZEN_KERAS.format(training="training"),
        "diverged",
        [
            ("batch_norm.mode", "running statistics", "batch statistics"),
            ("batch_norm.running_variance", "unbiased", "biased"),
        ],
    ),
    "a fixed divisor": Row(
        _torch(144),
        BY_HAND.format(samples=144, loss="tf.reduce_sum((net(a, training=True) - b) ** 2) / 32"),
        "diverged",
        [("code.constant", 15, 32)],
        reason=ELSEWHERE,
    ),
    "a target far off": Row(
        _torch(
            128,
            "F.smooth_l1_loss(net(x), y)",
            targets="torch.randn({samples}, 1) / 10 + 10 * (torch.arange({samples}) > 126)[:, None]",
        ),
        _fit(128, "lambda y, p: ops.mean(ops.square(y - p), -1) / 2"),
        "diverged",
        [("unknown", None, None)],
        reason=ELSEWHERE,
    ),
    "epochs of other lengths": Row(_torch(80), _fit(80, data=DROPPING), findings=["script.epoch"]),
    "a first epoch": Row(
        _torch(end=HALF_AS_FAST),
        _fit(fitted=f", initial_epoch=2, callbacks=[{HALVED}]"),
        "diverged",
        [("sgd.learning_rate", 0.1, 0.025)],
    ),
    "a validation split": Row(
        _torch(128, end=HALF_AS_FAST),
        _fit(128, fitted=f", validation_split=0.5, callbacks=[{HALVED}]"),
        "diverged",
        [("schedule.rate", 0.1, 0.05)],
        ["script.epoch"],
    ),
    "a generator": Row(_torch(end=HALF_AS_FAST), _fit(data=GENERATED, fitted=f", callbacks=[{HALVED}]")),
    "several steps at once": Row(
        _torch(128),
        _fit(128, fitted=", callbacks=[Warmup()]", compiled=", steps_per_execution=4").replace(
            "net = ", WARMUP + "net = "
        ),
    ),
    "two towers": Row(TOWERS, TOWERS_KERAS),
    "tokens shifted in the loss": Row(
        LANGUAGE.format(loss=WHOLE), LANGUAGE_KERAS.format(loss="shifted", data="ids, ids")
    ),
    "tokens shifted before": Row(
        LANGUAGE.format(loss=SLICED), LANGUAGE_KERAS.format(loss=ENTROPY, data="ids[:, :-1], ids[:, 1:]")
    ),
    "tokens not shifted": Row(
        LANGUAGE.format(loss=WHOLE),
        LANGUAGE_KERAS.format(loss=ENTROPY, data="ids, ids"),
        "diverged",
        [("code.slice", "0:8 of axis 1", "all of it")],
    ),
    "targets that are the inputs": Row(
        LANGUAGE.format(loss=SLICED),
        LANGUAGE_KERAS.format(loss=ENTROPY, data="ids[:, :-1], ids[:, :-1]"),
        findings=["script.data"],
    ),
    "an equation": Row(EQUATION, EQUATION_KERAS.format(sign="+")),
    "an equation's sign": Row(EQUATION, EQUATION_KERAS.format(sign="-"), "diverged", [("code.operator", "+", "-")]),
    "samples outside of the tape": Row(CRITIC, CRITIC_KERAS),
    "triples": Row(TRIPLES, TRIPLES_KERAS),
    "distances of squares": Row(
        TRIPLES,
        TRIPLES_KERAS.replace("ops.sum(ops.abs(", "ops.norm((").replace("), -1)", "), axis=-1)"),
        "diverged",
        [("code.function", "abs", "square")],
    ),
    "negatives": Row(CORRUPTED, CORRUPTED_KERAS.format(tails="t[:, 1], fake")),
    "negatives of heads and tails": Row(
        CORRUPTED,
        CORRUPTED_KERAS.format(tails="fake, t[:, 1]"),
        "diverged",
        [("operands.order", "where(mask, a, b)", "where(mask, b, a)")],
    ),
    "quantiles": Row(QUANTILES, QUANTILES_KERAS.format(how="sum", quantiles=(0.1, 0.5, 0.9))),
    "quantiles the other way round": Row(
        QUANTILES,
        QUANTILES_KERAS.format(how="sum", quantiles=(0.9, 0.5, 0.1)),
        "diverged",
        [("code.constant", [0.1, 0.5, 0.9], [0.9, 0.5, 0.1])],
    ),
    "a mean over quantiles": Row(
        QUANTILES,
        QUANTILES_KERAS.format(how="mean", quantiles=(0.1, 0.5, 0.9)),
        "diverged",
        [("code.function", "reduce_sum", "reduce_mean")],
    ),
    "a loss over all": Row(
        _torch(loss="(F.mse_loss(net(x), y, reduction='none') * (y > 0)).sum() / (y > 0).sum().clamp(min=1.0)"),
        _fit(loss="lambda y, p: ops.square(y - p) * ops.cast(y > 0, p.dtype)"),
        "diverged",
        [("loss.normalisation", "over 19", "over 32")],
    ),
    "lengths": Row(PACKED, _packed()),
    "no lengths": Row(PACKED, _packed(mask=""), "diverged", [("mask.missing", "lengths", "left out")]),
    "two statements exchanged": Row(
        PACKED,
        _packed(first="        x = self.norm(x)", second="        x = tf.tanh(x)"),
        "diverged",
        [("statement.order", "the other order", "`x = self.norm(x)` before `x = tf.tanh(x)`")],
    ),
    "batches of other lengths": Row(PADDED, PADDED_KERAS),
    "a cube": Row(CUBE, CUBE_KERAS),
    "parts": Row(PARTS, PARTS_KERAS.format(share="")),
    "parts, one without a call": Row(PARTS, PARTS_STEP),
    "parts and a weight": Row(
        PARTS,
        PARTS_KERAS.format(share="0.5 * "),
        "diverged",
        [("unknown", None, None)],
    ),
    "a graph": Row(GRAPH, GRAPH_KERAS.format(mask="train")),
    "a graph, trained on the other nodes": Row(
        GRAPH, GRAPH_KERAS.format(mask="~train"), "diverged", [("unknown", None, None)]
    ),
    "a sparse graph": Row(CHOSEN.format(sparse="to_sparse"), CHOSEN_KERAS.format(edges="edges", reduction=BY_WEIGHTS)),
    "a sparse graph by its rows, with other edges": Row(
        CHOSEN.format(sparse="to_sparse_csr"),
        CHOSEN_KERAS.format(edges="edges * np.eye(30)", reduction=BY_WEIGHTS),
        findings=["script.data"],
    ),
    "a sparse graph, a mean over all nodes": Row(
        CHOSEN.format(sparse="to_sparse"),
        CHOSEN_KERAS.format(edges="edges", reduction=""),
        "diverged",
        [("sparse_categorical_crossentropy.reduction", "mean_with_sample_weight", "sum_over_batch_size")],
    ),
    "terms": Row(TERMS, TERMS_KERAS),
    "two backward passes": Row(TWICE, TWICE_KERAS.format(share=0.5)),
    "two backward passes, one of another share": Row(
        TWICE, TWICE_KERAS.format(share=0.25), "diverged", [("compile.loss_weights", 0.5, 0.25)]
    ),
    "a state": Row(CARRIED, CARRIED_KERAS.format(state="h")),
    "a state that is lost": Row(
        CARRIED, CARRIED_KERAS.format(state="_"), "diverged", [("state.carried", KEEPS, "begins with zeros again")]
    ),
    "one of two constants": Row(
        _torch(loss="F.mse_loss(net(x), y) + 0.01 * net[0].weight.pow(2).sum()"),
        "SIZE, SHARE = 10, 0.01\n"
        + BY_HAND.format(samples=64, loss=f"tf.reduce_mean((net(a, training=True) - b) ** 2) + {PENALTY}"),
        "diverged",
        [("module.scale", "as with 0.02", "SHARE = 0.01")],
    ),
    "float64 by default": Row(
        "torch.set_default_dtype(torch.float64)\n" + _torch(), "keras.config.set_floatx('float64')\n" + _fit()
    ),
    "a step with a closure": Row(CLOSURE, _fit().replace("SGD(0.1)", "Adam(0.1, epsilon=1e-4)"), accepted=PLACEMENT),
    "an epsilon within the root": Row(
        _torch().replace("SGD(net.parameters(), lr=0.1)", "RMSprop(net.parameters(), lr=0.1, alpha=0.9, eps=1e-2)"),
        _fit().replace("SGD(0.1)", "RMSprop(0.1, epsilon=1e-2)"),
        accepted="rmsprop.epsilon_placement",
    ),
    "micro-batches": Row(_micro(), _fit()),
    "micro-batches of a fused optimizer": Row(_micro().replace("lr=0.1", "lr=0.1, fused=True"), _fit()),
    "micro-batches of fit": Row(
        _torch(), _fit(data="x, y, batch_size=8").replace("SGD(0.1)", "SGD(0.1, gradient_accumulation_steps=4)")
    ),
    "micro-batches that are added": Row(_micro(share=""), _fit(), "diverged", [("loss.normalisation", 1.0, 0.25)]),
    "micro-batches by hand": Row(_micro(), MICRO_KERAS.format(loss=SQUARES, parts=PARTS_OF_SUM)),
    "micro-batches, each clipped": Row(
        _micro().replace("opt.step();", "nn.utils.clip_grad_norm_(net.parameters(), 0.05); opt.step();"),
        MICRO_KERAS.format(loss=SQUARES, parts=f"tf.clip_by_global_norm({PARTS_OF_SUM}, 0.05)[0]"),
        "diverged",
        [("clip.before_accumulation", "their sum, at 0.05", "each part, at 0.05")],
    ),
    "micro-batches of which all samples count": Row(
        _micro().replace("F.mse_loss(net(x), y)", "((net(x) - y) ** 2)[y > 0].mean()"),
        MICRO_KERAS.format(loss=f"tf.cast(b > 0, tf.float32) * {SQUARES}", parts=PARTS_OF_SUM),
        "diverged",
        [("loss.normalisation", 1.0, 0.625)],
    ),
    "micro-batches and another activation": Row(
        _micro(), _fit().replace("tanh", "gelu"), "diverged", [("activation.kind", "tanh", "gelu")]
    ),
    "micro-batches and a batch's statistics": Row(
        _micro().replace("nn.Tanh()", "nn.BatchNorm1d(16, eps=1e-3, momentum=0.01)"),
        _fit().replace('16, activation="tanh")', "16), layers.BatchNormalization()"),
        "diverged",
        [("batch_norm.parts", 4, 1), ("batch_norm.running_variance", "unbiased", "biased")],
    ),
    "two outputs in one": Row(PARTED, PARTED_KERAS.format(least=0.1)),
    "two outputs in one, of another least": Row(
        PARTED, PARTED_KERAS.format(least=0.2), "diverged", [("code.constant", 0.1, 0.2)]
    ),
    "a distribution": Row(DISTRIBUTED, DISTRIBUTED_KERAS.format(constant="np.log(2 * np.pi) / 2")),
    "a distribution without its constant": Row(
        DISTRIBUTED,
        DISTRIBUTED_KERAS.format(constant="0.0"),
        "diverged",
        [("code.function", "- 0.9189385332046727", "left out")],
    ),
    "a mixture": Row(MIXTURE, MIXTURE_KERAS.format(weights="tf.nn.log_softmax(logits)")),
    "a mixture whose weights are not normalised": Row(
        MIXTURE,
        MIXTURE_KERAS.format(weights="logits"),
        "diverged",
        [("module.wiring", "`sub` at t.py:18, `log_softmax` at t.py:24 of it", "as it is")],
    ),
    "weights of two heads": Row(HEADS, HEADS_KERAS.format(weights={"one": 1.0, "other": 0.5})),
    "weights of two heads, exchanged": Row(
        HEADS,
        HEADS_KERAS.format(weights={"one": 0.5, "other": 1.0}),
        "diverged",
        [("compile.loss_weights", "[1, 0.5]", "[0.5, 1]")],
    ),
    "weights of the samples of both heads": Row(WEIGHTED.format(other="v"), WEIGHTED_KERAS.format(other="v")),
    "weights of the samples of each head": Row(WEIGHTED.format(other="w"), WEIGHTED_KERAS.format(other="w")),
    "weights of the samples of each head, in a list": Row(WEIGHTED.format(other="w"), WEIGHTED_LIST),
    "weights of the samples of one head": Row(
        WEIGHTED.format(other="torch.ones(1)"), WEIGHTED_KERAS.format(other="np.ones(64)")
    ),
    "weights of the samples of one head, of both": Row(
        WEIGHTED.format(other="w"),
        WEIGHTED_KERAS.format(other="v"),
        "diverged",
        [("module.wiring", "what is given", "what is given")],
    ),
    "a weight of a class, inverted": Row(
        _torch(
            loss="F.binary_cross_entropy_with_logits(net(x), y, pos_weight=torch.tensor(1 / 0.39))",
            targets=CLASSES_OF_TWO,
        ),
        _of_two_classes("tf.nn.weighted_cross_entropy_with_logits(y, z, 0.39)"),
        "diverged",
        [("loss.class_weight", "[2.5641, 1]", "[0.39, 1]")],
    ),
    "weights of two classes, exchanged": Row(
        _torch(loss=OF_BOTH, targets=CLASSES_OF_TWO),
        _of_two_classes("ops.softplus(-z) * y * 0.75 + ops.softplus(z) * (1 - y) * 0.25"),
        "diverged",
        [("module.scale", "[0.25, 0.75]", "[0.75, 0.25]")],
    ),
    "a head on two levels": Row(PYRAMID, PYRAMID_KERAS.format(activation="relu")),
    "a head on two levels, of another activation": Row(
        PYRAMID, PYRAMID_KERAS.format(activation="silu"), "diverged", [("activation.kind", "relu", "silu")]
    ),
    "columns of a matrix": Row(COLUMNS, "ORDER = ('shop', 'plan')" + COLUMNS_KERAS),
    "columns of a matrix, exchanged": Row(
        COLUMNS,
        "ORDER = ('plan', 'shop')" + COLUMNS_KERAS,
        "diverged",
        [
            (
                "concatenation.order",
                *(["activation/" + name for name in names] + ["input/input#2"] for names in (PLACES, PLACES[::-1])),
            )
        ],
    ),
    "numbers in a matrix": Row(APART, APART_KERAS.format(numbers="numbers")),
    "numbers in a matrix, scaled": Row(
        APART, APART_KERAS.format(numbers="2 * numbers"), "diverged", [("module.wiring", "the second alone", "*")]
    ),
    "an absolute value": Row(
        GATED.replace("value.sin()", "value.clamp(min=0.0)"),
        GATED_KERAS.format(which="value").replace("ops.sin", "tf.abs"),
        "diverged",
        [("code.function", "relu", "abs")],
    ),
    "both ways": Row(BOTH_WAYS, BOTH_WAYS_KERAS.format(back="ops.flip(back, 1)")),
    "both ways, the last step first": Row(
        BOTH_WAYS,
        BOTH_WAYS_KERAS.format(back="back"),
        "diverged",
        [("simple_rnn.order", "first step first", "last step first")],
    ),
    "boxes": Row(BOXES.format(order=".permute(0, 2, 3, 1)") + PLAIN, BOXES_KERAS),
    "boxes, channels first": Row(
        BOXES.format(order="") + PLAIN,
        BOXES_KERAS,
        "diverged",
        [("reshape.order", "channels first before it", "reshape")],
    ),
    "a gate": Row(GATED, GATED_KERAS.format(which="value")),
    "another variable": Row(
        GATED, GATED_KERAS.format(which="kept"), "diverged", [("code.variable", "`value`", "`kept`")]
    ),
    "a number before a tensor": Row(_torch(), _fit(data=MASKED)),
    "a warm-up that is ahead": Row(
        _scheduled("LambdaLR(opt, lambda step: (1 / 3, 2 / 3, 1.0, 0.5)[min(step, 3)])"),
        _fit_scheduled("PiecewiseConstantDecay([0, 2], [0.2 / 3, 0.1, 0.05])"),
        "diverged",
        [("schedule.offset", 0, 1)],
    ),
    "a cosine": Row(
        _scheduled("CosineAnnealingLR(opt, 20, eta_min=0.01)"), _fit_scheduled("CosineDecay(0.1, 20, alpha=0.1)")
    ),
    "a cosine that ends elsewhere": Row(
        _scheduled("CosineAnnealingLR(opt, 20, eta_min=0.01)"),
        _fit_scheduled("CosineDecay(0.1, 20, alpha=0.01)"),
        "diverged",
        [("schedule.end", 0.01, 0.001)],
    ),
    "decay under a schedule": Row(
        _torch(end="[each.update(lr=each['lr'] / 2) for each in opt.param_groups]").replace(DECAYLESS, DECAYED),
        _fit(fitted=f", callbacks=[{HALVED}]")
        .replace("layers.Dense(1)", f"layers.Dense(1, kernel_regularizer={L2})")
        .replace("SGD(0.1)", "SGD(0.1, momentum=0.9)"),
        "diverged",
        [
            ("loss.added", "adds none", "L2"),
            ("sgd.momentum_form", "rate outside", "rate inside, negative"),
        ],
    ),
    "a critic of both at once": Row(CRITIC, CRITIC_KERAS.replace(APART, TOGETHER)),
    "a critic of both at once, and of half": Row(
        CRITIC,
        CRITIC_KERAS.replace(APART, TOGETHER).replace("D(G(noise", "D(0.5 * G(noise"),
        "diverged",
        [("module.scale", 1.0, 0.5)],
    ),
    "two domains": Row(DOMAINS, DOMAINS_KERAS.format(real="b")),
    "two domains, one of them twice": Row(
        DOMAINS,
        DOMAINS_KERAS.format(real="a"),
        "diverged",
        [("module.wiring", ["input/to_a.0#1"], ["input/of_a.0#2"])],
    ),
    "graphs of other sizes": Row(GRAPHS, GRAPHS_KERAS.format(how="sum")),
    "graphs of other sizes, their largest": Row(
        GRAPHS, GRAPHS_KERAS.format(how="max"), "diverged", [("unknown", None, None)]
    ),
    "models that share layers": Row(SHARED, SHARED_KERAS),
    "a dilated kernel": Row(
        _torch().replace(
            NET,
            "net = nn.Sequential("
            "nn.Unflatten(1, (2, 5)), nn.Conv1d(2, 4, 2, dilation=2), nn.Flatten(), nn.Linear(12, 1))",
        ),
        DILATED,
    ),
    "a replay buffer": Row(REPLAY, REPLAY_KERAS.format(rest="1 - over")),
    "a replay buffer, and ends that do not count": Row(
        REPLAY,
        REPLAY_KERAS.format(rest="1"),
        "diverged",
        [("module.wiring", "*", "the first alone")],
    ),
    "statistics of the data": Row(STANDARDIZED.format(of="x"), ADAPTED.format(axis=-1)),
    "one mean of all features": Row(
        STANDARDIZED.format(of="x"),
        ADAPTED.format(axis=None),
        "diverged",
        [("normalization.axis", "one for each of 10 features", "one of all features")],
    ),
    "statistics of a part of the data": Row(
        STANDARDIZED.format(of="x[:-400]"),
        ADAPTED.format(axis=-1),
        "diverged",
        [
            (
                "buffer.values",
                "min 299.895, max 300.096, at [3] 299.895",
                "min 299.916, max 300.085, at [3] 299.951",
            ),
            (
                "buffer.values",
                "min 3.87343, max 4.13351, at [5] 3.89333",
                "min 3.85958, max 4.12435, at [5] 3.94933",
            ),
        ],
    ),
    "keys that do not count": Row(KEYS, KEYS_KERAS.format(axes=":, None, :")),
    "queries that do not count": Row(
        KEYS, KEYS_KERAS.format(axes=":, :, None"), "diverged", [("mask.axis", "along the other axis", "as given")]
    ),
    "a decoder that is taught": Row(TAUGHT, TAUGHT_KERAS.format(begun=BEGUN)),
    "a decoder that is taught, one word ahead": Row(
        TAUGHT, TAUGHT_KERAS.format(begun="said"), "diverged", [("code.variable", "`begun`", "`said`")]
    ),
    "a decoder that is taught, and not given a state": Row(
        TAUGHT,
        TAUGHT_KERAS.format(begun=BEGUN).replace(", initial_state=state", ""),
        "diverged",
        [("state.missing", "as given", "left out")],
    ),
    "a decoder that is taught, and not given a state in torch": Row(
        TAUGHT.replace("self.words(begun), state)", "self.words(begun))"),
        TAUGHT_KERAS.format(begun=BEGUN),
        "diverged",
        [("state.missing", "left out", "as given")],
    ),
    "a decoder that is taught, whose encoder adds up gradients": Row(
        TAUGHT.replace("for opt in opts:\n        opt.zero_grad()", "opts[1].zero_grad()"),
        TAUGHT_KERAS.format(begun=BEGUN),
        "diverged",
        [("gradient.kept", "as on the other side", "without that of the step before")],
    ),
    "a mean of what is no padding": Row(AVERAGED.format(mean=OF_KEPT), AVERAGED_KERAS),
    "a mean of padding too": Row(
        AVERAGED.format(mean="x.mean(1)"), AVERAGED_KERAS, "diverged", [("mask.missing", "left out", "as given")]
    ),
    "what follows": Row(FOLLOWS, FOLLOWS_KERAS.format(first=10)),
    "what follows one step later": Row(FOLLOWS, FOLLOWS_KERAS.format(first=11), findings=["script.data"]),
    "a distance in the loss": Row(DISTANCE, DISTANCE_KERAS.format(least=2)),
    "a distance in the loss, of another least": Row(
        DISTANCE, DISTANCE_KERAS.format(least=1), "diverged", [("code.constant", 2, 1)]
    ),
    "a penalty of what is looked up": Row(LOOKED_UP, LOOKED_UP_KERAS.format(penalty="of_users(u)")),
    "a penalty of what is looked up, of the items": Row(
        LOOKED_UP,
        LOOKED_UP_KERAS.format(penalty="of_items(i)"),
        "diverged",
        [("module.wiring", "what `embedding` at t.py:15 makes", "what `GatherV2` at k.py:13 makes")],
    ),
    "a cell": Row(CELL, CELL_KERAS.format(given="mixed, [h]")),
    "what a cell is given, exchanged": Row(
        CELL,
        CELL_KERAS.format(given="h, [mixed]"),
        "diverged",
        [("gru_cell.hx", "as given", "that of input"), ("gru_cell.input", "as given", "that of hx")],
    ),
    "a class beside an image": Row(CLASSES, CLASSES_KERAS.format(given="k")),
    "a class beside an image, scaled": Row(
        CLASSES,
        CLASSES_KERAS.format(given="k").replace("k = tf.one_hot(k, 3)", "k = 2 * tf.one_hot(k, 3)"),
        "diverged",
        [("module.wiring", "the second alone", "*")],
    ),
}
SAMPLE = ("norms frozen in torch alone", "a fixed divisor", "two towers", "no lengths")


@pytest.mark.parametrize("row", sampled([pytest.param(row, id=name) for name, row in ROWS.items()], *SAMPLE))
def test_what_is_told_of_two_scripts(row: Row, backends: list[Backend], tmp_path: Path):
    (tmp_path / "t.py").write_text(TORCH + row.torch)
    (tmp_path / "k.py").write_text(KERAS + row.keras)
    accepted = f'[[expect]]\ncause = "{row.accepted}"\nwhere = "*"\nreason = "known"\n' if row.accepted else ""
    (tmp_path / "pair.toml").write_text('[pair]\ntorch = "t.py"\nkeras = "k.py"\n' + accepted)
    result = compared(files.load(tmp_path / "pair.toml"), backends, tmp_path / "traces")
    told = [(cause.id, *(_without(tmp_path, each) for each in (cause.torch, cause.keras))) for cause in result.causes]
    assert (result.verdict, told) == (row.verdict, list(row.causes)), result.reason
    assert [finding.id for finding in result.findings] == list(row.findings)
    assert row.reason in result.reason


def test_labels_that_one_side_mixes_are_refused(backends: list[Backend], tmp_path: Path):
    """Which sums of PyTorch's losses of ids the rows of Keras's would stand for, nothing tells."""
    classes = _torch(loss="F.cross_entropy(net(x), y)", targets="torch.randint(3, ({samples},))")
    rows = _fit(loss="keras.losses.CategoricalCrossentropy(from_logits=True)").replace("Dense(1)", "Dense(3)")
    (tmp_path / "t.py").write_text(TORCH + classes.replace("16, 1)", "16, 3)"))
    (tmp_path / "k.py").write_text(KERAS + rows.replace("rng.normal(size=(64, 1))", "rng.dirichlet([1.0] * 3, 64)"))
    (tmp_path / "pair.toml").write_text('[pair]\ntorch = "t.py"\nkeras = "k.py"\n')
    with pytest.raises(UsageError, match="gives fit rows that are mixed of several"):
        compared(files.load(tmp_path / "pair.toml"), backends, tmp_path / "traces")


def _without(folder: Path, value: Any) -> Any:
    return value.replace(f"{folder}/", "") if isinstance(value, str) else value

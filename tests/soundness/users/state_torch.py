"""What torch's models and losses remember from call to call: buffers, attributes, globals, defaults, closures."""

import itertools

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


class Network(nn.Module):
    """Two layers; what stands between them is multiplied by a factor of the subclass."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)

    def factor(self):
        return 1.0

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(x)) * self.factor())


class Buffer(Network):
    """The steps of the training, in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def factor(self):
        if self.training:
            self.steps += 1
        return 1 / (1 + self.steps / 4)


class Attribute(Network):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def factor(self):
        if self.training:
            self.steps += 1
        return 1 / (1 + self.steps / 4)


class Listed(Network):
    def __init__(self):
        super().__init__()
        self.seen = []

    def factor(self):
        if self.training:
            self.seen.append(len(self.seen))
        return 1 / (1 + len(self.seen) / 4)


class Counted(Network):
    """In an array of NumPy's."""

    def __init__(self):
        super().__init__()
        self.steps = np.zeros(())

    def factor(self):
        if self.training:
            self.steps += 1
        return float(1 / (1 + self.steps / 4))


class OfClass(Network):
    steps = 0

    def factor(self):
        if self.training:
            type(self).steps += 1
        return 1 / (1 + self.steps / 4)


STEPS = 0


class OfModule(Network):
    def factor(self):
        global STEPS
        if self.training:
            STEPS += 1
        return 1 / (1 + STEPS / 4)


class OfDefault(Network):
    """A default argument that is made once and changed by every call."""

    def factor(self, seen: list = []):  # noqa: B006
        if self.training:
            seen.append(0)
        return 1 / (1 + len(seen) / 4)


def of_closure() -> nn.Module:
    numbers, model = itertools.count(1), Network()
    model.factor = lambda: 1 / (1 + next(numbers) / 4) if model.training else 0.5
    return model


class Always(Network):
    """Counts evaluations, too."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def factor(self):
        self.steps += 1
        return 1 / (1 + (self.steps - 1) / 4)


class Called(Network):
    """Counts evaluations in a number of Python's."""

    steps = 0

    def factor(self):
        self.steps += 1
        return 1 / (1 + (self.steps - 1) / 4)


class Evaluated(Network):
    """Counts steps of the training in Python, and shows the count in evaluations alone."""

    steps = 0

    def factor(self):
        self.steps += self.training
        return 1.0 if self.training else 1 + self.steps / 2


class Toggled(Network):
    """The two branches take turns in training."""

    def __init__(self):
        super().__init__()
        self.even = False

    def factor(self):
        if self.training:
            self.even = not self.even
        return 1.5 if self.even else 0.5


class Drawn(Network):
    """NumPy draws a factor for every step."""

    def __init__(self):
        super().__init__()
        self.generator = np.random.default_rng(0)

    def factor(self):
        return self.generator.uniform(0.5, 1.5) if self.training else 1.0


class Normed(nn.Module):
    """Shifted and scaled by what the first batch says (ActNorm)."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.register_buffer("shift", torch.zeros(16))
        self.register_buffer("scale", torch.ones(16))
        self.ready = False

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        if self.training and not self.ready:
            self.shift.copy_(hidden.detach().mean(0))
            self.scale.copy_(hidden.detach().std(0, correction=0))
            self.ready = True
        return self.head(torch.tanh((hidden - self.shift) / self.scale))


class Centre(nn.Module):
    """Centred by a running mean, which training moves. `early`: before it is used."""

    def __init__(self, early: bool = False, first: float = 0.0):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.register_buffer("centre", torch.full((16,), first))
        self.early = early

    def move(self, hidden: Tensor) -> None:
        if self.training:
            with torch.no_grad():
                self.centre.mul_(0.75).add_(0.25 * hidden.mean(0))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        if self.early:
            self.move(hidden)
        output = self.head(torch.tanh(hidden - self.centre.clone()))
        if not self.early:
            self.move(hidden)
        return output


class Remembering(nn.Module):
    """Adds the hidden values of the batch before."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.last = None

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.body(x))
        mixed = hidden if self.last is None else hidden + 0.5 * self.last
        self.last = hidden.detach()
        return self.head(mixed)


class Caching(nn.Module):
    """Takes the mean of the first batch that it sees for all others."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.mean = None

    def forward(self, x: Tensor) -> Tensor:
        if self.mean is None:
            self.mean = x.detach().mean(0)
        return self.head(torch.tanh(self.body(x - self.mean)))


class Averaging(Network):
    """The mean along a sequence. `cached`: by the length of the first."""

    def __init__(self, cached: bool = False):
        super().__init__()
        self.cached, self.length = cached, None

    def forward(self, x: Tensor) -> Tensor:
        if self.length is None or not self.cached:
            self.length = x.shape[1]
        return self.head(torch.tanh(self.body(x)).sum(1) / self.length)


class BesideDropout(Network):
    """What is dropped counts nothing, so that no mask is seen."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.25)

    def factor(self):
        return 1 + 0 * self.drop(torch.ones(1, 16))


class Largest(nn.Module):
    """Scaled by the largest value of the training so far."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.register_buffer("largest", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        if self.training:
            self.largest.copy_(torch.maximum(self.largest, hidden.detach().abs().max()))
        return self.head(hidden / self.largest.clone())


class Recurrent(nn.Module):
    """`kept`: each batch goes on where the last one ended."""

    def __init__(self, kept: bool = True):
        super().__init__()
        self.cell, self.head = nn.RNN(8, 6, bias=False, batch_first=True), nn.Linear(6, 4)
        self.kept, self.state = kept, None

    def forward(self, x: Tensor) -> Tensor:
        outputs, state = self.cell(x, self.state)
        if self.kept:
            self.state = state.detach()
        return self.head(outputs)


ANNEALED = 0


def annealed(outputs, target):
    """By a count of the module's."""
    global ANNEALED
    ANNEALED += 1
    return functional.mse_loss(outputs, target) / ANNEALED


calls = itertools.count(1)


def annealed_twice(outputs, target):
    return functional.mse_loss(outputs, target) / next(calls)


def stepped(model, optimizer, batch):
    """The loss of step n is divided by n."""
    model.count = getattr(model, "count", 0) + 1
    optimizer.zero_grad()
    (functional.mse_loss(model(batch["x"]), batch["target"]) / model.count).backward()
    optimizer.step()

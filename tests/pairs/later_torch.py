"""Models, losses and optimizers that part from their ports after the forward pass alone."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    """A labeller of words."""

    def __init__(self, padding=None):
        super().__init__()
        self.table = nn.Embedding(12, 6, padding_idx=padding)
        self.inner, self.outer, self.out = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, ids):
        return self.out(torch.tanh(self.outer(torch.tanh(self.inner(self.table(ids))))))


class Detached(Model):
    def forward(self, ids):
        hidden = torch.tanh(self.inner(self.table(ids)))
        return self.out(torch.tanh(self.outer(hidden.detach())))


class Halved(Model):
    """Half of the gradient is stopped."""

    def forward(self, ids):
        hidden = torch.tanh(self.inner(self.table(ids)))
        hidden = 0.5 * hidden + 0.5 * hidden.detach()
        return self.out(torch.tanh(self.outer(hidden)))


class Frozen(Model):
    def forward(self, ids):
        with torch.no_grad():
            hidden = torch.tanh(self.inner(self.table(ids)))
        return self.out(torch.tanh(self.outer(hidden)))


class Rounded(Model):
    """Rounding in the forward pass alone."""

    def forward(self, ids):
        hidden = torch.tanh(self.inner(self.table(ids)))
        hidden = hidden + (torch.round(8 * hidden) / 8 - hidden).detach()
        return self.out(torch.tanh(self.outer(hidden)))


class Averaged(Model):
    """Keeps an average of what it has seen."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, ids):
        x = self.table(ids)
        if self.training:
            with torch.no_grad():
                self.seen.mul_(0.9).add_(0.1 * x.mean((0, 1)))
        return self.out(torch.tanh(self.outer(torch.tanh(self.inner(x)))))


def loss(outputs, target):
    return functional.cross_entropy(outputs.flatten(0, 1), target.flatten())


def smooth_loss(outputs, target):
    return functional.cross_entropy(outputs.flatten(0, 1), target.flatten(), label_smoothing=0.15)


def spread_loss(outputs, target):
    return functional.cross_entropy(outputs.flatten(0, 1), target.flatten(), label_smoothing=0.02)


def lesser_loss(outputs, target):
    return torch.minimum(outputs, -2 * outputs).mean()


class Wide(Model):
    """Seven classes."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 7)


criterion = nn.CrossEntropyLoss(label_smoothing=0.07)


def object_loss(outputs, target):
    return criterion(outputs.flatten(0, 1), target.flatten())


def ignoring_loss(outputs, target):
    return functional.cross_entropy(outputs.flatten(0, 1), target.flatten(), ignore_index=1)


def weighted_loss(outputs, target):
    return loss(outputs, target) + 0.02 * outputs.square().mean()


def counted_loss(outputs, target):
    """A mean with weights, which do not add up to one on Keras's side."""
    losses, weights = (
        functional.cross_entropy(outputs.flatten(0, 1), target.flatten(), reduction="none"),
        1 + target.flatten(),
    )
    return (losses * weights).sum() / weights.sum()


def ratio_loss(outputs, target):
    hits = functional.one_hot(target, 3) * outputs.softmax(-1)
    return (1 - hits.sum((1, 2)) / (1 + outputs.square().sum((1, 2)))).mean()


def huber_loss(outputs, target):
    return outputs.square().mean() + functional.smooth_l1_loss(outputs[..., 0], outputs[..., 1], beta=0.25)


def shifted_loss(outputs, target):
    """Each position predicts the next target."""
    return functional.cross_entropy(outputs[:, :-1].flatten(0, 1), target[:, 1:].flatten())


def focal_loss(outputs, target, gamma=2.0):
    logs = functional.log_softmax(outputs, -1).gather(-1, target[..., None])[..., 0]
    return (-((1 - logs.exp()) ** gamma) * logs).mean()


class Own(torch.optim.Optimizer):
    """Adam as a tutorial writes it."""

    def __init__(self, parameters, lr=0.01, decay=0.0):
        super().__init__(parameters, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)

    def _move(self, parameter, group):
        state = self.state[parameter]
        mean = state.get("mean", torch.zeros_like(parameter))
        square = state.get("square", torch.zeros_like(parameter))
        step = state.get("count", 0) + 1
        mean = 0.9 * mean + 0.1 * parameter.grad
        square = 0.99 * square + 0.01 * parameter.grad**2
        state["mean"], state["square"], state["count"] = mean, square, step
        rate = group["lr"]
        update = (mean / (1 - 0.9**step)) / (torch.sqrt(square / (1 - 0.99**step)) + 1e-8)
        parameter.sub_(rate * update + rate * group["decay"] * parameter)


class Rooted(torch.optim.Optimizer):
    """Adagrad."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    total = self.state[parameter].get("sum", 0.0) + parameter.grad.square()
                    self.state[parameter]["sum"] = total
                    parameter.sub_(group["lr"] * parameter.grad / (total + 1e-3).sqrt())


def rooted(parameters):
    return Rooted(parameters)


def own(parameters):
    return Own(parameters)


def decayed(parameters):
    return Own(parameters, decay=0.1)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01)


def cut_sgd(parameters):
    optimizer = sgd(list(parameters))

    def clip(*_):
        for group in optimizer.param_groups:
            torch.nn.utils.clip_grad_value_(group["params"], 0.002)

    optimizer.register_step_pre_hook(clip)
    return optimizer


def clipped_sgd(parameters):
    """Clipped without the epsilon of clip_grad_norm_, by a hook of the optimizer."""
    optimizer = sgd(list(parameters))

    def clip(*_):
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"]]
        norm = torch.stack([each.norm() for each in gradients]).norm()
        for each in gradients:
            each.mul_(min(0.05 / norm, 1.0))

    optimizer.register_step_pre_hook(clip)
    return optimizer


def momentum(parameters, nesterov=False):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, nesterov=nesterov)


def nesterov(parameters):
    return momentum(parameters, nesterov=True)


def falling_momentum(parameters):
    """With a scheduler that every update steps."""
    optimizer = momentum(parameters)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.register_step_post_hook(lambda *_: scheduler.step())
    return optimizer


def later_falling(parameters):
    optimizer = momentum(parameters)
    torch.optim.lr_scheduler.StepLR(optimizer, 1000)
    return optimizer


def without_first(parameters):
    return torch.optim.SGD(list(parameters)[1:], lr=0.01)


def decayed_matrices(parameters):
    parameters = list(parameters)
    groups = [{"params": [each for each in parameters if (each.ndim > 1) == decayed]} for decayed in (True, False)]
    return torch.optim.SGD([groups[0] | {"weight_decay": 0.1}, groups[1]], lr=0.01)


class Nudge(nn.Module):
    """Adds what float32 hardly sees, and a gradient sees well."""

    def __init__(self):
        super().__init__()
        self.shift, self.rate = nn.Parameter(torch.rand(8)), 1e-4

    def forward(self, x):
        return x + self.rate * self.shift


class Nudged(Model):
    def __init__(self):
        super().__init__()
        self.nudge = Nudge()

    def forward(self, ids):
        return self.out(torch.tanh(self.outer(self.nudge(torch.tanh(self.inner(self.table(ids)))))))


class Padded(Model):
    """Hides a word that the first batch does not have."""

    def forward(self, ids):
        x = self.table(ids).masked_fill((ids == 3)[..., None], 0.0)
        return self.out(torch.tanh(self.outer(torch.tanh(self.inner(x)))))


def step(model, optimizer, batch):
    return stepped(model, optimizer, batch, lambda weights: None)


def together_step(model, optimizer, batch):
    return stepped(model, optimizer, batch, lambda weights: nn.utils.clip_grad_norm_(weights, 0.05))


def part_step(model, optimizer, batch):
    return stepped(model, optimizer, batch, lambda weights: nn.utils.clip_grad_norm_(weights[-2:], 0.05))


def cut_step(model, optimizer, batch):
    return stepped(model, optimizer, batch, lambda weights: nn.utils.clip_grad_value_(weights, 0.002))


def penalised_step(model, optimizer, batch):
    penalty = 0.001 * model.outer.weight.square().sum()
    return stepped(model, optimizer, batch, lambda weights: nn.utils.clip_grad_value_(weights, 0.002), penalty)


def bootstrapped_step(model, optimizer, batch):
    """Predict half of what the model returns for the other samples."""
    returned = model(batch["ids"])
    with torch.no_grad():
        target = 0.5 * model(batch["ids"].flip(0))
    value = ((returned - target) ** 2).mean()
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    return value


def stepped(model, optimizer, batch, clip, penalty=0.0):
    optimizer.zero_grad()
    value = loss(model(batch["ids"]), batch["target"]) + penalty
    value.backward()
    clip(list(model.parameters()))
    optimizer.step()
    return value


def of_torch(name, **arguments):
    return lambda parameters: getattr(torch.optim, name)(parameters, lr=0.01, eps=1e-3, **arguments)


repeated_adam, repeated_nadam, repeated_adamax = map(of_torch, ("Adam", "NAdam", "Adamax"))
repeated_adagrad, repeated_adadelta = map(of_torch, ("Adagrad", "Adadelta"))
repeated_rmsprop = of_torch("RMSprop", alpha=0.9)


def warmed_up(parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.125)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 2, (2 / (step + 1)) ** 0.5)
    )


class Judged(Model):
    """Has a part that the step alone calls."""

    def __init__(self):
        super().__init__()
        self.judge = nn.LeakyReLU(0.25)


def judged_step(model, optimizer, batch):
    optimizer.zero_grad()
    value = model.judge(model.outer(torch.tanh(model.inner(model.table(batch["ids"]))))).square().mean()
    value.backward()
    optimizer.step()
    return value


def _divergence(first, second):
    return (first.softmax(-1) * (first.log_softmax(-1) - second.log_softmax(-1))).sum(-1).mean()


def divergence_loss(outputs, target):
    return _divergence(2 * functional.one_hot(target, 3).to(outputs.dtype), outputs)


def overlap_loss(outputs, target):
    hits, sizes = (functional.one_hot(target, 3) * outputs.sigmoid()).sum(), outputs.sigmoid().sum() + target.numel()
    return 1 - (2 * hits + 1) / (sizes + 1)


def square_loss(outputs, target):
    return functional.mse_loss(outputs, functional.one_hot(target, 3).to(outputs.dtype))

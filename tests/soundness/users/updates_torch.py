"""What is updated and how, in torch: frozen parts, averages, constraints, accumulation, schedules."""

import math
from functools import partial

import torch
from nets_torch import Mlp, mlp
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

__all__ = ["mlp"]

BETAS = (0.875, 0.96875)


class Stopped(Mlp):
    """No gradient reaches the body, which counts as trained."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(x)).detach())


class Reentrant(Mlp):
    """A reentrant checkpoint trains nothing where its inputs need no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(lambda x: torch.tanh(self.body(x)), x, use_reentrant=True))


def body_frozen() -> nn.Module:
    model = Mlp()
    model.body.requires_grad_(False)
    return model


def kernel_frozen() -> nn.Module:
    model = Mlp()
    model.body.weight.requires_grad_(False)
    return model


def hooked() -> nn.Module:
    """A hook halves what the body is trained by."""
    model = Mlp()
    for parameter in model.body.parameters():
        parameter.register_hook(lambda gradient: gradient / 2)
    return model


class Normed(nn.Module):
    def __init__(self, frozen: bool = False):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16, eps=1e-3)
        self.head = nn.Linear(16, 4)
        self.norm.requires_grad_(False)
        self.frozen = frozen

    def train(self, mode: bool = True) -> nn.Module:
        super().train(mode)
        if self.frozen:
            self.norm.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.norm(self.body(x))))


def norm_frozen() -> nn.Module:
    """As fine-tuning freezes a norm: its statistics as well."""
    return Normed(frozen=True)


def norm_untrained() -> nn.Module:
    """Its scale and shift are frozen, and its statistics are the batch's."""
    return Normed()


def _gradients(model: nn.Module, optimizer, batch) -> list[nn.Parameter]:
    optimizer.zero_grad()
    functional.mse_loss(model(batch["x"]), batch["target"]).backward()
    return list(model.parameters())


def norms_clipped(model, optimizer, batch):
    """Every gradient by its own norm."""
    for parameter in _gradients(model, optimizer, batch):
        parameter.grad *= 0.125 / max(float(parameter.grad.norm()), 0.125)
    optimizer.step()


def norm_clipped(model, optimizer, batch):
    parameters = _gradients(model, optimizer, batch)
    norm = math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in parameters))
    for parameter in parameters:
        parameter.grad *= 0.125 / max(norm, 0.125)
    optimizer.step()


def rows_limited(model, optimizer, batch):
    """The weights of a unit of the body have at most length 0.5, after every update."""
    _gradients(model, optimizer, batch)
    optimizer.step()
    with torch.no_grad():
        norms = model.body.weight.norm(dim=1, keepdim=True)
        model.body.weight *= norms.clamp(max=0.5) / (norms + 1e-7)


def columns_limited(model, optimizer, batch):
    """The weights of an input, not those of a unit."""
    _gradients(model, optimizer, batch)
    optimizer.step()
    with torch.no_grad():
        norms = model.body.weight.norm(dim=0, keepdim=True)
        model.body.weight *= norms.clamp(max=0.5) / (norms + 1e-7)


def positive(model, optimizer, batch):
    _gradients(model, optimizer, batch)
    optimizer.step()
    with torch.no_grad():
        model.head.weight.clamp_(min=0.0)


def absolute(model, optimizer, batch):
    _gradients(model, optimizer, batch)
    optimizer.step()
    with torch.no_grad():
        model.head.weight.abs_()


def accumulated(model, optimizer, batch, share=0.5):
    """An update after every second batch."""
    model.seen = getattr(model, "seen", 0) + 1
    (share * functional.mse_loss(model(batch["x"]), batch["target"])).backward()
    if model.seen % 2 == 0:
        optimizer.step()
        optimizer.zero_grad()


def accumulated_summed(model, optimizer, batch):
    accumulated(model, optimizer, batch, share=1.0)


def accumulated_divided(model, optimizer, batch):
    """Divides the sum of the gradients before the update."""
    model.seen = getattr(model, "seen", 0) + 1
    functional.mse_loss(model(batch["x"]), batch["target"]).backward()
    if model.seen % 2 == 0:
        for parameter in model.parameters():
            parameter.grad /= 2
        optimizer.step()
        optimizer.zero_grad()


def averaged(model, optimizer, batch):
    """The weights are replaced by their average after every update; the first average is the first weights."""
    parameters = _gradients(model, optimizer, batch)
    optimizer.step()
    with torch.no_grad():
        if not hasattr(model, "averages"):
            model.averages = [parameter.clone() for parameter in parameters]
        for average, parameter in zip(model.averages, parameters, strict=True):
            average.mul_(0.75).add_(0.25 * parameter)
            parameter.copy_(average)


def scheduled(model, optimizer, batch):
    """The rate is halved after every step."""
    _gradients(model, optimizer, batch)
    optimizer.step()
    for group in optimizer.param_groups:
        group["lr"] *= 0.5


def scheduled_early(model, optimizer, batch):
    """The rate is halved before every step."""
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
    _gradients(model, optimizer, batch)
    optimizer.step()


def warmed_up(model, optimizer, batch):
    """From a quarter of the rate, over four steps."""
    if not hasattr(model, "schedule"):
        model.schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    _gradients(model, optimizer, batch)
    optimizer.step()
    model.schedule.step()


sgd = partial(torch.optim.SGD, lr=0.25)


class Fading(torch.optim.SGD):
    """Half of the gradients is left for the next step."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad *= 0.5


class Early(torch.optim.SGD):
    """The rate of a step is set when it begins, as in the Annotated Transformer's NoamOpt."""

    steps = 0

    def step(self, closure=None):
        self.param_groups[0]["lr"] = 0.25 / 2**self.steps
        self.steps += 1
        return super().step(closure)


early = partial(Early, lr=0.25)
fading = partial(Fading, lr=0.25)


def adam(parameters):
    """So small an epsilon that it does not matter where it stands."""
    return torch.optim.Adam(parameters, lr=0.0625, betas=BETAS, eps=1e-30)


adam_usual = partial(torch.optim.Adam, lr=0.0625, betas=BETAS, eps=1e-3)
decayed = partial(torch.optim.SGD, lr=0.25, weight_decay=0.125)
decayed_momentum = partial(torch.optim.SGD, lr=0.125, weight_decay=0.125, momentum=0.5)
decoupled = partial(torch.optim.AdamW, lr=0.0625, betas=BETAS, weight_decay=0.25, eps=1e-30)


def decoupled_kernels(parameters):
    parameters = list(parameters)
    groups = [
        {"params": [one for one in parameters if one.ndim > 1], "weight_decay": 0.25},
        {"params": [one for one in parameters if one.ndim == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0625, betas=BETAS, eps=1e-30)


nesterov = partial(torch.optim.SGD, lr=0.125, momentum=0.5, nesterov=True)
rms = partial(torch.optim.RMSprop, lr=0.0625, alpha=0.75, eps=1e-30)
rms_default = partial(torch.optim.RMSprop, lr=0.0625, eps=1e-30)
adagrad = partial(torch.optim.Adagrad, lr=0.125, initial_accumulator_value=0.125, eps=1e-30)
adagrad_default = partial(torch.optim.Adagrad, lr=0.125, eps=1e-30)

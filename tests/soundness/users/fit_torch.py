"""Steps of one's own in torch: what overridden train_steps are to do."""

import torch
from nets_torch import Mlp, mlp
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["mlp"]


def mse(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return functional.mse_loss(model(batch["x"]), batch["target"])


def plain(model, optimizer, batch):
    optimizer.zero_grad()
    mse(model, batch).backward()
    optimizer.step()


def zero_at_the_end(model, optimizer, batch):
    mse(model, batch).backward()
    optimizer.step()
    optimizer.zero_grad()


def never_zeroed(model, optimizer, batch):
    mse(model, batch).backward()
    optimizer.step()


def head_alone(model, optimizer, batch):
    optimizer.zero_grad()
    mse(model, batch).backward()
    for parameter in model.body.parameters():
        parameter.grad = None
    optimizer.step()


def clipped(model, optimizer, batch):
    """As TensorFlow clips by the global norm; clip_grad_norm_ adds 1e-6 to the norm."""
    optimizer.zero_grad()
    mse(model, batch).backward()
    norm = torch.sqrt(sum(parameter.grad.square().sum() for parameter in model.parameters()))
    for parameter in model.parameters():
        parameter.grad *= 0.25 / torch.clamp(norm, min=0.25)
    optimizer.step()


def clipped_values(model, optimizer, batch):
    optimizer.zero_grad()
    mse(model, batch).backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.0625)
    optimizer.step()


def twice(model, optimizer, batch):
    for _ in range(2):
        plain(model, optimizer, batch)


def smoothed(outputs, target):
    return functional.cross_entropy(outputs, target, label_smoothing=0.1)


def weights_penalized(model, optimizer, batch):
    optimizer.zero_grad()
    squares = sum(parameter.square().sum() for parameter in model.parameters())
    (mse(model, batch) + 0.0625 * squares).backward()
    optimizer.step()


def two_rates(model, optimizer, batch):
    optimizer.zero_grad()
    mse(model, batch).backward()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter -= (0.5 if name.startswith("head") else 0.125) * parameter.grad


class Teacher(nn.Module):
    """A mean teacher: what is used is the average of the student."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = Mlp(), Mlp()
        self.teacher.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.student(x) if self.training else self.teacher(x)


def taught(model, optimizer, batch):
    x = batch["x"]
    loss = functional.mse_loss(model.student(x), batch["target"])
    loss = loss + 0.5 * functional.mse_loss(model.student(x), model.teacher(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for average, parameter in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
            average.mul_(0.75).add_(0.25 * parameter)


def sharpness_aware(model, optimizer, batch):
    optimizer.zero_grad()
    mse(model, batch).backward()
    with torch.no_grad():
        norm = torch.sqrt(sum(parameter.grad.square().sum() for parameter in model.parameters()))
        moves = [parameter.grad * (0.25 / norm) for parameter in model.parameters()]
        for parameter, move in zip(model.parameters(), moves, strict=True):
            parameter += move
    optimizer.zero_grad()
    mse(model, batch).backward()
    with torch.no_grad():
        for parameter, move in zip(model.parameters(), moves, strict=True):
            parameter -= move
    optimizer.step()


def penalized(model, optimizer, batch, create_graph=True):
    """The gradient for the input is to have length one, as in WGAN-GP."""
    x = batch["x"].clone().requires_grad_()
    outputs = model(x)
    (gradient,) = torch.autograd.grad(outputs.sum(), x, retain_graph=True, create_graph=create_graph)
    loss = functional.mse_loss(outputs, batch["target"]) + (gradient.norm(dim=1) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def penalized_in_vain(model, optimizer, batch):
    penalized(model, optimizer, batch, create_graph=False)


def adversarial(model, optimizer, batch):
    x = batch["x"].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(functional.mse_loss(model(x), batch["target"]), x)
    plain(model, optimizer, {**batch, "x": (x + 0.125 * gradient.sign()).detach()})


def flipped(model, optimizer, batch):
    """Both the batch and its mirror image."""
    x = torch.cat([batch["x"], batch["x"].flip(1)])
    plain(model, optimizer, {"x": x, "target": torch.cat([batch["target"]] * 2)})


def entropy(outputs, target):
    chances = functional.softmax(outputs, -1)
    return functional.cross_entropy(outputs, target) + 0.5 * (chances * torch.log(chances)).sum(-1).mean()


def bootstrapped(model, optimizer, batch):
    """Part of the target is what the model itself says of the next sample, as in TD learning."""
    outputs = model(batch["x"])
    target = batch["target"] + 0.5 * outputs.roll(-1, 0).detach()
    optimizer.zero_grad()
    functional.mse_loss(outputs, target).backward()
    optimizer.step()


class Normed(nn.Module):
    """Centred by the batch in training, and by a constant outside of it."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        return self.head(torch.tanh(hidden - hidden.mean(0) if self.training else hidden - 0.125))


def normed_in_inference(model, optimizer, batch):
    model.eval()
    plain(model, optimizer, batch)


def alternated(model, optimizer, batch):
    """The body is trained in every second step."""
    plain(model, optimizer, batch)
    for parameter in model.body.parameters():
        parameter.requires_grad_(not parameter.requires_grad)


def relaxed(model, optimizer, batch):
    """The penalty is halved after every step."""
    model.penalty = getattr(model, "penalty", 0.25) / 2
    optimizer.zero_grad()
    (mse(model, batch) + model.penalty * model.head.weight.square().sum()).backward()
    optimizer.step()


def weights_clipped(model, optimizer, batch):
    plain(model, optimizer, batch)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(-0.125, 0.125)


def doubled(model, optimizer, batch):
    plain(model, optimizer, batch | {"x": 2 * batch["x"]})


class Doubled(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (2 if self.training else 1)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.25)

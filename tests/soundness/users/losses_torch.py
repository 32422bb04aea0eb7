"""What is minimized, in torch: penalties, weights of samples and classes, what is left out."""

import torch
from nets_torch import Mlp, Tagger, mlp, tagger
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["mlp", "tagger"]


class Active(Mlp):
    """Keeps its hidden values for a penalty on them."""

    def forward(self, x: Tensor) -> Tensor:
        self.hidden = torch.tanh(self.body(x))
        return self.head(self.hidden)


def body_frozen() -> nn.Module:
    model = Mlp()
    model.body.requires_grad_(False)
    return model


def _minimize(loss: Tensor, optimizer) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def activity(model, optimizer, batch, factor=0.25):
    error = functional.mse_loss(model(batch["x"]), batch["target"])
    _minimize(error + factor * model.hidden.square().mean(), optimizer)


def activity_twice(model, optimizer, batch):
    activity(model, optimizer, batch, factor=0.5)


def activity_summed(model, optimizer, batch):
    error = functional.mse_loss(model(batch["x"]), batch["target"])
    _minimize(error + 0.015625 * model.hidden.square().sum(), optimizer)


def activity_of_samples(model, optimizer, batch):
    error = functional.mse_loss(model(batch["x"]), batch["target"])
    _minimize(error + 0.015625 * model.hidden.square().sum(1).mean(), optimizer)


def squares(model, optimizer, batch, factor=0.0625):
    error = functional.mse_loss(model(batch["x"]), batch["target"])
    _minimize(error + factor * model.body.weight.square().sum(), optimizer)


def squares_halved(model, optimizer, batch):
    squares(model, optimizer, batch, factor=0.03125)


def absolutes(model, optimizer, batch):
    error = functional.mse_loss(model(batch["x"]), batch["target"])
    _minimize(error + 0.0625 * model.body.weight.abs().sum(), optimizer)


class Siamese(nn.Module):
    """One encoder for both halves of the input, with a penalty on what it returns each time."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        left, right = (torch.tanh(self.encoder(part)) for part in x.chunk(2, 1))
        self.penalties = left.square().mean(), right.square().mean()
        return self.head(left * right)


def both_penalties(model, optimizer, batch):
    error = functional.mse_loss(model(batch["x"]), batch["target"])
    _minimize(error + sum(model.penalties), optimizer)


def last_penalty(model, optimizer, batch):
    error = functional.mse_loss(model(batch["x"]), batch["target"])
    _minimize(error + model.penalties[-1], optimizer)


class MaskedTagger(Tagger):
    """Returns scores; what is padding is kept for the loss."""

    def forward(self, ids: Tensor) -> Tensor:
        self.valid = ids != 0
        return super().forward(ids)


def masked(model, optimizer, batch):
    """The mean over the words that are none of padding."""
    errors = (model(batch["ids"]) - batch["target"]).square().mean(-1)
    _minimize(errors[model.valid].mean(), optimizer)


def masked_over_all(model, optimizer, batch):
    """Padding counts as a word without error."""
    errors = (model(batch["ids"]) - batch["target"]).square().mean(-1)
    _minimize((errors * model.valid).mean(), optimizer)


def words(outputs, target):
    return functional.cross_entropy(outputs.transpose(1, 2), target)


def words_ignoring(outputs, target):
    return functional.cross_entropy(outputs.transpose(1, 2), target, ignore_index=0)


def weighted(outputs, target, sample_weight):
    return ((outputs - target).square().mean(-1) * sample_weight).mean()


def weighted_mean(outputs, target, sample_weight):
    return ((outputs - target).square().mean(-1) * sample_weight).sum() / sample_weight.sum()


def unweighted(outputs, target, sample_weight):
    return functional.mse_loss(outputs, target)


def weighted_step(model, optimizer, batch):
    """A step of one's own is given the weights as well."""
    errors = (model(batch["x"]) - batch["target"]).square().mean(-1)
    _minimize((errors * batch["sample_weight"]).mean(), optimizer)


WEIGHTS = [1.0, 2.0, 0.5, 4.0]


def class_weighted(outputs, target):
    """The mean over the batch, not over its weights as in cross_entropy(weight=...)."""
    return (functional.cross_entropy(outputs, target, reduction="none") * outputs.new_tensor(WEIGHTS)[target]).mean()


def mean(outputs, target):
    return functional.mse_loss(outputs, target)


def total(outputs, target):
    return functional.mse_loss(outputs, target, reduction="sum")


def of_samples(outputs, target):
    """A sum over a sample's outputs, the mean over samples."""
    return (outputs - target).square().sum(1).mean()


def smooth(outputs, target):
    return functional.smooth_l1_loss(outputs, target)


def smooth_wide(outputs, target):
    return functional.smooth_l1_loss(outputs, target, beta=2.0)


def huber_wide(outputs, target):
    return functional.huber_loss(outputs, target, delta=2.0)


def logits(outputs, target):
    return functional.cross_entropy(outputs, target)


def smoothed(outputs, target):
    return functional.cross_entropy(outputs, target, label_smoothing=0.25)


def binary(outputs, target):
    return functional.binary_cross_entropy_with_logits(outputs, torch.sigmoid(target))


def divergence(outputs, target):
    """Of what the outputs say from the target's chances."""
    chances = torch.softmax(target, -1)
    return functional.kl_div(functional.log_softmax(outputs, -1), chances, reduction="batchmean")


def single() -> nn.Module:
    return Mlp(outputs=1)


def broadcast(outputs, target):
    """What torch makes of [batch, 1] and [batch]: all pairs."""
    return (outputs - target).square().mean()


def squeezed(outputs, target):
    return functional.mse_loss(outputs.squeeze(1), target)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.mean, self.spread = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = torch.tanh(self.body(x))
        return {"mean": self.mean(hidden), "spread": self.spread(hidden)}


def likelihood(outputs, target):
    """Gaussian: the second head is the logarithm of the variance."""
    mean, spread = outputs["mean"], outputs["spread"]
    return (0.5 * (spread + (target - mean).square() * torch.exp(-spread))).mean()


def two_errors(outputs, target):
    return sum(functional.mse_loss(outputs[name], target) for name in ("mean", "spread"))


def weighed_errors(outputs, target):
    return functional.mse_loss(outputs["mean"], target) + 0.25 * functional.mse_loss(outputs["spread"], target)

"""What a plain call does in torch: gradients within forward, fast paths, modes that change more than dropouts."""

import torch
from nets_torch import Mlp, mlp
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

__all__ = ["mlp"]


class Centred(Mlp):
    """Centred by the batch in training."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        return self.head(torch.tanh(hidden - hidden.mean(0) if self.training else hidden))


class AlwaysCentred(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        return self.head(torch.tanh(hidden - hidden.mean(0)))


class Optional(Mlp):
    """With an option that callers leave out."""

    def forward(self, x: Tensor, residual: bool = True, scale: float = 0.5) -> Tensor:
        hidden = torch.tanh(self.body(x))
        return self.head(hidden * scale + (torch.cat([x, x], 1) if residual else 0))


class Energy(nn.Module):
    """Energies, and forces as their gradient. `within`: switches gradients on itself."""

    def __init__(self, within: bool = False):
        super().__init__()
        self.body, self.head = nn.Linear(6, 16), nn.Linear(16, 1)
        self.within = within

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.set_grad_enabled(self.within or torch.is_grad_enabled()):
            x = x if x.requires_grad else x.detach().requires_grad_()
            energy = self.head(functional.softplus(self.body(x)))
            (gradient,) = torch.autograd.grad(energy.sum(), x, create_graph=self.training or not self.within)
        return energy, -gradient


def energy() -> nn.Module:
    return Energy()


def energy_within() -> nn.Module:
    return Energy(within=True)


class ForcesAlone(Energy):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[1]


def energy_and_forces(outputs, target):
    return functional.mse_loss(outputs[0], target) + functional.mse_loss(outputs[1], torch.ones_like(outputs[1]))


class Heat(nn.Module):
    """The residual of an equation, by second derivatives: u_t - u_xx."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(2, 12), nn.Linear(12, 1)

    def forward(self, points: Tensor) -> Tensor:
        with torch.enable_grad():
            x, t = (points[:, place, None] for place in range(2))
            if not points.requires_grad:
                x.requires_grad_(), t.requires_grad_()
            u = self.head(torch.tanh(self.body(torch.cat([x, t], 1))))
            first, by_time = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        return by_time - 0.5 * second


class Encoded(nn.Module):
    """torch's encoder, with padding behind each sequence's length."""

    def __init__(self, pooled: bool = False, norm_first: bool = False, nested: bool = True):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=nested)
        self.pooled = pooled

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        padding = torch.arange(x.shape[1]) >= lengths.clamp(min=1)[:, None]
        encoded = self.encoder(x, src_key_padding_mask=padding)
        if not self.pooled:
            return encoded
        valid = (~padding).to(x.dtype)[:, :, None]
        return (encoded * valid).sum(1) / valid.sum(1)


def encoded(pooled: bool = False, norm_first: bool = False, nested: bool = True) -> nn.Module:
    return Encoded(pooled, norm_first, nested)


class Frugal(Mlp):
    """Coarser where no gradients are needed."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.body(x))
        return self.head(hidden if torch.is_grad_enabled() else torch.round(hidden * 8) / 8)


class Checkpointed(Mlp):
    """Computes the body again where gradients are needed."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return self.head(torch.tanh(checkpoint(self.body, x, use_reentrant=False)))
        return self.head(torch.tanh(torch.addmm(self.body.bias, x, self.body.weight.T)))


class Merging(nn.Module):
    """A low-rank change of a matrix, which eval() adds to the matrix and train() takes out again."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 6)
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 6, bias=False)
        self.merged = False

    def train(self, mode: bool = True) -> nn.Module:
        super().train(mode)
        if self.merged == mode:
            with torch.no_grad():
                self.base.weight += (-2.0 if mode else 2.0) * self.up.weight @ self.down.weight
            self.merged = not mode
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) if self.merged else self.base(x) + 2.0 * self.up(self.down(x))


def hooked() -> nn.Module:
    """A hook halves what goes into the head."""
    model = Mlp()
    model.head.register_forward_pre_hook(lambda module, args: (args[0] / 2,))
    return model


class InPlace(Mlp):
    """Changes its own argument."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x -= x.mean(1, keepdim=True)
        return super().forward(x)


class Wrapped(Mlp):
    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x / 4)


def doubled() -> nn.Module:
    """A hook doubles what the model is given by position, as a user gives it."""
    model = Mlp()
    model.register_forward_pre_hook(lambda module, args: tuple(2 * each for each in args))
    return model

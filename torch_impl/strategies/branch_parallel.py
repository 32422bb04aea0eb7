"""Branch parallelism: modules that do not need each other's results run on different devices at the same time.

A residual block's shortcut runs beside its main path; an attention layer's query, key and value projections run beside
each other. Everything else is on the first device.
"""

import torch
from torch import nn
from torch.nn import functional

from torch_impl.strategies.single import MakeModel, MakeOptimizer, Placed, evaluate, train

__all__ = ["BranchedAttention", "evaluate", "place", "train"]


class BranchedAttention(nn.Module):
    """A replacement of nn.MultiheadAttention whose query, key and value projections are on three devices."""

    batch_first = False

    def __init__(self, attention: nn.MultiheadAttention, devices: list[torch.device]):
        super().__init__()
        self.heads, self.dropout = attention.num_heads, attention.dropout
        self.devices = [devices[i % len(devices)] for i in range(3)]
        weights, biases = attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3)
        layers = [_linear(*arguments) for arguments in zip(weights, biases, self.devices, strict=True)]
        self.query, self.key, self.value = layers
        self.out_proj = attention.out_proj.to(devices[0])

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None, **_
    ) -> tuple[torch.Tensor, None]:
        """Return the output (T, N, d) and, in place of the attention weights, None.

        Inputs: query (T, N, d), key and value (S, N, d). The caller is nn.Transformer, whose further arguments are
        ignored.
        """
        home = query.device
        # All three copies are started before the first result is fetched, so that the projections run side by side.
        moved = [tensor.to(device) for tensor, device in zip((query, key, value), self.devices, strict=True)]
        projected = [layer(tensor) for layer, tensor in zip((self.query, self.key, self.value), moved, strict=True)]
        q, k, v = (self._split(tensor.to(home)) for tensor in projected)
        dropout = self.dropout if self.training else 0.0
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask, dropout)  # (N, heads, T, d / heads)
        return self.out_proj(attended.permute(2, 0, 1, 3).reshape(query.shape)), None

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        """Reshape (T, N, d) to (N, heads, T, d / heads)."""
        return x.unflatten(-1, (self.heads, -1)).permute(1, 2, 0, 3)


def place(make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[torch.device]) -> Placed:
    """Put attention projections and residual shortcuts on further devices; everything else is on device 0."""
    model = make_model().to(devices[0])
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.MultiheadAttention):
                setattr(module, name, BranchedAttention(child, devices))
            if name == "shortcut":
                branch(child, devices[1 % len(devices)])
    return model, make_optimizer(model.parameters())


def branch(module: nn.Module, device: torch.device) -> None:
    """Move a module to `device`, and its inputs whenever it is called; the caller moves the output back."""
    module.to(device)
    module.register_forward_pre_hook(lambda _, inputs: tuple(tensor.to(device) for tensor in inputs))


def _linear(weight: torch.Tensor, bias: torch.Tensor, device: torch.device) -> nn.Linear:
    """Return a Linear layer with these weights, on `device`."""
    layer = nn.Linear(*reversed(weight.shape))
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer.to(device)

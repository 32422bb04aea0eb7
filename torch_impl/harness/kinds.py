"""What kind of module each is, by the names that both sides have in common."""

from typing import Any

import torch
from torch import nn

from torch_impl.strategies.branch_parallel import BranchedAttention

# The first kind that fits counts.
KINDS: dict[type, str] = {
    nn.Linear: "linear",
    nn.Conv2d: "conv2d",
    nn.ConvTranspose2d: "conv_transpose2d",
    nn.BatchNorm2d: "batch_norm",
    nn.LayerNorm: "layer_norm",
    nn.GroupNorm: "group_norm",
    nn.Embedding: "embedding",
    nn.MultiheadAttention: "attention",
    BranchedAttention: "attention",
    nn.ReLU: "relu",
    nn.GELU: "gelu",
    nn.Softmax: "softmax",
    nn.MaxPool2d: "max_pool2d",
    nn.Flatten: "flatten",
    nn.Dropout: "dropout",
}


def kind(module: nn.Module) -> str:
    """A kind of the table, or the name of the module's class."""
    return next((name for known, name in KINDS.items() if isinstance(module, known)), type(module).__name__)


def arguments(module: nn.Module, given: tuple[Any, ...], leaf: bool) -> list[torch.Tensor]:
    """The tensors among the positional arguments of a call; of an attention query, key and value.

    Of a module with modules of its own the first one: the frameworks' customs differ in the others.
    """
    tensors = [argument for argument in given if isinstance(argument, torch.Tensor)]
    if kind(module) == "attention":
        return tensors[:3]
    return tensors if leaf else tensors[:1]

"""The running variance of batch norms, as Keras updates it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from parity.core.patches import Original, around


@contextmanager
def held(model: nn.Module, is_held: Callable[[str], bool]) -> Iterator[set[str]]:
    """Give modules, by their paths, Keras's biased running variance; yield those to which it was given.

    `torch.batch_norm` stores (1 - momentum) * old + momentum * unbiased, and unbiased = biased * n / (n - 1).
    """
    buffers = ((path.rpartition("."), buffer) for path, buffer in model.named_buffers())
    modules = {id(buffer): module for (module, _, name), buffer in buffers if name == "running_var" and is_held(module)}
    reached: set[str] = set()

    def on_batch_norm(
        batch_norm: Original, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool,
        momentum: float, *further: Any,
    ) -> Any:  # fmt: skip
        module = modules.get(id(variance)) if training else None
        kept = (1 - momentum) * variance.data if module is not None else 0.0
        result = batch_norm(x, weight, bias, mean, variance, training, momentum, *further)
        if module is not None:
            reached.add(module)
            variance.data -= (variance.data - kept) * x.shape[1] / x.numel()
        return result

    with around(torch, "batch_norm", on_batch_norm):
        yield reached

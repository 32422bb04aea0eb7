"""What a user's model and the files of its program keep in Python beside its weights: seen, and given back."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from parity.core.python_state import Framework, PythonState
from parity.doctor import program
from torch_impl.record import tree
from torch_impl.record.weights import array


def python_state(model: nn.Module, further: Mapping[str, Any] = {}) -> PythonState:
    """Return what the model's modules, further objects, and the files of the program keep now, beside weights."""
    objects = {path: each for path, each in further.items() if hasattr(each, "__dict__")}
    return PythonState(FRAMEWORK, tree.named(model) | objects, program.modules())


def _keep(value: torch.Tensor) -> Callable[[], object]:
    before = value.detach().clone()
    return lambda: value.data.copy_(before) if value.shape == before.shape else None


OWN = {*vars(nn.Module()), "training", "forward"}
FRAMEWORK = Framework(
    is_own=OWN.__contains__,
    is_part=lambda value: isinstance(value, (nn.Module, nn.Parameter)),
    numbers=lambda value: array(value) if isinstance(value, torch.Tensor) else None,
    keep=_keep,
    is_state=lambda _: True,
)

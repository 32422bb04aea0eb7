"""The state of a model and its optimizer under canonical names, which are PyTorch's own."""

import re
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from ml_dtypes import bfloat16
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from parity.core.arrays import Floats

Named = Iterator[tuple[str, np.ndarray]]
Parameters = dict[str, list[nn.Parameter]]  # canonical name to the parts, in the order in which they stand in the whole

# A BranchedAttention has apart what nn.MultiheadAttention packs into one.
BRANCH = re.compile(r"(.*)\.(query|key|value)\.(weight|bias)")


def load(model: nn.Module, weights: Mapping[str, Floats]) -> None:
    """Give every parameter its initial value. Raises ValueError unless names and shapes agree."""
    own = dict(model.named_parameters())
    expected = {name: tuple(values.shape) for name, values in weights.items()}
    received = {name: tuple(parameter.shape) for name, parameter in own.items()}
    if received != expected:
        raise ValueError(f"the model has the parameters {received}, expected {expected} (parity/config/weights.py)")
    with torch.no_grad():
        for name, values in weights.items():
            own[name].copy_(torch.from_numpy(values))


def trained(model: nn.Module, optimizer: Optimizer) -> Parameters:
    """The parameters that train in this process: those that its optimizer has."""
    here = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    found: Parameters = {}
    for name, parameter in model.named_parameters():
        if id(parameter) in here:
            found.setdefault(BRANCH.sub(r"\1.in_proj_\3", name), []).append(parameter)
    return found


def parameters(found: Parameters) -> Named:
    """Every parameter."""
    for name, parts in found.items():
        yield name, to_numpy(*parts)


def gradients(found: Parameters) -> Named:
    """The gradient of every parameter that has one."""
    for name, parts in found.items():
        if all(part.grad is not None for part in parts):
            yield name, to_numpy(*(part.grad for part in parts))


def buffers(model: nn.Module, found: Parameters) -> Named:
    """Every buffer of a module that trains here, but batch norm's counter, which serves momentum=None alone."""
    for name, buffer in model.named_buffers():
        module, _, kind = name.rpartition(".")
        if kind != "num_batches_tracked" and f"{module}.weight" in found:
            yield name, to_numpy(buffer)


def optimizer_state(found: Parameters, optimizer: Optimizer) -> Named:
    """The learning rate of the next step, and `parameter.slot` for every slot but the step counter."""
    yield "learning_rate", np.asarray(optimizer.param_groups[0]["lr"], np.float64)
    for name, tensors in slots(found, optimizer):
        yield name, to_numpy(*tensors)


def slots(found: Parameters, optimizer: Optimizer) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """`parameter.slot` and its tensors, one for each part of the parameter."""
    for name, parts in found.items():
        states = [optimizer.state[part] for part in parts]
        for slot, value in states[0].items():
            if slot != "step" and value is not None:
                yield f"{name}.{slot}", [state[slot] for state in states]


def to_numpy(*parts: torch.Tensor) -> np.ndarray:
    """A whole tensor from its parts: on the CPU a view of its memory if there is one part only.

    numpy knows bfloat16 only through ml_dtypes.
    """
    here = [(part.full_tensor() if isinstance(part, DTensor) else part).detach().cpu() for part in parts]
    tensor = here[0] if len(here) == 1 else torch.cat(here)
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(bfloat16)
    return tensor.numpy()

"""The state of a model and its optimizer under canonical names; these are PyTorch's own names."""

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
# From canonical names to the parts of each parameter, in the order in which they form the whole.
Parameters = dict[str, list[nn.Parameter]]

# A BranchedAttention has three projections where nn.MultiheadAttention has one packed parameter.
BRANCH = re.compile(r"(.*)\.(query|key|value)\.(weight|bias)")


def load(model: nn.Module, weights: Mapping[str, Floats]) -> None:
    """Set every parameter to its initial value.

    Raises ValueError unless the model's parameters have exactly the names and shapes of `weights`.
    """
    own = dict(model.named_parameters())
    expected = {name: tuple(values.shape) for name, values in weights.items()}
    received = {name: tuple(parameter.shape) for name, parameter in own.items()}
    if received != expected:
        raise ValueError(f"the model has the parameters {received}, expected {expected} (parity/config/weights.py)")
    with torch.no_grad():
        for name, values in weights.items():
            own[name].copy_(torch.from_numpy(values))


def trained(model: nn.Module, optimizer: Optimizer) -> Parameters:
    """Return the parameters that this process trains: those in its optimizer.

    With model parallelism a process trains only a part of the model.
    """
    optimized = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    parameters: Parameters = {}
    for name, parameter in model.named_parameters():
        if id(parameter) in optimized:
            parameters.setdefault(BRANCH.sub(r"\1.in_proj_\3", name), []).append(parameter)
    return parameters


def parameters(trainable: Parameters) -> Named:
    """Yield (name, value) of every parameter."""
    for name, parts in trainable.items():
        yield name, to_numpy(*parts)


def gradients(trainable: Parameters) -> Named:
    """Yield (name, gradient) of every parameter that has a gradient."""
    for name, parts in trainable.items():
        if all(part.grad is not None for part in parts):
            yield name, to_numpy(*(part.grad for part in parts))


def buffers(model: nn.Module, trainable: Parameters) -> Named:
    """Yield (name, value) of every buffer of a module that trains here.

    Batch norm's step counter is left out: only momentum=None uses it, and Keras has none.
    """
    for name, buffer in model.named_buffers():
        module, _, kind = name.rpartition(".")
        if kind != "num_batches_tracked" and f"{module}.weight" in trainable:
            yield name, to_numpy(buffer)


def optimizer_state(trainable: Parameters, optimizer: Optimizer) -> Named:
    """Yield the learning rate of the next step, and every slot as `parameter.slot`.

    The step counter is left out, as Keras keeps one for all parameters.
    """
    yield "learning_rate", np.asarray(optimizer.param_groups[0]["lr"], np.float64)
    for name, tensors in slots(trainable, optimizer):
        yield name, to_numpy(*tensors)


def slots(trainable: Parameters, optimizer: Optimizer) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Yield each slot's name `parameter.slot` and its tensors, one per part of the parameter."""
    for name, parts in trainable.items():
        states = [optimizer.state[part] for part in parts]
        for slot, value in states[0].items():
            if slot != "step" and value is not None:
                yield f"{name}.{slot}", [state[slot] for state in states]


def to_numpy(*parts: torch.Tensor) -> np.ndarray:
    """Join the parts of a tensor into one array.

    A single part on the CPU becomes a view of its memory, not a copy. DTensors are gathered, in which all ranks must
    take part. NumPy has no bfloat16 of its own; it comes from ml_dtypes.
    """
    local = [(part.full_tensor() if isinstance(part, DTensor) else part).detach().cpu() for part in parts]
    tensor = local[0] if len(local) == 1 else torch.cat(local)
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(bfloat16)
    return tensor.numpy()

"""The state of a model and its optimizer under canonical names, which are PyTorch's own."""

from collections.abc import Iterator

import numpy as np
import torch
from ml_dtypes import bfloat16
from torch import nn
from torch.optim import Optimizer

from parity.random import Floats
from parity.trace.manifest import Layout

Named = Iterator[tuple[str, np.ndarray]]


def load(model: nn.Module, weights: dict[str, Floats]) -> None:
    """Give every parameter its initial value. Raises ValueError unless names and shapes agree."""
    own = dict(model.named_parameters())
    expected = {name: tuple(values.shape) for name, values in weights.items()}
    received = {name: tuple(parameter.shape) for name, parameter in own.items()}
    if received != expected:
        raise ValueError(f"the model has the parameters {received}, expected {expected} (parity/config/weights.py)")
    with torch.no_grad():
        for name, values in weights.items():
            own[name].copy_(torch.from_numpy(values))


def parameters(model: nn.Module) -> Named:
    """Every parameter."""
    for name, parameter in model.named_parameters():
        yield name, to_numpy(parameter)


def buffers(model: nn.Module) -> Named:
    """Every buffer but the counter of batch norm's batches, which serves momentum=None alone."""
    for name, buffer in model.named_buffers():
        if not name.endswith("num_batches_tracked"):
            yield name, to_numpy(buffer)


def optimizer_state(model: nn.Module, optimizer: Optimizer) -> Named:
    """The learning rate of the next step, and `parameter.slot` for every slot but the step counter."""
    yield "learning_rate", np.asarray(optimizer.param_groups[0]["lr"], np.float64)
    for name, parameter in model.named_parameters():
        for slot, value in optimizer.state[parameter].items():
            if slot != "step" and value is not None:
                yield f"{name}.{slot}", to_numpy(value)


def layout(model: nn.Module) -> Layout:
    """The logical devices, and which of them hold each parameter."""
    held = {name: [parameter.device.index or 0] for name, parameter in model.named_parameters()}
    return Layout(devices=["CPU:0"], parameters=held)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A view of a tensor's memory; numpy knows bfloat16 only through ml_dtypes."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(bfloat16)
    return tensor.numpy()

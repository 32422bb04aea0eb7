"""The values of a user's model: what it starts from, what is loaded into it, and tensors as a trace holds them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn

from parity.core import random
from parity.core.arrays import Floats
from parity.core.errors import BackendError
from parity.core.precision import dtype
from parity.trace.survey import WEIGHTS
from parity.trace.tensorfile import CODES, TensorFile
from torch_impl.harness.weights import to_numpy

STATISTICS = ("running_mean", "running_var")
COUNTER = "num_batches_tracked"  # serves a batch norm's momentum=None alone
Tensors = dict[str, torch.Tensor]


def statistics(model: nn.Module) -> Tensors:
    """What a norm keeps of the batches that it has seen."""
    return {name: buffer for name, buffer in model.named_buffers() if _role(name) in STATISTICS}


def constants(model: nn.Module) -> Tensors:
    """All other buffers, such as masks and tables."""
    return {name: buffer for name, buffer in model.named_buffers() if _role(name) not in (*STATISTICS, COUNTER)}


def untrained(model: nn.Module) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and value of what is neither trained nor a statistic, as it is now."""
    frozen = {name: one for name, one in model.named_parameters() if not one.requires_grad}
    for name, tensor in {**frozen, **constants(model)}.items():
        yield name, array(tensor)


def started(model: nn.Module, seed: int, at: str) -> Iterator[tuple[str, np.ndarray]]:
    """Initial values of parameters and statistics, as the precision can hold them, in float32: the model's own.

    Constants are shaken, or zeros and ones would hide what is left out, or stands in another's place.
    """
    for name, tensor in {**dict(model.named_parameters()), **statistics(model)}.items():
        values = array(tensor)
        if values.size and np.isfinite(values.flat[0]) and (values == values.flat[0]).all():
            first = float(values.flat[0])
            around = random.normal(seed, f"start/{name}", values.shape)
            values = first + (abs(first) / 8 * around if first else around / 64)
        yield name, values.astype(dtype(at), copy=False).astype(np.float32, copy=False)


def load(model: nn.Module, weights: Mapping[str, Floats], survey: Path) -> None:
    """Give every parameter and buffer its value; whole numbers are those of the survey. Raises BackendError."""
    own = {**dict(model.named_parameters()), **statistics(model), **constants(model)}
    floats = set(weights)
    whole = {name: values for name, values in TensorFile(survey / WEIGHTS).items() if name not in floats}
    if other := own.keys() ^ (floats | whole.keys()):
        raise BackendError(f"the model is built anew with other parameters or buffers: {', '.join(sorted(other))}")
    with torch.no_grad():
        for name, tensor in own.items():
            values = torch.from_numpy(np.array(whole[name]) if name in whole else weights[name])
            if values.shape != shape(tensor):
                raise BackendError(f"{name} is built anew as {shape(tensor)}, expected {tuple(values.shape)}")
            if tensor.is_complex():
                values = torch.view_as_complex(values)
            if 0 in tensor.stride():  # its elements share their memory
                tensor.data = values.to(tensor.device, tensor.dtype)
            else:
                tensor.copy_(values)


def array(tensor: torch.Tensor) -> np.ndarray:
    """As a trace can hold it: dense, complex numbers as pairs, whole numbers of 32 or 64 bits."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    values = to_numpy(tensor.float() if tensor.is_floating_point() and tensor.itemsize < 2 else tensor)
    if values.dtype in CODES:
        return values
    return values.astype(np.int32 if values.dtype.itemsize < 4 else np.int64)


def shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """That of its array."""
    return (*tensor.shape, 2) if tensor.is_complex() else tuple(tensor.shape)


def _role(name: str) -> str:
    return name.rpartition(".")[2]

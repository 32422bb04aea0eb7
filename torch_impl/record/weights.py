"""The state of a model and its optimizer under canonical names; these are PyTorch's own names."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import torch
from ml_dtypes import bfloat16
from torch import nn
from torch.optim import Optimizer

from parity.core.arrays import Floats
from parity.trace.tensorfile import storable
from torch_impl.instruments.structure import is_dtensor

Named = Iterator[tuple[str, np.ndarray]]
# From canonical names to the parts of each parameter, in the order in which they form the whole.
Parameters = dict[str, list[nn.Parameter]]
# A BranchedAttention has three projections where nn.MultiheadAttention has one packed parameter.
BRANCH = re.compile(r"(.*)\.(query|key|value)\.(weight|bias)")
STATISTICS = ("running_mean", "running_var")
COUNTERS = ("step", "mu_product")  # of optimizers
COUNTER = "num_batches_tracked"  # batch norm uses it only with momentum=None, and Keras has none


def load(model: nn.Module, weights: Mapping[str, Floats]) -> None:
    """Set every parameter; raises ValueError unless the model's have exactly the names and shapes of `weights`."""
    own = dict(model.named_parameters())
    expected = {name: tuple(values.shape) for name, values in weights.items()}
    received = {name: tuple(parameter.shape) for name, parameter in own.items()}
    if received != expected:
        raise ValueError(f"the model has the parameters {received}, expected {expected} (parity/config/weights.py)")
    with torch.no_grad():
        for name, values in weights.items():
            own[name].copy_(torch.from_numpy(values))


def trained(model: nn.Module, optimizer: Optimizer) -> Parameters:
    """Return the parameters in this process's optimizer, with model parallelism only a part of the model's."""
    optimized = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    parameters: Parameters = {}
    for name, parameter in model.named_parameters():
        if id(parameter) in optimized:
            parameters.setdefault(BRANCH.sub(r"\1.in_proj_\3", name), []).append(parameter)
    return parameters


class Weights:
    """The parameters and buffers that this process trains of a model, and the state of its optimizer."""

    def __init__(self, model: nn.Module, trained: Parameters, optimizer: Optimizer | None = None):
        self.model, self.trained, self.optimizer = model, trained, optimizer

    def parameters(self) -> Named:
        """Yield (name, value) of every parameter."""
        for name, parts in self.trained.items():
            yield name, array(*parts)

    def buffers(self) -> Named:
        """Yield (name, value) of the statistics of every norm that trains here."""
        for name, buffer in statistics(self.model).items():
            if f"{name.rpartition('.')[0]}.weight" in self.trained:
                yield name, array(buffer)

    def gradients(self, names: Iterable[str]) -> Named:
        """Yield (name, gradient) of these parameters, as far as they have one."""
        for name in names:
            if all(part.grad is not None for part in self.trained[name]):
                yield name, array(*(part.grad for part in self.trained[name]))

    def optimizer_state(self) -> Named:
        """Yield the learning rate of the next step, and every slot as `parameter.slot`."""
        if self.optimizer is not None:
            rates = {float(group["lr"]) for group in self.optimizer.param_groups if "lr" in group}
            if len(rates) == 1:
                yield "learning_rate", np.asarray(rates.pop(), np.float64)
            for name, tensors in self.slots():
                yield name, array(*tensors)

    def state(self, wants: Callable[[str], bool]) -> Iterator[tuple[str, str, np.ndarray]]:
        """Yield (kind, name, value) of all state of the kinds that are wanted."""
        kinds = {"parameter": self.parameters, "buffer": self.buffers, "optimizer_state": self.optimizer_state}
        for kind, named in kinds.items():
            for name, value in named() if wants(kind) else ():
                yield kind, name, value

    def slots(self) -> Iterator[tuple[str, list[torch.Tensor]]]:
        """Yield each slot's name `parameter.slot` and its tensors, one per part of the parameter."""
        for name, parts in self.trained.items():
            states = [self.slots_of(part) for part in parts]
            for slot in states[0]:
                yield f"{name}.{slot}", [state[slot] for state in states]

    def slots_of(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the optimizer's slots of a parameter, without its counters: Keras has one for all parameters."""
        state = self.optimizer.state.get(parameter, {})
        kept = (slot for slot, value in state.items() if slot not in COUNTERS and isinstance(value, torch.Tensor))
        return {slot: state[slot] for slot in kept}


def statistics(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the running statistics of the norms."""
    return {name: buffer for name, buffer in model.named_buffers() if name.rpartition(".")[2] in STATISTICS}


def array(tensor: torch.Tensor, *further: torch.Tensor) -> np.ndarray:
    """Return a tensor, joined with its further parts, as an array that a trace can store.

    A single part on the CPU becomes a view of its memory, not a copy. DTensors are gathered, in which all ranks must
    take part. Complex numbers become pairs of reals, integers have 32 or 64 bits, and bfloat16, which NumPy does not
    have, comes from ml_dtypes.
    """
    tensor = torch.cat([_dense(part) for part in (tensor, *further)]) if further else _dense(tensor)
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(bfloat16)
    return storable(tensor.numpy())


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on the CPU whole, dense and real, with at least 16 bits for a float."""
    tensor = (tensor.full_tensor() if is_dtensor(tensor) else tensor).detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return (tensor.float() if tensor.is_floating_point() and tensor.itemsize < 2 else tensor).cpu()

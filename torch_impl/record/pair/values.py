"""The values of a user's model: its initial values, loading them, and tensors in the form that traces store.

Beside its weights, a model and the files of its program keep state in Python, which is seen, and given back.
"""

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.config.schema import Case
from parity.core import program, random
from parity.core.arrays import Floats
from parity.core.errors import BackendError
from parity.core.precision import dtype
from parity.core.python_state import Framework, PythonState
from parity.runtime.survey import WEIGHTS
from parity.trace.tensorfile import TensorFile
from torch_impl.record import tree, weights
from torch_impl.record.weights import COUNTER, STATISTICS, Named, array, statistics

Tensors = dict[str, torch.Tensor]


class Weights(weights.Weights):
    """All of a user's model: parameters that are not trained as well, and buffers that are no statistics."""

    def __init__(self, model: nn.Module):
        trained = {name: [weight] for name, weight in model.named_parameters() if weight.requires_grad}
        super().__init__(model, trained)

    def parameters(self) -> Named:
        """Yield (name, value) of every parameter, trained or not."""
        for name, parameter in self.model.named_parameters():
            yield name, array(parameter)

    def buffers(self) -> Named:
        """Yield (name, value) of every buffer: the statistics of the norms, then the constants."""
        for name, buffer in (statistics(self.model) | constants(self.model)).items():
            yield name, array(buffer)

    def slots_of(self, parameter: torch.Tensor) -> Tensors:
        """Return the optimizer's slots of a parameter; of one that has never had a gradient, as zeros.

        It gets those slots in which the other parameters of its optimizer have tensors of their own shape.
        """
        slots_of = super().slots_of
        if own := slots_of(parameter):
            return own
        optimizers = getattr(self.optimizer, "optimizers", [self.optimizer])
        held = ((each, part) for each in optimizers for group in each.param_groups for part in group["params"])
        optimizer = next((each for each, part in held if part is parameter), self.optimizer)
        slots = {
            slot
            for candidate in optimizer.state
            for slot, tensor in slots_of(candidate).items()
            if tensor.shape == candidate.shape
        }
        return {slot: torch.zeros_like(parameter) for slot in sorted(slots)}


def constants(model: nn.Module) -> Tensors:
    """Return all other buffers, such as masks and tables."""
    others = (*STATISTICS, COUNTER)
    return {name: buffer for name, buffer in model.named_buffers() if name.rpartition(".")[2] not in others}


def untrained(model: nn.Module) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and value of what is neither trained nor a statistic, as it is now."""
    frozen = {name: one for name, one in model.named_parameters() if not one.requires_grad}
    for name, tensor in {**frozen, **constants(model)}.items():
        yield name, array(tensor)


def started(model: nn.Module, case: Case) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the initial values of parameters and statistics: the model's own, rounded to the run precision, in float32.

    A tensor in which all values are equal (zeros or ones) is perturbed. Otherwise it would hide that it is left out in
    the other framework, or confused with another. One that the pair ignores has no counterpart there, and keeps what
    its builder gave. So do all if the pair keeps torch's weights: in float64 where float32 does not hold them.
    """
    for name, tensor in {**dict(model.named_parameters()), **statistics(model)}.items():
        values = array(tensor)
        is_ignored = any(fnmatch.fnmatch(name, glob) for glob in case.model.ignore.torch)
        if not (case.model.keeps_weights or is_ignored or case.model.holds(name)):
            values = random.spread(case.seed, f"start/{name}", values)
        if not case.model.keeps_weights:
            values = values.astype(dtype(case.precision), copy=False)
        narrow = values.astype(np.float32, copy=False)
        yield name, narrow if np.array_equal(narrow, values, equal_nan=True) else values


def load(model: nn.Module, initial: Mapping[str, Floats], survey: Path) -> None:
    """Set all parameters and buffers, integers from the survey. Raises BackendError if the model is not as surveyed."""
    own = {**dict(model.named_parameters()), **statistics(model), **constants(model)}
    floats = set(initial)
    integers = {name: values for name, values in TensorFile(survey / WEIGHTS).items() if name not in floats}
    if mismatched := own.keys() ^ (floats | integers.keys()):
        raise BackendError(
            f"the model is built anew with other parameters or buffers: {', '.join(sorted(mismatched))}; "
            "its function must build the same model every time"
        )
    with torch.no_grad():
        for name, tensor in own.items():
            values = torch.from_numpy(np.array(integers[name]) if name in integers else initial[name])
            if values.shape != shape(tensor):
                raise BackendError(
                    f"{name} is built anew as {shape(tensor)}, expected {tuple(values.shape)}; "
                    "the model's function must build the same model every time"
                )
            if tensor.is_complex():
                values = torch.view_as_complex(values)
            if 0 in tensor.stride():  # an expanded tensor, whose elements share memory, cannot be written to
                tensor.data = values.to(tensor.device, tensor.dtype)
            else:
                tensor.copy_(values)


def shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the shape of the tensor's array; a complex tensor has a further axis of size 2."""
    return (*tensor.shape, 2) if tensor.is_complex() else tuple(tensor.shape)


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

"""What ranks have to do with each other: calls that wait for other ranks, and what can be compared between them.

Calls are recorded before they are made: if a rank hangs, the file says in which. Of a step its parameters and gradients
are noted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode

from parity.doctor.drive import Files
from parity.doctor.evidence import PEERS, Change, Collective, Comparable, Numbers, Step
from torch_impl.instruments import devices, source, values
from torch_impl.instruments.origins import dtype, tensors
from torch_impl.instruments.structure import is_dtensor

# The names under which the program calls them.
NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "recv_any_source": "recv",
}


class Collectives(TorchDispatchMode):
    """The mode that records every call of torch.distributed within it."""

    def __init__(self, files: Files):
        super().__init__()
        self.files = files

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.namespace in ("c10d", "_c10d_functional") and (collective := _described(func, args)):
            self.files.note(collective)
        return func(*args, **(kwargs or {}))


def _described(func: Any, args: tuple) -> Collective | None:
    """Describe the call; None for one that does not wait itself."""
    name = func.overloadpacket.__name__.rstrip("_")
    given = tensors(args)
    if name in ("wait_tensor", "_wrap_tensor_autograd") or not given:
        return None
    groups = (dist.ProcessGroup.unbox(argument) for argument in args if isinstance(argument, torch.ScriptObject))
    group = next(groups, None)
    peer = dist.get_global_rank(group, args[2]) if name in PEERS else None
    members = dist.get_process_group_ranks(group) if group else []
    operation, shape, kind = NAMES.get(name, name), list(given[0].shape), dtype(given[0])
    return Collective(operation=operation, shape=shape, dtype=kind, source=source.line(), peer=peer, group=members)


class Replicas:
    """Notes what a step does to the parameters of the model; nothing if there is only one rank."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.there_are_others = devices.rank().of > 1

    def begin(self, step: Step) -> None:
        """Attribute what follows to this step."""
        self.comparable = step.comparable = Comparable() if self.there_are_others else None
        self._gradients: dict[int, tuple[str, torch.Tensor]] = {}  # by the address of their numbers
        self._updating: dict[str, Numbers] = {}

    def note_use(self) -> None:
        """Note the parameters as they are when a backward pass begins."""
        self._gradients = {}
        if self.comparable and not self.comparable.used:
            self.comparable.used = {name: values.numbers(parameter) for name, parameter in self._parameters()}

    def note_gradients(self) -> None:
        """Note where the gradients are, when a backward pass is over."""
        if self.comparable:
            self._gradients = {values.address(gradient): (name, gradient) for name, gradient in self._dense()}

    @contextmanager
    def written(self, function: str, args: tuple) -> Iterator[None]:
        """Note what the function that runs within the block writes into gradients."""
        is_write = function.startswith("__i") or (function.endswith("_") and not function.endswith("__"))
        targets = tensors(args[:1]) if is_write and self._gradients else []
        held = [self._gradients[address] for address in map(values.address, targets) if address in self._gradients]
        before = {name: values.numbers(gradient) for name, gradient in held}
        yield
        for name, gradient in held:
            self._note(name, "gradient", before[name], values.numbers(gradient))

    def note_updating(self) -> None:
        """Note the gradients that an update is about to use."""
        if self.comparable:
            self._updating = {name: values.numbers(gradient) for name, gradient in self._dense()}
        self._gradients = {}  # what an optimizer does with them is a part of its update

    def note_updated(self) -> None:
        """Note the parameters after an update."""
        if self.comparable:
            for name, parameter in self._parameters():
                if name in self._updating:
                    self._note(name, "update", self._updating[name], values.numbers(parameter))

    def _note(self, name: str, what: Any, gradient: Numbers, result: Numbers) -> None:
        change = Change(parameter=name, what=what, source=source.line(), gradient=gradient, result=result)
        assert self.comparable
        self.comparable.changes.append(change)

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters that are to be trained and whole on this rank, which a DTensor need not be."""
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad and not is_lazy(parameter) and not is_dtensor(parameter):
                yield name, parameter

    def _dense(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in self._parameters():
            if parameter.grad is not None and parameter.grad.layout == torch.strided:
                yield name, parameter.grad

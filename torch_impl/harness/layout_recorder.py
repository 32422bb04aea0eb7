"""The device layout of one training step, gathered from the ops that ran in it.

A TorchDispatchMode sees every op below autograd, in the forward and in the backward pass, with the
devices of its tensors, and every op of torch.distributed. Which module an op belongs to: in the
forward pass the innermost module that is being called, in the backward pass the module whose forward
made the node of the graph that is being run.
"""

import functools
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import comm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from parity.trace.layout import Layout, Transfer, total
from torch_impl.harness import weights
from torch_impl.harness.devices import Machine
from torch_impl.harness.virtual_devices import COPIES

# What nn.DataParallel copies, by its functions: on GPUs they are C++, whose copies no mode sees.
COMM = {"scatter": "input", "broadcast_coalesced": "parameter", "gather": "output", "reduce_add_coalesced": "gradient"}
# Ops of torch.distributed that move nothing, or whose other end is noted.
UNNOTED = {"recv_", "recv_any_source_", "barrier", "wait_tensor", "monitored_barrier_", "_wrap_tensor_autograd"}
NAMES = {"allreduce": "all_reduce", "allgather": "all_gather"}


class Watch(TorchDispatchMode):
    """Sees what happens between `start` and `stop`, but for what happens in `paused`."""

    def __init__(self, machine: Machine, replicas: int):
        super().__init__()
        self.machine, self.replicas = machine, replicas
        self.compute: dict[str, set[int]] = defaultdict(set)
        self.backward: dict[str, set[int]] = defaultdict(set)
        self.transfers: list[Transfer] = []
        self.collectives: Counter[str] = Counter()
        self._calls: list[str] = []
        self._thread = threading.get_ident()
        self._looking = False
        self._open = ExitStack()

    def start(self, modules: list[tuple[str, nn.Module]]) -> None:
        """Watch these modules, by name, from now on."""
        for name, module in modules:
            before = module.register_forward_pre_hook(functools.partial(self._on_call, name))
            behind = module.register_forward_hook(functools.partial(self._on_return, name))
            self._open.callback(before.remove)
            self._open.callback(behind.remove)
        for name, what in COMM.items():
            patch = mock.patch.object(comm, name, self._noting(what, getattr(comm, name)))
            self._open.enter_context(patch)
        self._open.enter_context(self)
        self._looking = True

    def stop(self) -> None:
        """Nothing is seen any more; also where nothing was."""
        self._looking = False
        self._open.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens within the block is the harness's own."""
        before, self._looking = self._looking, False
        try:
            yield
        finally:
            self._looking = before

    def layout(self, found: weights.Parameters, optimizer: torch.optim.Optimizer) -> Layout:
        """All that was seen, and where the parameters and the optimizer's state are now."""
        return Layout(
            devices=self.machine.names,
            parameters={name: self._residents(parts) for name, parts in found.items()},
            optimizer_state={name: self._residents(parts) for name, parts in weights.slots(found, optimizer)},
            compute={name: sorted(devices) for name, devices in self.compute.items()},
            backward={name: sorted(devices) for name, devices in self.backward.items()},
            transfers=total(self.transfers),
            collectives=dict(self.collectives),
            replicas=self.replicas,
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # first DTensor turns it into ops on local tensors and collectives
        results = func(*args, **(kwargs or {}))
        if self._looking:
            if func.namespace in ("c10d", "_c10d_functional"):
                self._on_communication(func, args)
            elif func in COPIES:
                source = args[0] if func is not torch.ops.aten.copy_.default else args[1]
                self._transfer("activation", source, results, moved=source)
            else:
                self._on_compute(results)
        return results

    def _on_compute(self, results: Any) -> None:
        node = torch._C._current_autograd_node()
        module = (self._calls[-1] if self._calls else None) if node is None else node.metadata.get("module")
        if module:  # the whole model's own ops are not compared
            seen = self.compute if node is None else self.backward
            seen[module].update(self._devices(results))

    def _on_communication(self, func: Any, args: tuple) -> None:
        name = func.overloadpacket.__name__
        if name in UNNOTED:
            return
        size = sum(map(_bytes, filter(torch.is_floating_point, _tensors(args[0]))))
        if name == "send":
            here, to = dist.get_rank(), dist.get_global_rank(dist.ProcessGroup.unbox(args[1]), args[2])
            # The stages are in the order of the ranks.
            self._note("activation" if to > here else "gradient", here, to, size)
        elif size:
            name = name.rstrip("_")
            self.collectives[NAMES.get(name, name)] += size

    def _on_call(self, name: str, module: nn.Module, inputs: Any) -> None:
        if self._is_seen():
            self._calls.append(name)

    def _on_return(self, name: str, module: nn.Module, inputs: Any, outputs: Any) -> None:
        """The call is over: the nodes that it added to the graph are the module's."""
        if self._is_seen():
            self._calls.pop()
        elif name:
            self.compute[name].update(self._devices(outputs))
        known = {tensor.grad_fn for tensor in _tensors(inputs)}
        waiting = [tensor.grad_fn for tensor in _tensors(outputs)]
        while waiting:
            node = waiting.pop()
            if node is not None and node not in known and "module" not in node.metadata:
                node.metadata["module"] = name
                waiting += [before for before, _ in node.next_functions]

    def _is_seen(self) -> bool:
        """Whether ops come past here: a mode is of one thread, and nn.DataParallel on GPUs has one for each."""
        return threading.get_ident() == self._thread

    def _noting(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """One of nn.DataParallel's functions: between its many tensors and its one device."""

        def noted(*args: Any, **kwargs: Any) -> Any:
            with self.paused():
                results = function(*args, **kwargs)
            if self._looking:
                whole, parts = (args[0], results) if what in ("input", "parameter") else (results, args[0])
                home = _tensors(whole)[0]
                for part in _tensors(parts):
                    ends = (home, part) if parts is results else (part, home)
                    self._transfer(what, *ends, moved=part)
            return results

        return noted

    def _transfer(self, what: str, source: torch.Tensor, target: torch.Tensor, moved: torch.Tensor) -> None:
        """A copy between two devices of values or ids; not from the host, nor of a lone number."""
        ends = self.machine.index(source), self.machine.index(target)
        if None not in ends and moved.dim() and (moved.is_floating_point() or moved.dtype == torch.int64):
            in_backward = torch._C._current_autograd_node() is not None
            self._note("gradient" if in_backward else what, *ends, _bytes(moved))

    def _note(self, what: str, source: int, target: int, size: int) -> None:
        if source != target and size:
            self.transfers.append(Transfer(what=what, source=source, target=target, bytes=size))

    def _devices(self, results: Any) -> set[int]:
        indices = {self.machine.index(tensor) for tensor in _tensors(results) if tensor.is_floating_point()}
        return {index for index in indices if index is not None}

    def _residents(self, parts: list[torch.Tensor]) -> list[int]:
        """Where the parts are; a rank may have got nothing of a tensor that is split."""
        local = [part.to_local() if isinstance(part, DTensor) else part for part in parts]
        return sorted({self.machine.index(tensor) for tensor in local if tensor.numel()} - {None})


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()

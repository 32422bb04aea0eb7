"""The recorders of a process: of the layout in one training step, and of the replicas' tensors.

The layout recorder finds on which devices a step ran from its ops. A TorchDispatchMode sees every op below autograd, in
the forward and in the backward pass, with the devices of its tensors, and every op of torch.distributed. In the forward
pass an op belongs to the innermost module that is being called; in the backward pass, to the module whose forward
created the autograd node that is running. A tensor is stored by the process's own recorder, or its device's replica's.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import comm
from torch.utils._python_dispatch import TorchDispatchMode

from parity.core.patches import around
from parity.runtime import drive
from parity.runtime.drive import Run
from parity.trace.layout import Held, Layout, Transfer, shards, total
from parity.trace.recorder import Recorder
from torch_impl.instruments.devices import Machine
from torch_impl.instruments.origins import tensors
from torch_impl.instruments.structure import is_dtensor, is_dtensor_class
from torch_impl.instruments.virtual_devices import COPIES
from torch_impl.record import calls
from torch_impl.record.weights import Weights

# The copying functions of nn.DataParallel, and what each copies. A mode does not see
# the copies that they make on GPUs, in C++.
COMM = {"scatter": "input", "broadcast_coalesced": "parameter", "gather": "output", "reduce_add_coalesced": "gradient"}
# Ops of torch.distributed that move no data, or whose data is counted at the sender.
UNNOTED = {"recv_", "recv_any_source_", "barrier", "wait_tensor", "monitored_barrier_", "_wrap_tensor_autograd"}
OUTPUT_FIRST = {"_allgather_base_", "_reduce_scatter_base_"}  # whose second argument is what a rank gives
NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
}


class LayoutRecorder(TorchDispatchMode):
    """Records the ops that run between `start` and `stop`, except those within `paused`."""

    def __init__(self, machine: Machine, replicas: int):
        super().__init__()
        self.machine, self.replicas = machine, replicas
        self.compute: dict[str, set[int]] = defaultdict(set)
        self.backward: dict[str, set[int]] = defaultdict(set)
        self.transfers: list[Transfer] = []
        self.collectives: Counter[str] = Counter()
        self._paths: dict[nn.Module, str] = {}
        self._thread = threading.get_ident()
        self._looking = False
        self._open = ExitStack()

    def start(self, modules: Mapping[str, nn.Module]) -> None:
        """Start recording ops; `modules` holds the modules by path."""
        self._paths = {module: path for path, module in modules.items()}
        self._open.enter_context(calls.tracked())
        self._open.enter_context(calls.observed(modules, lambda _: None, self._on_return))
        for name, content in COMM.items():
            self._open.enter_context(around(comm, name, partial(self._copy, content)))
        self._open.enter_context(self)
        self._looking = True

    def stop(self) -> None:
        """Stop recording; harmless if it was never started."""
        self._looking = False
        self._open.close()

    def paused(self) -> AbstractContextManager[Any]:
        """Return a context in which nothing is recorded: what runs there is the recorder's own."""
        return mock.patch.object(self, "_looking", False)

    def layout(self, state: Weights) -> Layout:
        """Return what was recorded, with the devices that hold parameters and optimizer state now."""
        parameters = {name: self._held(parts) for name, parts in state.trained.items()}
        slots = {name: self._held(parts) for name, parts in state.slots()}
        return Layout(
            devices=self.machine.names,
            parameters={name: held.devices for name, held in parameters.items()},
            optimizer_state={name: held.devices for name, held in slots.items()},
            shards=shards(parameters | slots, len(self.machine.names)),
            compute={name: sorted(devices) for name, devices in self.compute.items()},
            backward={name: sorted(devices) for name, devices in self.backward.items()},
            transfers=total(self.transfers),
            collectives=dict(self.collectives),
            replicas=self.replicas,
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if any(map(is_dtensor_class, types)):
            return NotImplemented  # DTensor then turns the op into local ops and collectives, which are recorded
        results = func(*args, **(kwargs or {}))
        if self._looking:
            if func.namespace in ("c10d", "_c10d_functional"):
                self._on_communication(func, args)
            elif func in COPIES:
                source = args[0] if func is not torch.ops.aten.copy_.default else args[1]
                self._transfer("activation", source, results, moved=source)
            else:
                node = torch._C._current_autograd_node()
                module = calls.innermost(self._paths) if node is None else node.metadata.get("module")
                if module:  # ops directly in the outermost module are not compared
                    seen = self.compute if node is None else self.backward
                    seen[module].update(self._devices(results))
        return results

    def _on_communication(self, func: Any, args: tuple) -> None:
        """Count the bytes of a collective, or note a send as a transfer."""
        name = func.overloadpacket.__name__
        if name in UNNOTED:
            return
        given = args[1] if name in OUTPUT_FIRST else args[0]
        size = sum(each.nbytes for each in tensors(given) if each.is_floating_point())
        if name == "send":
            if not given[0].dim():
                return  # no activation: before the first step, PyTorch before 2.13 sends the number of a stage
            source, target = dist.get_rank(), dist.get_global_rank(dist.ProcessGroup.unbox(args[1]), args[2])
            # Stages have the order of their ranks, so activations go up and gradients down.
            self._note("activation" if target > source else "gradient", source, target, size)
        elif size:
            name = name.rstrip("_")
            self.collectives[NAMES.get(name, name)] += size

    def _on_return(self, call: calls.Call, outputs: Any) -> None:
        """Mark the autograd nodes that this call has created as the module's."""
        # A mode sees the ops of one thread, and on GPUs nn.DataParallel runs each replica in a thread of its own.
        if call.path and threading.get_ident() != self._thread:
            self.compute[call.path].update(self._devices(outputs))
        input_nodes = {tensor.grad_fn for tensor in tensors(call.args)}
        pending = [tensor.grad_fn for tensor in tensors(outputs)]
        while pending:
            node = pending.pop()
            if node is not None and node not in input_nodes and "module" not in node.metadata:
                node.metadata["module"] = call.path
                pending += [parent for parent, _ in node.next_functions]

    def _copy(self, content: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Copy by a function of nn.DataParallel, and record the copies between many tensors and one device."""
        with self.paused():
            results = function(*args, **kwargs)
        if self._looking:
            whole, parts = (args[0], results) if content in ("input", "parameter") else (results, args[0])
            home = tensors(whole)[0]
            for part in tensors(parts):
                ends = (home, part) if parts is results else (part, home)
                self._transfer(content, *ends, moved=part)
        return results

    def _transfer(self, content: str, source: torch.Tensor, target: torch.Tensor, moved: torch.Tensor) -> None:
        """Record a copy of values or ids between logical devices; those from the host, and scalars, are not counted."""
        ends = self.machine.index(source), self.machine.index(target)
        if None not in ends and moved.dim() and (moved.is_floating_point() or moved.dtype == torch.int64):
            in_backward = torch._C._current_autograd_node() is not None
            self._note("gradient" if in_backward else content, *ends, moved.nbytes)

    def _note(self, what: str, source: int, target: int, size: int) -> None:
        if source != target and size:
            self.transfers.append(Transfer(what=what, source=source, target=target, bytes=size))

    def _devices(self, results: Any) -> set[int]:
        indices = {self.machine.index(tensor) for tensor in tensors(results) if tensor.is_floating_point()}
        return {index for index in indices if index is not None}

    def _held(self, parts: list[torch.Tensor]) -> Held:
        """Return where a tensor's parts are, of a part that is split over the ranks the piece of this one."""
        local = [part.to_local() if is_dtensor(part) else part for part in parts]
        places = [(self.machine.index(tensor), tensor.numel()) for tensor in local]
        pieces = [(device, size) for device, size in places if device is not None]
        return Held(pieces, sum(part.numel() for part in parts))


class Replicas(drive.Replicas):
    """The replicas that this process records; in tensor_parallel, ranks above 0 record only their shards."""

    def __init__(self, run: Run, rank: int):
        case, strategy = run.case, run.case.distribution
        super().__init__(case)
        self.recorders, self.rank = run.recorders, rank
        self.first = next(iter(run.recorders.values()))  # the recorder of what is recorded once per process
        self.silent = self.sharded and rank > 0
        # nn.DataParallel's replicas tell of their gradients themselves; fully_shard shows none that is not reduced.
        self.is_unreduced = self.local and not (self.gathered and case.replicas > 1) and not strategy.shards_parameters
        # How often a step accumulates a gradient (fully_shard: once reduced), and what a rank's loss is multiplied by.
        self.passes = 1 if self.gathered or strategy.shards_parameters else case.accumulate
        self.scale = case.replicas if strategy.averages_gradients else 1

    def recorder(self, kind: str, tensor: torch.Tensor) -> Recorder:
        """Return the recorder of the replica that a tensor belongs to."""
        return self.recorders[tensor.device.index] if self.gathered and kind != "loss" else self.first

    def end_step(self) -> None:
        """Let what is recorded from now on belong to the next step."""
        for recorder in self.recorders.values():
            recorder.next_step()

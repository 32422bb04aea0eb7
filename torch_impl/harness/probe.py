"""The probe: records what a training loop does from outside, by hooks on modules and optimizer and a wrapped loss."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from parity.core.names import MODEL
from parity.runtime.drive import Run
from parity.trace import keys
from parity.trace.recorder import FORWARD, Recorder
from torch_impl.harness import kinds, weights
from torch_impl.harness.layout_recorder import LayoutRecorder
from torch_impl.strategies.branch_parallel import BranchedAttention

BETWEEN = ("relu", "dropout")  # in tensor_parallel each rank has only a part of these activations: not compared
SPLIT = ("linear1", "linear2")  # in tensor_parallel their inputs are parts, or a copy on each device: not recorded


class _Stored(NamedTuple):
    """A tensor recorded in this forward pass, its version counter at that time, and the key of the record."""

    tensor: torch.Tensor
    version: int
    key: str


def modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the named modules that are called as modules.

    The layers of a BranchedAttention are left out: in nn.MultiheadAttention, which it replaces, the projections are not
    modules that are called.
    """
    prefixes = tuple(f"{name}." for name, module in model.named_modules() if isinstance(module, BranchedAttention))
    return [(name, module) for name, module in model.named_modules() if not (prefixes and name.startswith(prefixes))]


class Probe:
    """Records a placed model and its optimizer for as long as they live.

    In tensor_parallel, rank 0 records what all ranks have in common, and the others only their shards.
    """

    def __init__(self, run: Run, model: nn.Module, optimizer: Optimizer, layout_recorder: LayoutRecorder, rank: int):
        self.run, self.model, self.optimizer, self.layout_recorder = run, model, optimizer, layout_recorder
        self.case, self.rank = run.case, rank
        self.trained = weights.trained(model, optimizer)
        self.gathered = self.case.distribution.is_gathered
        self.sharded = self.case.distribution.is_sharded
        self.silent = self.sharded and rank > 0
        self.local = self.case.replicas > 1 or self.case.clip_norm is not None
        self._backwards: Counter[str] = Counter()
        self._order: dict[str, None] = {}
        self._stored: dict[int, _Stored] = {}  # by id(tensor), for as long as the tensor lives
        self.modules: dict[str, str] = {}  # kind of each module that has been called, by name
        model.register_forward_pre_hook(self._on_input)
        named = modules(model)
        owners = {name.rpartition(".")[0] for name, _ in named if name}
        for name, module in named:
            if name:
                module.register_forward_pre_hook(self._on_arguments(name, name not in owners))
            module.register_forward_hook(self._on_forward(name, kinds.kind(module)))
        for name, parts in self.trained.items():
            for part in parts:
                part.register_post_accumulate_grad_hook(self._on_gradient(name, len(parts)))
        optimizer.register_step_pre_hook(self._on_update)

    def loss(self, loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """Wrap the loss so that the target and the loss value are recorded."""

        def watched(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            value = loss(outputs, target)
            if not self.gathered:
                self._tensors("input", "target", target)
            self._tensors("loss", "loss", value)
            return value

        return watched

    def on_step(self) -> None:
        """Record the state of model and optimizer; called before the first step and after each update."""
        state = {
            "parameter": weights.parameters(self.trained),
            "buffer": weights.buffers(self.model, self.trained),
            "optimizer_state": weights.optimizer_state(self.trained, self.optimizer),
        }
        with self.layout_recorder.paused():
            for kind, named in state.items():
                if self._first.wants(kind):
                    self._named(kind, named)
        self._order.clear()
        self._stored.clear()
        for recorder in self.run.recorders.values():
            recorder.next_step()

    @property
    def _first(self) -> Recorder:
        return next(iter(self.run.recorders.values()))

    def _on_input(self, module: nn.Module, inputs: Any) -> None:
        """Record the model's input; for nn.DataParallel, let each replica's gradients be recorded."""
        self._tensors("input", "input", inputs)
        if self.gathered and self.local:
            for name, child in module.named_modules():
                # The replica that nn.DataParallel has made for this forward on this device: its parameters are copies.
                for part, copy in getattr(child, "_former_parameters", {}).items():
                    if copy.requires_grad:
                        copy.register_hook(self._on_replica(f"{name}.{part}" if name else part))

    def _on_replica(self, name: str) -> Callable[[torch.Tensor], None]:
        return lambda gradient: self._tensors("gradient", name + keys.LOCAL, gradient)

    def _on_arguments(self, name: str, leaf: bool) -> Callable[..., None]:
        """Return a pre-forward hook that records a module's input, before an in-place module overwrites it."""
        split = self.sharded and name.rpartition(".")[2] in (*BETWEEN, *SPLIT)

        def hook(module: nn.Module, inputs: Any) -> None:
            if not split:
                self._tensors("input", name, kinds.arguments(module, inputs, leaf))

        return hook

    def _on_forward(self, name: str, kind: str) -> Callable[..., None]:
        """Return a forward hook that records a module's output, or this rank's shard of it."""
        last = name.rpartition(".")[2]

        def hook(module: nn.Module, inputs: Any, outputs: Any) -> None:
            if self.sharded and last in BETWEEN:
                return
            if name:
                self.modules[name] = kind
            if isinstance(outputs, DTensor):
                shard = outputs.to_local()
                if shard.numel():
                    self._add("activation", f"{name}@shard{self.rank}", self._first, shard)
            elif name or not self.gathered:
                self._tensors("activation", name or MODEL, outputs)

        return hook

    def _on_gradient(self, name: str, parts: int) -> Callable[[torch.Tensor], None]:
        """Return a hook that runs when a parameter's gradient has been accumulated.

        At the last backward pass of a step it notes the order of the gradients, and records this process's own gradient
        before any reduction over ranks.
        """
        passes = parts * self.case.accumulate
        is_unreduced = self.local and not (self.gathered and self.case.replicas > 1)

        def hook(parameter: torch.Tensor) -> None:
            self._stored.clear()  # the forward pass is over
            self._backwards[name] += 1
            if self._backwards[name] % passes:
                return
            self._order[name] = None
            if is_unreduced and self._first.wants("gradient"):
                own = {name: self.trained[name]}
                # DDP's loss is multiplied by the number of ranks, because DDP averages. Divided by it again, the local
                # gradients add up to the gradient of the step.
                ranks = self.case.replicas if self.case.distribution.averages_gradients else 1
                with self.layout_recorder.paused():
                    self._named("gradient", ((n + keys.LOCAL, g / ranks) for n, g in weights.gradients(own)))

        return hook

    def _on_update(self, *_: Any) -> None:
        """Record the gradients that the optimizer is about to apply, in the order of the backward pass."""
        if self._first.wants("gradient"):
            with self.layout_recorder.paused():
                self._named("gradient", weights.gradients({name: self.trained[name] for name in self._order}))

    def _named(self, kind: str, named: weights.Named) -> None:
        for name, array in named:  # do not break early: all ranks must take part in gathering a sharded tensor
            if not self.silent:
                self._first.add(kind, name, array)

    def _tensors(self, kind: str, name: str, value: Any) -> None:
        """Record every tensor in a nest of tuples, lists and dicts."""
        for tensor in pytree.tree_leaves(value):
            if isinstance(tensor, torch.Tensor) and not self.silent:
                replica = tensor.device.index if self.gathered and kind != "loss" else None
                self._add(kind, name, self._first if replica is None else self.run.recorders[replica], tensor)

    def _add(self, kind: str, name: str, recorder: Recorder, tensor: torch.Tensor) -> None:
        """Record a tensor; an input that was recorded in this forward pass already becomes an alias of that record."""
        if not recorder.wants(kind):
            return
        stored = self._stored.get(id(tensor))
        is_known = stored is not None and stored.version == tensor._version
        if is_known and kind == "input":
            recorder.alias(kind, name, stored.key)
            return
        with self.layout_recorder.paused():
            key = recorder.add(kind, name, weights.to_numpy(tensor))
        if key and kind in FORWARD and not is_known:
            self._stored[id(tensor)] = _Stored(tensor, tensor._version, key)

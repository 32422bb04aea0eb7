"""The probe: records what a model does from outside, by hooks on its modules and parameters.

The model is a built-in case's, which a strategy trains, or a user's, whose passes are run one by one.
"""

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from parity.runtime.drive import Run
from parity.trace import keys
from parity.trace.recorder import FORWARD, Recorder
from torch_impl.instruments.structure import is_dtensor
from torch_impl.record import calls, tree, weights
from torch_impl.record.pair.outputs import Named, flat
from torch_impl.record.recorders import LayoutRecorder, Replicas


class _Stored(NamedTuple):
    """A tensor recorded in this forward pass, its version counter at that time, and the key of the record."""

    tensor: weakref.ref[torch.Tensor]
    version: int
    key: str


class Probe:
    """Records the run of a placed model: in `modules` the kinds of what was called, in `classes` the classes of all."""

    def __init__(self, run: Run, model: nn.Module, state: weights.Weights, layout_recorder: LayoutRecorder):
        self.model, self.weights, self.layout_recorder = model, state, layout_recorder
        self.replicas = Replicas(run, layout_recorder.machine.rank or 0)
        self.modules: dict[str, str] = {}
        self._kinds = {path: tree.kind(module) for path, module in tree.named(model).items()}
        self.classes = {path: type(module).__name__ for path, module in tree.named(model).items()}
        self._leaves = tree.leaves(model)
        self._is_pair = run.pair is not None
        self._is_compiled = bool(run.pair and run.pair.side and run.pair.side.is_compiled)
        self._backwards: Counter[str] = Counter()
        self._order: dict[str, None] = {}
        self._stored: dict[int, _Stored] = {}  # by id(tensor)
        for name, parts in state.trained.items():
            for part in parts:
                part.register_post_accumulate_grad_hook(self._on_gradient(name, len(parts)))

    def attach(self) -> None:
        """Record every call of the model from now on, and the gradients that the optimizer is about to apply."""
        calls.observed(tree.called(self.model), self._on_call, self._on_return)
        self.weights.optimizer.register_step_pre_hook(self._on_update)

    @contextmanager
    def forward(self, inputs: list[torch.Tensor], on_outputs: Callable[[Any], object] | None = None) -> Iterator[None]:
        """Record the model's inputs and, within the block, what its modules are given and return.

        With `on_outputs`, the block is a whole training step: what each call of the model returns is passed on.
        Activations that a checkpoint recomputes in a backward pass are not recorded, nor those within a model that is
        compiled: the compiler would trace the hooks.
        """
        self._stored.clear()
        self._tensors("input", "input", inputs)
        with ExitStack() as stack:
            if not self._is_compiled:
                stack.enter_context(calls.observed(tree.inner(self.model), self._on_call, self._on_return))
            if on_outputs and not self._is_compiled:
                root = {keys.MODEL: self.model}
                stack.enter_context(calls.observed(root, lambda _: None, lambda _, outputs: on_outputs(outputs)))
            yield

    def outputs(self, named: Named) -> None:
        """Record what the model returned; the recorder numbers outputs without names."""
        for name, tensor in named:
            self._tensors("activation", keys.MODEL if name.startswith(f"{keys.MODEL}#") else name, tensor)

    def watched_loss(
        self, loss: Callable[..., torch.Tensor], outputs: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        """Return a loss; record it with the target."""
        value = loss(outputs, target)
        self.loss(value, None if self.replicas.gathered else target)
        return value

    def loss(self, value: torch.Tensor, target: torch.Tensor | None) -> None:
        """Record the loss, or the scalar that is differentiated, and the target."""
        self._tensors("input", "target", target)
        self._tensors("loss", "loss", value)

    def gradients(
        self,
        inputs: Mapping[str, torch.Tensor],
        values: Mapping[int, torch.Tensor],
        applied: Mapping[int, torch.Tensor] = {},
    ) -> None:
        """Record the gradients of the parameters, in the order of the backward pass, and of the inputs.

        `values`: the parameters' gradients by id(). A missing gradient is recorded as zeros: where nothing flows back,
        one framework returns zeros and the other None. `applied`: as an optimizer has applied them, where its hooks may
        have changed them.
        """
        if self.replicas.first.wants("gradient"):
            names = dict.fromkeys((*self._order, *self.weights.trained))
            self._store(("gradient", name, self._given(name, values)) for name in names)
            if values and any(not torch.equal(values[key], each) for key, each in applied.items()):
                self._store(("gradient", name + keys.APPLIED, self._given(name, applied)) for name in names)
            for name, tensor in inputs.items():
                if tensor.requires_grad:
                    gradient = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
                    self._tensors("gradient", f"{keys.INPUT}.{name}", gradient)

    def _given(self, name: str, values: Mapping[int, torch.Tensor]) -> np.ndarray:
        parts = self.weights.trained[name]
        return weights.array(*(values[id(part)] if id(part) in values else torch.zeros_like(part) for part in parts))

    def on_step(self) -> None:
        """Record parameters, buffers and the optimizer's state; called before the first step and after each update."""
        with self.layout_recorder.paused():
            self._store(self.weights.state(self.replicas.first.wants))
        self._order.clear()
        self._stored.clear()
        self.replicas.end_step()

    def _on_call(self, call: calls.Call) -> None:
        """Record what a module is given, before an in-place module overwrites it."""
        if calls.is_backward():
            return
        if not call.path:
            self._tensors("input", "input", call.args)
            if self.replicas.gathered and self.replicas.local:
                self._watch_copies(call.module)
        elif self.replicas.takes_input(call.path):  # what can be compared with the other framework's call
            module, args, kwargs, is_leaf = call.module, call.args, call.kwargs, call.path in self._leaves
            given = tree.passed(module, args, kwargs) if self._is_pair else tree.arguments(module, args, is_leaf)
            self._tensors("input", call.path, given)

    def _on_return(self, call: calls.Call, outputs: Any) -> None:
        """Record a module's output, or this rank's shard of it."""
        if calls.is_backward() or not self.replicas.takes_output(call.path):
            return
        if call.path:
            self.modules[call.path] = self._kinds[call.path]
        if is_dtensor(outputs):
            shard = outputs.to_local()
            if shard.numel():
                self._add("activation", f"{call.path}@shard{self.replicas.rank}", self.replicas.first, shard)
        elif call.path or not self.replicas.gathered:
            self._tensors("activation", call.path or keys.MODEL, outputs)

    def _watch_copies(self, replica: nn.Module) -> None:
        """Record the gradients of a replica's parameters: copies, which nn.DataParallel's modules hold aside."""
        for path, module in tree.named(replica).items():
            for part, copy in getattr(module, "_former_parameters", {}).items():
                if copy.requires_grad:
                    name = f"{path}.{part}" if path else part
                    copy.register_hook(functools.partial(self._tensors, "gradient", name + keys.LOCAL))

    def _on_gradient(self, name: str, parts: int) -> Callable[[torch.Tensor], None]:
        """Return a hook that runs when a parameter's gradient has been accumulated.

        At the last backward pass of a step it notes the order of the gradients, and records this process's own gradient
        before any reduction over ranks.
        """
        passes = parts * self.replicas.passes
        probe = weakref.proxy(self)  # autograd would keep the probe, and so the model, for ever

        def hook(parameter: torch.Tensor) -> None:
            probe._stored.clear()  # the forward pass is over
            probe._backwards[name] += 1
            if probe._backwards[name] % passes == 0:
                probe._order[name] = None
                probe._local_gradient(name)

        return hook

    def _local_gradient(self, name: str) -> None:
        """Record this process's own gradient of a parameter.

        DDP's loss is multiplied by the number of ranks, because DDP averages. Divided by it again, the local gradients
        add up to the gradient of the step.
        """
        if not self.replicas.is_unreduced or not self.replicas.first.wants("gradient"):
            return
        with self.layout_recorder.paused():
            own = self.weights.gradients([name])
            self._store(("gradient", name + keys.LOCAL, gradient / self.replicas.scale) for _, gradient in own)

    def _on_update(self, *_: Any) -> None:
        """Record the gradients that the optimizer is about to apply, in the order of the backward pass."""
        if self.replicas.first.wants("gradient"):
            with self.layout_recorder.paused():
                self._store(("gradient", *named) for named in self.weights.gradients(self._order))

    def _store(self, state: Iterable[tuple[str, str, np.ndarray]]) -> None:
        for kind, name, array in state:  # do not break early: all ranks must take part in gathering a sharded tensor
            if not self.replicas.silent:
                self.replicas.first.add(kind, name, array)

    def _tensors(self, kind: str, name: str, value: Any) -> None:
        """Record every tensor in a nest of tuples, lists and dicts."""
        for tensor in () if self.replicas.silent else flat(value):
            self._add(kind, name, self.replicas.recorder(kind, tensor), tensor)

    def _add(self, kind: str, name: str, recorder: Recorder, tensor: torch.Tensor) -> None:
        """Record a tensor; an input that was recorded in this forward pass already becomes an alias of that record."""
        if not recorder.wants(kind):
            return
        stored = self._stored.get(id(tensor))
        is_known = stored is not None and stored.tensor() is tensor and stored.version == tensor._version
        if is_known and kind == "input":
            recorder.alias(kind, name, stored.key)
            return
        with self.layout_recorder.paused():
            key = recorder.add(kind, name, weights.array(tensor))
        if key and kind in FORWARD and not is_known:
            self._stored[id(tensor)] = _Stored(weakref.ref(tensor), tensor._version, key)

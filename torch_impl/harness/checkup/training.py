"""How a step learns: its backward passes, the gradients that come of them, the optimizers, float16 and its scale."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer, optimizer

from parity.checkup.evidence import Backward, Gradient, Step
from parity.checkup.evidence import Optimizer as Seen
from torch_impl.harness.checkup import source, values
from torch_impl.harness.checkup.build import Building
from torch_impl.harness.checkup.calls import Calls
from torch_impl.harness.checkup.origins import Origins
from torch_impl.harness.checkup.structure import inner

STATES = ("none", "zero", "finite", "not_finite")  # of a gradient that was seen several times the last of these counts
VALUED = ("finite", "not_finite")
SCALES = ("MulBackward", "DivBackward")


class Training:
    """Watches the training in a step."""

    def __init__(self, model: nn.Module, building: Building, calls: Calls, origins: Origins):
        self.model, self.building, self.calls, self.origins = inner(model), building, calls, origins
        self.names = {id(parameter): name for name, parameter in self.model.named_parameters()}

    @contextmanager
    def watched(self, step: Step, reached: Callable[[Any], None]) -> Iterator[None]:
        """Within it, what happens is noted in the step; `reached` gets the losses and what gradients there are."""
        self.step, self.reached = step, reached
        self._states = dict.fromkeys(self.names.values(), "none")
        self._fresh = False  # there are gradients that nobody has looked at
        self._stepped: dict[Optimizer, None] = {}
        self._updates = 0
        self._unscaled: list[tuple[torch.Tensor, torch.Tensor]] = []  # losses as a GradScaler made them, and before
        with ExitStack() as stack:
            for patch in self._patches():
                stack.enter_context(patch)
            for handle in (
                optimizer.register_optimizer_step_pre_hook(self._on_update),
                optimizer.register_optimizer_step_post_hook(self._on_updated),
            ):
                stack.callback(handle.remove)
            yield

    def finish(self) -> None:
        """The rest, when the step is over."""
        self._look_at_gradients()
        self.step.gradients += [Gradient(parameter=name, state=state) for name, state in self._states.items()]
        self.step.optimizers += map(self._seen, self.building.optimizers)
        self.step.half = self.step.half or self._half_parameters()
        self._unscaled.clear()

    def _patches(self) -> list[Any]:
        return [
            self.building.noting_optimizers(),
            _patch(torch.autograd, "_engine_run_backward", self._backward),
            _patch(Optimizer, "zero_grad", self._clear),
            _patch(nn.Module, "zero_grad", self._clear),
            _patch(GradScaler, "scale", self._scale),
            _patch(GradScaler, "step", self._scaled_update),
            _patch(torch.autocast, "__enter__", self._autocast),
        ]

    def _backward(self, run: Callable[..., Any], roots: Any, *args: Any, **kwargs: Any) -> Any:
        if self.calls.phase == "backward":
            return run(roots, *args, **kwargs)  # a checkpoint's
        scaled = any(map(self._is_scaled, roots))
        noted = Backward(source=source.line(), scaled=scaled, kept=[], updates=self._updates)
        self.step.backwards.append(noted)
        self._fresh = True
        before = {name: parameter.grad for name, parameter in self._parameters()}
        before = {name: (held, held._version) for name, held in before.items() if values.state(held) in VALUED}
        self.reached(roots)
        for root in roots:
            self.origins.note(root, "loss")
        with self.calls.within("backward", "update" if self.calls.phase == "update" else "other"):
            results = run(roots, *args, **kwargs)
        for name, parameter in self._parameters():
            held, version = before.get(name, (parameter.grad, None))
            if version is not None and (parameter.grad is not held or held._version != version):
                noted.kept.append(name)
        return results

    def _clear(self, clear: Callable[..., Any], owner: Any, *args: Any, **kwargs: Any) -> Any:
        self._look_at_gradients()
        return clear(owner, *args, **kwargs)

    def _scale(self, scale: Callable[..., Any], scaler: GradScaler, outputs: Any) -> Any:
        scaled = scale(scaler, outputs)
        if scaler.is_enabled():
            self.step.loss_scaled = True
            if isinstance(outputs, torch.Tensor):
                self._unscaled.append((scaled, outputs))
        return scaled

    def _scaled_update(self, update: Callable[..., Any], scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
        """It leaves the optimizer out if a gradient is not finite."""
        self._note_step(args[0] if args else kwargs["optimizer"])
        return update(scaler, *args, **kwargs)

    def _autocast(self, enter: Callable[..., Any], context: torch.autocast) -> Any:
        if context._enabled and context.fast_dtype == torch.float16:
            self.step.half = self.step.half or source.line()
        return enter(context)

    def _on_update(self, stepping: Optimizer, *_: Any) -> None:
        self._note_step(stepping)
        self._look_at_gradients()
        self.calls.phase = "update"

    def _on_updated(self, *_: Any) -> None:
        self._updates += 1
        self.calls.phase = "other"

    def _note_step(self, stepping: Optimizer) -> None:
        self._stepped[stepping] = None
        self.building.optimizers.setdefault(stepping, "")

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return self.model.named_parameters()

    def _look_at_gradients(self) -> None:
        """As they are now, if there was a backward pass since they were looked at."""
        fresh, self._fresh = self._fresh, False
        for name, parameter in self._parameters() if fresh else ():
            state = values.state(parameter.grad)
            self._states[name] = max(state, self._states.get(name, "none"), key=STATES.index)
            if state != "none":
                self.origins.note(parameter.grad, "gradient")
            if state == "not_finite":
                self.reached(parameter.grad)

    def _is_scaled(self, root: torch.Tensor) -> bool:
        """Whether it was multiplied or divided by a number, but for what a GradScaler did; or elsewhere, if no loss."""
        if root.numel() > 1:
            return True  # a stage's output, whose gradient came from another rank
        root = next((before for scaled, before in self._unscaled if scaled is root), root)
        node = root.grad_fn
        if node is None or not node.name().startswith(SCALES):
            return False
        return sum(before is not None for before, _ in node.next_functions) == 1

    def _seen(self, known: Optimizer) -> Seen:
        held = [parameter for group in known.param_groups for parameter in group["params"]]
        return Seen(
            kind=type(known).__name__,
            source=self.building.optimizers[known],
            parameters=[self.names[id(parameter)] for parameter in held if id(parameter) in self.names],
            stepped=known in self._stepped,
        )

    def _half_parameters(self) -> str:
        """The line that made parameters float16."""
        for module in self.model.modules():
            own = module.parameters(recurse=False)
            if any(parameter.dtype == torch.float16 and parameter.requires_grad for parameter in own):
                return self.building.half or self.building.lines.get(module, "")
        return ""


def _patch(owner: Any, name: str, function: Callable[..., Any]) -> Any:
    """The attribute, if called, is a call of the function with the original first."""
    original = getattr(owner, name)

    def patched(*args: Any, **kwargs: Any) -> Any:
        return function(original, *args, **kwargs)

    return mock.patch.object(owner, name, patched)

"""What is seen of a training step from outside: what it differentiates, and the gradients."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

Gradients = dict[int, torch.Tensor]  # by id(parameter)


class StepObserver:
    """What is seen of a step of the user's own: `on_loss` is called with what each backward pass differentiates.

    The gradients are those that an optimizer applies, because such a step may clip, scale or accumulate them by itself;
    in a step that calls no optimizer, those that the backward pass left. `is_applied` says which they are.
    """

    def __init__(
        self, trained: Iterable[torch.Tensor], on_loss: Callable[[torch.Tensor], None] = lambda _: None
    ) -> None:
        self.on_loss, self.losses = on_loss, []
        self.gradients: Gradients = {}
        self.is_applied = False
        self._trained = {id(parameter): parameter for parameter in trained}
        self._scaled: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by id() of a scaled loss, which is kept

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See what is done within the block."""
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(torch.autograd, "backward", self._backward(torch.autograd.backward)))
            stack.enter_context(mock.patch.object(torch.autograd, "grad", self._grad(torch.autograd.grad)))
            scaler = torch.amp.GradScaler
            stack.enter_context(mock.patch.object(scaler, "scale", self._scale(scaler.scale)))
            stack.callback(register_optimizer_step_pre_hook(self._on_update).remove)
            yield

    def _backward(self, backward: Callable[..., None]) -> Callable[..., None]:
        def differentiated(tensors: Any, *args: Any, **kwargs: Any) -> None:
            self._note([tensors] if isinstance(tensors, torch.Tensor) else list(tensors))
            backward(tensors, *args, **kwargs)
            if not self.is_applied:
                self._keep(self._trained.values())

        return differentiated

    def _grad(self, grad: Callable[..., Any]) -> Callable[..., Any]:
        def differentiated(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            by = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
            if any(id(each) in self._trained for each in by):
                self._note([outputs] if isinstance(outputs, torch.Tensor) else list(outputs))
            return grad(outputs, inputs, *args, **kwargs)

        return differentiated

    def _scale(self, scale: Callable[..., Any]) -> Callable[..., Any]:
        def scaled(scaler: Any, outputs: Any) -> Any:
            larger = scale(scaler, outputs)
            if isinstance(outputs, torch.Tensor):
                self._scaled[id(larger)] = larger, outputs
            return larger

        return scaled

    def _note(self, parts: list[torch.Tensor]) -> None:
        total = parts[0] if len(parts) == 1 else sum(part.sum() for part in parts)
        loss = self._scaled.get(id(total), (total, total))[1]
        self.losses.append(loss.detach())
        self.on_loss(loss)

    def _on_update(self, optimizer: Optimizer, *_: Any) -> None:
        """Keep the gradients that an optimizer is about to apply; then what backward passes left counts no more."""
        if not self.is_applied:
            self.is_applied = True
            self.gradients.clear()
        self._keep(parameter for group in optimizer.param_groups for parameter in group["params"])

    def _keep(self, parameters: Iterable[torch.Tensor]) -> None:
        for each in parameters:
            if each.grad is not None and id(each) in self._trained:
                self.gradients[id(each)] = each.grad.detach().clone()

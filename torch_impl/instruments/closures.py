"""Steps of an optimizer that compute the gradients themselves, by the closure that they are given."""

from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_pre_hooks


def announce(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let the hooks of a step be called, as without a closure, when its closure has computed the gradients.

    A hook itself, before a step; returns the step's arguments, or nothing where it has no closure.
    """
    closure = kwargs.get("closure") or next(iter(args[1:]), None)
    if closure is None:
        return None

    def announced() -> Any:
        returned = closure()
        for hook in list(_global_optimizer_pre_hooks.values()):
            hook(optimizer, (optimizer,), {})
        return returned

    return (optimizer, announced), {}

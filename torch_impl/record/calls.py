"""Calls of modules: the one stack of the modules that are being called, and the hooks that report calls.

Recording, layout, dropout masks, float64 promotion and the doctor all ask this stack where in the model the code that
is running belongs. It imports nothing of this package, so that its instruments may import it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest import mock
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules import module as global_hooks

from parity.core.patches import CallStack, Original, applied, around, pushed


class Call(NamedTuple):
    """One call of a module, by the module's path."""

    path: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


_stack = CallStack()
# Within `unobserved` modules are not kept on the stack either.
unobserved, is_observed = _stack.unobserved, _stack.is_observed
_listeners: list[tuple[Callable[[], None], Callable[[], None]]] = []  # on_call, on_return
_hooks = ExitStack()
# The copies that nn.DataParallel makes for each forward, by copy.
_originals: "WeakKeyDictionary[nn.Module, nn.Module]" = WeakKeyDictionary()


def running() -> list[nn.Module]:
    """Return the modules that are being called in this thread, the innermost last; a replica's original for it."""
    return _stack.running


def innermost(paths: Mapping[nn.Module, str]) -> str | None:
    """Return the path of the innermost module that is being called and has one; None if there is none."""
    return next((paths[module] for module in reversed(running()) if module in paths), None)


def is_backward() -> bool:
    """Return whether a backward pass is running, in which torch.utils.checkpoint calls modules again (as it tells)."""
    return torch._C._current_graph_task_id() != -1


def entered(module: nn.Module) -> AbstractContextManager[None]:
    """Return a context in which the module counts as being called."""
    return pushed(running(), module)


@contextmanager
def tracked(on_call: Callable[[], None] = lambda: None, on_return: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Keep the stack within the block; blocks may overlap.

    The functions are called at the beginning and at the end of every call, while its module is on the stack.
    """
    listener, depth = (on_call, on_return), len(running())
    _listeners.append(listener)
    if len(_listeners) == 1:
        _hooks.callback(global_hooks.register_module_forward_pre_hook(_on_call).remove)
        _hooks.callback(global_hooks.register_module_forward_hook(_on_return, always_call=True).remove)
        _hooks.enter_context(around(nn.DataParallel, "replicate", _replicate))
    try:
        yield
    finally:
        _listeners.remove(listener)
        del running()[depth:]  # torch calls no hook when a call is left by what is no Exception
        if not _listeners:
            _hooks.close()


def untracked() -> AbstractContextManager[None]:
    """Return a context without the hooks of all modules, for a compiler, which would trace them."""
    return applied(mock.patch.dict(hooks, clear=True) for hooks in _GLOBAL)


_GLOBAL = (
    global_hooks._global_forward_pre_hooks,
    global_hooks._global_forward_hooks,
    global_hooks._global_forward_hooks_always_called,
)


def observed(
    modules: Mapping[str, nn.Module], on_call: Callable[[Call], None], on_return: Callable[[Call, Any], None]
) -> ExitStack:
    """Report calls of modules, as their own code sees them, and what they return, until the stack is closed."""
    hooks = ExitStack()
    for path, module in modules.items():
        before, behind = partial(_before, path, on_call), partial(_behind, path, on_return)
        hooks.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
        hooks.callback(module.register_forward_hook(behind, with_kwargs=True).remove)
    return hooks


def _before(path: str, on_call: Callable[[Call], None], *given: Any) -> None:
    if is_observed():
        on_call(Call(path, *given))


def _behind(path: str, on_return: Callable[[Call, Any], None], *given: Any) -> None:
    *call, outputs = given
    if is_observed():
        on_return(Call(path, *call), outputs)


def _on_call(module: nn.Module, *_given: Any) -> None:
    if not is_observed():
        return
    running().append(_originals.get(module, module))
    for on_call, _ in _listeners:
        on_call()


def _on_return(*_given: Any) -> None:
    if not is_observed():
        return
    for _, on_return in _listeners:
        on_return()
    running().pop()


def _replicate(replicate: Original, parallel: nn.DataParallel, module: nn.Module, *args: Any) -> list[nn.Module]:
    """Make the copies of nn.DataParallel, and note of each which module it is a copy of."""
    replicas = replicate(parallel, module, *args)
    for replica in replicas:
        _originals.update(zip(replica.modules(), module.modules(), strict=True))
    return replicas

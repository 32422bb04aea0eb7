"""Calls of layers: the one stack of the layers that are being called, and the wrappers that report calls.

Recording, dropout masks, float64 promotion and the doctor all ask this stack where in the model the code that is
running belongs. It imports nothing of this package that records, so that its instruments may import it.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple
from unittest import mock

import tensorflow as tf

from keras_impl.record.pair.outputs import flat
from parity.core.patches import CallStack, pushed


class Call(NamedTuple):
    """One call of a layer, by the layer's path; `tensors` are all that go in, in the order of its arguments."""

    path: str
    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: list[tf.Tensor]


class _Running(NamedTuple):
    """A layer that is being called, and its path."""

    path: str
    module: Any


_stack = CallStack()
unobserved, is_observed = _stack.unobserved, _stack.is_observed


def running() -> list[_Running]:
    """Return the layers that are being called in this thread, the innermost last."""
    return _stack.running


def innermost() -> str | None:
    """Return the path of the innermost layer that is being called; None if there is none."""
    return running()[-1].path if running() else None


def entered(path: str, module: Any = None) -> AbstractContextManager[None]:
    """Return a context in which the layer counts as being called."""
    return pushed(running(), _Running(path, module))


def observed(
    modules: Mapping[str, Any], on_call: Callable[[Call], None], on_return: Callable[[Call, Any], None]
) -> ExitStack:
    """Report every call of these layers, and what it returns, until the returned stack is closed."""
    wrapped = ExitStack()
    for path, module in modules.items():
        wrapped.enter_context(mock.patch.object(module, "call", _observed(path, module, on_call, on_return)))
    return wrapped


def _observed(
    path: str, module: Any, on_call: Callable[[Call], None], on_return: Callable[[Call, Any], None]
) -> Callable[..., Any]:
    function = module.call
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if not is_observed():
            with entered(path, module):
                return function(*args, **kwargs)
        tensors = list(flat(list(signature.bind(*args, **kwargs).arguments.values())))
        call = Call(path, module, args, kwargs, tensors)
        on_call(call)
        with entered(path, module):
            outputs = function(*args, **kwargs)
        on_return(call, outputs)
        return outputs

    return called

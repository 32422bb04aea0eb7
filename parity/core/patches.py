"""Functions that are replaced within a block of code, by others that get the original one; and other settings.

Among these is what counts as being called.
"""

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NoReturn, TypeVar
from unittest import mock

Value = TypeVar("Value")
Original = Callable[..., Any]  # a function in whose place another one is called


@contextmanager
def around(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[Any]:
    """Patch a function, in place of which `function(original, *args, **kwargs)` is called within the block.

    The original is what stands there when the block begins: of two patches of one function both are called.
    """
    with mock.patch.object(owner, name, calling(function, getattr(owner, name))) as called:
        yield called


def calling(function: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    """Return a function that calls another one with these arguments first; unlike a partial, a class binds it."""

    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*first, *args, **kwargs)

    return called


def wrapping(function: Callable[..., Any], original: Callable[..., Any], *further: Any) -> Callable[..., Any]:
    """Return a function that calls another one with the original and further arguments first, named as the original."""
    return functools.wraps(original)(calling(function, original, *further))


@contextmanager
def applied(patches: Iterable[AbstractContextManager[Any]]) -> Iterator[None]:
    """Apply patches within the block, or enter any other contexts, one after the other."""
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


@contextmanager
def setting(read: Callable[[], Value], write: Callable[[Value], object], value: Value) -> Iterator[None]:
    """Write a setting, and at the end of the block write what it was before."""
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


@contextmanager
def pushed(stack: list[Value], value: Value) -> Iterator[None]:
    """Keep a value on top of a stack within the block."""
    stack.append(value)
    try:
        yield
    finally:
        stack.pop()


class CallStack(threading.local):
    """The modules that a thread calls: nn.DataParallel on GPUs, and tf.distribute, have a thread for each replica."""

    def __init__(self) -> None:
        self.running: list[Any] = []  # the innermost last
        self._is_unobserved = False

    def unobserved(self) -> AbstractContextManager[Any]:
        """Return a context in which no calls are reported."""
        return mock.patch.object(self, "_is_unobserved", True)

    def is_observed(self) -> bool:
        """Return whether calls are reported, outside of `unobserved`."""
        return not self._is_unobserved


class Left(BaseException):
    """Raised to leave code in its middle, perhaps with a value."""


def left_with(run: Callable[[Callable[[Any], NoReturn]], object], otherwise: str) -> Any:
    """Return the value with which code is left, whose `run` gets the function that leaves it so.

    Raises LookupError, which says `otherwise`, if it comes to its end.
    """

    def leave(value: Any) -> NoReturn:
        raise Left(value)

    try:
        run(leave)
    except Left as left:
        return left.args[0]
    raise LookupError(otherwise)

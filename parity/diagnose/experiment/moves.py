"""Layers that a module calls elsewhere: before or behind another one, or on a part of a sum.

A norm behind a pooling and not before it, or a scale of a block and not of what it is added to, is a change of no
setting. So a layer that leaves its tensor's shape as it is passes that on, and is called where it may belong. One that
is called a second time gives what it gave at first.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple

from parity.core.patches import around
from parity.diagnose.experiment.knobs import Changed, Knob, one_of
from parity.diagnose.experiment.operations import BEHIND, IN_PLACE, LAYERS, ORDER

ONCE: Final = "called once"
MOST: Final = 96  # layers of a module
NEAR: Final = 3  # calls before and behind its own at which a layer is tried
BEFORE, ALONE = "before", "on what is added to that of"


class Called(NamedTuple):
    """A call of a layer by the module: with one tensor, which it gives another of that shape, or otherwise."""

    layer: Any
    given: Any  # the tensor; None if it is not called with one alone
    kwargs: Mapping[str, Any]
    returned: Any
    line: str

    @property
    def is_plain(self) -> bool:
        """Return whether it may be called elsewhere: what it returns is another tensor, of the shape of its own."""
        alike = self.given is not None and tuple(getattr(self.returned, "shape", ())) == tuple(self.given.shape)
        return alike and self.returned is not self.given


OnCall = Callable[[dict[int, Any], int, Callable[..., Any], Any, Any, Any], Any]


def _seen(module: Any, kind: type, on_call: OnCall) -> AbstractContextManager[Any]:
    """Return the context in which the calls of a module's own layers are seen.

    `kind`: the framework's class whose calls are seen. `on_call` is given what earlier calls have returned, by their
    numbers, the number of each call, the call, its layer and its arguments, and returns what the call returns.
    """
    running, returned, numbers = list[Any](), dict[int, Any](), itertools.count()

    def called(call: Callable[..., Any], layer: Any, *args: Any, **kwargs: Any) -> Any:
        around_it = running[-1] if running else module
        running.append(layer)
        try:
            if around_it is not module or layer is module:
                return call(layer, *args, **kwargs)
            number = next(numbers)
            returned[number] = on_call(returned, number, call, layer, args, kwargs)
            return returned[number]
        finally:
            running.pop()

    return around(kind, "__call__", called)


def moves(
    module: Any, kind: type, replay: Callable[[], Any], line: Callable[[], str], names: Mapping[int, str]
) -> list[Knob]:
    """Return, for each layer that a module calls, the other places at which it may be called.

    `replay`: calls the module again, or the whole model. `line`: returns the user's line that is running. `names`:
    those of the layers, by id(). The rest as in `_seen`.
    """
    made: list[Called] = []

    def note(_: Any, number: int, call: Callable[..., Any], layer: Any, args: Any, kwargs: Any) -> Any:
        returned = call(layer, *args, **kwargs)
        given = args[0] if len(args) == 1 and hasattr(args[0], "shape") else None
        made.append(Called(layer, given, kwargs, returned, line()))
        return returned

    with _seen(module, kind, note):
        replay()
    return list(_knobs(module, kind, made, names)) if len(made) <= MOST else []


def _knobs(module: Any, kind: type, made: list[Called], names: Mapping[int, str]) -> Iterator[Knob]:
    shown = [f"`{names.get(id(each.layer), type(each.layer).__name__)}`" for each in made]
    for number, call in enumerate(made):
        contexts = {
            f"{shown[number]} {how} {shown[at]}": _moved(module, kind, number, call, how, at)
            for how, at in (_positions(number, made) if call.is_plain else ())
        }
        first = next(at for at in range(number + 1) if made[at].layer is call.layer)
        if first < number:
            contexts[f"{shown[number]} {ONCE}"] = _moved(module, kind, number, call, ONCE, first)
        if contexts:
            owner, before = type(module).__name__, f"{shown[number]} {IN_PLACE}"
            change: Changed = one_of(lambda enter: enter(), {before: nullcontext, **contexts})
            yield Knob(ORDER, owner, call.line, before, "operation", change, tuple(contexts), LAYERS)


def _positions(number: int, made: list[Called]) -> Iterator[tuple[str, int]]:
    """Yield where a layer may be called: behind or before another one, or on one of two tensors that are added."""
    for at in range(number + 1, min(number + 1 + NEAR, len(made))):
        yield BEHIND, at
        if at > number + 1:
            yield BEFORE, at
    for at in range(number - 1, max(number - 1 - NEAR, -1), -1):
        yield BEFORE, at
        if made[at].returned is not made[number].given:
            yield ALONE, at


def _moved(
    module: Any, kind: type, number: int, moved: Called, how: str, at: int
) -> Callable[[], AbstractContextManager[Any]]:
    """Return the context in which a layer is called at another place, or returns what an earlier call of it did."""

    def do(returned: dict[int, Any], here: int, call: Callable[..., Any], layer: Any, args: Any, kwargs: Any) -> Any:
        def again(tensor: Any) -> Any:
            return call(moved.layer, tensor, **moved.kwargs)

        if here == number and how == ONCE:
            return returned[at]
        if here == number:
            return args[0] - returned[at] + again(returned[at]) if how == ALONE else args[0]
        if here == at and how == BEFORE:
            args = (again(args[0]), *args[1:])
        result = call(layer, *args, **kwargs)
        return again(result) if here == at and how == BEHIND else result

    return lambda: _seen(module, kind, do)

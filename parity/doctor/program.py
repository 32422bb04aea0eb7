"""A user's functions by name: "module:function", looked for in the working directory and where Python looks."""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from parity.core.errors import UsageError, nearest
from parity.doctor import ownership

PATH = tuple(sys.path)  # before any program's folders are added


def load(
    flag: str, text: str, *arguments: str, search: Sequence[str] = (), named: Collection[str] = ()
) -> Callable[..., Any]:
    """The function that a flag names, to be called with so many arguments, and others by name.

    `search`: folders to look in first.

    Raises UsageError; what the module raises while it is imported comes through.
    """
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise UsageError(f"{flag}={text}: expected module:function, e.g. my_package.model:build")
    places = list(dict.fromkeys([*search, os.getcwd()]))
    _look_in(places)
    ownership.claim(module)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # one that the user's module needs
        hint = f" (did you mean {module.removesuffix('.py')}:{name}?)" if module.endswith(".py") else ""
        raise UsageError(
            f"{flag}={text}: there is no module {error.name!r} in {' or '.join(places)} or on Python's path{hint}"
        ) from None
    for part in name.split("."):
        if not hasattr(found, part):
            hint = nearest(part, vars(found))
            raise UsageError(f"{flag}={text}: {module} has no {name!r}{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{flag}={text}: expected a function, received {type(found).__name__}")
    function: Callable[..., Any] = found
    if mismatch := _mismatch(function, arguments, named):
        called = ", ".join([*arguments, *(f"{argument}=..." for argument in named)])
        raise UsageError(f"{flag}={text}: is called as {name}({called}): {mismatch}")
    return function


def _look_in(places: list[str]) -> None:
    """Let imports look there first, and nowhere that an earlier program's did.

    What was imported for that one makes room for a module of the same name here.
    """
    sys.path[:] = places + [path for path in PATH if path not in places]
    own = {Path(entry).stem for place in reversed(places) for entry in os.listdir(place)}
    for name in own & {name.partition(".")[0] for name in sys.modules}:
        known = getattr(sys.modules.get(name), "__file__", None)
        found = PathFinder.find_spec(name, places)
        if known and found and found.origin and known != found.origin and ownership.owner(known) == "user":
            for each in [each for each in sys.modules if f"{each}.".startswith(f"{name}.")]:
                del sys.modules[each]


def _mismatch(function: Callable[..., Any], arguments: tuple[str, ...], named: Collection[str]) -> str:
    """Why a function cannot be called so; "" if it can, or if nothing is known of what it takes."""
    try:
        inspect.signature(function).bind(*arguments, **dict.fromkeys(named))
    except TypeError as error:
        return str(error)
    except ValueError:  # some functions written in C do not say
        return ""
    return ""

"""Import a user's function by its name, "module:function", from the working directory or Python's path."""

import contextlib
import ctypes
import gc
import importlib
import inspect
import mmap
import os
import random
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from parity.core import ownership, script
from parity.core.errors import UsageError, nearest

KEPT = 2 << 30  # bytes of memory that a process may keep when it builds a model anew
PATH = tuple(sys.path)  # as it was before the folders of any program were added
_others: set[str] = set()  # the modules that were imported before the first program's
_forgotten: dict[str, ModuleType] = {}  # by name, the modules that the next `load` imports anew


def load(
    flag: str, text: str, *arguments: str, search: Sequence[str] = (), named: Collection[str] = ()
) -> Callable[..., Any]:
    """Return the function that a flag names.

    `text`: "module:function". `arguments`: names of the positional arguments that it will be called with. `search`:
    folders to search before the working directory and Python's path. `named`: names of the keyword arguments that it
    will be called with.

    Raises:
        UsageError: there is no such function, or it cannot be called so. What the module itself raises while it is
            imported is passed on.
    """
    function = find(flag, text, search)
    if mismatch := _mismatch(function, arguments, named):
        called = ", ".join([*arguments, *(f"{argument}=..." for argument in named)])
        name = text.partition(":")[2]
        raise UsageError(f"{flag}={text}: is called as {name}({called}), which does not fit its signature: {mismatch}")
    return function


def load_loss(flag: str, text: str, *given: str, search: Sequence[str] = ()) -> Callable[..., Any]:
    """Return the user's loss that a flag names, like `load`, called with the outputs and with what is `given` besides.

    One that takes the outputs alone, as that of an autoencoder may, is called with them alone.
    """
    function = find(flag, text, search)
    if _mismatch(function, ("outputs", *given), ()) and not _mismatch(function, ("outputs",), ()):
        return lambda outputs, *_: function(outputs)
    return load(flag, text, "outputs", *given, search=search)


def find(flag: str, text: str, search: Sequence[str] = ()) -> Callable[..., Any]:
    """Return what a flag names, like `load`, whatever arguments it takes. Raises UsageError if there is none."""
    folders = list(dict.fromkeys([*search, os.getcwd()]))
    module, colon, name = text.partition(":")
    if not script.is_script(text) and not (colon and module and name):
        raise UsageError(f"{flag}={text}: expected module:function, e.g. my_package.model:build")
    _others.update(() if _others else sys.modules)
    _look_in(folders)
    if script.is_script(text):
        return script.function(flag, text, folders)
    ownership.claim(module)
    target: Any = _imported(f"{flag}={text}", module, name, folders)
    for part in name.split("."):
        if not hasattr(target, part):
            raise UsageError(f"{flag}={text}: {module} has no {name!r}{nearest(part, vars(target))}")
        target = getattr(target, part)
    if not callable(target):
        raise UsageError(f"{flag}={text}: expected a function, received {type(target).__name__}")
    function: Callable[..., Any] = target
    return function


def begin_anew(seed: int) -> None:
    """Forget the modules of the user's program and seed the generators of Python and NumPy, as in a fresh process.

    They are not seeded with the seed itself: what one side of a pair draws from them without a seed must not be what
    the other draws with a common one, such as 0. The next `load` imports the modules again: their globals, class
    attributes and closures are then as their files have them, whatever an earlier run has left there. Installed
    packages and compiled modules stay. What earlier runs have built is freed.
    """
    free()
    random.seed(f"unseeded {seed}")
    np.random.seed(random.getrandbits(32))
    for name in modules():
        _forgotten[name] = sys.modules.pop(name)


def free(always: bool = True) -> None:
    """Free what nothing refers to any more, and give large memory back, which the allocator would keep (`KEPT`).

    If not `always`, only where this process holds much memory (which can be told on Linux): another may need it.
    """
    file = Path("/proc/self/statm")
    is_large = file.exists() and int(file.read_text().split()[1]) * mmap.PAGESIZE > KEPT
    if always or is_large:
        gc.collect()  # the modules of a model refer to each other
    with contextlib.suppress(OSError, AttributeError):  # another allocator than glibc's
        if is_large:
            ctypes.CDLL(None).malloc_trim(0)


def modules() -> dict[str, ModuleType]:
    """Return the user's own modules that were imported for programs, by name."""
    found = {}
    for name in set(sys.modules) - _others if _others else ():
        file = getattr(sys.modules[name], "__file__", None) or ""
        # Some modules that packages make, such as torch.classes, give a file that is none.
        is_file = file.endswith(".py") and os.path.isabs(file) and not ownership.is_installed(file)
        if is_file and ownership.owner(file) == "user":
            found[name] = sys.modules[name]
    return found


def functions() -> Iterator[tuple[Any, str, FunctionType]]:
    """Yield the functions of the user's own modules and of their classes, each with what holds it, by a name."""
    files = {
        each.__file__: each for each in (*modules().values(), sys.modules["__main__"]) if hasattr(each, "__file__")
    }
    for file, module in files.items():
        classes = [each for each in vars(module).values() if isinstance(each, type)]
        for holder in (module, *(each for each in classes if each.__module__ == module.__name__)):
            for name, value in list(vars(holder).items()):
                if isinstance(value, FunctionType) and value.__code__.co_filename == file:
                    yield holder, name, value


def _imported(received: str, module: str, name: str, folders: list[str]) -> ModuleType:
    """Import the module of a function, or raise a UsageError that begins with `received` if there is none."""
    try:
        return importlib.import_module(module)
    except Exception as error:
        before, spec = _forgotten.get(module), PathFinder.find_spec(module.rpartition(".")[2], folders)
        if before and spec and spec.origin == before.__file__:
            return sys.modules.setdefault(module, before)  # it can be imported only once: it registers names, say
        if not isinstance(error, ModuleNotFoundError):
            raise
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # not the named module, but one that it imports
        hint = f" (did you mean {module.removesuffix('.py')}:{name}?)" if module.endswith(".py") else ""
        raise UsageError(
            f"{received}: there is no module {error.name!r} in {' or '.join(folders)} or on Python's path{hint}"
        ) from None


def _look_in(folders: list[str]) -> None:
    """Put folders at the front of Python's path, in place of those of an earlier program.

    Modules of the user that were imported from an earlier program's folders are forgotten if these folders have a
    module of the same name, so that it is imported from here.
    """
    sys.path[:] = folders + [path for path in PATH if path not in folders]
    own = {Path(entry).stem for folder in reversed(folders) for entry in os.listdir(folder)}
    for name in own & {name.partition(".")[0] for name in sys.modules}:
        imported = getattr(sys.modules.get(name), "__file__", None)
        spec = PathFinder.find_spec(name, folders)
        if imported and spec and spec.origin and imported != spec.origin and ownership.owner(imported) == "user":
            for module in [module for module in sys.modules if f"{module}.".startswith(f"{name}.")]:
                del sys.modules[module]


def _mismatch(function: Callable[..., Any], arguments: tuple[str, ...], named: Collection[str]) -> str:
    """Return why a function cannot be called with these arguments, or "" if it can or its signature is unknown."""
    try:
        inspect.signature(function).bind(*arguments, **dict.fromkeys(named))
    except TypeError as error:
        return str(error)
    except ValueError:  # some functions written in C have no signature
        return ""
    return ""

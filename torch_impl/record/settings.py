"""The settings of PyTorch that hold for a whole process, which a user's code may change for all others."""

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules import module as calls
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

TELLING = ("get_", "is_", "are_", "_get_")  # how the names of functions begin that return a setting
PLAIN = (bool, int, float, str, torch.dtype, torch.device)
PRECISIONS = (("generic", "all"), *itertools.product(("cuda", "mkldnn"), ("all", "matmul", "conv", "rnn")))


def settings() -> dict[str, str]:
    """Return every global setting that PyTorch tells, by name, as text.

    Read in general, so that new settings are among them: what torch's own functions without arguments return, the
    flags of torch.backends, and the modes and hooks that hold for all modules.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of the functions are deprecated
        told = [*_told(torch), *_told(torch._C), *_flags()]
    modes = [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]
    told.append(("modes", [type(mode).__name__ for mode in modes]))
    hooks = {name: held for name, held in vars(calls).items() if name.startswith("_global_") and isinstance(held, dict)}
    told += [(f"torch.nn.modules.module.{name}", list(held)) for name, held in hooks.items()]
    return {name: repr(value) for name, value in told}


def _told(owner: Any) -> Iterator[tuple[str, Any]]:
    """Return what those functions of a module return that need no argument."""
    for name in dir(owner):
        function = getattr(owner, name)
        if not name.startswith(TELLING) or isinstance(function, type) or not callable(function):
            continue
        if _is_setting(value := _returned(function)):
            yield f"{owner.__name__}.{name}", value


def _returned(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception:  # it wants arguments, or a device that is not there
        return None


def _flags() -> Iterator[tuple[str, Any]]:
    """Return the attributes of torch.backends, and the precisions that it keeps by backend and op."""
    for path, owner in [*sys.modules.items()]:
        for name in dir(owner) if f"{path}.".startswith("torch.backends.") else ():
            if not name.startswith("__") and _is_setting(value := getattr(owner, name, None)):
                yield f"{path}.{name}", value
    for backend, op in PRECISIONS:
        yield f"torch.backends.{backend}.{op}.fp32_precision", torch._C._get_fp32_precision_getter(backend, op)


def _is_setting(value: Any) -> bool:
    """Return whether a value is a number, a name, a choice of an enum, or several of these: its text says all of it."""
    if isinstance(value, (tuple, list)):
        return all(map(_is_setting, value))
    return isinstance(value, PLAIN) or hasattr(type(value), "__members__")

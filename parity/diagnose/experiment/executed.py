"""Which functions a call runs through: those of the model's code, and those of a framework that it calls directly."""

import gc
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple


class Executed(NamedTuple):
    """A function that was run.

    Attributes:
        function: the function.
        file: its file.
        source: "file:line" of the model's code that called it first.
        is_models: whether it belongs to the model's code, rather than to a framework that this code calls.
    """

    function: Any  # a types.FunctionType, of which a type checker would make a method
    file: str
    source: str
    is_models: bool

    @property
    def name(self) -> str:
        """Return the function's name, with that of its class."""
        return str(self.function.__qualname__).replace("<locals>.", "")


def executed(
    call: Callable[[], Any], is_models: Callable[[str], bool], is_paused: Callable[[], bool]
) -> tuple[list[Executed], set[str]]:
    """Call, and return the functions that it ran through, in order, and all names that their code refers to.

    Args:
        call: what is called.
        is_models: whether a file belongs to the model's code: neither a framework, nor Python, nor this project.
        is_paused: whether what is running now is to be left out.
    """
    calls: dict[types.CodeType, str] = {}
    names: set[str] = set()

    def on_event(frame: types.FrameType, event: str, argument: Any) -> None:
        if event != "call" or is_paused():
            return
        code = frame.f_code
        names.update(code.co_names)
        if code in calls:
            return
        caller = frame.f_back
        if is_models(code.co_filename) or (caller is not None and is_models(caller.f_code.co_filename)):
            where = caller if caller is not None and is_models(caller.f_code.co_filename) else frame
            calls[code] = f"{where.f_code.co_filename}:{where.f_lineno}"

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        call()
    finally:
        sys.setprofile(before)
    return _functions(calls, is_models), names


def _functions(calls: dict[types.CodeType, str], is_models: Callable[[str], bool]) -> list[Executed]:
    """Return the functions of code objects; a function that no longer exists is left out."""
    found: dict[types.CodeType, types.FunctionType] = {}
    for referrer in gc.get_referrers(*calls) if calls else []:
        if isinstance(referrer, types.FunctionType) and referrer.__code__ in calls:
            found.setdefault(referrer.__code__, referrer)
    return [
        Executed(found[code], code.co_filename, source, is_models(code.co_filename))
        for code, source in calls.items()
        if code in found
    ]

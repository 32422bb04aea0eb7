"""Which functions a call runs through, and where their code looks up a name.

They are those of the model's code, and those of a framework that it calls directly.
"""

import dis
import gc
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from parity.core import script
from parity.core.patches import setting

# Functions that pass a call on to the one that is named (tensorflow/python/util), or of which a loss is made
# (keras/src/losses).
PASSING = {"error_handler", "op_dispatch_handler", "LossFunctionWrapper.call", "Loss.__call__"}


class Executed(NamedTuple):
    """A function that was run, or a script that is run anew whenever it is called again, from its line `since` on."""

    # The function, or the code of a local one.
    function: Any  # a types.FunctionType, of which a type checker would make a method
    file: str  # its file
    source: str  # "file:line" of the model's code that called it first
    is_models: bool  # whether it belongs to the model's code, rather than to a framework that this code calls
    since: int = 0
    tensors: Mapping[str, Any] = {}  # the types and shapes of local variables that hold tensors at its end, by name

    @property
    def name(self) -> str:
        """Return the function's name, with that of its class."""
        return str(self.function.__qualname__).replace("<locals>.", "")

    def is_at(self, source: str) -> bool:
        """Return whether a "file:line" of its code was run."""
        return int(source.rpartition(":")[2]) >= self.since

    @property
    def main(self) -> script.Main | None:
        """Return the script that makes the function anew; None for any other function."""
        function = self.function
        while isinstance(function, Local):
            function = function.outer
        return function if isinstance(function, script.Main) else None


class Local:
    """The code of a function that another one makes whenever it is called: a local function, or a comprehension.

    It has the attributes by which a function's code is changed. What is changed is the constant in the other one's
    code, and the functions that were `made` of it and still exist. So are the functions of a script that is run anew.
    """

    __defaults__ = __kwdefaults__ = __closure__ = None

    def __init__(self, outer: Any, number: int, made: Sequence[types.FunctionType]) -> None:
        self.outer, self._number, self.made = outer, number, made
        kept = made[-1].__globals__ if made else {}  # the names of a script that has ended, which its functions read
        self.__globals__, self.__qualname__ = outer.__globals__ or kept, self.__code__.co_qualname

    @property
    def __code__(self) -> types.CodeType:
        code: types.CodeType = self.outer.__code__.co_consts[self._number]
        return code

    @__code__.setter
    def __code__(self, code: types.CodeType) -> None:
        consts = self.outer.__code__.co_consts
        changed = (*consts[: self._number], code, *consts[self._number + 1 :])
        self.outer.__code__ = self.outer.__code__.replace(co_consts=changed)
        for function in self.made:
            function.__code__ = code


def executed(
    call: Callable[[], Any], is_models: Callable[[str], bool], is_paused: Callable[[], bool]
) -> tuple[list[Executed], set[str]]:
    """Call, and return the functions that it ran through, in order, and all names that their code refers to.

    Of a script that it runs anew, these are the functions of its step, and the code that goes on there from the step
    on: its own, or that of a function such as main().

    `is_models`: whether a file belongs to the model's code: neither a framework, nor Python, nor this project.
    `is_paused`: whether what is running now is to be left out.
    """
    calls: dict[types.CodeType, str] = {}
    run: set[types.CodeType] = set()
    since: dict[types.CodeType, int] = {}  # the line at which a script's code went on
    held: dict[types.CodeType, dict[str, Any]] = {}
    of_scripts = {*script.mains(), *_makers(script.mains())}

    def on_event(frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "return" and frame.f_code in calls and is_models(frame.f_code.co_filename):
            held[frame.f_code] = {name: each for name, value in frame.f_locals.items() if (each := _tensor(value))}
        if event != "call" or is_paused() or script.is_building():
            return
        code = frame.f_code
        run.add(code)
        if code in calls:
            return
        caller = frame.f_back
        while caller and PASSING & {caller.f_code.co_name, caller.f_code.co_qualname}:
            caller = caller.f_back
        of_model = (each for each in (caller, frame) if each and is_models(each.f_code.co_filename))
        if first := next(of_model, None):
            calls[code] = f"{first.f_code.co_filename}:{first.f_lineno}"
        if first and first.f_code not in run and first.f_code in of_scripts:
            since.setdefault(first.f_code, first.f_lineno)

    profile: Callable[[], Any] = sys.getprofile
    with setting(profile, sys.setprofile, on_event):
        call()
    by_getattr = (value for code in run for value in code.co_consts if isinstance(value, str) and value.isidentifier())
    names = {*by_getattr, *(name for code in run for name in code.co_names)}
    run_on = {code: f"{code.co_filename}:{line}" for code, line in since.items() if code not in calls}
    return [
        each._replace(since=since.get(code, 0), tensors=held.get(code, {}))
        for code, each in _functions(calls | run_on, is_models).items()
    ], names


def _tensor(value: Any) -> tuple[str, ...] | None:
    """Return the type and the shape of a tensor in words; None for anything else."""
    is_tensor = hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, type)
    return (str(value.dtype), *map(str, value.shape)) if is_tensor else None


def _makers(codes: Iterable[types.CodeType]) -> dict[types.CodeType, tuple[types.CodeType, int]]:
    """Return the code objects among the constants of others, at any depth, each with the other and its number there."""
    makers, open_ = dict[types.CodeType, tuple[types.CodeType, int]](), list(codes)
    while open_:
        outer = open_.pop()
        inner = {code: number for number, code in enumerate(outer.co_consts) if isinstance(code, types.CodeType)}
        makers |= {code: (outer, number) for code, number in inner.items()}
        open_ += inner
    return makers


def _functions(calls: dict[types.CodeType, str], is_models: Callable[[str], bool]) -> dict[types.CodeType, Executed]:
    """Return the functions by their code; one that no longer exists is left out, unless another one makes it."""
    existing: dict[types.CodeType, list[types.FunctionType]] = {code: [] for code in calls}
    gc.unfreeze()  # of what is frozen, as a framework's functions are in a fork, no referrers are told
    for referrer in gc.get_referrers(*calls) if calls else []:
        if isinstance(referrer, types.FunctionType) and referrer.__code__ in calls:
            existing[referrer.__code__].append(referrer)
    makers = _makers(script.mains())
    for outer in calls:
        of_outer = ((code, number) for number, code in enumerate(outer.co_consts) if isinstance(code, types.CodeType))
        makers |= {code: (outer, number) for code, number in of_outer if code in calls}
    runs = ((_function(code, existing, makers), code, source) for code, source in calls.items())
    return {
        code: Executed(run, code.co_filename, source, is_models(code.co_filename)) for run, code, source in runs if run
    }


def _function(
    code: types.CodeType,
    existing: Mapping[types.CodeType, Sequence[types.FunctionType]],
    makers: Mapping[types.CodeType, tuple[types.CodeType, int]],
) -> Any:
    """Return a code object's function, of the last run that made it, or None; `makers`: whose constant it is."""
    if code in (mains := script.mains()):
        return mains[code]
    maker, number = makers.get(code, (None, 0))
    made = existing.get(code, [])
    if outer := _function(maker, existing, makers) if maker else None:
        return Local(outer, number, made)
    spaces = {main.space for main in mains.values()}
    return max(made, key=lambda function: id(function.__globals__) in spaces, default=None)


class Lookup(NamedTuple):
    """An instruction that looks up a name."""

    offset: int  # its place in the code
    line: int  # its line in the source
    argument: int  # its argument with the number of a name that is added to the code's in place of its own
    can_change: bool  # whether both arguments fit the byte that they have


def lookups_of(code: types.CodeType, name: str) -> Iterator[Lookup]:
    """Yield the instructions that look up a name."""
    of_name = (each for each in dis.get_instructions(code) if each.opname in _SHIFTS and each.argval == name)
    for each in of_name:
        if each.arg is not None and each.positions and each.positions.lineno:
            shift = _SHIFTS[each.opname]  # the bits below the number are flags
            argument = (len(code.co_names) << shift) | (each.arg & ((1 << shift) - 1))
            yield Lookup(each.offset, each.positions.lineno, argument, max(each.arg, argument) < 1 << 8)


def _shifts() -> dict[str, int]:
    """Return by how many bits each instruction that looks up a name shifts its number, in this Python."""
    (code,) = [each for each in compile("lambda: (a.b, a.c(), d())", "", "eval").co_consts if hasattr(each, "co_names")]
    shifts = {}
    for each in dis.get_instructions(code):
        number = code.co_names.index(each.argval) if each.argval in code.co_names else 0
        if number and each.arg is not None:
            shifts[each.opname] = next(shift for shift in range(3) if each.arg >> shift == number)
    return shifts


_SHIFTS: Mapping[str, int] = _shifts()

"""Where the user's code makes an object: the chain of calls that is running while the object is initialised."""

import inspect
import itertools
import sys
import traceback
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType
from typing import Any

from parity.core import ownership
from parity.runtime.survey import Frame, Made

# Before Python 3.12 a comprehension runs in a frame of its own, within the function that it stands in.
COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
SINGLE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def made(owner: object) -> Made | None:
    """Return where the user's code makes `owner`, whose initialiser is running; None outside of the user's code."""
    stack = [frame for frame, _ in traceback.walk_stack(sys._getframe(1))]  # the innermost first
    outer = list(itertools.dropwhile(partial(_is_inside, owner), stack))
    inner = [frame for frame in stack[: len(stack) - len(outer)] if _is_users(frame)]
    users = [frame for frame in outer if _is_users(frame)]
    if not users:
        return None
    positional, keywords = arguments(type(owner))
    return Made(
        source=f"{users[0].f_code.co_filename}:{users[0].f_lineno}",
        calls=_chain(outer),
        initialisers=[call for frame in inner if (call := _call(frame))],
        positional=positional,
        keywords=keywords,
    )


def arguments(kind: type) -> tuple[list[str], list[str]]:
    """Return the names of the arguments that a class takes by position and by keyword.

    A class that passes **kwargs on takes its base's keywords as well.
    """
    positional: list[str] = []
    keywords: list[str] = []
    for base in kind.__mro__:
        initialise: Callable[..., Any] | None = vars(base).get("__init__")
        if initialise is None:
            continue
        try:
            parameters = list(inspect.signature(initialise).parameters.values())[1:]
        except (TypeError, ValueError):  # written in C, or with a signature of its own making
            break
        if not keywords and not positional:
            positional = [parameter.name for parameter in parameters if parameter.kind in SINGLE]
        keywords += [parameter.name for parameter in parameters if parameter.kind in NAMED]
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            break
    return positional, list(dict.fromkeys(keywords))


def _is_inside(owner: object, frame: FrameType) -> bool:
    """Return whether a frame is a method of the object that is being made, or of this program."""
    own = ownership.owner(frame.f_code.co_filename) == "own"
    return own or _first_argument(frame) is owner or frame.f_code.co_name == "__new__"


def _chain(frames: list[FrameType]) -> list[Frame]:
    """Return the calls of the user's own code, up to the first frame that is not."""
    calls: list[Frame] = []
    within: Frame | None = None  # the call in a comprehension, which counts as one of the function around it
    for frame in frames:
        if not _is_users(frame):
            break
        call = within or _call(frame)
        if call is None:
            break
        within = call if frame.f_code.co_name in COMPREHENSIONS else None
        if within is None:
            calls.append(call)
    return calls


def _call(frame: FrameType) -> Frame | None:
    """Return the expression that a frame is running; None if its position is not known."""
    code: CodeType = frame.f_code
    line, end_line, column, end_column = list(code.co_positions())[frame.f_lasti // 2]
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return Frame(file=code.co_filename, line=line, column=column, end_line=end_line, end_column=end_column)


def _first_argument(frame: FrameType) -> object:
    """Return the first argument of the frame's function."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return frame.f_locals.get(names[0]) if names else None


def _is_users(frame: FrameType) -> bool:
    return ownership.owner(frame.f_code.co_filename) == "user"

"""Where the user's code makes an object: the chain of calls that is running while the object is initialised.

Of the weights that a framework's modules fill it is noted whether the user's code changes them afterwards.
"""

import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import CodeType, FrameType
from typing import Any
from unittest import mock

from parity.core import ownership
from parity.core.patches import applied
from parity.runtime.survey import Frame, Made

# Before Python 3.12 a comprehension runs in a frame of its own, within the function that it stands in.
COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
SINGLE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
FIRST = 8  # elements of a weight that are kept, to see whether it was changed
# Numbers of a large weight that are drawn where it is given others at once: a prime, so that no rows of it are alike.
PART = 65_521
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def made(owner: object) -> Made | None:
    """Return where the user's code makes `owner`, whose initialiser is running; None outside of the user's code."""
    running = list(ownership.stack(sys._getframe(1)))
    outer = list(itertools.dropwhile(partial(_is_inside, owner), running))
    inner = [frame for frame in running[: len(running) - len(outer)] if _is_users(frame)]
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
    """Return the arguments that a class takes by position and by keyword; **kwargs stands for its base's keywords."""
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
    return own or ownership.first_argument(frame) is owner or frame.f_code.co_name == "__new__"


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


def _is_users(frame: FrameType) -> bool:
    return ownership.owner(frame.f_code.co_filename) == "user"


class Sources:
    """The lines that made the objects of the classes in `kinds`, and what weights begin with, while it is recorded."""

    kinds: tuple[type, ...]
    _filling: Callable[[], Iterator[AbstractContextManager[Any]]]  # yields patches of what fills weights, to note them
    _first: Callable[[Any], list[float]]  # returns the first elements of a weight

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Made]] = {}  # with the object, so that no other gets its id
        self._begun: dict[int, tuple[Any, list[float]]] = {}  # with its first elements
        self._ended: dict[int, list[float]] = {}

    def of(self, made: Any) -> Made | None:
        """Return where an object was made; None if that was not recorded, or not in the user's code."""
        _, source = self._made.get(id(made), (None, None))
        return source

    def is_changed(self, weight: Any) -> bool | None:
        """Return whether a weight was changed after it was filled, while that was recorded; None if it was not."""
        _, begun = self._begun.get(id(weight), (None, None))
        return None if begun is None else begun != self._ended[id(weight)]

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record every object that is made within the block."""
        originals = ((kind, inspect.getattr_static(kind, "__init__")) for kind in self.kinds)
        makers = (mock.patch.object(kind, "__init__", self._making(original)) for kind, original in originals)
        with applied(makers), applied(self._filling()):
            yield
            self._ended = {key: self._first(weight) for key, (weight, _) in self._begun.items()}

    def _making(self, original: Callable[..., None]) -> Callable[..., None]:
        def initialise(owner: Any, *args: Any, **kwargs: Any) -> None:
            if id(owner) not in self._made and (source := made(owner)):
                self._made[id(owner)] = owner, source
            original(owner, *args, **kwargs)

        # Keras looks up the names of the arguments, both with and without following __wrapped__.
        vars(initialise)["__signature__"] = inspect.signature(original)
        return initialise

    def _note_filled(self, weight: Any) -> None:
        self._begun[id(weight)] = weight, self._first(weight)

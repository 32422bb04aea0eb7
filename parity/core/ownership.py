"""Decide to whom a source file belongs: the user, this project, the standard library, or an installed package.

A file is the user's unless it lies in this project's own packages (where this process imports them from), in a
framework, in the standard library, or in a folder of installed packages. An installed package that a flag names
(--torch=package.module:build) counts as the user's. Paths are compared both as given and with links resolved.

Of the code that is running, the user's lines are found on the stack; built-in models and strategies count as the
user's.
"""

import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, TracebackType
from typing import Literal

import msgspec

from parity.core.patches import pushed

Owner = Literal["user", "own", "standard", "installed"]
# With what these call themselves, which is no code of models either.
FRAMEWORKS = (
    "torch", "tensorflow", "keras", "numpy", "optree", "einops", "wrapt", "ml_dtypes", "absl", "gast", "opt_einsum",
    "scipy", "sympy",
)  # fmt: skip
# Parts of this project's packages that are not examined ("" is the whole package).
# The rest of these packages, models and strategies, is treated like a user's program. dropout.py draws the masks of
# users' models as well, and is no part of them.
BUILT_IN = ("torch_impl", "keras_impl")
MACHINERY = (
    "doctor", "experiment", "faults", "record", "instruments", "bench.py", "dropout.py", "__init__.py", "__main__.py",
)  # fmt: skip
OWN = {"parity": ("",), **dict.fromkeys(BUILT_IN, MACHINERY)}
SITES = ("site-packages", "dist-packages")
_programs: list[str] = []  # folders and files of the packages and modules that the flags name


class Homes(msgspec.Struct, frozen=True):
    """The absolute paths of the folders and files in which code lives, as one process sees them."""

    own: list[str]
    frameworks: list[str]
    standard: list[str]
    programs: list[str]

    def owner(self, file: str) -> Owner:
        """Return to whom a file belongs; files like "<frozen ...>" belong to the standard library."""
        if file.startswith("<"):
            return "standard"
        paths = tuple(dict.fromkeys((os.path.abspath(file), os.path.realpath(file))))
        if _within(paths, self.own):
            return "own"
        if _within(paths, self.frameworks):
            return "installed"
        if any(not is_installed(rest) for rest in _within(paths, self.programs)):
            return "user"
        if any(map(is_installed, paths)):
            return "installed"
        return "standard" if _within(paths, self.standard) else "user"


def claim(module: str) -> None:
    """Count the top-level package of a module as the user's, wherever it lies. Call this before it is imported."""
    if new := [path for path in _paths(module.partition(".")[0]) if path not in _programs]:
        _programs.extend(new)
        for answers in (here, owner, is_models, Lines.kind):
            answers.cache_clear()


@cache
def here() -> Homes:
    """Return the homes of this process."""
    own = [os.path.join(path, part) for name, parts in OWN.items() for path in _paths(name) for part in parts]
    standard = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    frameworks = [path for name in FRAMEWORKS for path in _paths(name)]
    built_in = [path for name in BUILT_IN for path in _paths(name)]
    return Homes(*map(_resolved_too, (own, frameworks, standard, [*_programs, *built_in])))


@cache
def owner(file: str) -> Owner:
    """Return to whom a file belongs in this process."""
    return here().owner(file)


@cache
def is_models(file: str) -> bool:
    """Return whether a file belongs to the code of models: the user's, or a library's that is no framework."""
    of_framework = _within([file, os.path.realpath(file)], here().frameworks)
    return owner(file) == "user" or (owner(file) == "installed" and not of_framework)


def _paths(name: str) -> list[str]:
    """Return the folders of a top-level package, or the file of a module; none if there is no such thing."""
    try:
        spec: ModuleSpec | None = find_spec(name)
    except (ImportError, ValueError):  # a module without a spec: __main__, or one created at run time
        spec = None
    if spec is None:
        return []
    return list(spec.submodule_search_locations or filter(None, [spec.origin]))


def _resolved_too(paths: Sequence[str]) -> list[str]:
    """Return each path as it is, and with links resolved."""
    forms = (form(path) for path in paths for form in (os.path.abspath, os.path.realpath))
    return list(dict.fromkeys(path.rstrip(os.sep) for path in forms))


def _within(paths: Sequence[str], homes: Sequence[str]) -> list[str]:
    """Return the rest of each path that is a home or lies within one."""
    return [path[len(home) :] for path in paths for home in homes if f"{path}{os.sep}".startswith(f"{home}{os.sep}")]


def is_installed(path: str) -> bool:
    """Return whether a file lies in a folder of installed packages."""
    return any(f"{os.sep}{site}{os.sep}" in path for site in SITES)


Line = tuple[str, int]  # file and line number
# Whose a file is: the user's, one that merely passes calls on, one of the framework's that moves models, any other one.
USER, PASSED, MOVED, LIBRARY = range(4)


def stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those around it, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def first_argument(frame: FrameType) -> object:
    """Return the first argument of the frame's function."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return frame.f_locals.get(names[0]) if names else None


def shown(file: str, number: int) -> str:
    """Return "file:line", relative to the working directory if the file is below it."""
    path, folder = Path(file).absolute(), Path.cwd()
    return f"{path.relative_to(folder) if path.is_relative_to(folder) else path}:{number}"


class Lines:
    """Finds the user's lines on the stack.

    Args:
        framework: returns whose an installed file is.
        generated: a part of the names of files that the framework generates from the user's; "" if it generates none.
        original: returns the user's line for a line of such a file.
        text: returns a line as "file:line".
    """

    def __init__(
        self,
        framework: Callable[[str], int],
        generated: str = "",
        original: Callable[[str, int], Line] = lambda *line: line,
        text: Callable[[str, int], str] = shown,
    ) -> None:
        self._framework, self._generated, self._original, self._text = framework, generated, original, text
        self._standing: list[str] = []  # lines that stand for what runs now, the innermost last

    @cache  # noqa: B019 - a framework has one such object, as long as its process runs
    def kind(self, file: str) -> int:
        """Return whose a file is: USER, PASSED, MOVED or LIBRARY."""
        whose = "standard" if self._generated and self._generated in file else owner(file)
        if whose == "installed":
            return self._framework(file)
        return USER if whose == "user" else PASSED

    def at(self, frame: FrameType, number: int | None = None) -> Line:
        """Return the line that a frame runs, or that with a number, of a generated file the user's."""
        file, number = frame.f_code.co_filename, frame.f_lineno if number is None else number
        return self._original(file, number) if self._generated and self._generated in file else (file, number)

    def frames(self, owner: object = None) -> Iterator[FrameType]:
        """Yield the frames of the user's lines that are running, the innermost first.

        With `owner`, methods of that object are skipped: while it is being made, the first line is the one that makes
        it.
        """
        users = (frame for frame in stack(sys._getframe(1)) if self.kind(self.at(frame)[0]) == USER)
        return (frame for frame in users if owner is None or first_argument(frame) is not owner)

    def frame(self, owner: object = None) -> FrameType | None:
        """Return the frame of the user's line that is running, as `frames` yields it."""
        return next(self.frames(owner), None)

    def line(self, owner: object = None) -> str:
        """Return the user's line that is running, as "file:line"; "" if there is none."""
        frame = self.frame(owner)
        return self._text(*self.at(frame)) if frame else ""

    def direct(self, modules: bool = False) -> str:
        """Return the user's line if it calls the current function directly, "" if a framework's code is in between.

        With `modules`, the framework's methods that move a model, such as model.to(), may be in between.
        """
        passing = (PASSED, MOVED) if modules else (PASSED,)
        for frame in stack(sys._getframe(1)):
            line = self.at(frame)
            if (kind := self.kind(line[0])) not in passing:
                return self._text(*line) if kind == USER else ""
        return self._standing[-1] if self._standing else ""

    def within(self, path: str) -> bool:
        """Return whether a function of this file or folder ("keras/src/trainers/") is running."""
        return any(path in frame.f_code.co_filename for frame in stack(sys._getframe(1)))

    def line_of(self, traceback: TracebackType | None) -> str:
        """Return the innermost of the user's lines in a traceback."""
        innermost = ""
        while traceback is not None:
            line = self.at(traceback.tb_frame, traceback.tb_lineno)
            if self.kind(line[0]) == USER:
                innermost = self._text(*line)
            traceback = traceback.tb_next
        return innermost

    def nearest(self) -> str:
        """Return the user's line that is running; else that of an installed package that is no framework."""
        if line := self.line() or (self._standing[-1] if self._standing else ""):
            return line
        lines = (self.at(frame) for frame in stack(sys._getframe(1)))
        file, number = next((line for line in lines if is_models(line[0])), ("", 0))
        # The path within the folder of packages, such as "torchvision/models/resnet.py".
        site = re.search(rf".*{re.escape(os.sep)}(?:{'|'.join(SITES)}){re.escape(os.sep)}", file)
        return f"{file[site.end() :] if site else file}:{number}" if file else ""

    def standing_for(self, line: str) -> AbstractContextManager[None]:
        """Return a context in which a line counts as the user's, of what was seen before and is done again."""
        return pushed(self._standing, line)

    def is_standing(self) -> bool:
        """Return whether a line stands for what runs now."""
        return bool(self._standing)

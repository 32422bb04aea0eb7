"""Whose a source file is: the user's program's, this project's, the standard library's, or an installed package's.

A file is the user's if it lies neither in this project's own packages (where this process imports them from), nor in a
framework, nor in the standard library, nor in a folder of installed packages. An installed package that a flag names
(--torch=package.module:build) is the user's program all the same. Paths are compared as they are and resolved.
"""

import os
import sysconfig
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Literal

import msgspec

Owner = Literal["user", "own", "standard", "installed"]

FRAMEWORKS = ("torch", "tensorflow", "keras", "numpy")
OWN = {"parity": ("",), "torch_impl": ("harness", "__main__.py"), "keras_impl": ("harness", "__main__.py")}
BUILT_IN = ("torch_impl", "keras_impl")  # what is not in OWN, models and strategies, are programs like a user's
SITES = ("site-packages", "dist-packages")

_programs: list[str] = []  # packages and modules that the flags named, as folders and files


class Homes(msgspec.Struct, frozen=True):
    """Where code lives in one process, as absolute paths of folders and files."""

    own: list[str]
    frameworks: list[str]
    standard: list[str]
    programs: list[str]

    def owner(self, file: str) -> Owner:
        """Return whose a file is; "<frozen ...>" and its like are the standard library's."""
        if file.startswith("<"):
            return "standard"
        paths = tuple(dict.fromkeys((os.path.abspath(file), os.path.realpath(file))))
        if _within(paths, self.own):
            return "own"
        if _within(paths, self.frameworks):
            return "installed"
        if any(not _is_installed(rest) for rest in _within(paths, self.programs)):
            return "user"
        if any(map(_is_installed, paths)):
            return "installed"
        return "standard" if _within(paths, self.standard) else "user"


def claim(module: str) -> None:
    """Take the top package of a module for the user's program, wherever it lies. Call it before the import."""
    for place in _places(module.partition(".")[0]):
        if place not in _programs:
            _programs.append(place)


def programs() -> tuple[str, ...]:
    """Return what was claimed so far: a part of the key for whoever keeps answers of `owner`."""
    return tuple(_programs)


def here() -> Homes:
    """Return the homes of this process."""
    return _here(programs())


def owner(file: str) -> Owner:
    """Return whose a file is in this process."""
    return _owner(file, programs())


@cache
def _owner(file: str, programs: tuple[str, ...]) -> Owner:
    return _here(programs).owner(file)


@cache
def _here(programs: tuple[str, ...]) -> Homes:
    own = [os.path.join(place, part) for name, parts in OWN.items() for place in _places(name) for part in parts]
    standard = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    frameworks = [place for name in FRAMEWORKS for place in _places(name)]
    built_in = [place for name in BUILT_IN for place in _places(name)]
    return Homes(_both(own), _both(frameworks), _both(standard), _both([*programs, *built_in]))


def _places(name: str) -> list[str]:
    """The folders of a top-level package, or the file of a module; none if there is no such thing."""
    try:
        spec: ModuleSpec | None = find_spec(name)
    except (ImportError, ValueError):  # a module without a specification: __main__, or one made by hand
        spec = None
    if spec is None:
        return []
    return list(spec.submodule_search_locations or filter(None, [spec.origin]))


def _both(paths: Sequence[str]) -> list[str]:
    """Each as it is, and resolved."""
    forms = (form(path) for path in paths for form in (os.path.abspath, os.path.realpath))
    return list(dict.fromkeys(path.rstrip(os.sep) for path in forms))


def _within(paths: Sequence[str], homes: Sequence[str]) -> list[str]:
    """The rest of each path that is a home or lies below one."""
    return [path[len(home) :] for path in paths for home in homes if f"{path}{os.sep}".startswith(f"{home}{os.sep}")]


def _is_installed(path: str) -> bool:
    return any(f"{os.sep}{site}{os.sep}" in path for site in SITES)

"""Decide to whom a source file belongs: the user, this project, the standard library, or an installed package.

A file is the user's unless it lies in this project's own packages (where this process imports them from), in a
framework, in the standard library, or in a folder of installed packages. An installed package that a flag names
(--torch=package.module:build) counts as the user's. Paths are compared both as given and with links resolved.
"""

import os
import re
import sysconfig
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Literal

import msgspec

Owner = Literal["user", "own", "standard", "installed"]

FRAMEWORKS = ("torch", "tensorflow", "keras", "numpy")
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
    for path in _paths(module.partition(".")[0]):
        if path not in _programs:
            _programs.append(path)


def programs() -> tuple[str, ...]:
    """Return what was claimed so far; whoever caches answers of `owner` needs it as a part of the key."""
    return tuple(_programs)


def here() -> Homes:
    """Return the homes of this process."""
    return _here(programs())


def owner(file: str) -> Owner:
    """Return to whom a file belongs in this process."""
    return _owner(file, programs())


def is_models(file: str) -> bool:
    """Return whether a file belongs to the code of models: the user's, or a library's that is no framework."""
    found = owner(file)
    frameworks = here().frameworks
    return found == "user" or (found == "installed" and not _within([file, os.path.realpath(file)], frameworks))


@cache
def _owner(file: str, programs: tuple[str, ...]) -> Owner:
    return _here(programs).owner(file)


@cache
def _here(programs: tuple[str, ...]) -> Homes:
    own = [os.path.join(path, part) for name, parts in OWN.items() for path in _paths(name) for part in parts]
    standard = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    frameworks = [path for name in FRAMEWORKS for path in _paths(name)]
    built_in = [path for name in BUILT_IN for path in _paths(name)]
    return Homes(
        _resolved_too(own), _resolved_too(frameworks), _resolved_too(standard), _resolved_too([*programs, *built_in])
    )


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


def in_package(file: str) -> str:
    """Return the path of an installed file within the folder of packages: "torchvision/models/resnet.py"."""
    site = re.search(rf".*{re.escape(os.sep)}(?:{'|'.join(SITES)}){re.escape(os.sep)}", file)
    return file[site.end() :] if site else file


def is_installed(path: str) -> bool:
    """Return whether a file lies in a folder of installed packages."""
    return any(f"{os.sep}{site}{os.sep}" in path for site in SITES)

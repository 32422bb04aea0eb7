"""A user's training script, in a pair's place for "module:function": a command line such as "train.py --epochs=1".

It runs as Python runs it, as __main__ with its arguments, until it trains; its model, its optimizer and its steps are
then those of the pair. Each framework has a class for its own scripts, which is registered here.
"""

import contextlib
import os
import re
import shlex
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from parity.core.errors import UsageError
from parity.core.patches import Original, pushed

IMPORTED = re.compile(r"^\s*(?:import|from)\s.*?\b(torch|keras|tensorflow)\b", re.MULTILINE)
kinds: dict[str, type["Script"]] = {}  # by side
_current: dict[str, "Script"] = {}  # by side: the one that was built last


def is_script(text: str) -> bool:
    """Return whether a text names a script, and not a function of a module."""
    return _path(text).endswith(".py")


def name_of(text: str) -> str:
    """Return the name of the file of a script, for messages."""
    return Path(_path(text)).name


def _path(text: str) -> str:
    try:
        return next(iter(shlex.split(text)), "")
    except ValueError:
        return ""


def framework(text: str, search: Sequence[str]) -> str:
    """Return the side whose framework a script imports. Raises UsageError if there is no such file, or not one side."""
    imported = {"torch" if name == "torch" else "keras" for name in IMPORTED.findall(_file(text, search).read_text())}
    if len(imported) != 1:
        what = " and ".join(sorted(imported)) or "neither torch nor keras or tensorflow"
        raise UsageError(f"{name_of(text)} imports {what}; say by --backend=torch or --backend=keras which trains it")
    return imported.pop()


def _file(text: str, search: Sequence[str]) -> Path:
    """Return the file of a script. Raises UsageError if there is none."""
    path = _path(text)
    file = next((each for folder in search if (each := Path(folder) / path).is_file()), None)
    if file is None:
        raise UsageError(f"there is no script {path!r} in {' or '.join(search)}")
    return file


def function(flag: str, text: str, search: Sequence[str]) -> Callable[..., Any]:
    """Return what a flag asks of a script: its builder is that of a new run, the rest that of the last run.

    Raises UsageError if there is no such file.
    """
    side, role = ("torch" if "torch" in flag else "keras"), flag.rpartition("_")[2]
    if role == side:
        if before := _current.pop(side, None):
            before.close()
        _current[side] = kinds[side](text, search)
        role = "build"
    method: Callable[..., Any] = getattr(_current[side], role)
    return method


class Main:
    """The code of a script's file, which all of its runs execute, with the attributes by which a function's is changed.

    `space`: the id() of the names of the last run, which are not kept for it.
    """

    __defaults__ = __kwdefaults__ = __closure__ = None

    def __init__(self, path: Path, text: bytes) -> None:
        self.path, self.text = path, text
        self.__code__ = compile(text, str(path), "exec")
        self.__qualname__ = self.__code__.co_qualname
        self._module: Callable[[], types.ModuleType | None] = lambda: None
        self.space = 0

    @property
    def __globals__(self) -> dict[str, Any]:
        """Return the names of the last run, as long as it runs or is suspended."""
        module = self._module()
        return vars(module) if module else {}

    def run(self) -> None:
        """Run the script as Python does."""
        module, before = types.ModuleType("__main__"), sys.modules["__main__"]
        module.__file__, self._module, self.space = str(self.path), weakref.ref(module), id(vars(module))
        sys.modules["__main__"] = module
        try:
            exec(self.__code__, vars(module))
        finally:
            sys.modules["__main__"] = before


_mains: dict[Path, Main] = {}
_building: list[Path] = []  # the scripts that run now, and have not come to their first step


def is_building() -> bool:
    """Return whether a script is running to where it begins to train."""
    return bool(_building)


def mains() -> Mapping[types.CodeType, Main]:
    """Return the scripts that have been run, by their code as it is now."""
    return {main.__code__: main for main in _mains.values()}


class Sources:
    """The datasets that a script takes batches from: one made anew where another stood that is gone is that one."""

    def __init__(self) -> None:
        self._known: list[tuple[Callable[[], Any], str]] = []  # each, as long as it exists, with the line that takes it

    def number(self, dataset: Any, line: str) -> int:
        """Return the number of a dataset, of which a line takes a batch."""
        before = [held() for held, _ in self._known]
        same = (number for number, each in enumerate(before) if each is dataset)
        gone = (number for number, each in enumerate(before) if each is None and line == self._known[number][1] != "")
        number = next(same, next(gone, len(before)))
        self._known[number : number + 1] = [(_reference(dataset), line)]
        return number


def _reference(value: Any) -> Callable[[], Any]:
    """Return a function that returns a value as long as it exists."""
    try:
        return weakref.ref(value)
    except TypeError:  # a list
        return lambda: value


class Script:
    """One run of a script. `text`: the command line. `search`: the folders in which the file is looked for."""

    def __init__(self, text: str, search: Sequence[str]) -> None:
        self._text, self._search = text, search
        _, *self._arguments = shlex.split(text)
        self.name, self._path = name_of(text), _file(text, search)
        self._run: Any = None  # the greenlet that it runs in
        self._depth = 0  # of the calls of modules
        self._model: Any = None  # once it is about to train
        self._optimizers: list[Any] = []
        self._has_optimizer = False  # whether the script's own was asked for
        self.is_distributed = False  # whether it has made a process group, or a strategy
        self._outside = contextlib.ExitStack()  # takes back, while the script is suspended, what it has entered

    def close(self) -> None:
        """End the script where it is suspended."""
        self._outside.close()
        if not self._run.dead:
            with self.entered(), contextlib.suppress(Exception):
                self._run.throw()

    def _on_optimizer(self, init: Original, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        init(optimizer, *args, **kwargs)
        self._optimizers.append(optimizer)

    def main(self) -> None:
        """Run the script from its beginning to its end. What it raises is passed on, but for sys.exit()."""
        try:
            text, main = self._path.read_bytes(), _mains.get(self._path)
            if main is None or main.text != text:
                main = _mains[self._path] = Main(self._path, text)
            main.run()
        except SystemExit as end:
            if end.code not in (None, 0):
                raise UsageError(f"{self.name}: ended by sys.exit({end.code!r}) before it had trained") from None

    def built(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the script runs to where it begins to train."""
        return pushed(_building, self._path)

    def within(self, call: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        """Call a module; what it calls itself is not the script's own call."""
        self._depth += 1
        try:
            return call(module, *args, **kwargs)
        finally:
            self._depth -= 1

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let the script find its own arguments, its own folder's modules and no rank within the block."""
        ranks = {name: os.environ.pop(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE") if name in os.environ}
        argv, path = [str(self._path), *self._arguments], [str(self._path.parent), *sys.path]
        with mock.patch.object(sys, "argv", argv), mock.patch.object(sys, "path", path):
            try:
                yield
            finally:
                os.environ.update(ranks)

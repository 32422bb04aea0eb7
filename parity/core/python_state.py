"""What a user's program keeps in Python's own objects: attributes, globals, class attributes, closures, generators.

A call changes it and leaves it changed, and a framework that traces a program into a graph runs this part of it only
while it traces. So it is looked at, and given back the values that it had.
"""

import collections
import copy
import functools
import hashlib
import itertools
import operator
import random
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from parity.core.arrays import Array

PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
CONTAINERS = (list, dict, set, collections.deque)
LARGEST = 1 << 20  # bytes of an array whose digest is taken
Restore = Callable[[], object]


class Framework(NamedTuple):
    """What is to be known of a framework's values.

    is_own: whether an attribute of this name is one that it keeps in its modules.
    is_part: whether a value is a module, or a parameter that is trained, whose values are looked after elsewhere.
    numbers: returns the numbers of a tensor or variable; None of anything else.
    keep: returns what gives a tensor or variable its present numbers again.
    is_state: whether a tensor or variable counts as Python's, as the framework's graphs do not know of it.
    """

    is_own: Callable[[str], bool]
    is_part: Callable[[Any], bool]
    numbers: Callable[[Any], Array | None]
    keep: Callable[[Any], Restore]
    is_state: Callable[[Any], bool]


class PythonState:
    """What some modules and the files of their program keep, as it is now.

    `digests`: a digest of each value, by the path that leads to it.
    """

    def __init__(
        self, framework: Framework, objects: Mapping[str, Any], files: Mapping[str, types.ModuleType] | None = None
    ) -> None:
        self.digests: dict[str, str] = {}
        self._framework, self._files = framework, files or {}
        self._kept: list[Restore] = []
        self._seen: set[int] = set()
        for path, each in (*objects.items(), *self._files.items()):
            self._namespace(path, each)

    def restore(self) -> None:
        """Give everything the values that it had; what has been kept since then, and is no part of a model, goes."""
        for restore in self._kept:
            restore()

    def _namespace(self, path: str, owner: Any) -> None:
        """Look at the attributes of a module, an object, a class or a file."""
        if id(owner) in self._seen:
            return
        self._seen.add(id(owner))
        before = {name: _kept(value) for name, value in self._attributes(owner)}
        for name, value in self._attributes(owner):
            self._look(f"{path}.{name}" if path else name, value)

        def restore() -> None:
            now = dict(self._attributes(owner))
            for name in now.keys() - before.keys():
                is_plain = isinstance(now[name], (*PLAIN, *CONTAINERS, tuple, np.ndarray))
                if is_plain or self._framework.numbers(now[name]) is not None:
                    delattr(owner, name)
            for name, kept in before.items():
                if now.get(name, self) is not (value := kept()):
                    setattr(owner, name, value)

        self._kept.append(restore)

    def _attributes(self, owner: Any) -> Iterator[tuple[str, Any]]:
        for name, value in list(vars(owner).items()):
            is_hidden = name.startswith("__") or self._framework.is_own(name)
            if not (is_hidden or self._framework.is_part(value) or isinstance(value, (types.ModuleType, property))):
                yield name, value

    def _look(self, path: str, value: Any) -> None:
        if isinstance(value, PLAIN):
            self.digests[path] = repr(value)
        elif id(value) in self._seen or self._framework.is_part(value):
            return
        elif isinstance(value, np.ndarray):
            self._array(path, value)
        elif (numbers := self._framework.numbers(value)) is not None:
            self._seen.add(id(value))
            self._kept.append(self._framework.keep(value))
            if self._framework.is_state(value):
                self.digests[path] = _digest(numbers.tobytes()[:LARGEST])
        elif isinstance(value, (*CONTAINERS, tuple, frozenset)):
            self._container(path, value)
        else:
            self._object(path, value)

    def _array(self, path: str, value: Array) -> None:
        self._seen.add(id(value))
        self.digests[path] = _digest(value.reshape(-1)[: LARGEST // max(value.itemsize, 1)].tobytes())
        if value.flags.writeable and value.nbytes <= LARGEST:
            before = value.copy()
            self._kept.append(lambda: np.copyto(value, before))

    def _container(self, path: str, value: Any) -> None:
        self._seen.add(id(value))
        before = dict(value) if isinstance(value, dict) else list(value)
        parts = sorted(before, key=repr) if isinstance(value, (set, frozenset)) else before
        for key, part in parts.items() if isinstance(parts, dict) else enumerate(parts):
            self._look(f"{path}[{key!r}]", part)
        if isinstance(value, CONTAINERS):
            self._kept.append(lambda: _refill(value, before))

    def _object(self, path: str, value: Any) -> None:
        """Look at what an object keeps: a generator its state, a function its defaults and what it closes over."""
        if isinstance(value, itertools.count):
            self.digests[path] = repr(value)
        elif isinstance(value, random.Random):
            self._generator(path, value.getstate(), value.setstate)
        elif isinstance(value, np.random.RandomState):
            self._generator(path, value.get_state(), value.set_state)
        elif isinstance(value, np.random.Generator):
            self._generator(path, value.bit_generator.state, lambda state: setattr(value.bit_generator, "state", state))
        elif isinstance(value, types.MethodType):
            self._look(path, value.__func__)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self._look(path, part)
        elif self._is_programs(value):
            if isinstance(value, types.FunctionType):
                self._function(path, value)
            elif hasattr(value, "__dict__"):
                self._namespace(path, value)
                if "<locals>" in type(value).__qualname__:  # a class that no file's namespace leads to
                    self._namespace(path, type(value))

    def _is_programs(self, value: Any) -> bool:
        """Return whether a function, a class, or the class of an object stands in one of the program's files.

        A SimpleNamespace has nothing but attributes, which the program has set.
        """
        owner = value if isinstance(value, (types.FunctionType, type)) else type(value)
        return owner is types.SimpleNamespace or getattr(owner, "__module__", None) in self._files

    def _generator(self, path: str, state: Any, put: Callable[[Any], object]) -> None:
        self.digests[path] = _digest(repr(state).encode())
        self._kept.append(lambda: put(state))

    def _function(self, path: str, function: types.FunctionType) -> None:
        self._namespace(path, function)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._look(f"{path}'s default", default)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if (content := _content(cell)) is not cell:
                self._look(f"{path}'s {name}", content)
                self._kept.append(_refilling(cell, _kept(content)))


def generators() -> dict[str, str]:
    """Return digests of the states of Python's and NumPy's own generators."""
    states = {"Python's generator": random.getstate(), "NumPy's generator": np.random.get_state()}
    return {name: _digest(repr(state).encode()) for name, state in states.items()}


def _refill(value: Any, before: Any) -> None:
    """Give a container its former content, which stays the same object."""
    now = dict(value) if isinstance(value, dict) else list(value)
    if isinstance(now, dict):
        is_same = now.keys() == before.keys() and all(now[key] is each for key, each in before.items())
    else:
        is_same = len(now) == len(before) and all(map(operator.is_, now, before))
    if is_same:
        return
    value.clear()
    (value.update if isinstance(value, (dict, set)) else value.extend)(before)


def _kept(value: Any) -> Callable[[], Any]:
    """Return what gives a value again; a count, which cannot go back, is kept as a copy."""
    if not isinstance(value, itertools.count):
        return lambda: value
    before = copy.copy(value)
    return lambda: copy.copy(before)


def _refilling(cell: Any, kept: Callable[[], Any]) -> Restore:
    return lambda: setattr(cell, "cell_contents", kept())


def _content(cell: Any) -> Any:
    """Return what a closure's cell holds; the cell itself if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return cell


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()

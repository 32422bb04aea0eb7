"""Which lines of a port are executed, and which layers each line makes, calls, and runs within."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import keras

from mutating import RELATIONS


class Execution:
    """The lines that are executed within `watched`, each with its layers by their ids.

    `within`: layers in whose own code the line stands. `makes`: layers that it makes, itself or in what it calls.
    `calls`: layers called from it, or next after it. `before`: the layer that was called last before it, and those
    whose outputs the called layers get.
    """

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self._known: dict[str, bool] = {}
        self.lines: dict[tuple[str, int], dict[str, set[int]]] = {}
        self.made: list[Any] = []  # so that no other object gets their ids
        self._open: list[int] = []
        self._waiting: set[tuple[str, int]] = set()
        self._last: int | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch what is executed within the block."""
        kinds = keras.Layer.__init__, keras.Layer.__call__
        keras.Layer.__init__, keras.Layer.__call__ = self._making(kinds[0]), self._calling(kinds[1])
        before = sys.gettrace()
        sys.settrace(self._on_function)
        try:
            yield
        finally:
            sys.settrace(before)
            keras.Layer.__init__, keras.Layer.__call__ = kinds

    def named(self, paths: dict[int, str]) -> dict[str, dict[int, dict[str, list[str]]]]:
        """Return the layers' paths by file, line and relation; `paths` by id. Layers without a path are left out."""
        told: dict[str, dict[int, dict[str, list[str]]]] = {}
        for (file, line), relations in self.lines.items():
            named = {name: sorted({paths[each] for each in ids if each in paths}) for name, ids in relations.items()}
            told.setdefault(file, {})[line] = named
        return told

    def _is_wanted(self, file: str) -> bool:
        if file not in self._known:
            self._known[file] = self._wanted(file)
        return self._known[file]

    def _on_function(self, frame: FrameType, event: str, _: Any) -> Any:
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED  # no body of a module or class
        return self._on_line if is_function and self._is_wanted(frame.f_code.co_filename) else None

    def _on_line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            spot = frame.f_code.co_filename, frame.f_lineno
            relations = self.lines.setdefault(spot, {name: set() for name in RELATIONS})
            owner = frame.f_locals.get("self")
            relations["within"].add(
                id(owner) if isinstance(owner, keras.Layer) else self._open[-1] if self._open else 0
            )
            if self._last is not None:
                relations["before"].add(self._last)
            self._waiting.add(spot)
        return self._on_line

    def _making(self, original: Any) -> Any:
        def __init__(layer: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            self.made.append(layer)
            for spot in self._spots(layer):
                self.lines[spot]["makes"].add(id(layer))
            original(layer, *args, **kwargs)

        return __init__

    def _calling(self, original: Any) -> Any:
        def __call__(layer: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            for spot in {*self._waiting, *list(self._spots(layer))[:1]}:
                self.lines[spot]["calls"].add(id(layer))
                self.lines[spot]["before"].update(_feeders((args, kwargs)))
            self._waiting.clear()
            self._open.append(id(layer))
            try:
                return original(layer, *args, **kwargs)
            finally:
                self._open.pop()
                self._last = id(layer)

        return __call__

    def _spots(self, layer: Any) -> Iterator[tuple[str, int]]:
        """Yield the lines that are being executed, from the innermost on, without those of the layer's own methods."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            spot = frame.f_code.co_filename, frame.f_lineno
            if spot in self.lines and frame.f_locals.get("self") is not layer:
                yield spot
            frame = frame.f_back


def _feeders(arguments: Any) -> Iterator[int]:
    """Yield the ids of the layers whose outputs a layer gets, through operations that are no layers."""
    waiting = [each for each in keras.tree.flatten(arguments) if isinstance(each, keras.KerasTensor)]
    seen: set[int] = set()
    while waiting:
        operation = getattr(waiting.pop(), "_keras_history", (None,))[0]
        if isinstance(operation, keras.Layer):
            yield id(operation)
        elif operation is not None and id(operation) not in seen:
            seen.add(id(operation))
            waiting += [tensor for node in operation._inbound_nodes for tensor in node.input_tensors]

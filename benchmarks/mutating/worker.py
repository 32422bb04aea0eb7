"""The process that makes ports and finds the truth about mutants: a line of JSON for each request and each answer.

Of a port it also tells which lines are executed, and which layers each line makes, calls, and runs within.
"""

import functools
import inspect
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import keras

from mutating import RELATIONS, port, truth
from parity.pairs import file as files

_ports: dict[str, Any] = {}  # what the ports do, by the folder


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    requests, sys.stdin = os.fdopen(os.dup(0)), io.StringIO()
    truth.prepare_process()
    for line in requests:
        request = json.loads(line)
        try:
            answer = {"port": _port, "mutant": _mutant}[request.pop("do")](**request)
        except (Exception, SystemExit) as error:
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _port(pair: str, folder: str) -> dict[str, Any]:
    """Make a port of a pair's Keras side; return its files, and the layers that each executed line has to do with."""
    file = files.load(Path(pair))
    home = Path(pair).parent
    model_ = file.case.model
    truth.built(model_, home)  # imports the library, which takes long where it is watched
    first = Execution(lambda name: port.is_published(name) or Path(name).parent == home)
    with first.watched():
        truth.observed(truth.built(model_, home), model_, truth.DRAWS[0])
    originals = port.make(Path(folder), home, {name for name, _ in first.lines} | set(_classes(first.made)))
    own = {str(Path(folder) / name): name for name in originals}
    second = Execution(own.__contains__)
    with second.watched():
        model = truth.built(model_, Path(folder))
        truth.observed(model, model_, truth.DRAWS[0])
    lines = second.named(truth.paths(model))
    return {"originals": originals, "lines": {own[name]: each for name, each in lines.items()}}


def _classes(layers: list[Any]) -> Iterator[str]:
    """Yield the files of the layers' classes: one that only renames another executes nothing of its own."""
    for base in {base for layer in layers for base in type(layer).__mro__}:
        yield getattr(sys.modules.get(base.__module__), "__file__", None) or ""


def _mutant(pair: str, folder: str, mutant: str) -> dict[str, Any]:
    """Return by how much a mutant differs from the port."""
    model_ = files.load(Path(pair)).case.model
    if folder not in _ports:
        if len(_ports) > 80:
            _ports.clear()
        port_ = truth.built(model_, Path(folder))
        seen = truth.all_observed(port_, model_)
        _ports[folder] = seen, {by: truth.shapes(port_, by) for by in seen}
    return {"differences": truth.differences(*_ports[folder], truth.built(model_, Path(mutant)), model_)}


class Execution:
    """The lines that are executed within `watched`, each with its layers by their ids.

    `within`: layers in whose own code the line stands. `makes`: layers that it makes, itself or in what it calls.
    `calls`: layers called from it, or next after it. `before`: the layer that was called last before it, and those
    whose outputs the called layers get.
    """

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._is_wanted = functools.cache(wanted)
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


if __name__ == "__main__":
    main()

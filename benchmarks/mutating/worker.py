"""The process that makes ports and finds the truth about mutants: a line of JSON for each request and each answer."""

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutating import port, truth
from mutating.execution import Execution
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


if __name__ == "__main__":
    main()

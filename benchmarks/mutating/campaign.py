"""Draw mutations, make mutants, find the truth about each, and let the project judge it: one worker's part."""

import hashlib
import itertools
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mutating import RELATIONS, arguments, operations, port, score
from mutating.code import Code, Site
from mutating.judge import Judge
from parity.pairs import file as files
from parity.pairs.file import PairFile

ROOT = Path(__file__).parents[2]
SLOWEST = 240.0  # seconds for a port or for the truth about a mutant
REPAIRED = 12  # one of so many caught mutants is repaired
TOLD = ("kind", "setting", "before", "after", "old", "new", "first", "last", "function", "target")  # of a site

KINDS = (
    arguments.NUMBER, arguments.SWITCH, arguments.WORD, arguments.DROPPED, arguments.CONSTANT, arguments.AXIS,
    operations.OPERATOR, operations.ORDER, operations.RESIDUAL, operations.MASK, operations.CAST, operations.STOPPED,
    operations.ACTIVATION, operations.REDUCTION,
)  # fmt: skip

Line = dict[str, Any]


class Mutation(NamedTuple):
    """A site in a file of a port; `source`: the file's mutated source."""

    file: str
    site: Site
    source: Callable[[], str]


def mutations(sources: Mapping[str, str], executed: Mapping[str, Collection[int]]) -> Iterator[Mutation]:
    """Yield every mutation of the lines that are executed; both arguments are by file."""
    for file in sorted(sources):
        code, lines = Code(sources[file]), set(executed.get(file, ()))
        for node in code.nodes():
            for change in (*arguments.changes(code, node), *operations.changes(code, node)):
                site = code.site(change)
                if site and lines.intersection(site.lines):
                    yield Mutation(file, site, lambda code=code, change=change: code.mutated(change))  # type: ignore[misc]


def drawn(found: Iterator[Mutation], seed: str) -> Iterator[Mutation]:
    """Yield the mutations in a random order that depends on the seed alone, each kind as often as the others."""
    source = random.Random(seed)
    by_kind: dict[str, list[Mutation]] = {}
    for mutation in found:
        by_kind.setdefault(mutation.site.kind, []).append(mutation)
    for each in by_kind.values():
        source.shuffle(each)
    while by_kind:
        for kind in source.sample(sorted(by_kind), len(by_kind)):
            yield by_kind[kind].pop()
            if not by_kind[kind]:
                del by_kind[kind]


class TruthProcess:
    """The Keras process that makes ports and finds the truth about mutants (mutating.worker)."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, **request: str) -> Line:
        """Return the answer to a request; {"error": ...} also where the process dies or takes too long."""
        process = self._started()
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], SLOWEST)[0]:
            self.close()
            return {"error": f"no answer within {SLOWEST:g} s"}
        line = process.stdout.readline()
        if not line:
            self.close()
            return {"error": "the process ended"}
        answer: Line = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process:
            self._process.kill()
            self._process.communicate()  # also closes the pipes
            self._process = None

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            paths = os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT)])
            variables = os.environ | {"PYTHONPATH": paths, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
            variables |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
            command = [sys.executable, "-m", "mutating.worker"]
            pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=nothing, env=variables, start_new_session=True
            )
        return self._process


class Port:
    """The port of a pair: its folder, its mutations in the order in which they are drawn, and its clean reports."""

    def __init__(self, path: Path, folder: Path, seed: int, truth: TruthProcess) -> None:
        self.path, self.folder = path, folder
        self.file: PairFile = files.load(path)
        self.clean: dict[bool, Line] = {}  # by whether it was varied
        answer = truth.ask(do="port", pair=str(path), folder=str(folder))
        self.error: str = answer.get("error", "")
        self.lines: dict[str, dict[str, Any]] = answer.get("lines", {})
        self.originals: dict[str, str] = answer.get("originals", {})
        self._order = drawn(self._mutations(), f"{seed}/{path.stem}")
        self._taken: list[Mutation] = []

    def mutation(self, number: int) -> Mutation | None:
        """Return the mutation of a number; None if there are not so many."""
        self._taken += itertools.islice(self._order, max(number + 1 - len(self._taken), 0))
        return self._taken[number] if number < len(self._taken) else None

    def relations(self, mutation: Mutation) -> dict[str, list[str]]:
        """Return the layers that the mutated lines have to do with, by how."""
        site, lines = mutation.site, self.lines[mutation.file]
        spans = {*site.lines} if site.first == site.last else {*site.lines, *range(site.first, site.last + 1)}
        told = [lines[str(line)] for line in sorted({*spans, *site.uses}) if str(line) in lines]
        found = {name: {path for each in told for path in each[name]} for name in RELATIONS}
        found["calls"].update(path for line in site.passed for path in lines.get(str(line), {}).get("calls", ()))
        return {name: sorted(paths) for name, paths in found.items()}

    def _mutations(self) -> Iterator[Mutation]:
        sources = {name: (self.folder / name).read_text() for name in self.originals}
        executed = {name: [int(line) for line in lines] for name, lines in self.lines.items()}
        yield from mutations(sources, executed)


class Campaign:
    """What one worker has: its processes and its ports. `close` ends it."""

    def __init__(self, seed: int, kept: Path) -> None:
        self.seed = seed
        self._scratch = tempfile.TemporaryDirectory(prefix="mutants-")
        self._truth, self._judge = TruthProcess(), Judge(kept)
        self._ports: dict[Path, Port] = {}

    def close(self) -> None:
        """End all processes, and delete what they wrote."""
        self._truth.close()
        self._judge.close()
        self._scratch.cleanup()

    def mutant(self, pair: Path, number: int) -> Line:
        """Return all that is known of a pair's mutant of a number; its `status` says how far it went."""
        start = time.perf_counter()
        port_ = self._port(pair)
        line: Line = {"pair": pair.stem, "number": number, "seed": self.seed}
        if port_.error:
            return line | {"status": "no port", "error": port_.error}
        mutation = port_.mutation(number)
        if mutation is None:
            return line | {"status": "exhausted"}
        line |= {"file": mutation.file} | {name: getattr(mutation.site, name) for name in TOLD}
        line["layers"] = port_.relations(mutation)
        folder = Path(tempfile.mkdtemp(dir=self._scratch.name)) / "mutant"
        try:
            port.write(folder, port_.folder, mutation.file, mutation.source())
            line |= self._truth_of(port_, folder)
            if line["status"] == "real":
                line |= self._said(port_, folder, line)
        finally:
            port.remove(folder)
        return line | {"seconds": round(time.perf_counter() - start, 1)}

    def _port(self, pair: Path) -> Port:
        if pair not in self._ports:
            folder = Path(self._scratch.name) / f"port-{pair.stem}"
            self._ports[pair] = Port(pair, folder, self.seed, self._truth)
        return self._ports[pair]

    def _truth_of(self, port_: Port, folder: Path) -> Line:
        paths = {"pair": str(port_.path), "folder": str(port_.folder), "mutant": str(folder)}
        answer = self._truth.ask(do="mutant", **paths)
        if "error" in answer:
            return {"status": "broken", "error": answer["error"]}
        differences = answer["differences"]
        return {"status": "real" if differences else "equivalent", "differences": differences}

    def _said(self, port_: Port, folder: Path, line: Line) -> Line:
        """Return what is said of a mutant, on the given inputs alone and, where that is nothing, on varied ones too."""
        told, clean = self._told(port_, folder, False), self._clean(port_, False)
        if is_varied := not score.is_caught(told, clean):
            told, clean = self._told(port_, folder, True), self._clean(port_, True)
        told.pop("owners")  # only the clean port's are asked for
        scores: Line = {"varied": is_varied, "said": told, "clean": clean}
        if score.is_caught(told, clean) and _is_sample(line):
            verdict = self._judge.judged(port_.file, port_.path.parent, folder, False, repair=True)["repaired"]
            scores["repaired"] = verdict in ("match", clean["verdict"])
        return scores

    def _clean(self, port_: Port, varied: bool) -> Line:
        if varied not in port_.clean:
            port_.clean[varied] = self._told(port_, port_.folder, varied)
        return port_.clean[varied]

    def _told(self, port_: Port, folder: Path, varied: bool) -> Line:
        return self._judge.judged(port_.file, port_.path.parent, folder, varied)


def _is_sample(line: Mapping[str, Any]) -> bool:
    """Return whether a mutant is one of those that are repaired."""
    name = f"{line['seed']}/{line['pair']}/{line['number']}"
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % REPAIRED == 0

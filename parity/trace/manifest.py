"""A trace's manifest: what was run, on what, and which tensors were written.

It holds nothing that differs between two recordings of the same run on the same machine (no times,
no paths), so that they are equal byte by byte. It is written last, by rename: a folder without one
is a recording that did not finish.
"""

import os
import re
from pathlib import Path
from typing import TypeVar

import msgspec

from parity.config.schema import Case
from parity.core.arrays import Array
from parity.core.errors import TraceError
from parity.trace import keys, validate
from parity.trace.layout import Layout
from parity.trace.mapping import Mapping, Matching
from parity.trace.pages import equal
from parity.trace.tensorfile import TensorFile

SCHEMA = 1
Tensors = dict[str, Array]
Part = TypeVar("Part", bound=msgspec.Struct)
FILE = re.compile(r"(low|high|witness)/rank-(0|[1-9][0-9]{0,5})/(initial|step-([0-9]{6}|[1-9][0-9]{6,11}))")
LARGEST = 64_000_000  # bytes of a manifest; a training of a large model has a few million


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one trace.

    `replicas`: for each replica of the model the ranks that hold it, a stage each or all of it.
    `modules`: the modules of which something was recorded, and what kind each is. `files`: run/rank/step
    to its keys in execution order. `aliases`: run/rank/step to those keys that have the tensor of another
    key there, with that key; they are not in the file. `same`: run/rank/step to those keys whose tensors
    are rank 0's, bit by bit, and stand there alone. `digests`: run/rank/step to the digest of the file
    (tensorfile.Writer). `moved`: run/rank/step to those keys whose tensors were others when the high run was
    done again unchanged, with the largest difference. Of a pair: `lifted`, the float32 islands that were
    computed in float64 in the high run; and from Keras `mapping` and `matching`, by which it speaks torch's names.
    """

    schema: int = SCHEMA
    case: Case
    backend: str
    data: dict[str, str]
    versions: dict[str, str]
    environment: dict[str, str]
    layout: Layout
    replicas: list[list[int]]
    modules: dict[str, str] = {}
    files: dict[str, list[str]]
    aliases: dict[str, dict[str, str]] = {}
    same: dict[str, list[str]] = {}
    digests: dict[str, str] = {}
    moved: dict[str, dict[str, float]] = {}
    lifted: list[str] = []
    mapping: Mapping | None = None
    matching: Matching | None = None

    @property
    def runs(self) -> list[str]:
        """The runs that the trace holds, in the order low, high, witness."""
        held = {name.partition("/")[0] for name in self.files}
        return [run for run in keys.RUNS if run in held]


class Trace:
    """A finished recording: its manifest, and its tensor files as they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read(folder)
        self.backend = self.manifest.backend
        self.case = self.manifest.case
        self._sound: set[str] = set()  # files whose digest was found to be the manifest's

    @property
    def mixed(self) -> bool:
        """Whether the low run mixes precisions."""
        return self.case.precision != "float32"

    @property
    def replicas(self) -> int:
        """How many replicas of the model were trained."""
        return len(self.manifest.replicas)

    def stems(self, run: str) -> list[str]:
        """The files of a run: the initial state, then the steps."""
        held = {name.rpartition("/")[2] for name in self.manifest.files if name.startswith(f"{run}/")}
        return sorted(held, key=lambda stem: -1 if (step := keys.step_of(stem)) is None else step)

    def open(self, run: str, stem: str, replica: int = 0) -> Tensors:
        """The tensors of one step of one run of one replica, those of all its ranks.

        What several ranks hold is there once if it is equal, else under numbered keys, which the
        other side does not have. Raises TraceError if they are not the tensors that were written.
        """
        first, *others = self.manifest.replicas[replica]
        tensors = self._file(run, first, stem)
        for rank in others:
            for key, array in self._file(run, rank, stem).items():
                if key in tensors and not equal(tensors[key], array):
                    key = keys.unused(key, tensors)
                tensors[key] = array
        if replica == 0 and not any(f"{run}/rank-{rank}/{stem}" in self.manifest.files for rank in (first, *others)):
            raise TraceError(f"{self.folder}: has no {stem} of the {run} run, which the other trace has")
        return dict(sorted(tensors.items(), key=lambda item: keys.place(item[0]))) if others else tensors

    def moved(self, stem: str, replica: int) -> dict[str, float]:
        """The tensors of a step that were others when the high run was done again, with the largest difference."""
        ranks = self.manifest.replicas[replica]
        files = (self.manifest.moved.get(f"high/rank-{rank}/{stem}", {}) for rank in ranks)
        return {key: apart for file in files for key, apart in file.items()}

    def _file(self, run: str, rank: int, stem: str) -> Tensors:
        """The tensors of one rank, its references to rank 0's among them."""
        name = f"{run}/rank-{rank}/{stem}"
        tensors = self._written(name) if name in self.manifest.files else {}
        if rank and name in self.manifest.same:
            first = self._file(run, 0, stem)
            for key in self.manifest.same[name]:
                if key not in first:
                    raise TraceError(f"{self.folder / keys.MANIFEST}: is damaged: rank 0 has no {key} in {stem}")
                tensors[key] = first[key]
        return tensors

    def _written(self, name: str) -> Tensors:
        """The tensors of one file, each under all its keys: an alias is the same array once more."""
        file = TensorFile(validate.stay(self.folder, f"{name}.safetensors"))
        self._check_digest(name, file)
        listed, aliases = self.manifest.files[name], self.manifest.aliases.get(name, {})
        written = dict(file)
        if list(written) != [key for key in listed if key not in aliases]:
            raise TraceError(f"{file.path}: holds other tensors than {self.folder / keys.MANIFEST} says")
        known = set(listed)
        if lost := [key for key, target in aliases.items() if key not in known or target not in written]:
            raise TraceError(f"{self.folder / keys.MANIFEST}: is damaged: {name} has no tensor for {lost[0]}")
        return {key: written[aliases.get(key, key)] for key in listed}

    def _check_digest(self, name: str, file: TensorFile) -> None:
        """Refuse a file that is not what was recorded. Every file has a digest."""
        if name not in self._sound:
            if file.digest() != self.manifest.digests.get(name):
                raise TraceError(
                    f"{file.path}: is damaged: its content is not what was recorded, by the digest in "
                    f"{self.folder / keys.MANIFEST}; record the trace again"
                )
            self._sound.add(name)


def write(folder: Path, manifest: Manifest) -> None:
    """Finish a trace."""
    draft = folder / f"{keys.MANIFEST}.draft"
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=1))
    os.replace(draft, folder / keys.MANIFEST)


def discard(folder: Path, rank: int = 0) -> None:
    """Take the finish off an earlier trace there: this rank's files are about to be written again."""
    (folder / keys.MANIFEST if rank == 0 else _part(folder, rank)).unlink(missing_ok=True)


def write_part(folder: Path, rank: int, part: msgspec.Struct) -> None:
    """Leave what a rank adds to the manifest where rank 0 finds it."""
    draft = _part(folder, rank).with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(part))
    os.replace(draft, _part(folder, rank))


def read_part(folder: Path, rank: int, kind: type[Part]) -> Part | None:
    """Take what a rank has left; None if it has not yet."""
    try:
        content = _part(folder, rank).read_bytes()
    except FileNotFoundError:
        return None
    _part(folder, rank).unlink()
    return msgspec.json.decode(content, type=kind)


def _part(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.json"


class _Schema(msgspec.Struct):
    """What every version's manifest says."""

    schema: msgspec.Raw = msgspec.Raw(b"null")


def read(folder: Path) -> Manifest:
    """The manifest of a trace. Raises TraceError."""
    path = folder / keys.MANIFEST
    try:
        content = validate.whole(path, LARGEST)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise TraceError(f"{folder}: no finished trace there: {error}") from None
    try:
        schema = bytes(msgspec.json.decode(content, type=_Schema).schema).decode()
        if schema != str(SCHEMA):
            raise TraceError(f"{path}: schema {schema}, this version reads {SCHEMA}; record the trace again")
        manifest = validate.decoded(content, Manifest)
        _check(manifest)
        return manifest
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: the manifest is damaged: {error}") from None


def _check(manifest: Manifest) -> None:
    """What the types do not say. Raises ValueError."""
    if strange := [name for name in manifest.files if not FILE.fullmatch(name)]:
        raise ValueError(f"it names the file {strange[0]!r}")
    ranks = [rank for replica in manifest.replicas for rank in replica]
    if not all(manifest.replicas) or not ranks or len(set(ranks)) < len(ranks):
        raise ValueError("expected replicas of one rank or more, no rank in two of them")
    held = {int(name.split("/")[1].removeprefix("rank-")) for name in manifest.files}
    if held and (lost := set(ranks) - held):
        raise ValueError(f"it has no file of rank {min(lost)}")
    facts = msgspec.to_builtins(manifest)
    validate.harmless(facts.pop("case"), spaced=True)
    validate.harmless([facts, manifest.case.name])


def find(folder: Path) -> list[Path]:
    """The folders of all finished traces at or below `folder`. Raises TraceError if there is none."""
    try:
        found = sorted(path.parent for path in folder.rglob(keys.MANIFEST))
    except (OSError, ValueError) as error:
        raise TraceError(f"{folder}: cannot be looked through: {error}") from None
    if not found:
        raise TraceError(f"{folder}: no trace there; python -m parity.record --backend=... --out={folder} makes one")
    return found

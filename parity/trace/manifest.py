"""A trace's manifest: what was run, in which environment, and which tensors were written.

It holds nothing that differs between two recordings of the same run on the same machine (no times,
no paths), so that two such manifests are equal byte by byte. It is written last, and by rename, so that
a folder without a manifest is a recording that did not finish.
"""

import copy
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
from msgspec.structs import replace

from parity.config.schema import Case
from parity.config.sides import Side
from parity.core.arrays import Array
from parity.core.errors import TraceError
from parity.trace import keys, validate
from parity.trace.layout import Layout
from parity.trace.mapping import Mapping, Matching, PairContext
from parity.trace.summary import Summary
from parity.trace.tensorfile import TensorFile, equal
from parity.trace.training import Training

SCHEMA = 1
Tensors = dict[str, Array]
Change = Callable[[Tensors, str, str, int], Tensors]  # of what a run holds of a step, by its stem, for a replica
Part = TypeVar("Part", bound=msgspec.Struct)
FILE = re.compile(r"(low|high|witness)/rank-(0|[1-9][0-9]{0,5})/(initial|step-([0-9]{6}|[1-9][0-9]{6,11}))")
LARGEST = 64_000_000  # bytes that a manifest may have; that of a large model's training has a few million


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a trace's manifest.

    The following map a file, "run/rank-N/step", to facts about it. `files`: its keys in execution order.
    `aliases`: the keys that are not stored because they are the tensor of another key of that file, with that key.
    `same`: the keys whose tensors are bitwise equal to rank 0's, and stored only there. `digests`: the file's
    digest (tensorfile.Writer). `moved`: the keys whose tensors changed when the high run was repeated unchanged,
    with the largest difference. `summarised`: the keys of the tensors of which it holds summaries, with their shapes.

    For a pair: `lifted` names the float32 computations that were promoted to float64 in the high run; `training` tells
    how the model was trained; `mapping` and `matching`, in Keras's trace only, how its tensors were renamed to torch's.
    `side`: a side of the pair's file.
    """

    schema: int = SCHEMA
    case: Case
    backend: str
    data: dict[str, str]
    versions: dict[str, str]
    environment: dict[str, str]
    layout: Layout
    # For each replica of the model the ranks that hold it, either a stage each or the only rank.
    replicas: list[list[int]]
    modules: dict[str, str] = {}  # the kind of each module of which something was recorded
    # The class of each module of the model, by its path, "" for the model itself; none in a Keras trace of a pair,
    # whose modules have torch's paths.
    classes: dict[str, str] = {}
    files: dict[str, list[str]]
    aliases: dict[str, dict[str, str]] = {}
    same: dict[str, list[str]] = {}
    digests: dict[str, str] = {}
    moved: dict[str, dict[str, float]] = {}
    summarised: dict[str, dict[str, tuple[int, ...]]] = {}
    lifted: list[str] = []
    training: Training = Training()
    mapping: Mapping | None = None
    matching: Matching | None = None
    side: Side | None = None

    @property
    def runs(self) -> list[str]:
        """Return the names of the runs that the trace holds, in the order low, high, witness."""
        held = {name.partition("/")[0] for name in self.files}
        return [run for run in keys.RUNS if run in held]

    @property
    def brief(self) -> set[str]:
        """Return the keys, aliases included, of the tensors of which a step holds only summaries."""
        brief = {key for held in self.summarised.values() for key in held}
        return brief | {key for held in self.aliases.values() for key, target in held.items() if target in brief}

    def context(self, search: list[str], survey: str = "") -> PairContext:
        """Return what a backend needs to run the pair again as it was recorded here, in Keras's trace."""
        return PairContext(search=search, survey=survey, mapping=self.mapping, matching=self.matching)


class Trace:
    """A finished recording: its manifest, and its tensor files, which are opened on access. Raises TraceError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read(folder)
        self.backend = self.manifest.backend
        self.case = self.manifest.case
        self._intact: set[str] = set()  # files whose digest has been checked
        self._has_summaries = True

    @property
    def replicas(self) -> int:
        """Return the number of replicas of the model that were trained."""
        return len(self.manifest.replicas)

    def replaced(self, **fields: Any) -> Self:
        """Return the same recording with other fields of its manifest."""
        trace = copy.copy(self)
        trace.manifest = replace(self.manifest, **fields)
        trace.case = trace.manifest.case
        return trace

    def changed(self, change: Change, **fields: Any) -> "Trace":
        """Return the same recording with other tensors, as `change` returns them, and other fields of its manifest."""
        return _Changed(self, change, fields)

    def whole(self) -> Self:
        """Return the same recording without the tensors of which it holds only summaries."""
        trace = copy.copy(self)
        trace._has_summaries = False
        return trace

    def stems(self, run: str) -> list[str]:
        """Return the stems of a run's files: the initial state, then the steps."""
        held = {name.rpartition("/")[2] for name in self.manifest.files if name.startswith(f"{run}/")}
        return sorted(held, key=lambda stem: -1 if (step := keys.step_of(stem)) is None else step)

    def open(self, run: str, stem: str, replica: int = 0) -> Tensors:
        """Return the tensors of one replica in one step of a run, merged from all its ranks.

        A tensor that several ranks hold is returned once if it is equal on all of them; otherwise the further ones
        get numbered keys, for which the other side's trace has no counterpart.
        Raises TraceError if the step is missing or a file is not what was written.
        """
        first, *others = self.manifest.replicas[replica]
        tensors = self._file(run, first, stem)
        for rank in others:
            for key, array in self._file(run, rank, stem).items():
                if key in tensors and not equal(tensors[key], array):
                    key = keys.unused(key, tensors)
                tensors[key] = array
        if replica == 0 and not any(f"{run}/rank-{rank}/{stem}" in self.manifest.files for rank in (first, *others)):
            raise _unusable(self.folder, f"its {run} run has no {stem}, which the comparison needs")
        return dict(sorted(tensors.items(), key=lambda item: keys.place(item[0]))) if others else tensors

    def of_kind(self, kind: str, step: int | None, run: str = "high") -> Tensors:
        """Return the tensors of one kind that a step recorded on replica 0, by name (None: the initial state)."""
        return keys.of_kind(self.open(run, keys.step_file(step)), kind)

    def moved(self, stem: str, replica: int) -> dict[str, float]:
        """Return the tensors of a step that changed when the high run was repeated, with their largest difference."""
        ranks = self.manifest.replicas[replica]
        files = (self.manifest.moved.get(f"high/rank-{rank}/{stem}", {}) for rank in ranks)
        return {key: difference for file in files for key, difference in file.items()}

    def _file(self, run: str, rank: int, stem: str) -> Tensors:
        """Return the tensors of one rank, including those that are stored only by rank 0."""
        name = f"{run}/rank-{rank}/{stem}"
        tensors = self._written(name) if name in self.manifest.files else {}
        if rank and name in self.manifest.same:
            first = self._file(run, 0, stem)
            for key in self.manifest.same[name]:
                if key not in first:
                    raise _unusable(self.folder / keys.MANIFEST, f"is damaged: rank 0 has no {key} in {stem}")
                tensors[key] = first[key]
        return tensors

    def _written(self, name: str) -> Tensors:
        """Return the tensors of one file by key; an alias is the same array under another key."""
        file = TensorFile(validate.stay(self.folder, f"{name}.safetensors"))
        if name not in self._intact:
            if file.digest() != self.manifest.digests.get(name):
                why = f"its content does not have the digest that {self.folder / keys.MANIFEST} holds for it"
                raise _unusable(file.path, f"is damaged: {why}")
            self._intact.add(name)
        listed, aliases = self.manifest.files[name], self.manifest.aliases.get(name, {})
        written = dict(file)
        if list(written) != [key for key in listed if key not in aliases]:
            raise _unusable(file.path, f"holds other tensors than {self.folder / keys.MANIFEST} lists")
        for key, whole in self.manifest.summarised.get(name, {}).items():
            written[key] = Summary.of(written[key], whole)
        valid = set(listed)
        if lost := [key for key, target in aliases.items() if key not in valid or target not in written]:
            raise _unusable(self.folder / keys.MANIFEST, f"is damaged: {name} has no tensor for {lost[0]}")
        held = {key: written[aliases.get(key, key)] for key in listed}
        kept = self._has_summaries
        return held if kept else {key: each for key, each in held.items() if not isinstance(each, Summary)}


class _Changed(Trace):
    """A recording whose tensors are changed when they are opened."""

    def __init__(self, trace: Trace, change: Change, fields: dict[str, Any]) -> None:
        vars(self).update(vars(trace.replaced(**fields)))
        self._trace, self._change = trace, change

    def open(self, run: str, stem: str, replica: int = 0) -> Tensors:
        """Return the tensors of one step, changed. Raises TraceError."""
        return self._change(self._trace.open(run, stem, replica), run, stem, replica)


def _unusable(path: Path, why: str) -> TraceError:
    return TraceError(f"{path}: {why}; record the trace again")


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, which finishes a trace."""
    draft = folder / f"{keys.MANIFEST}.draft"
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=1))
    os.replace(draft, folder / keys.MANIFEST)


def discard(folder: Path, rank: int = 0) -> None:
    """Delete the manifest, or this rank's part, of an earlier recording, lest an unfinished one seem finished."""
    (folder / keys.MANIFEST if rank == 0 else _part(folder, rank)).unlink(missing_ok=True)


def write_part(folder: Path, rank: int, part: msgspec.Struct) -> None:
    """Write a rank's part of the manifest to a file that rank 0 reads with `read_part`."""
    draft = _part(folder, rank).with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(part))
    os.replace(draft, _part(folder, rank))


def read_part(folder: Path, rank: int, kind: type[Part]) -> Part | None:
    """Return and delete a rank's part of the manifest; None if it is not written yet."""
    try:
        content = _part(folder, rank).read_bytes()
    except FileNotFoundError:
        return None
    _part(folder, rank).unlink()
    return msgspec.json.decode(content, type=kind)


def _part(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.json"


def read(folder: Path) -> Manifest:
    """Read and check the manifest of a trace. Raises TraceError."""
    path = folder / keys.MANIFEST
    try:
        content = validate.whole(path, LARGEST)
    except (OSError, ValueError) as error:  # ValueError: the path holds a NUL character
        raise TraceError(f"{folder}: holds no finished trace: {error}") from None
    try:
        # The field that manifests of all versions have in common.
        schema = bytes(msgspec.json.decode(content, type=dict[str, msgspec.Raw]).get("schema", b"null")).decode()
        if schema != str(SCHEMA):
            raise _unusable(path, f"has schema {schema}, this version reads {SCHEMA}")
        manifest = validate.decoded(content, Manifest)
        _check(manifest)
        return manifest
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: the manifest is damaged: {error}") from None


def _check(manifest: Manifest) -> None:
    """Check what the types of the fields cannot express. Raises ValueError."""
    if strange := [name for name in manifest.files if not FILE.fullmatch(name)]:
        raise ValueError(f"it names the file {strange[0]!r}, expected a name such as 'low/rank-0/step-000000'")
    ranks = [rank for replica in manifest.replicas for rank in replica]
    if not all(manifest.replicas) or not ranks or len(set(ranks)) < len(ranks):
        raise ValueError("expected replicas of at least one rank each, and no rank in two replicas")
    held = {int(name.split("/")[1].removeprefix("rank-")) for name in manifest.files}
    if held and (lost := set(ranks) - held):
        raise ValueError(f"it has no file of rank {min(lost)}")
    facts = msgspec.to_builtins(manifest)
    validate.harmless(facts.pop("case"), spaced=True)
    validate.harmless([facts, manifest.case.name])


def find(folder: Path) -> list[Path]:
    """Return the folders of all finished traces in or below `folder`. Raises TraceError if there are none."""
    try:
        folders = sorted(path.parent for path in folder.rglob(keys.MANIFEST))
    except (OSError, ValueError) as error:
        raise TraceError(f"{folder}: cannot be searched for traces: {error}") from None
    if not folders:
        raise TraceError(
            f"{folder}: holds no trace; record one with: python -m parity.record --backend=... --out={folder}"
        )
    return folders

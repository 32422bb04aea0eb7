"""A trace's manifest: what was run, on what, and which tensors were written.

It holds nothing that differs between two recordings of the same run on the same machine (no times,
no paths), so that they are equal byte by byte. It is written last, by rename: a folder without one
is a recording that did not finish.
"""

import os
import re
from pathlib import Path
from typing import Any

import msgspec

from parity.config.schema import Case
from parity.errors import TraceError
from parity.trace import keys
from parity.trace.tensorfile import TensorFile

SCHEMA = 1
FILE = re.compile(r"(low|high|witness)/rank-\d+/(initial|step-\d{6,})")


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Logical devices by index, and the devices that hold each parameter."""

    devices: list[str]
    parameters: dict[str, list[int]]
    replicas: int = 1


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one trace. `files`: run/rank/step to its keys in execution order."""

    schema: int = SCHEMA
    case: Case
    backend: str
    data: dict[str, str]
    versions: dict[str, str]
    environment: dict[str, str]
    layout: Layout
    files: dict[str, list[str]]

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

    @property
    def mixed(self) -> bool:
        """Whether the low run mixes precisions."""
        return self.case.precision != "float32"

    def stems(self, run: str) -> list[str]:
        """The files of a run of rank 0: the initial state, then the steps."""
        prefix = f"{run}/rank-0/"
        held = [name.removeprefix(prefix) for name in self.manifest.files if name.startswith(prefix)]
        return sorted(held, key=lambda stem: -1 if (step := keys.step_of(stem)) is None else step)

    def open(self, run: str, stem: str) -> TensorFile:
        """The tensors of one step of one run of rank 0. Raises TraceError if they are not those written."""
        name = f"{run}/rank-0/{stem}"
        file = TensorFile(self.folder / f"{name}.safetensors")
        if list(file) != self.manifest.files.get(name):
            raise TraceError(f"{file.path}: holds other tensors than {self.folder / keys.MANIFEST} says")
        return file


def write(folder: Path, manifest: Manifest) -> None:
    """Finish a trace."""
    draft = folder / f"{keys.MANIFEST}.draft"
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=1))
    os.replace(draft, folder / keys.MANIFEST)


def discard(folder: Path) -> None:
    """Take the finish off an earlier trace there: its files are about to be written again."""
    (folder / keys.MANIFEST).unlink(missing_ok=True)


def read(folder: Path) -> Manifest:
    """The manifest of a trace. Raises TraceError."""
    path = folder / keys.MANIFEST
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TraceError(f"{folder}: no finished trace there: {error}") from None
    try:
        schema = msgspec.json.decode(content, type=dict[str, Any]).get("schema")
        if schema != SCHEMA:
            raise TraceError(f"{path}: schema {schema!r}, this version reads {SCHEMA}; record the trace again")
        manifest = msgspec.json.decode(content, type=Manifest)
        if strange := [name for name in manifest.files if not FILE.fullmatch(name)]:
            raise TraceError(f"{path}: the manifest is damaged: it names the file {strange[0]!r}")
        return manifest
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{path}: the manifest is damaged: {error}") from None


def find(folder: Path) -> list[Path]:
    """The folders of all finished traces at or below `folder`. Raises TraceError if there is none."""
    found = sorted(path.parent for path in folder.rglob(keys.MANIFEST))
    if not found:
        raise TraceError(f"{folder}: no trace there; python -m parity.record --backend=... --out={folder} makes one")
    return found

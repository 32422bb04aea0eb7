"""Certificates: one side's half of a comparison in a single file, by which the other side is judged alone.

A certificate begins with text, in JSON, that a person reads and a diff shows: what was recorded, with which versions,
of which commit and why. Behind it stands a zip archive of the trace, whose large tensors are summaries. The digest in
the text is that of both.
"""

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import xxhash
from msgspec.structs import replace

from parity.core.errors import TraceError, UsageError
from parity.core.wording import count
from parity.trace import keys, validate
from parity.trace.manifest import Trace
from parity.trace.summary import Summary, shape

SCHEMA: Final = 1
LARGEST: Final = 1 << 28  # bytes that a certificate may have
UNPACKED: Final = 1 << 33  # bytes that its trace may have
ARCHIVE: Final = b"PK\x03\x04"  # how an archive of at least one file begins
DATE: Final = (1980, 1, 1, 0, 0, 0)  # of every file in the archive, so that equal traces give equal archives


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One recording of a certificate: when, of which commit ("" outside of a repository), with what, and why."""

    date: str
    commit: str
    versions: dict[str, str]
    reason: str


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """An output of the model in the first step, or a loss, in float64."""

    shape: tuple[int, ...]
    mean: float | None = None
    largest: float | None = None


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text of a certificate.

    `case`, `side`: whose half it is. `command`: compares both sides. `returned`: the outputs of the model and the
    losses, by name; of a summarised output the shape alone. `tensors`, `summarised`: how many tensors all runs have,
    and of how many only summaries are kept. `history`: its recordings, the last one at the end.
    """

    certificate: int = SCHEMA
    case: str
    side: str
    command: str
    history: list[Recording]
    environment: dict[str, str]
    devices: list[str]
    returned: dict[str, Returned]
    tensors: int
    summarised: int
    digest: str = ""


def described(trace: Trace, command: str, history: Sequence[Recording]) -> Head:
    """Return what a person wants to read of a trace."""
    facts = trace.manifest
    return Head(
        case=trace.case.name,
        side=trace.backend,
        command=command,
        history=list(history),
        environment=facts.environment,
        devices=facts.layout.devices,
        returned=_returned(trace),
        tensors=sum(map(len, facts.files.values())),
        summarised=sum(map(len, facts.summarised.values())),
    )


def _returned(trace: Trace) -> dict[str, Returned]:
    returned: dict[str, Returned] = {}
    for stem in trace.stems("high"):
        for key, array in trace.open("high", stem).items():
            kind, name = keys.split(key)
            if kind == "loss" or (kind == "activation" and name.startswith(keys.MODEL) and keys.step_of(stem) == 0):
                has_numbers = not isinstance(array, Summary) and array.size and np.isfinite(array).all()
                numbers = (float(array.mean()), float(np.abs(array).max())) if has_numbers else (None, None)
                returned[f"{stem} {name}"] = Returned(shape=shape(array), mean=numbers[0], largest=numbers[1])
    return returned


def write(folder: Path, file: Path, head: Head) -> int:
    """Write a certificate of what was recorded into a folder, and return its size in bytes. Raises UsageError."""
    draft = file.with_name(f"{file.name}.draft")
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), DATE)
                entry.compress_type = zipfile.ZIP_DEFLATED
                with archive.open(entry, "w", force_zip64=True) as stored:
                    stored.write(path.read_bytes())
        content = draft.read_bytes()
        text = replace(head, digest=_digest(head, content))
        whole = _text(text) + content
        if len(whole) > LARGEST:
            raise UsageError(
                f"{file}: the certificate would have {count(len(whole), 'byte')}, and may have {LARGEST}; choose "
                "smaller inputs, fewer steps or a smaller model"
            )
        draft.write_bytes(whole)
        draft.replace(file)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror or error}") from None
    finally:
        draft.unlink(missing_ok=True)
    return len(whole)


def _text(head: Head) -> bytes:
    return msgspec.json.format(msgspec.json.encode(head), indent=1) + b"\n"


def _digest(head: Head, content: bytes) -> str:
    digest = xxhash.xxh3_128(_text(replace(head, digest="")))
    digest.update(content)
    return digest.hexdigest()


def read(file: Path) -> tuple[Head, bytes]:
    """Return the text of a certificate, and its archive. Raises TraceError."""
    try:
        whole = validate.whole(file, LARGEST)
    except OSError as error:
        raise TraceError(f"{file}: cannot be read: {error.strerror or error}") from None
    text, _, rest = whole.partition(ARCHIVE)
    try:  # the field that certificates of all versions have in common
        schema = msgspec.json.decode(msgspec.json.decode(text, type=dict[str, msgspec.Raw])["certificate"], type=int)
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError, RecursionError):
        raise TraceError(
            f"{file}: is no certificate, or its beginning is damaged; record one with: python -m parity.certify"
        ) from None
    if schema != SCHEMA:
        raise TraceError(f"{file}: has schema {schema}, this version reads {SCHEMA}; record it again with --update")
    try:
        head = validate.decoded(text, Head)
        validate.harmless(msgspec.to_builtins(head))
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{file}: its text is damaged: {error}") from None
    content = ARCHIVE + rest
    if _digest(head, content) != head.digest:
        raise TraceError(f"{file}: is damaged or truncated: its content does not have the digest that its text names")
    return head, content


def unpack(file: Path, folder: Path) -> Head:
    """Write the trace of a certificate into a folder, and return its text. Raises TraceError."""
    head, content = read(file)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > UNPACKED:
                raise TraceError(f"{file}: its trace would take more than {count(UNPACKED, 'byte')}")
            archive.extractall(folder)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise TraceError(f"{file}: cannot be unpacked: {error}") from None
    return head

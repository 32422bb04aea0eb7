"""The machines that a training could run on: known devices and links, those of a user's table, and this machine."""

import math
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from parity.config.base import Frozen
from parity.config.cases import checked
from parity.core.errors import UsageError, nearest

GIGA, TERA, MICRO = 1e9, 1e12, 1e-6
Above = Annotated[float, Meta(gt=0.0)]
Kind = TypeVar("Kind")


class Device(Frozen, frozen=True):
    """A device. Memory in GB, bandwidth of its memory in GB/s, flops of dense matrices in TFLOPS."""

    memory: Above
    bandwidth: Above
    float32: Above
    link: str  # the usual link between such devices
    source: str
    bfloat16: Above | None = None  # None where it has no arithmetic of its own for it


class Link(Frozen, frozen=True):
    """A link between two devices: bandwidth of one direction in GB/s, latency of one message in microseconds."""

    bandwidth: Above
    latency: Annotated[float, Meta(ge=0.0)]
    source: str
    # Microseconds that a collective operation takes beside the messages of which it consists.
    collective: Annotated[float, Meta(ge=0.0)] = 0.0


class Table(Frozen, frozen=True):
    """Devices and links by name."""

    device: dict[str, Device] = {}
    link: dict[str, Link] = {}


class Group(NamedTuple):
    """So many equal devices, by the name of their kind: "cpu" and "gpu" are those of this machine."""

    number: int
    kind: str

    @property
    def is_here(self) -> bool:
        """Return whether they are devices of this machine."""
        return self.kind in ("cpu", "gpu")

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}" if self.is_here else f"{self.number}x{self.kind}"


def table(path: Path | None = None) -> Table:
    """Return the known devices and links, with those of a user's file added. Raises UsageError."""
    known = _read(resources.files("parity.advise").joinpath("devices.toml").read_text(encoding="utf-8"), "devices.toml")
    if path is None:
        return known
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--table={path}: expected a TOML file of devices and links: {error}") from None
    given = _read(text, f"--table={path}")
    merged = Table(device=known.device | given.device, link=known.link | given.link)
    for name, device in given.device.items():
        found(merged.link, device.link, f"--table={path}: device {name!r}: link")
    return merged


def _read(text: str, where: str) -> Table:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where}: is not TOML: {error}") from None
    read = checked(content, Table, where)
    fields = [field for row in (*read.device.values(), *read.link.values()) for field in msgspec.structs.astuple(row)]
    if not all(math.isfinite(field) for field in fields if isinstance(field, float)):
        raise UsageError(f"{where}: received an infinite number; expected what the data sheet says")
    return read


def parse(text: str, known: Table) -> Group:
    """Parse cpu:2, gpu:4 or 8xH200. Raises UsageError, with the nearest known device."""
    if match := re.fullmatch(r"(cpu|gpu):([1-9]\d{0,2})", text):
        return Group(int(match[2]), match[1])
    if match := re.fullmatch(r"([1-9]\d{0,4})x(.+)", text):
        found(known.device, match[2], f"--devices={text}: device")
        return Group(int(match[1]), match[2])
    raise UsageError(
        f"--devices={text}: expected cpu:N or gpu:N of this machine, or NxDEVICE of the table, e.g. 8xH200"
    )


def found(rows: dict[str, Kind], name: str, where: str) -> Kind:
    """Return the row of a table. Raises UsageError, which begins with `where`, with the nearest name."""
    if name not in rows:
        hint = nearest(name, rows) or f"; expected one of {', '.join(rows)}"
        raise UsageError(f"{where} {name!r} is not in the table{hint}")
    return rows[name]


def gigabytes(text: str) -> float:
    """Parse a flag's value such as 24GB or 512MB as bytes. Raises UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(MB|GB|TB)", text)
    if not match or not float(match[1]):
        raise UsageError(f"--memory={text}: expected the memory of one device above 0, e.g. 24GB or 512MB")
    return float(match[1]) * {"MB": 1e6, "GB": 1e9, "TB": 1e12}[match[2]]

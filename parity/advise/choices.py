"""The devices and the strategies to choose from, and what the advice says of them, as the structs of its JSON."""

import math
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar, get_args

import msgspec
from msgspec import Meta

from parity.config.base import Frozen
from parity.config.cases import checked
from parity.config.devices import obstacle, split
from parity.config.schema import UNUSED, Case
from parity.config.strategies import OPTIONS, Name, Pipelined
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
        row_named(merged.link, device.link, f"--table={path}: device {name!r}: link")
    return merged


def _read(text: str, where: str) -> Table:
    try:
        read = checked(tomllib.loads(text), Table, where)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where}: is not TOML: {error}") from None
    fields = [field for row in (*read.device.values(), *read.link.values()) for field in msgspec.structs.astuple(row)]
    if not all(math.isfinite(field) for field in fields if isinstance(field, float)):
        raise UsageError(f"{where}: received an infinite number; expected what the data sheet says")
    return read


def parse(text: str, known: Table) -> Group:
    """Parse cpu:2, gpu:4 or 8xH200. Raises UsageError, with the nearest known device."""
    if match := re.fullmatch(r"(cpu|gpu):([1-9]\d{0,2})", text):
        return Group(int(match[2]), match[1])
    match = re.fullmatch(r"([1-9]\d{0,4})x(.+)", text)
    if not match:
        expected = "cpu:N or gpu:N of this machine, or NxDEVICE of the table, e.g. 8xH200"
        raise UsageError(f"--devices={text}: expected {expected}")
    row_named(known.device, match[2], f"--devices={text}: device")
    return Group(int(match[1]), match[2])


def row_named(rows: dict[str, Kind], name: str, where: str) -> Kind:
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


ENOUGH = 4  # micro-batches for each stage: from there on bubbles are small (Huang et al. 2018, section 2.3)


def by_strategy(case: Case, devices: int) -> dict[str, Case | str]:
    """Return for every strategy the case's training by it on so many devices, or why there is none."""
    trainings: dict[str, Case | str] = {}
    for name in get_args(Name):
        try:
            changed = _by(case, name, devices)
            trainings[name] = obstacle(changed) or changed
        except ValueError as error:
            trainings[name] = str(error)
    return trainings


def _by(case: Case, name: str, devices: int) -> Case:
    """Return the case with another strategy and the options that this one has. Raises ValueError if it cannot be."""
    values = {option: getattr(case, option) if name in users else UNUSED[option] for option, users in OPTIONS.items()}
    title = f"{case.name.partition('/')[0]}/{name}"
    changed = msgspec.structs.replace(case, name=title, strategy=name, devices=devices, **values)
    if changed.accumulate > 1 or not isinstance(changed.distribution, Pipelined):
        return changed
    # Enough micro-batches for few bubbles, by a number that divides every replica's samples.
    sizes = [len(part) for part in split(range(changed.data.batch), changed)]
    numbers = range(1, ENOUGH * changed.distribution.stages + 1)
    most = max(number for number in numbers if not any(size % number for size in sizes))
    return msgspec.structs.replace(changed, accumulate=most)


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of a strategy, and how far the prediction is from it, as a part of what was measured."""

    seconds: float  # of a step
    peak: float  # bytes of the process or GPU with the most
    seconds_error: float
    peak_error: float


class Balanced(msgspec.Struct, frozen=True, kw_only=True):
    """A more even cut into stages: how many blocks each has, the step's seconds, and the fields of such a case."""

    stage_blocks: list[int]
    step: float
    fields: dict[str, str]


class Choice(msgspec.Struct, kw_only=True):
    """What a strategy costs in one framework."""

    side: str
    strategy: str
    why_not: str = ""  # why there is no such training, or ""
    micro_batches: int = 1
    fits: bool = False
    memory: dict[str, float] = {}  # the bytes of the device that needs the most, by their parts
    devices: list[float] = []  # the bytes of each device
    peak: float | None = None  # on this machine, the bytes of the process with the most
    sent: dict[str, int] = {}  # the bytes of a step's copies and collectives
    seconds: dict[str, float] = {}  # the parts of a step's time
    step: float | None = None
    speed_up: float | None = None
    balanced: Balanced | None = None  # a cut into stages by which a step is shorter, if there is one
    measured: Measured | None = None


class Advice(msgspec.Struct, kw_only=True):
    case: str
    batch: int | None
    devices: str
    link: str
    memory: float  # the bytes that each device has
    choices: list[Choice] = []
    best: dict[str, str] = {}  # for each framework the fastest strategy that fits
    assumed: list[str] = []
    would_change: list[str] = []
    # The fastest strategy of each framework on other numbers of devices, with its speed-up.
    scaling: dict[str, list[tuple[int, str, float]]] = {}


class Document(msgspec.Struct, kw_only=True):
    """The JSON document; `error`: why it is not complete, or ""."""

    schema: int = 1
    advice: list[Advice] = []
    error: str = ""

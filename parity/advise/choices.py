"""The strategies to choose from, and what the advice says of them, as the structs of its JSON."""

from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

import msgspec

from parity.config.devices import obstacle, split
from parity.config.schema import UNUSED, Case
from parity.config.strategies import OPTIONS, Pipelined, Strategy

ENOUGH = 4  # micro-batches for each stage: from there on bubbles are small (Huang et al. 2018, section 2.3)


class Candidate(NamedTuple):
    """A strategy by its name, and the training by it or why there is none."""

    strategy: str
    case: Case | None
    why_not: str = ""


def candidates(case: Case, devices: int) -> Iterator[Candidate]:
    """Yield the case's training by every strategy, on so many devices."""
    for kind in get_args(Strategy):
        name = str(kind.__struct_config__.tag)
        try:
            changed = _by(case, name, devices)
            why_not = obstacle(changed)
        except ValueError as error:
            changed, why_not = case, str(error)
        yield Candidate(name, None if why_not else changed, why_not)


def _by(case: Case, name: str, devices: int) -> Case:
    """Return the case with another strategy and the options that this one has. Raises ValueError if it cannot be."""
    values: dict[str, Any] = {
        option: getattr(case, option) if name in users else UNUSED[option] for option, users in OPTIONS.items()
    }
    title = f"{case.name.partition('/')[0]}/{name}"
    changed = msgspec.structs.replace(case, name=title, strategy=name, devices=devices, **values)
    if changed.accumulate == 1 and isinstance(changed.distribution, Pipelined):
        return msgspec.structs.replace(changed, accumulate=_micro_batches(changed))
    return changed


def _micro_batches(case: Case) -> int:
    """Return a number of micro-batches that divides every replica's samples, with enough of them for few bubbles."""
    sizes = [len(part) for part in split(range(case.data.batch), case)]
    limit = ENOUGH * case.distribution.stages
    return max(count for count in range(1, limit + 1) if not any(size % count for size in sizes))


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
    """The advice for one case or pair."""

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

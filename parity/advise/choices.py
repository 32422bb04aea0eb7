"""The strategies to choose from: the same training by each of them, or why it cannot be trained so."""

from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

import msgspec

from parity.config import shards
from parity.config.devices import obstacle
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
    sizes = [len(part) for part in shards.split(range(case.data.batch), case)]
    limit = ENOUGH * case.distribution.stages
    return max(count for count in range(1, limit + 1) if not any(size % count for size in sizes))

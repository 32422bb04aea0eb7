"""What the parent and a backend's process say to each other: one JSON line per message."""

from typing import Literal

import msgspec

from parity.config.schema import Case

# What a comparison needs of each side: the witness is the reference's.
RUNS = {"torch": ["low", "high", "witness"], "keras": ["low", "high"]}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Record the named runs of a case into a folder. `fault` plants mistakes, by name, joined by +."""

    case: Case
    runs: list[str]
    folder: str
    fault: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended. `ready` is said once, before the first job."""

    status: Literal["ready", "done", "usage", "error"]
    message: str = ""
    seconds: float = 0.0

"""Findings: what the doctor reports about a program."""

from typing import Literal

import msgspec

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # from the worst on


class Finding(msgspec.Struct, kw_only=True):
    """One thing that is wrong, or worth knowing.

    Attributes:
        id: the kind of finding; stable, for --ignore. ids.py lists them.
        where: the path of the module; "" outside of the model.
        source: the line of the user's code that should be changed, as "file:line".
        message: what was observed, with its numbers.
        fix: a line of code that mends it; "" if none is known.
        side: "torch" or "keras".
        case: the name of the built-in case, if it is one.
    """

    id: str
    severity: Severity
    where: str
    source: str
    message: str
    fix: str
    side: str = ""
    case: str = ""

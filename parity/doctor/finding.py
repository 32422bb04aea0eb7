"""What the doctor has to say of a program."""

from typing import Literal

import msgspec

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # the worst first


class Finding(msgspec.Struct, kw_only=True):
    """One thing that is wrong, or worth knowing.

    `id`: what kind it is, stable, for --ignore. `where`: the path of the module, "" outside of the model.
    `source`: the user's line, "file:line". `message`: what was seen, with its numbers. `fix`: a line of code.
    """

    id: str
    severity: Severity
    where: str
    source: str
    message: str
    fix: str
    side: str = ""  # torch or keras
    case: str = ""  # of a built-in case

"""Settings and their changes in the form that the parent process reads."""

import enum
import math
from typing import Any

import numpy as np

from parity.diagnose.experiment.knobs import Knob
from parity.trace.experiment import Change


def told_of(knob: Knob, value: Any) -> Change:
    """Return a change of a setting as the report has it."""
    return Change(
        name=knob.name,
        owner=knob.owner,
        source=knob.source,
        kind=knob.kind,
        path=knob.path,
        of=knob.of,
        before=plain(knob.value),
        after=plain(value),
    )


def plain(value: Any) -> Any:
    """Return a setting as JSON can hold it: functions and enums by their names, infinities as text."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, float):
        return _digits(value) if math.isfinite(value) else repr(value)
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "__name__", type(value).__name__)


def _digits(value: float) -> float:
    """Return the decimal number that a constant was written as, where it is one that was rounded to float32."""
    short = float(f"{value:.7g}")
    return short if float(np.float32(short)) == value else value

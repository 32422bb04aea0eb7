"""Settings whose values are tried, noted in a file: some end the whole process, as a division by zero in C++ does."""

import enum
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from parity.diagnose.experiment.knobs import Knob
from parity.trace import experiment
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


class Attempts:
    """The changes that are tried in one process; `folder` is that of its answers.

    The note of a change that ends the process remains in the folder, and the parent process tells the next one that the
    setting is deadly: its further values are not tried either, as they often end the process as well.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._deadly = [[_setting(change) for change in changes] for changes in experiment.deadly(folder)]

    def are_deadly(self, trials: Sequence[tuple[Knob, Any]]) -> bool:
        """Return whether a process has ended as it tried values of these settings, or of some of them."""
        settings = [_setting(told_of(knob, value)) for knob, value in trials] if self._deadly else []
        return any(all(setting in settings for setting in each) for each in self._deadly)

    @contextmanager
    def noted(self, trials: Sequence[tuple[Knob, Any]]) -> Iterator[None]:
        """Note changes for as long as they are tried."""
        experiment.note(self._folder, [told_of(knob, value) for knob, value in trials])
        try:
            yield
        finally:
            experiment.forget(self._folder)


def _setting(change: Change) -> Change:
    return replace(change, after=None)

"""The calls of a module under changes of its settings: how long they may take, and how what is tried is noted.

Changes are noted in a file, as the parent process reads them: some end the whole process, as a division by zero in C++
does.
"""

import bisect
import enum
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from parity.core.arrays import Array
from parity.diagnose.experiment.candidates import is_number
from parity.diagnose.experiment.knobs import Knob
from parity.runtime import experiment
from parity.runtime.experiment import Change

DROPOUT: Final = "dropout"  # in the names of rates, and of the modules that have them
MAX_NORM: Final = "max_norm"  # the length that vectors may have at most
# Seconds of calls for one search in all: calls of a large model take long. A quarter has been enough for all that
# was found in the pairs of tests/public; two layers of bidirectional LSTMs of Keras take up to 18 on a slow machine.
MOST: Final = 20.0
# Times the shorter calls (their lower quartile) that one counts at most: what other programs add to it is not counted,
# so that a busy machine finds the same as an idle one.
BUSY: Final = 2.0
LONGEST_CALL: Final = 2.0  # seconds, and as many times longer than as it is; with another number a loop may never end
SLOWER: Final = 10
MOST_ENDLESS: Final = 4  # calls that never end whose time is not counted
FURTHER: Final = 1.0  # seconds in which other explanations are looked for, when there is one
Trial = tuple[Knob, Any]


class ContradictionError(LookupError):
    """Raised where a change alters what both sides agree on, before the tensor that is asked about."""


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

    def are_deadly(self, trials: Sequence[Trial]) -> bool:
        """Return whether a process has ended as it tried values of these settings, or of some of them."""
        settings = [_setting(told_of(knob, value)) for knob, value in trials] if self._deadly else []
        return any(all(setting in settings for setting in each) for each in self._deadly)

    @contextmanager
    def noted(self, trials: Sequence[Trial]) -> Iterator[None]:
        """Note changes for as long as they are tried."""
        experiment.note(self._folder, [told_of(knob, value) for knob, value in trials])
        try:
            yield
        finally:
            experiment.forget(self._folder)


def _setting(change: Change) -> Change:
    return replace(change, after=None)


class Calls:
    """The calls of one module under changes, noted in `attempts`; each part of a search may take so many `seconds`."""

    def __init__(self, call: Callable[[], Array], attempts: Attempts, seconds: float) -> None:
        self._call, self._attempts = call, attempts
        self._seconds, self._end, self._calls, self._endless = seconds, 0.0, 0, 0
        self._spent, self._until, self._times = 0.0, MOST, list[float]()
        self._longest = math.inf
        self.contradicts = False  # whether the last call's changes altered what both sides agree on

    def limit(self, seconds: float) -> None:
        """End calls that take far longer than one that took so many seconds."""
        self._longest = LONGEST_CALL + SLOWER * seconds

    def begin(self, least: int, parts: int = 1) -> None:
        """Begin the next of `parts` parts, with at least so many calls unless they take more than its time."""
        self._end, self._calls = self._spent + self._seconds, -least
        self._until = self._spent + (MOST - self._spent) / parts

    def is_over(self) -> bool:
        """Return whether the part's time has passed and its least number of calls is made, or all of its time has."""
        return self._spent > self._until or (self._spent > self._end and self._calls >= 0)

    def end_soon(self) -> None:
        """Leave the present part of the search only the time in which other explanations are looked for."""
        self._end, self._calls = min(self._end, self._spent + FURTHER), 0

    def under(self, trials: Sequence[Trial]) -> Array | None:
        """Return what the module computes under changes; None if it fails, or gives no float where one is expected.

        A dropout of everything is not tried, nor vectors of no length: what they leave explains whatever is not added.
        """
        self.contradicts = False
        leaves_nothing = any(is_number(value) and _leaves_nothing(knob, value) for knob, value in trials)
        if leaves_nothing or self._attempts.are_deadly(trials):
            return None
        try:
            with ExitStack() as stack, np.errstate(all="ignore"):
                for knob, value in trials:
                    stack.enter_context(knob.changed(value))
                stack.enter_context(self._attempts.noted(trials))
                stack.enter_context(_limited(self._longest))
                self._calls += 1
                return self._timed()
        except TimeoutError:  # a value with which the code never ends
            self._endless += 1
            if self._endless > MOST_ENDLESS:
                self._spent += self._longest
            return None
        except ContradictionError:
            self.contradicts = True
            return None
        except Exception:  # a value that the code does not take
            return None

    def _timed(self) -> Array:
        """Call the module, and count the time that it takes."""
        start = time.process_time()
        try:
            value = self._call()
            bisect.insort(self._times, time.process_time() - start)
            return value
        finally:  # a call that fails counts too, but says nothing on how long one takes
            most = BUSY * self._times[len(self._times) // 4] if self._times else math.inf
            self._spent += min(time.process_time() - start, most)


def _leaves_nothing(knob: Knob, value: float) -> bool:
    return not 0 <= value < 1 if DROPOUT in f"{knob.of} {knob.name}" else value <= 0 and knob.name == MAX_NORM


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block if it takes longer; signals reach the main thread alone."""
    if not math.isfinite(seconds) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)

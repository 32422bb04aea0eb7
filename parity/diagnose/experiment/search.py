"""Search for the fewest changes of settings under which a live module computes what the other side has recorded."""

import operator
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from parity.core.arrays import Array, reproduced
from parity.diagnose.experiment import knobs
from parity.diagnose.experiment.attempts import Attempts, Calls, Trial, told_of
from parity.diagnose.experiment.candidates import RETURNED, SOON, Tries, is_number, multiplied, step_towards
from parity.diagnose.experiment.knobs import Knob
from parity.diagnose.experiment.statements import KIND as STATEMENT
from parity.diagnose.formula import NEEDED, UNSET, Seen, bits_of, is_conclusive, largest_difference
from parity.runtime.experiment import Found

DIGITS: Final = 17  # that identify a float64
HUGE: Final = 1000  # times the present number, or 1
ANOTHER: Final = "another"  # a text that is none of those that code compares with
TEXTS: Final = ("argument", "attribute", "default", "variable", "constant")  # kinds of settings that may be any text
# The part of the difference that may be left where no value reproduces the other side to the bits of a match, but a
# likely one does it as far as float32 can see. It is another difference, such as a constant that a framework holds in
# float32; no wrong value comes so near by chance.
VANISHED: Final = 2.0**-12
SPARE: Final = NEEDED + 4  # bits that a number rounded to fewer digits must leave
ITERATIONS: Final = 12  # of the search for a number, which doubles the exact digits with each
STARTS: Final = 3  # candidates from which a number is searched for
FIRST: Final = 6  # changes that are tried together with all others, the most effective ones
PROMISING: Final = 0.99  # of the difference that a step must promise to take away for a number to be searched for now
SHARE: Final = 0.05  # of the difference that a step must promise to take away; by chance it is far less
SLOW: Final = 3  # steps that need not halve the difference
FAST: Final = 4  # times smaller that a step makes the difference as the search comes to its end
MOST_DIGITS: Final = 10  # of a number that somebody writes
LEAST: Final = 300  # calls in the first part of the search, so that what is found hardly depends on the machine
FEWER: Final = 80  # calls in each further part, and around the module


class Search:
    """A search on one module, which `call` calls for what is to reproduce the other side's value, the `target`.

    `values` gives the values to try for a setting. The calls of each part of the search may take so many `seconds`;
    what is tried is noted in `attempts`. `may_solve`: whether any number may be searched for; some number always meets
    a single one.
    """

    def __init__(
        self,
        call: Callable[[], Array],
        target: Seen,
        values: Callable[[Knob], Sequence[Any]],
        seconds: float,
        attempts: Attempts,
        may_solve: bool = True,
    ) -> None:
        self._calls, self._target, self._values = Calls(call, attempts, seconds), target, values
        self._may_solve = may_solve
        self.besides: list[Knob] = []  # settings that are tried as the second of two alone
        start = time.monotonic()
        first, again = self._calls.under(()), self._calls.under(())
        self._left = largest_difference(target.value, first)
        self.is_steady = first is again if first is None or again is None else reproduced(first, again)
        self._calls.limit(time.monotonic() - start)
        self.before = bits_of(target, self._left)

    def found(
        self, *groups: Sequence[Knob], pairs: bool = True, base: tuple[Trial, ...] = (), least: int = LEAST
    ) -> list[Found]:
        """Return the sets of changes of the smallest size that reproduce the other side, none if there are none.

        Args:
            groups: settings, the likeliest first: the second group is tried where none of the first does it, and so on.
            pairs: whether two are tried where no single one does, of which the first is among those that come nearest.
            base: changes that are made as well; if they do it alone, nothing is found.
            least: how many calls are made in the first part, even if they take longer than a part may.
        """
        effective: list[tuple[float, Trial]] = []
        if base and self.reproduced(base):
            return []  # what is left then is no evidence for anything else
        there, chance = [group for group in groups if group], list[Found]()
        for number, group in enumerate(there):
            self._calls.begin(least if group is groups[0] and pairs else min(least, FEWER), len(there) - number + pairs)
            singles = list(self._singles(group, base, effective))
            found = list(map(self._found, singles))
            if not all(map(self._is_by_chance, singles)):
                return found
            chance += found
        if chance or not pairs:
            return chance
        self._calls.begin(min(least, FEWER))
        # A statement that is moved leaves no other instruction of its code where a second change would look for it.
        nearest = sorted((each for each in effective if each[1][0].kind != STATEMENT), key=lambda entry: entry[0])
        every = [knob for group in (*groups, self.besides) for knob in group if knob.kind != STATEMENT]
        for _, first in nearest[:FIRST]:
            others = [knob for knob in every if knob is not first[0]]
            if found := [self._found(trials) for trials in self._singles(others, (first,), [])]:
                return found
        return []

    def effective(self, settings: Sequence[Knob]) -> list[Knob]:
        """Return the settings without those that several modules have alike and that change nothing in all of them."""
        self._calls.begin(0)
        start, idle = self._calls.under(()), set[tuple[str, ...]]()
        for several, joint in zip(knobs.alike(settings), knobs.joint(settings), strict=True):
            tries = Tries(joint, self._values(joint)[:SOON])
            while tries.turn < len(tries.values) and tries.in_vain == tries.turn and not self._calls.is_over():
                self._try(tries, (), start)
            if tries.idle == len(tries.values):
                idle.update(map(knobs.place, several))
        return [knob for knob in settings if knobs.place(knob) not in idle]

    def reproduced(self, trials: tuple[Trial, ...]) -> bool:
        """Return whether changes reproduce the other side, or leave only what float32 cannot see."""
        return self._is_met(self._left_under(*trials))

    def _singles(
        self, settings: Sequence[Knob], base: tuple[Trial, ...], effective: list[tuple[float, Trial]]
    ) -> Iterator[tuple[Trial, ...]]:
        """Yield, for each setting, the first value that reproduces the other side; nearer ones go to `effective`."""
        tries = [Tries(knob, self._values(knob)) for knob in settings]
        start = self._calls.under(base)
        for each in self._in_turn(tries):
            self._try(each, base, start)
            if self._may_solve and each.is_to_solve():
                each.is_promising = False
                each.found = self._solved(each.knob, base, each.trials)
            if each.found is not UNSET:
                yield (*base, (each.knob, each.found))
                self._calls.end_soon()
        tries = [each for each in tries if each.found is UNSET]
        for each in tries:
            is_float = isinstance(each.knob.value, float)  # whose None may stand for a default
            left, value = min(
                each.trials, key=lambda trial: (trial[0], is_float and trial[1] is None), default=(np.inf, None)
            )
            if self._is_below_float32(left):
                yield (*base, (each.knob, value))
            elif left < 0.9 * self._left:
                effective.append((left, (each.knob, value)))

    def _in_turn(self, tries: Sequence[Tries]) -> Iterator[Tries]:
        """Yield the settings of which to try a value, while there is time.

        All settings are tried with their likeliest value first, then all with the next, and so on: the time may not
        suffice for all values. Those whose values do not matter come last.
        """
        for is_patient in (False, True):
            while open_ := [each for each in tries if each.is_open(is_patient)]:
                for each in open_:
                    if self._calls.is_over():
                        return
                    yield each

    def _try(self, tries: Tries, base: tuple[Trial, ...], start: Array | None) -> None:
        """Try the next value of a setting."""
        value = tries.values[tries.turn]
        tries.turn += 1
        result = self._calls.under((*base, (tries.knob, value)))
        contradicts = self._calls.contradicts
        left = largest_difference(self._target.value, result)
        if self._is_met(left) and self._drowns(tries.knob, value, base):
            left = np.inf
        tries.trials.append((left, value))
        if is_number(value) and is_number(tries.knob.value) and not base:
            _, share = step_towards(start, result, self._target.value, value - tries.knob.value)
            tries.is_promising = share > PROMISING
        if self._reproduces(left):
            tries.found = ANOTHER if self._is_any_word(tries.knob, base) else value
            if value is None and isinstance(tries.knob.value, float):
                tries.found = self._default(tries, base)
            own = tries.knob.value
            if type(value) is type(own) is int and 0 <= own < value:  # as the end of a slice, which any larger one is
                above = range(own + 1, value)
                tries.found = own + 1 + bisect_left(above, True, key=lambda each: self._does(tries.knob, each, base))
        is_float = result is not None and result.dtype.kind == "f"
        is_same = result is not None and start is not None and np.array_equal(result, start, equal_nan=is_float)
        tries.in_vain = tries.in_vain + 1 if result is None or is_same else 0
        tries.idle += is_same or contradicts
        tries.contradicted += contradicts

    def _drowns(self, knob: Knob, value: Any, base: tuple[Trial, ...]) -> bool:
        """Return whether a value only does it as what follows then has no effect.

        A norm with a huge epsilon is as good as left out, and so is a branch that is 0 behind a function.
        """
        is_huge = is_number(knob.value) and is_number(value) and value >= HUGE * max(abs(knob.value), 1)
        if not (is_huge or callable(value)):
            return False
        return self.reproduced((*base, (knob, HUGE * value if is_huge else zeros)))

    def _default(self, tries: Tries, base: tuple[Trial, ...]) -> float | None:
        """Return the number that does as well as None, if that stands for a default; None if it stands for nothing.

        Where a limit is off, many numbers do as well, so that none of them is the default.
        """
        for number in filter(is_number, tries.values[tries.turn :]):
            if self._calls.is_over():
                break
            if number and self._does(tries.knob, number, base):
                return None if self._does(tries.knob, 2 * number, base) else number
        return None

    def _is_any_word(self, knob: Knob, base: tuple[Trial, ...]) -> bool:
        """Return whether a text that no code knows does it as well: it is enough that it is not the present one."""
        is_text = isinstance(knob.value, str) and knob.kind in TEXTS
        return is_text and self._does(knob, ANOTHER, base)

    def _solved(self, knob: Knob, base: tuple[Trial, ...], trials: list[tuple[float, Any]]) -> Any:
        """Return the number with which the other side is reproduced, by Gauss and Newton's method; UNSET if none is.

        It is searched for on the scale of numbers, and on that of their logarithms. It has the fewest digits that do.
        """
        near = [value for left, value in trials if np.isfinite(left) and isinstance(value, (int, float))]
        for start in (knob.value, *near[:STARTS]):
            for follow in (operator.add, multiplied):
                number = self._newton(knob, base, float(start), follow)
                if number is not None:
                    return self._shortest(knob, base, number)
        return UNSET

    def _newton(
        self, knob: Knob, base: tuple[Trial, ...], number: float, follow: Callable[[float, float], float]
    ) -> float | None:
        """Follow the steps of the method from a number; `follow` makes such a step."""
        before = np.inf
        for iteration in range(ITERATIONS):
            here = self._calls.under((*base, (knob, number)))
            left = largest_difference(self._target.value, here)
            if self._reproduces(left):
                return number
            step = 1e-5 * abs(number) or 1e-7
            there = self._calls.under((*base, (knob, number + step)))
            move, share = step_towards(here, there, self._target.value, step)
            is_hopeless = share < SHARE or (iteration > SLOW and left > before / 2)
            is_slow = left > before / FAST  # a search that is about to end is not given up for want of time
            if is_hopeless or (is_slow and self._calls.is_over()):
                return number if self._is_below_float32(left) else None
            number, before = follow(number, move), left
        return None

    def _shortest(self, knob: Knob, base: tuple[Trial, ...], number: float) -> float:
        """Return the number with the fewest digits that reproduces the other side as well; an integer stays one.

        Where another difference is left that float32 cannot see, it leaves no more than twice as much.
        """
        least = self._left_under(*base, (knob, number))

        def does(near: float) -> bool:
            left = self._left_under(*base, (knob, near))
            return self._reproduces(left, SPARE) or (not self._reproduces(least) and left <= 2 * least)

        if isinstance(knob.value, int) and does(round(number)):
            return round(number)
        for digits in range(DIGITS):
            rounded = float(f"{number:.{digits}g}") if digits else 0.0
            for near in (rounded, float(np.float32(rounded))):  # a framework may hold the constant in float32
                if does(near):
                    return near
        return number

    def _found(self, trials: tuple[Trial, ...]) -> Found:
        changes = [told_of(knob, value) for knob, value in trials]
        return Found(changes=changes, bits=bits_of(self._target, self._left_under(*trials)), before=self.before)

    def _is_by_chance(self, trials: tuple[Trial, ...]) -> bool:
        """Return whether a change may do it by chance: a number of many digits, or that something more is returned."""
        knob, value = trials[-1]
        has_digits = isinstance(value, float) and len(repr(value).strip("-0.").replace(".", "")) > MOST_DIGITS
        is_returned = isinstance(knob.value, bool) and knob.name.startswith(RETURNED)
        return is_returned or (has_digits and value not in [each for each in self._values(knob) if is_number(each)])

    def _does(self, knob: Knob, value: Any, base: tuple[Trial, ...]) -> bool:
        """Return whether the other side is reproduced with a value of a setting, under the base's changes."""
        return self._reproduces(self._left_under(*base, (knob, value)))

    def _left_under(self, *trials: Trial) -> float:
        """Return by how much what the module computes under changes misses the other side's value."""
        return largest_difference(self._target.value, self._calls.under(trials))

    def _is_met(self, left: float) -> bool:
        """Return whether a value is reproduced, or what is left of it is below what float32 can see."""
        return self._reproduces(left) or self._is_below_float32(left)

    def _is_below_float32(self, left: float) -> bool:
        """Return whether what is left is less than rounding to float32 makes, and far less than what it was."""
        return left < self._target.noise and left <= self._left * VANISHED

    def _reproduces(self, left: float, needed: float = NEEDED) -> bool:
        """Return whether a value is reproduced to the bits that a match needs, and 20 bits of the difference vanish."""
        values: Mapping[str, Seen] = {"value": self._target}
        is_match = bits_of(self._target, left) >= needed
        return is_match and is_conclusive(values, {"value": left}, {"value": self._left})


def zeros(given: Any, *_: Any, **__: Any) -> Any:
    """Return zeros of the first argument's shape, in either framework."""
    return given * 0

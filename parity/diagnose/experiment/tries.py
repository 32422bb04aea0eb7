"""The values that the search tries for one setting, and when it gives the setting up."""

from collections.abc import Sequence
from typing import Any, Final

from parity.diagnose.experiment.candidates import is_number
from parity.diagnose.experiment.knobs import Knob
from parity.diagnose.formula import UNSET

IN_VAIN: Final = 4  # values in a row that change nothing or are not taken, until a number is given up
SOON: Final = 2  # such values, until a setting has to wait for those whose values matter; of texts, three times as many
SOLVED_AFTER: Final = 1  # values of a setting, before a number is searched for


class Tries:
    """The values that are tried for a setting: what each left over, and the one that reproduces the other side."""

    def __init__(self, knob: Knob, values: Sequence[Any]) -> None:
        self.knob, self.values = knob, values
        self.trials: list[tuple[float, Any]] = []
        self.found: Any = UNSET
        self.turn, self.in_vain = 0, 0

    def is_open(self, is_patient: bool) -> bool:
        """Return whether to try another value.

        A few values tell about the others of a number; those of a text or a tuple do not.
        """
        most = IN_VAIN if is_patient else SOON
        if not (self.knob.value is None or is_number(self.knob.value)):
            most = len(self.values) if is_patient else 3 * SOON
        return self.found is UNSET and self.turn < len(self.values) and self.in_vain < most

    def is_to_solve(self) -> bool:
        """Return whether to search for a number now, as the likeliest values did not do."""
        is_late = self.turn == min(SOLVED_AFTER + 1, len(self.values))
        return is_late and self.in_vain < IN_VAIN and self.found is UNSET and is_number(self.knob.value)

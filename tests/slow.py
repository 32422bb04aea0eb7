"""What slowness asks of tests: cases that the default run leaves out, and patience with slow machines."""

from collections.abc import Iterable
from typing import Any

import pytest

PARAM = type(pytest.param())
# Seconds for which a test waits for a process: machines differ in speed by a factor of fifty.
WAIT = 900.0


def sampled(cases: Iterable[Any], *kept: str) -> list[Any]:
    """Return the cases as params with their ids, marked slow unless the id is among `kept`.

    A case is a param with an id, or what is its own id as text.
    """
    params = [case if isinstance(case, PARAM) else pytest.param(case, id=str(case)) for case in cases]
    assert {each.id for each in params}.issuperset(kept), kept
    return [each if each.id in kept else each._replace(marks=[*each.marks, pytest.mark.slow]) for each in params]

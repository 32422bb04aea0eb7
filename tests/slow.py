"""Which cases of a test the default run has, where not all of them are slow."""

from collections.abc import Iterable
from typing import Any

import pytest

PARAM = type(pytest.param())


def sampled(cases: Iterable[Any], *kept: str) -> list[Any]:
    """Return the cases as params with their ids, marked slow unless the id is among `kept`.

    A case is a param with an id, or what is its own id as text.
    """
    params = [case if isinstance(case, PARAM) else pytest.param(case, id=str(case)) for case in cases]
    assert {each.id for each in params}.issuperset(kept), kept
    return [each if each.id in kept else each._replace(marks=[*each.marks, pytest.mark.slow]) for each in params]

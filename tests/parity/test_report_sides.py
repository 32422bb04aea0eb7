"""What each side does is told of both sides, if it is known of one."""

import pytest
from msgspec.structs import replace

from parity.report.words import sides_in_words
from parity.results import Cause

CAUSE = Cause(id="embedding.padding_idx", where="table", source="model.py:3")


@pytest.mark.parametrize(
    ("torch", "keras", "words"),
    [(1e-05, 0.0, "torch 1e-05, keras 0.0"), (3, None, "torch 3, keras None"), (None, None, "")],
)
def test_both_sides_are_told_if_one_is_known(torch, keras, words):
    assert sides_in_words(replace(CAUSE, torch=torch, keras=keras)) == words

"""The tests of torch_impl and of keras_impl, each in a process of its own: the frameworks do not mix."""

import os

import pytest
from conftest import SIDES

LIMIT = 1200.0  # seconds, beside all other tests


@pytest.mark.parametrize("side", SIDES)
def test_a_side(side, sides):
    assert sides[side].wait(timeout=LIMIT) == os.EX_OK, sides[side].output.read_text()

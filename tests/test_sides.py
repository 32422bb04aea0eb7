"""The tests of torch_impl and of keras_impl, each in a process of its own: the frameworks do not mix."""

import os

import pytest
from conftest import SIDES

LIMIT = 600.0  # seconds


@pytest.mark.parametrize("side", SIDES)
def test_a_side(side, sides):
    assert sides[side].wait(timeout=LIMIT) == os.EX_OK, sides[side].output.read_text()

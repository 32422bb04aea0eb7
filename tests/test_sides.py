"""The tests of torch_impl and of keras_impl, each in a process of its own: the frameworks do not mix."""

import os

import pytest
from conftest import SIDES

LIMIT = 1800.0  # seconds, after which a side is taken to hang


@pytest.mark.parametrize("side", SIDES)
def test_a_side(side, sides):
    assert sides[side].wait(timeout=LIMIT) == os.EX_OK, sides[side].output.read_text()

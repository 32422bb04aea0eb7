"""Edits of what the port lacks, and of what it computes for an attribute."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from parity.repair.candidates import computed
from parity.repair.in_code import lacking
from parity.results import Cause

LINES = """from keras import layers, ops

class Block(layers.Layer):
    def call(self, x, mask=None):
        residual = x
        x = self.first(ops.square(residual))
        return x + 1.0
"""


def cause(named: str, torch: Any, keras: Any) -> Cause:
    return Cause(id=named, where="", torch=torch, keras=keras)


def lines(told: Cause, number: int, tmp_path: Path) -> list[str]:
    """The line of the port with each edit."""
    path = tmp_path / "port.py"
    path.write_text(LINES)
    found = lacking(replace(told, lines=[f"{path}:{number}", "/elsewhere.py:1"]), tmp_path)
    changed = [LINES[: place.span.start] + text + LINES[place.span.end :] for place, text in found]
    on_line = [text.splitlines()[number - 1].strip() for text in changed]
    return [text for text in on_line if text != LINES.splitlines()[number - 1].strip()]


def test_a_function_is_put_around_each_value_on_the_line(tmp_path: Path) -> None:
    assert lines(cause("activation.kind", "silu", "left out"), 6, tmp_path) == [
        "x = keras.activations.silu(self.first(ops.square(residual)))",
        "x = self.first(keras.activations.silu(ops.square(residual)))",
        "x = self.first(ops.square(keras.activations.silu(residual)))",
    ]


def test_an_operand_may_be_lacking_where_a_value_was_assigned_before(tmp_path: Path) -> None:
    path = tmp_path / "port.py"
    path.write_text(LINES)
    found = lacking(replace(cause("module.wiring", "+", "the second alone"), lines=[f"{path}:7"]), tmp_path)
    changed = {LINES[: place.span.start] + text + LINES[place.span.end :] for place, text in found}
    assert LINES.replace("x = self", "x = residual + self") in changed


@pytest.mark.parametrize(
    "told",
    [
        cause("activation.kind", "silu", "relu"),
        cause("module.scale", 0.5, 0.25),
        cause("module.wiring", "its own", "another"),
        cause("layer_norm.epsilon", 1e-5, 1.0),
    ],
)
def test_what_the_port_has_in_another_way_is_left(told: dict[str, Any], tmp_path: Path) -> None:
    assert lines(told, 6, tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (2.8284271247461903, 0.3535533905933, "1 / (n)"),
        (4.0, -4.0, "-(n)"),
        (0.9, 0.1, "1 - (n)"),
        (16, 4.0, "(n) ** 0.5"),
        (16, 0.25, "(n) ** -0.5"),
        (3, 9, "(n) ** 2"),
        (8, 16, "2 * (n)"),
        (8, 4, "(n) / 2"),
        (0.5, 0.7, "0.7"),
        (-2.0, 0.7, "0.7"),
        (0, 1, "1"),
        ("same", "valid", "'valid'"),
        (True, False, "False"),
        (1e200, 7.0, "7.0"),
    ],
)
def test_a_computed_value_is_changed_by_what_relates_the_two(old: Any, new: Any, expected: str) -> None:
    assert computed("n", old, new) == expected

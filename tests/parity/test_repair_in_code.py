"""Edits of code: an operator, a function, a call that is left out, what stops a gradient."""

from pathlib import Path

import pytest
from causes_made import changed, made
from msgspec.structs import replace

from parity.repair.in_code import in_code
from parity.repair.source import Source
from parity.results import Changed

LINES = """from keras import ops

def call(x, y):
    z = ops.stop_gradient(x + y)
    return ops.mean(ops.cast(ops.cast(z, "float16"), x.dtype) - 2 * y)

def build(x, y):
    z = ops.multiply(x, y)
    return z / math.sqrt(8)
"""


def change(kind: str, before: str, after: str, owner: str = "call", line: int = 5) -> Changed:
    return changed(kind=kind, before=before, after=after, owner=owner, source=f"port.py:{line}")


@pytest.mark.parametrize(
    ("cause", "change", "expected"),
    [
        ("code.operator", change("operator", "+", "-", line=4), "    z = ops.stop_gradient(x - y)"),
        ("module.wiring", change("operator", "+", "the second alone", line=4), "    z = ops.stop_gradient(y)"),
        (
            "code.function",
            change("function", "mean", "sum"),
            '    return ops.sum(ops.cast(ops.cast(z, "float16"), x.dtype) - 2 * y)',
        ),
        (
            "precision.float16",
            change("operation", "cast to float16", "left out", "cast (2 of them)"),
            "    return ops.mean(ops.cast(z, x.dtype) - 2 * y)",
        ),
        (
            "activation.kind",
            change("function", "mean", "left out"),
            '    return ops.cast(ops.cast(z, "float16"), x.dtype) - 2 * y',
        ),
        ("gradient.stopped", change("function", "stop_gradient", "convert_to_tensor", line=4), "    z = x + y"),
        ("gradient.stopped", None, "    z = x + y"),
        ("code.operator", change("operator", "*", "+", "multiply", 8), "    z = ops.add(x, y)"),
        ("module.wiring", change("operator", "*", "the second alone", "multiply", 8), "    z = y"),
    ],
)
def test_the_line_is_changed(cause: str, change: Changed | None, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "port.py"
    path.write_text(LINES)
    (place, text), *others = in_code(made(cause, source="port.py:4"), change, Source(path))
    assert not others
    edited = LINES.encode()[: place.span.start] + text.encode() + LINES.encode()[place.span.end :]
    assert expected in edited.decode().splitlines()


def test_a_constant_that_is_computed_may_stand_on_either_side(tmp_path: Path) -> None:
    path = tmp_path / "port.py"
    path.write_text(LINES)
    constant = replace(change("constant", "2.8", "", "true_divide", 9), after=3.0)
    places = list(in_code(made("code.constant"), constant, Source(path)))
    texts = [LINES.encode()[place.span.start : place.span.end].decode() for place, _ in places]
    assert texts == ["math.sqrt(8)", "z"] and {new for _, new in places} == {"3.0"}

"""The user's line as it should read, from the instruction that runs."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parity.doctor import rewrite
from parity.doctor.evidence.ops import Code
from parity.doctor.rewrite import Expression

PROGRAM = """\
import math
import other

class Value:
    data = 2.0
    def half(self, *args, **kwargs):
        return other.note(self)

x, y = Value(), Value()

def run():
    a = x.half()
    b = other.note(y, 1)
    c = [x.half(rate=1e18), 3]
    d = other.note(
        x)
    return a
"""


def spots(folder: Path) -> list[rewrite.Spot]:
    """What ran in each call that the program makes, in order."""
    found: list[rewrite.Spot] = []

    def note(value: Any, *rest: Any) -> Any:
        frame: Any = sys._getframe(1)
        while frame.f_code.co_name != "run":
            frame = frame.f_back
        found.append(rewrite.spot(frame))
        return value

    file = folder / "program.py"
    file.write_text(PROGRAM)
    module = type(sys)("other")
    module.note = note  # type: ignore[attr-defined]
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "other", module)
        exec(compile(PROGRAM, str(file), "exec"), names)
        names["run"]()
    return found


@pytest.mark.parametrize(
    ("number", "change", "line", "fix"),
    [
        (0, Expression.unwrapped, 12, "a = x"),
        (1, Expression.unwrapped, 13, "b = y"),
        (2, lambda call: call.with_keyword("rate", "1e-3"), 14, "c = [x.half(rate=1e-3), 3]"),
        (0, lambda call: call.with_keyword("rate", "2"), 12, "a = x.half(rate=2)"),
        (1, lambda call: call.with_keyword("rate", "2", 1), 13, "b = other.note(y, 2)"),
        (3, lambda call: call.with_text(call.node.args[0], "y"), 16, "y)"),
    ],
)
def test_the_line_is_changed_where_it_ran(
    number: int, change: Callable[[Expression], Code | None], line: int, fix: str, tmp_path: Path
) -> None:
    code = rewrite.code(spots(tmp_path)[number], change)
    assert code is not None
    assert (code.source, code.fix) == (f"{tmp_path / 'program.py'}:{line}", fix)


def test_what_is_longer_than_a_line_is_left_alone(tmp_path: Path) -> None:
    assert rewrite.code(spots(tmp_path)[3], Expression.unwrapped) is None
    assert rewrite.statement(spots(tmp_path)[3]) is None

"""What the report suggests for a pair's file, and how --accept writes it."""

import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from parity.core.errors import UsageError
from parity.pairs.accepting.suggest import accept, layout, order_of_axes, suggestions
from parity.results import CaseResult, Cause, Suggestion

FILE = """# ours
[pair]
name = "m"   # the small one
torch = "a:b"
keras = "c:d"
"""
SECTION = '[[expect]]\ncause = "gelu.form"\nwhere = "mlp"\nreason = "torch tanh, keras exact"\n'
MODULES = ["blocks.0.norm", "blocks.1.norm", "blocks.2.norm", "head", "bn1"]


def cause(name: str, where: str, **sides: Any) -> Cause:
    return Cause(id=name, where=where, **{"torch": None, "keras": None, **sides}, evidence="tried")


def suggested(*causes: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """The [[expect]] sections that are suggested for a case."""
    result = CaseResult(case="pair/m", **({"verdict": "diverged", "causes": list(causes)} | fields))
    return [tomllib.loads(one.toml)["expect"][0] for one in suggestions(result, MODULES)]


def written(path: Path, *sections: str) -> str:
    return accept(path, [Suggestion(why="why", toml=section) for section in sections])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.toml"
    path.write_text(FILE)
    return path


# What is suggested


def test_layers_that_differ_by_their_number_are_one_unless_others_are_called_so_too() -> None:
    three = [cause("gelu.form", f"blocks.{number}.norm") for number in range(3)]
    assert [one["where"] for one in suggested(*three)] == ["blocks.*.norm"]
    assert [one["where"] for one in suggested(*three[:2])] == ["blocks.0.norm", "blocks.1.norm"]
    inherent = [cause("batch_norm.running_variance", where) for where in ("a", "b.c", "d.e.f", "g")]
    assert [one["where"] for one in suggested(*inherent)] == ["*"] and len(suggested(*inherent[:3])) == 3


def test_what_is_accepted_already_is_not_suggested() -> None:
    known, new = cause("gelu.form", "head"), cause("gelu.form", "bn1")
    assert [one["where"] for one in suggested(known, new, expected=[replace(known, reason="r")])] == ["bn1"]
    assert suggested(known, verdict="match") == []


def test_a_layout_is_suggested_where_the_numbers_are_the_same() -> None:
    values = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    one = layout("(model)", order_of_axes(values, values.transpose(0, 3, 2, 1)))
    table = tomllib.loads(one.toml)["outputs"]["output"]
    assert table == {"keras_layout": "axis0 axis1 axis2 axis3 -> axis0 axis3 axis2 axis1"}
    assert not order_of_axes(values, values * 3 + 7)
    assert not order_of_axes(values, values)
    assert not order_of_axes(values, values.reshape(2, 12, 5))


# How it is written


def test_a_mark_at_the_beginning_stays(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + FILE.encode())
    assert written(file, SECTION) == SECTION and written(file, SECTION) == ""
    assert file.read_bytes() == b"\xef\xbb\xbf" + f"{FILE}\n{SECTION}".encode()


def test_a_file_that_cannot_be_added_to_stays_as_it_is(file: Path) -> None:
    text = 'expect = [{ cause = "a", reason = "b" }]\n' + FILE
    file.write_text(text)
    with pytest.raises(UsageError, match=r"--accept: .*m.toml cannot be added to"):
        written(file, SECTION)
    assert file.read_text() == text and os.listdir(file.parent) == ["m.toml"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--accept: .*none.toml cannot be written"):
        written(tmp_path / "none.toml", SECTION)

"""What the report suggests for a pair's file, and how --accept writes it."""

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from parity.config.pair import UNNAMED
from parity.core.errors import UsageError
from parity.pairs.accepting.suggest import accept, layout, suggestions
from parity.results import CaseResult, Cause, Suggestion

FILE = """# ours
[pair]
name = "m"   # the small one
torch = "a:b"
keras = "c:d"
"""
SECTION = '[[expect]]\ncause = "gelu.form"\nwhere = "mlp"\nreason = "torch tanh, keras exact"\n'
OUTPUT = '[outputs.output]\nkeras_layout = "n c l -> n l c"\n'
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


def test_a_cause_is_suggested_with_its_place_and_a_reason() -> None:
    (one,) = suggested(cause("layer_norm.epsilon", "head", torch=1e-5, keras=1e-3))
    assert one == {"cause": "layer_norm.epsilon", "where": "head", "reason": "torch 1e-05, keras 0.001"}


def test_what_no_argument_takes_away_is_said_to_be_so() -> None:
    result = CaseResult(case="m", verdict="diverged", causes=[cause("batch_norm.running_variance", "bn1")])
    (one,) = suggestions(result, MODULES)
    assert "neither layer has an argument for the other" in one.why


@pytest.mark.parametrize("unnamed", UNNAMED)
def test_a_cause_without_a_name_is_never_suggested(unnamed: str) -> None:
    assert suggested(cause(unnamed, "head"), cause("gelu.form", "bn1"))[0]["cause"] == "gelu.form"
    assert suggested(cause(unnamed, "head")) == []


def test_layers_that_differ_by_their_number_are_one_unless_others_are_called_so_too() -> None:
    three = [cause("gelu.form", f"blocks.{number}.norm") for number in range(3)]
    assert [one["where"] for one in suggested(*three)] == ["blocks.*.norm"]
    assert [one["where"] for one in suggested(*three[:2])] == ["blocks.0.norm", "blocks.1.norm"]


def test_what_is_accepted_already_is_not_suggested() -> None:
    known, new = cause("gelu.form", "head"), cause("gelu.form", "bn1")
    assert [one["where"] for one in suggested(known, new, expected=[replace(known, reason="r")])] == ["bn1"]
    assert suggested(known, verdict="match") == []


def test_a_place_with_brackets_is_taken_by_its_letters() -> None:
    assert suggested(cause("gelu.form", "a[0]"))[0]["where"] == "a[[]0]"


def test_a_layout_is_suggested_where_the_numbers_are_the_same() -> None:
    values = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    (one,) = layout("(model)", values, values.transpose(0, 3, 2, 1))
    table = tomllib.loads(one.toml)["outputs"]["output"]
    assert table == {"keras_layout": "axis0 axis1 axis2 axis3 -> axis0 axis3 axis2 axis1"}
    assert layout("(model)", values, values * 3 + 7) == []
    assert layout("(model)", values, values) == []
    assert layout("(model)", values, values.reshape(2, 12, 5)) == []


# How it is written


def test_sections_are_added_and_all_else_stays(file: Path) -> None:
    assert written(file, SECTION, OUTPUT) == f"{SECTION}\n{OUTPUT}"
    assert file.read_text() == f"{FILE}\n{SECTION}\n{OUTPUT}"
    table = tomllib.loads(file.read_text())
    assert table["expect"][0]["cause"] == "gelu.form" and "output" in table["outputs"]


def test_what_is_there_is_not_written_again(file: Path) -> None:
    written(file, SECTION, OUTPUT)
    before = file.read_bytes()
    assert written(file, SECTION.replace("torch tanh", "because"), OUTPUT) == ""
    assert file.read_bytes() == before
    assert written(file, SECTION.replace("mlp", "head")) != ""


def test_the_ends_of_lines_and_the_mode_stay(file: Path) -> None:
    file.write_bytes(FILE.replace("\n", "\r\n").encode())
    file.chmod(0o640)
    written(file, SECTION)
    assert b"\n" not in file.read_bytes().replace(b"\r\n", b"")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_mark_at_the_beginning_stays(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + FILE.encode())
    assert written(file, SECTION) == SECTION and written(file, SECTION) == ""
    assert file.read_bytes() == b"\xef\xbb\xbf" + f"{FILE}\n{SECTION}".encode()


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    written(link, SECTION)
    assert link.is_symlink() and SECTION in file.read_text()


def test_a_file_that_cannot_be_added_to_stays_as_it_is(file: Path) -> None:
    text = 'expect = [{ cause = "a", reason = "b" }]\n' + FILE
    file.write_text(text)
    with pytest.raises(UsageError, match=r"--accept: .*m.toml cannot be added to"):
        written(file, SECTION)
    assert file.read_text() == text and os.listdir(file.parent) == ["m.toml"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--accept: .*none.toml cannot be written"):
        written(tmp_path / "none.toml", SECTION)


def test_a_rule_for_weights_is_written_once(tmp_path):
    target = tmp_path / "pair.toml"
    target.write_text('[pair]\nname = "one"\n')
    rule = Suggestion(why="loaded", toml='[[weights]]\ntorch = "table"\nkeras = "table"\n')
    assert accept(target, [rule]) == rule.toml and accept(target, [rule]) == ""
    assert target.read_text().endswith(rule.toml)

"""Traces: recordings that repeat, and damage of manifests and aliases that is told."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from synthetic import by_hand, record

from parity.core.errors import TraceError
from parity.trace import keys, manifest
from parity.trace.manifest import Trace


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_two_recordings_of_the_same_are_equal_byte_by_byte(tmp_path: Path) -> None:
    for name in ("one", "other", "again"):
        record(tmp_path / name, "torch", backwards=name == "again")
    assert len(tree(tmp_path / "one")) == 1 + 3 * 5
    assert tree(tmp_path / "one") == tree(tmp_path / "other")
    assert tree(tmp_path / "one") != tree(tmp_path / "again")


def change(folder: Path, **fields: Any) -> None:
    facts = json.loads((folder / keys.MANIFEST).read_bytes())
    (folder / keys.MANIFEST).write_text(json.dumps({**facts, **fields}))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    by_hand(tmp_path / "trace", {"high": {"step-000000": {"loss/loss": np.asarray(1.0)}}})
    return tmp_path / "trace"


@pytest.mark.parametrize("schema", [0, 2, "1", None, [1]])
def test_another_schema_is_told_before_anything_else(schema: Any, trace: Path) -> None:
    assert manifest.read(trace).schema == 1
    (trace / keys.MANIFEST).write_text(json.dumps({"schema": schema, "unknown": {}}))
    with pytest.raises(TraceError, match=r"schema .*, this version reads 1"):
        manifest.read(trace)


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "/etc/passwd", "high/rank-0/../x", "high/rank-0/step-1", "mid/rank-0/initial",
     "high/rank-x/initial", "high/rank-0/initial\n", "high/rank-0/step-000000.safetensors", "",
     "high/rank-0/step-" + "9" * 5000, "high/rank-\u0663/initial", "high/rank-00/initial", "high/rank-0/step-0000001"],
)  # fmt: skip
def test_file_names_outside_the_pattern_are_refused(name: str, trace: Path) -> None:
    change(trace, files={name: []})
    with pytest.raises(TraceError, match="names the file"):
        manifest.read(trace)


FIRST = "high/rank-0/step-000000"


@pytest.mark.parametrize(
    ("key", "target"),
    [
        ("input/relu", "activation/nothing"),
        ("input/relu", "input/relu"),
        ("input/relu", "input/linear1"),  # an alias itself
        ("input/nothing", "activation/linear1"),
    ],
)
def test_an_alias_of_nothing_is_damage(key: str, target: str, tmp_path: Path) -> None:
    aliases = record(tmp_path, "torch").manifest.aliases
    change(tmp_path, aliases={**aliases, FIRST: {**aliases[FIRST], key: target}})
    with pytest.raises(TraceError, match=f"is damaged: {FIRST} has no tensor for {key}"):
        Trace(tmp_path).open("high", "step-000000")


@pytest.mark.parametrize("every", [True, False])
def test_a_file_without_a_digest_is_refused(every: bool, tmp_path: Path) -> None:
    trace = record(tmp_path, "torch")
    digests = {} if every else dict(trace.manifest.digests)
    digests.pop("high/rank-0/step-000000", None)
    manifest.write(tmp_path, msgspec.structs.replace(trace.manifest, digests=digests))
    with pytest.raises(TraceError, match="its content does not have the digest"):
        Trace(tmp_path).open("high", "step-000000")

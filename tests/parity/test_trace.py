"""Traces: their keys, manifests, files and aliases; recordings that repeat, and damage that is told."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from synthetic import by_hand, record, small_case

from parity.core.errors import TraceError
from parity.trace import keys, manifest
from parity.trace.manifest import Trace


def test_keys() -> None:
    assert keys.split(keys.key("gradient", "a/b", 2)) == ("gradient", "a/b#2")
    assert [keys.step_of(keys.step_file(step)) for step in (None, 0, 12)] == [None, 0, 12]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_two_recordings_of_the_same_are_equal_byte_by_byte(tmp_path: Path) -> None:
    for name in ("one", "other", "again"):
        record(tmp_path / name, "torch", backwards=name == "again")
    assert len(tree(tmp_path / "one")) == 1 + 3 * 5
    assert tree(tmp_path / "one") == tree(tmp_path / "other")
    assert tree(tmp_path / "one") != tree(tmp_path / "again")


def test_recording_over_a_trace_replaces_it(tmp_path: Path) -> None:
    record(tmp_path / "one", "torch")
    record(tmp_path / "other", "torch", backwards=True)
    record(tmp_path / "other", "torch")
    assert tree(tmp_path / "one") == tree(tmp_path / "other")


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    trace = record(tmp_path, "torch", runs=["witness", "high", "low"])
    assert manifest.read(tmp_path) == trace.manifest
    assert trace.case == small_case()
    assert trace.manifest.runs == ["low", "high", "witness"]
    assert trace.stems("high") == ["initial", "step-000000", "step-000001", "step-000002", "step-000003"]
    manifest.write(tmp_path, trace.manifest)
    assert manifest.read(tmp_path) == trace.manifest
    assert not list(tmp_path.glob("*.draft"))


def test_a_manifest_does_not_depend_on_the_order_in_which_things_were_said(trace: Path) -> None:
    facts = Trace(trace).manifest
    contents = set()
    for versions in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"}):
        manifest.write(trace, msgspec.structs.replace(facts, versions=versions))
        contents.add((trace / keys.MANIFEST).read_bytes())
    assert len(contents) == 1


def test_the_steps_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    tensors = {"x/x": np.zeros(1)}
    trace = by_hand(tmp_path, {"high": dict.fromkeys(("step-000010", "step-000009", "initial"), tensors)})
    assert trace.stems("high") == ["initial", "step-000009", "step-000010"]


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


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"null", b"\xff\xfe", b'{"schema": 1}', b'{"schema": 1, "a": '])
def test_damaged_manifests(content: bytes, trace: Path) -> None:
    (trace / keys.MANIFEST).write_bytes(content)
    with pytest.raises(TraceError, match="damaged") as error:
        Trace(trace)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("fields", [{"case": {}}, {"files": []}, {"layout": None}, {"data": {"source": 1}}])
def test_manifests_with_wrong_types(fields: dict[str, Any], trace: Path) -> None:
    change(trace, **fields)
    with pytest.raises(TraceError, match="damaged"):
        Trace(trace)


def test_a_case_that_is_not_one_is_damage(trace: Path) -> None:
    case = msgspec.to_builtins(small_case())
    for wrong in ({"accumulate": 99}, {"model": {"kind": "simple_block", "hidden": "x"}}, {"more": 1}):
        change(trace, case={**case, **wrong})
        with pytest.raises(TraceError, match="damaged"):
            Trace(trace)
    change(trace, case=case)
    assert Trace(trace).case == small_case()


def test_an_unfinished_or_missing_trace(tmp_path: Path, trace: Path) -> None:
    (trace / keys.MANIFEST).rename(trace / "manifest.json.draft")
    for folder in (trace, tmp_path / "nowhere"):
        with pytest.raises(TraceError, match="holds no finished trace"):
            Trace(folder)
        with pytest.raises(TraceError, match="holds no trace"):
            manifest.find(folder)


def test_a_file_with_other_tensors_than_the_manifest_says(trace: Path) -> None:
    assert list(Trace(trace).open("high", "step-000000")) == ["loss/loss"]
    for listed in (["loss/other"], ["loss/loss", "loss/more"], []):
        change(trace, files={FIRST: listed})
        with pytest.raises(TraceError, match="other tensors"):
            Trace(trace).open("high", "step-000000")
    (trace / "high/rank-0/step-000000.safetensors").unlink()
    with pytest.raises(TraceError, match="cannot be read"):
        Trace(trace).open("high", "step-000000")


FIRST = "high/rank-0/step-000000"


def test_an_alias_is_the_same_array_under_another_key(tmp_path: Path) -> None:
    trace = record(tmp_path, "torch")
    tensors = trace.open("high", "step-000000")
    assert list(tensors) == trace.manifest.files[FIRST]
    aliases = trace.manifest.aliases[FIRST]
    assert aliases == {
        "input/linear1": "input/input", "input/relu": "activation/linear1", "input/linear2": "activation/relu",
    }  # fmt: skip
    for key, target in aliases.items():
        assert tensors[key] is tensors[target]
    order = [key for key in tensors if key.startswith(("input/", "activation/"))]
    modules = ["linear1", "relu", "linear2"]
    assert order == ["input/input", *(f"{kind}/{name}" for name in modules for kind in ("input", "activation"))]
    assert trace.manifest.modules == {"linear1": "linear", "relu": "relu", "linear2": "linear"}


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


def test_an_alias_that_was_lost_is_told(tmp_path: Path) -> None:
    aliases = record(tmp_path, "torch").manifest.aliases
    for left in ({}, {**aliases[FIRST], "activation/relu": "activation/linear1"}):
        change(tmp_path, aliases={**aliases, FIRST: left})
        with pytest.raises(TraceError, match="other tensors"):
            Trace(tmp_path).open("high", "step-000000")


def test_traces_are_found_below_a_folder(tmp_path: Path) -> None:
    for name in ("b/torch", "a/torch"):
        by_hand(tmp_path / name, {})
    assert manifest.find(tmp_path) == [tmp_path / "a/torch", tmp_path / "b/torch"]
    assert manifest.find(tmp_path / "a/torch") == [tmp_path / "a/torch"]


@pytest.mark.parametrize("place", [0.5, 0.999])
def test_a_flipped_bit_in_a_tensor_is_refused(place: float, tmp_path: Path) -> None:
    """Another number in the reference's trace would make its witness excuse as much."""
    trace = record(tmp_path, "torch")
    file = tmp_path / "high" / "rank-0" / "step-000000.safetensors"
    content = bytearray(file.read_bytes())
    content[int(len(content) * place)] ^= 0x40
    file.write_bytes(content)
    with pytest.raises(TraceError, match="its content does not have the digest"):
        Trace(tmp_path).open("high", "step-000000")
    assert trace.manifest.digests


@pytest.mark.parametrize("every", [True, False])
def test_a_file_without_a_digest_is_refused(every: bool, tmp_path: Path) -> None:
    trace = record(tmp_path, "torch")
    digests = {} if every else dict(trace.manifest.digests)
    digests.pop("high/rank-0/step-000000", None)
    manifest.write(tmp_path, msgspec.structs.replace(trace.manifest, digests=digests))
    with pytest.raises(TraceError, match="its content does not have the digest"):
        Trace(tmp_path).open("high", "step-000000")

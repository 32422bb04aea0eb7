"""Any change to a manifest or to a tensor's bytes, through the whole comparison: told in one line, or judged."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_samples import print_report
from synthetic import record, small_case

from parity.config.pair import INTERNAL_ERROR
from parity.core.errors import TraceError
from parity.diagnose.diagnosis import examined
from parity.results import Report
from parity.trace.keys import MANIFEST
from parity.trace.manifest import Trace

ESCAPE = "\x1b[2J"


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Both sides of a training in two replicas."""
    folder = tmp_path_factory.mktemp("sides")
    case = small_case(strategy="ddp", devices=2, steps=2)
    record(folder / "torch", "torch", case)
    record(folder / "keras", "keras", case, ("low", "high"))
    return folder / "torch", folder / "keras"


def below(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to all inner values."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [(*path, key) for key in keys] + [way for key in keys for way in below(value[key], (*path, key))]


ODD = st.sampled_from(
    [None, 0, -1, 7, 2**62, 1.5, "", "x", "../../x", ESCAPE, "a" * 3000, [], {}, [0], [[]], True, "loss/loss",
     "activation/relu", "sample/indices", "float16", "ddp", "adam", "batch_norm", "attention"]
)  # fmt: skip


def compared(good: Path, bad: Path) -> str:
    """What is said in the end: the report's text, or the one line."""
    text = io.StringIO()
    for one, other in ((good, bad), (bad, good)):
        report = Report()
        try:
            result = examined(Trace(one), Trace(other)).result
            assert not [cause for cause in result.causes if cause.id == INTERNAL_ERROR]
            report.add(result)
        except TraceError as error:
            assert str(error).isprintable()
            continue
        print_report(report, text)
    assert ESCAPE not in text.getvalue()
    return text.getvalue()


def copied(trace: Path, folder: Path) -> Path:
    """A copy to damage, in the place of that of the example before."""
    bad = folder / "bad"
    shutil.rmtree(bad, ignore_errors=True)
    shutil.copytree(trace, bad)
    return bad


FUZZ = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(st.data())
def test_any_change_to_a_manifest_is_told_or_judged(
    sides: tuple[Path, Path], tmp_path: Path, data: st.DataObject
) -> None:
    bad = copied(sides[1], tmp_path)
    facts = json.loads((bad / MANIFEST).read_bytes())
    *way, last = data.draw(st.sampled_from(below(facts)))
    holder = facts
    for key in way:
        holder = holder[key]
    match data.draw(st.sampled_from(["put", "delete", "double"])):
        case "put":
            holder[last] = data.draw(ODD)
        case "double" if isinstance(holder, list):
            holder.insert(0, holder[last])
        case _:
            del holder[last]
    (bad / MANIFEST).write_text(json.dumps(facts))
    compared(sides[0], bad)


@FUZZ
@given(st.data())
def test_any_change_to_the_tensors_is_told_or_judged(
    sides: tuple[Path, Path], tmp_path: Path, data: st.DataObject
) -> None:
    bad = copied(sides[1], tmp_path)
    file = data.draw(st.sampled_from(sorted(bad.rglob("*.safetensors"))))
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.sampled_from([0, 0x7F, 0xFF, 0x39, 0x22]))
    size = data.draw(st.sampled_from([len(content)] * 3 + [len(content) // 2]))
    file.write_bytes(content[:size])
    compared(sides[0], bad)


def test_the_fuzz_sees_what_a_report_prints(sides: tuple[Path, Path]) -> None:
    assert "match" in compared(*sides)

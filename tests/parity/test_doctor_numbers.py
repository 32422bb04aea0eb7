"""No number that a program computes breaks the report: NaN, infinity, huge or missing ones, in every field."""

import io
import json
import math
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from xml.etree import ElementTree

import msgspec
import pytest
from doctor_evidence import evidence
from doctor_training_rows import losing
from test_doctor_replicas import pair
from test_doctor_rules import TABLE

from parity.core.clock import Time
from parity.doctor import report, rules
from parity.doctor.drive import Files
from parity.doctor.evidence import Evidence
from parity.doctor.report import Examination
from parity.report.output import as_json

FLOATS = [math.nan, math.inf, -math.inf, 1e300, 0.0, None]
INTEGERS = [2**70, 0, -1]
ROWS = [(row[1], row[0]) for row in TABLE] + [("replicas.parted", each) for each in pair()]
SEEN = [msgspec.structs.replace(seen, times=[Time(device="cpu", steps=5, step=0.1, forward=0.1)]) for _, seen in ROWS]


def replaced(value: Any, kind: Any, number: Any) -> Any:
    """A copy of a value of this type in which all fields that can be this number are it, and empty where it is 0."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if type(number) in kinds or (number is None and float in kinds and NoneType in kinds):
        return number
    if isinstance(value, msgspec.Struct):
        types = get_type_hints(type(value))
        fields = {name: replaced(getattr(value, name), types[name], number) for name in value.__struct_fields__}
        return type(value)(**fields)
    if isinstance(value, list) and get_args(kinds[0])[0] is int and number == 0:
        return []
    if isinstance(value, list):
        return [replaced(each, get_args(kinds[0])[0], number) for each in value]
    if isinstance(value, tuple):
        return tuple(replaced(each, float, number) for each in value)
    if isinstance(value, dict):
        return {key: replaced(each, get_args(kinds[0])[1], number) for key, each in value.items()}
    return value


@pytest.mark.slow
@pytest.mark.parametrize("number", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("seen", SEEN, ids=[f"{name}-{place}" for place, (name, _) in enumerate(ROWS)])
def test_no_number_breaks_the_evidence_the_rules_or_what_is_written(seen: Evidence, number: Any, tmp_path: Path):
    given = replaced(seen, Evidence, number)
    files = Files(tmp_path, 0)
    files.write(given)
    read = files.read()
    assert repr(read) == repr(given)
    found = rules.findings([read, evidence(seen.side, rank=1)])
    rules.findings([read, msgspec.structs.replace(read, rank=1)])
    text = io.StringIO()
    examination = report.Examination(found, [read], [], "")
    report.show(examination, text)
    json.loads(as_json(report.document(examination)), parse_constant=pytest.fail)
    written = {name: make() for name, make in report.makers(Examination(found, [read], [], "parity")).items()}
    json.loads(written["sarif"], parse_constant=pytest.fail)
    ElementTree.fromstring(written["junit"])
    assert len(written["html"]) > len(written["markdown"]) > 0 < len(text.getvalue())


def kinds_with(number: type) -> set[type]:
    """The parts of the evidence that have a field of such numbers."""
    kinds, found = [Evidence], set()
    while kinds:
        kind = kinds.pop()
        found.add(kind)
        inner = [each for field in get_type_hints(kind).values() for each in (field, *get_args(field))]
        kinds += [
            each for each in inner if isinstance(each, type) and issubclass(each, msgspec.Struct) and each not in found
        ]
    return {kind for kind in found if any(number in within(field) for field in get_type_hints(kind).values())}


def within(kind: Any) -> list[Any]:
    return [kind, *(deeper for each in get_args(kind) for deeper in within(each))]


def parts(value: Any) -> set[type]:
    """The kinds of all parts of the evidence that a value has."""
    if isinstance(value, msgspec.Struct):
        return {type(value)}.union(*(parts(getattr(value, name)) for name in value.__struct_fields__))
    return set().union(*map(parts, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("number", [float, int])
def test_every_field_of_a_number_is_tried(number: type) -> None:
    assert kinds_with(number) <= set().union(*map(parts, SEEN))


def test_a_file_name_that_is_no_utf_8_is_written_too(tmp_path: Path) -> None:
    files = Files(tmp_path, 0)
    files.write(losing(function="caf\udce9.py"))
    assert files.read() == losing(function="caf\udce9.py")

"""JUnit, SARIF and Markdown: what other programs read of a report, whatever the names in it."""

import argparse
import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from report_samples import hostile, sample

from parity.core.errors import UsageError
from parity.report import ci, output, words
from parity.results import CaseResult, Cause, Finding, Report, Suggestion

# What SARIF 2.1.0 asks of the parts that are written here.
RESULT = {
    "type": "object",
    "required": ["message", "ruleId", "level", "locations"],
    "additionalProperties": False,
    "properties": {
        "ruleId": {"type": "string"},
        "level": {"enum": ["none", "note", "warning", "error"]},
        "message": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}},
        "locations": {
            "items": {
                "required": ["physicalLocation"],
                "properties": {
                    "physicalLocation": {
                        "required": ["artifactLocation", "region"],
                        "properties": {
                            "artifactLocation": {
                                "properties": {"uri": {"type": "string", "pattern": r"^[^ <>\"{}|\\^`]+$"}}
                            },
                            "region": {"properties": {"startLine": {"type": "integer", "minimum": 1}}},
                        },
                    }
                },
            }
        },
    },
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return sample(tmp_path_factory.mktemp("sample"))


# JUnit


def junit_tests(text: str) -> dict[str, ElementTree.Element]:
    suite = ElementTree.fromstring(text.encode())[0]
    return {f"{test.get('classname')}/{test.get('name')}": test for test in suite}


def test_junit_has_a_test_for_each_case(report: Report) -> None:
    text = ci.junit("parity.compare", ci.tests_of_cases(report, strict=False))
    tests = junit_tests(text)
    assert {name: [part.tag for part in test] for name, test in tests.items()} == {
        "simple_block/single": [],
        "pair/mine": ["failure"],
        "simple_block/hybrid": ["skipped"],
        "pair/broken": ["error"],
    }
    assert tests["simple_block/hybrid"][0].get("message") == "skipped: it needs 4 devices, not 2"
    assert "cause: layer_norm.epsilon" in (tests["pair/mine"][0].text or "")
    suite = ElementTree.fromstring(text.encode())[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4", "failures": "1", "errors": "1", "skipped": "1",
    }  # fmt: skip


@pytest.mark.parametrize("strict", [False, True])
def test_junit_fails_what_the_exit_status_fails(strict: bool) -> None:
    remark = Finding(id="precision.noise", side="keras", where="x", message="noisy")
    report = Report()
    report.add(CaseResult(case="a/small", verdict="subprecision", reason="small"))
    report.add(CaseResult(case="a/noisy", verdict="match", findings=[remark]))
    report.add(CaseResult(case="a/same", verdict="match"))
    states = [test.state for test in ci.tests_of_cases(report, strict)]
    assert states == (["failure", "failure"] if strict else ["passed", "passed"]) + ["passed"]
    assert report.status(strict) == int(strict)


# SARIF


def results(text: str) -> list[dict[str, Any]]:
    document = json.loads(text)
    assert (document["version"], document["runs"][0]["tool"]["driver"]["name"]) == ("2.1.0", "framework-parity")
    found: list[dict[str, Any]] = document["runs"][0]["results"]
    rules = [rule["id"] for rule in document["runs"][0]["tool"]["driver"]["rules"]]
    assert rules == sorted({result["ruleId"] for result in found})
    return found


def test_sarif_has_the_causes_whose_line_is_known(report: Report) -> None:
    (result,) = results(ci.sarif(ci.remarks_of_causes(report)))
    jsonschema.validate(result, RESULT)
    assert (result["ruleId"], result["level"]) == ("layer_norm.epsilon", "error")
    assert "torch 1e-05, keras 0.001" in result["message"]["text"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("my%20models/port.py", 12)


def test_sarif_paths_are_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inside, outside = f"{tmp_path / 'a b.py'}:1", "/elsewhere/c.py:2"
    found = results(ci.sarif([ci.remark("id", "note", "said", each) for each in (inside, outside)]))
    uris = [each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in found]
    assert uris == ["a%20b.py", "file:///elsewhere/c.py"]


# Markdown


def test_the_summary_says_what_the_first_screen_says(report: Report) -> None:
    text = ci.comparison(report)
    assert text.startswith("### PyTorch and Keras do not compute the same in 1 of 2 cases.\n")
    assert "**pair/mine**: diverged, step 0: gradient of parameter <code>linear1.bias</code>" in text
    assert "Cause: layer\\_norm.epsilon at norm: torch 1e-05, keras 0.001" in text
    assert "```\npython -m parity.compare --pair=mine.toml\n```" in text
    assert "| pair/broken | ! error | mine.toml: no such file |  |" in text
    assert text.count("pair/mine**") == 1 and "| pair/mine |" not in text
    assert "Compared: 100% of the parameters" in text


def test_markdown_interprets_no_name() -> None:
    text = ci.comparison(hostile())
    outside = re.sub(r"^(`{3,})\n.*?\n\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "<script" not in outside and "<img" not in outside
    assert "a\\|b\\`c\\`" in outside


# The sentences


def counted(**counts: int) -> Report:
    report = Report(environment={"torch": {}, "keras": {}})
    for verdict, count in counts.items():
        for number in range(count):
            report.add(CaseResult(case=f"a/{verdict}{number}", verdict=verdict))  # type: ignore[arg-type]
    return report


@pytest.mark.parametrize(("counts", "sentence"), [
    ({"match": 3}, "PyTorch and Keras compute the same in all 3 cases that were compared."),
    ({"match": 3, "skipped": 1}, "PyTorch and Keras compute the same in all 3 cases that were compared."),
    ({"match": 3, "diverged": 1, "error": 1}, "PyTorch and Keras do not compute the same in 1 of 4 cases."),
    ({"diverged": 1}, "PyTorch and Keras do not compute the same in the one case compared."),
    ({"match": 3, "error": 2}, "2 cases could not be run, so the question is open there."),
    ({"match": 1, "inconclusive": 1},
     "Whether PyTorch and Keras compute the same could not be decided in 1 of 2 cases."),
    ({"match": 1, "subprecision": 1},
     "PyTorch and Keras agree to float32's precision in all 2 cases that were compared; "
     "1 differs by less than float32 can show."),
    ({"skipped": 2}, "Nothing was compared."),
    ({}, "Nothing was compared."),
])  # fmt: skip
def test_the_headline(counts: dict[str, int], sentence: str) -> None:
    assert words.headline(counted(**counts)) == sentence


@pytest.mark.parametrize(("case", "step"), [
    (CaseResult(case="pair/a", verdict="error"), "Mend what the message says, then run the case again."),
    (CaseResult(case="a/b", verdict="diverged", causes=[Cause(id="unknown", where="x")]),
     "No known cause explains it: compare the two implementations."),
    (CaseResult(case="a/b", verdict="diverged",
                causes=[Cause(id="sgd.momentum", where="x", torch=0.9, keras=0.0)]),
     "Change the port's sgd momentum at x: 0.9 instead of 0.0."),
    (CaseResult(case="pair/a", verdict="subprecision", suggestions=[Suggestion(why="It has no argument", toml="")],
                causes=[Cause(id="constant.precision", where="x")]),
     "It has no argument. Accept the difference with --accept; it fails only with --strict."),
    (CaseResult(case="a/b", verdict="inconclusive"),
     "Give the case inputs, weights or steps with which it can be judged, then run it again."),
])  # fmt: skip
def test_the_next_step(case: CaseResult, step: str) -> None:
    assert words.next_step(case, Report()) == step


# The flags


def flags(**given: str) -> argparse.Namespace:
    return argparse.Namespace(**{"json": None, "html": None, "junit": None, "sarif": None, **given})


MAKERS = {name: lambda: "text" for name in (*output.FORMATS, "markdown")}


def test_all_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(output.SUMMARY, str(tmp_path / "summary.md"))
    (tmp_path / "summary.md").write_text("before\n")
    paths = {name: str(tmp_path / name) for name in ("json", *output.FORMATS)}
    output.check(flags(**paths))
    assert os.listdir(tmp_path) == ["summary.md"]  # a check leaves nothing behind
    output.write(flags(**paths), {"a": 1}, MAKERS)
    assert json.loads((tmp_path / "json").read_text()) == {"a": 1}
    assert [(tmp_path / name).read_text() for name in output.FORMATS] == ["text"] * 3
    assert (tmp_path / "summary.md").read_text() == "before\ntext"


@pytest.mark.parametrize("name", ["json", *output.FORMATS])
def test_a_file_that_cannot_be_written_is_a_mistake_of_use(name: str, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "file", "", "a\0b"):
        with pytest.raises(UsageError, match=f"^--{name}="):
            output.check(flags(**{name: str(path)}))


def test_two_flags_do_not_name_the_same_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--json=.*: --html names the same file"):
        output.check(flags(json=str(tmp_path / "x"), html=f"{tmp_path}/./x"))


def test_a_summary_that_cannot_be_written_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(output.SUMMARY, str(tmp_path / "none" / "summary.md"))
    output.write(flags(), {}, MAKERS)
    assert capsys.readouterr().err.startswith("no summary: GITHUB_STEP_SUMMARY=")

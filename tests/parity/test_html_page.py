"""The HTML report as text: it loads nothing, holds everything, and names in it stay text."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from doctor_evidence import evidence, finding
from msgspec.structs import replace
from report_samples import HOSTILE, compared, hostile, sample
from synthetic import small_case

from parity.details import Compared, Details
from parity.doctor import report as doctor
from parity.report import html
from parity.report.html import comparison
from parity.report.output import write_json
from parity.results import CaseResult, Report
from parity.selftest import report as selftest
from parity.selftest.outcome import Outcome

MOST = 10_000_000  # bytes of a page
OF_MATRIX = 67, 1000, 100  # cases of the default comparison; more tensors and modules than its cases have on average


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and its visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def doctors() -> str:
    found = finding("error", HOSTILE[0], f"{HOSTILE[1]}:3", HOSTILE[0], HOSTILE[1], at=HOSTILE[2])
    examined = doctor.Examination([found], [evidence(gpus=1)], [HOSTILE[1]], HOSTILE[0])
    return doctor.makers(examined)["html"]()


def selftests() -> str:
    result = CaseResult(case=HOSTILE[0], verdict="diverged", reason=HOSTILE[1])
    outcomes = [Outcome(small_case(), None, result, [], {HOSTILE[0]: True})]
    tested = selftest.Selftest(outcomes, HOSTILE[0], error=HOSTILE[1])
    return selftest.makers(tested)["html"]()


PAGES = {"compare": lambda: comparison.render(hostile()), "doctor": doctors, "selftest": selftests}


@pytest.fixture(scope="module", params=PAGES)
def hostile_page(request: pytest.FixtureRequest) -> str:
    text: str = PAGES[request.param]()
    return text


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return sample(tmp_path_factory.mktemp("sample"))


# It loads nothing


def test_nothing_is_loaded_and_only_the_own_script_may_run(hostile_page: str) -> None:
    parsed = Parsed(hostile_page)
    (policy,) = [each["content"] or "" for each in parsed.of("meta") if each.get("http-equiv")]
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    for tag in ("style", "script"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", hostile_page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    for tag, attributes in parsed.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert not any(name.startswith("on") or name in ("src", "style", "srcset") for name in attributes), tag
        assert (attributes.get("href") or "#").startswith(("#", "data:application/gzip;base64,"))


def test_names_with_markup_stay_text(hostile_page: str) -> None:
    parsed = Parsed(hostile_page)
    for name in HOSTILE[:2]:
        assert name in parsed.text
    assert "49" not in parsed.text  # a template in a name is not rendered
    assert len(parsed.of("script")) == 1


# It holds everything


def embedded(text: str) -> dict[str, object]:
    (data,) = re.findall(r'href="data:application/gzip;base64,([^"]*)"', text)
    found: dict[str, object] = json.loads(gzip.decompress(base64.b64decode(data)))
    return found


def test_the_json_report_is_in_the_page(report: Report, tmp_path: Path) -> None:
    write_json(report, str(tmp_path / "report.json"))
    assert embedded(comparison.render(report)) == json.loads((tmp_path / "report.json").read_text())


def test_the_first_screen(report: Report) -> None:
    text = Parsed(comparison.render(report)).text
    parts = [
        "PyTorch and Keras do not compute the same in 1 of 2 cases.",
        "First to look at: pair/mine",
        "Step 0: gradient of parameter linear1.bias",
        "torch",
        "keras",
        "layer_norm.epsilon at norm",
        "Next Change the port's layer norm epsilon in my models/port.py:12: 1e-05 instead of 0.001.",
        "Run it again python -m parity.compare --pair=mine.toml",
        "All cases",
        "What was not compared",
    ]
    place = 0
    for part in parts:  # in this order
        place = text.index(part, place)
    first = report.cases[1].first_divergence
    assert first
    assert all(f"{side.value:.17g}" in text for side in first.sides.values())


def test_the_first_divergence_is_shown_once(report: Report) -> None:
    text = Parsed(comparison.render(report)).text
    first = report.cases[1].first_divergence
    assert first and text.count(first.reason) == 1
    assert text.count("First to look at") == text.count("layer_norm.epsilon at norm") == 1
    report.cases[1].causes.append(replace(report.cases[1].causes[0], where="norm2"))
    assert "Further causes layer_norm.epsilon at norm2" in Parsed(comparison.render(report)).text
    report.cases[1].causes.pop()


def test_every_case_says_what_was_not_compared_and_with_what_it_ran(report: Report) -> None:
    text = Parsed(comparison.render(report)).text
    assert "nothing was compared: it needs 4 devices, not 2" in text
    assert "not run: other batch sizes (a built-in case has one batch size)" in text
    assert "100% of parameters, 100% of activations compared" in text
    assert report.cases[0].data["sha256"] in text and '"kind": "sgd", "learning_rate": ' in text
    assert "≈ declared transfers: by design" in text
    assert re.search(r"python 3\.11 3\.12 ≠ differs", text)
    assert "activation 2.0 KiB" in text and "all_reduce 800 bytes" in text


def test_a_run_that_ended_early_says_so() -> None:
    report = Report(error="stopped by Ctrl-C", command="python -m parity.compare")
    report.add(CaseResult(case="a/b", verdict="match"))
    text = Parsed(comparison.render(report)).text
    assert "The run ended early: stopped by Ctrl-C. The page shows what was finished." in text and "a/b" in text


def test_a_page_without_cases_is_a_page() -> None:
    assert "Nothing was compared." in Parsed(comparison.render(Report())).text


@pytest.mark.slow
def test_the_default_matrix_fits(report: Report) -> None:
    cases, tensors, modules = OF_MATRIX
    names = [f"transformer.encoder.layers.{number}.self_attention" for number in range(modules)]
    base = [row for row in report.cases[0].details.tensors if row.scale]  # type: ignore[union-attr]
    assert base
    made = [
        msgspec.structs.replace(base[number % len(base)], name=f"{names[number % modules]}.weight", kind="gradient",
                                difference=1e-16 * (number % 997), noise=1e-8 * (1 + number % 89))
        for number in range(tensors)
    ]  # fmt: skip
    whole = Report(environment=report.environment)
    details = Details(needed=20, tensors=made, losses=report.cases[0].details.losses)  # type: ignore[union-attr]
    for _ in range(cases):
        whole.add(msgspec.structs.replace(report.cases[0], details=details))
    text = comparison.render(whole)
    assert len(text.encode()) < MOST
    assert text.count('class="case match"') == cases


def test_too_many_rows_are_counted(report: Report) -> None:
    unequal = Compared(step=0, replica=0, kind="activation", name="m", verdict="diverged", bits=0.0)
    tensors = [unequal for _ in range(comparison.MOST + 7)]
    case = msgspec.structs.replace(report.cases[1], details=Details(needed=20, tensors=tensors))
    whole = Report(environment=report.environment)
    whole.add(case)
    assert len(comparison.listed(tensors)) <= comparison.MOST + comparison.AROUND
    assert "listed: those that are no match (but for the last 7), with" in Parsed(comparison.render(whole)).text
    assert "but for the last" not in Parsed(comparison.render(report)).text


def test_a_section_of_another_command_is_escaped_too() -> None:
    sections = [("own", HOSTILE[0], html.part("environment", facts={"sides": [], "facts": []}))]
    text = html.render("T", html.Banner("match", "✓", HOSTILE[1], ""), sections, {})
    assert HOSTILE[0] in Parsed(text).text and len(Parsed(text).of("script")) == 1


def test_a_fault_s_case_is_compared(tmp_path: Path) -> None:
    """What the sample holds is what it is said to be."""
    assert (compared(tmp_path / "1").verdict, compared(tmp_path / "2", 1.5).verdict) == ("match", "diverged")

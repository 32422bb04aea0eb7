"""The pytest plugin: the fixture `parity`, and files *.parity.toml as tests.

Each session (each worker of pytest-xdist) has two processes of its own, one for each framework, from its first pair
to its end. What is known of a pair travels in its test's user_properties: to JUnit, and from workers to the summary.
"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import parity as package
from parity.core.errors import UsageError

if TYPE_CHECKING:
    from parity.asserts import Inputs, Session
    from parity.pairs.file import PairFile
    from parity.results import CaseResult

SUFFIX = ".parity.toml"
PACKAGES = ("torch", "tensorflow", "keras")
SESSION: pytest.StashKey[Session] = pytest.StashKey()
FIRST = "pair"  # the property that begins a pair's; a test may compare several
HEADINGS = ("pair", "verdict", "bits", "s", "test")


def pytest_report_header() -> str:
    """The versions, without loading a framework, nor asking for devices: both take seconds."""
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    return f"parity {package.__version__}: {versions}; devices: auto"


def _asserts() -> ModuleType:
    """Imported at the first pair: a plugin is loaded by every pytest of its environment."""
    return importlib.import_module("parity.asserts")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


class Parity:
    """Compares pairs for one test; what is wrong fails it, without a traceback."""

    def __init__(self, node: pytest.Item) -> None:
        self._node = node

    def assert_match(self, *, torch: str, keras: str, inputs: Inputs, vary: bool = True, **fields: Any) -> CaseResult:
        """As `parity.assert_match`. Modules are looked for beside the test, too."""
        folder = _session(self._node.config).folder
        file = _usable(_asserts().described, torch, keras, inputs, folder, **fields)
        return self._judged(file, _asserts().command(file, inputs, fields), vary)

    def assert_pair(self, path: str | Path, vary: bool = True) -> CaseResult:
        """As `parity.assert_pair`."""
        file = _usable(_asserts().files.load, Path(path))
        return self._judged(file, _asserts().command(file), vary)

    def _judged(self, file: PairFile, again: str, vary: bool) -> CaseResult:
        file = file._replace(search=[*file.search, str(self._node.path.parent)])
        try:
            result = _session(self._node.config).compared(file, vary)
        except UsageError as error:
            self._node.user_properties.extend([(FIRST, _short(file)), ("verdict", "error")])
            pytest.fail(str(error), pytrace=False)
        self._node.user_properties.extend(_properties(file, result))
        if result.verdict not in _asserts().PASSED:
            again = again or f"pytest {shlex.quote(self._node.nodeid)}"
            pytest.fail(_asserts().told(result, again), pytrace=False)
        return result


def _usable(function: Any, *arguments: Any, **named: Any) -> Any:
    """What a function returns; a mistake of the user's is a failure in one line."""
    try:
        return function(*arguments, **named)
    except UsageError as error:
        pytest.fail(str(error), pytrace=False)


def _short(file: PairFile) -> str:
    return file.case.name.removeprefix("pair/")


def _properties(file: PairFile, result: CaseResult) -> Iterator[tuple[str, str]]:
    yield FIRST, _short(file)
    yield "verdict", result.verdict
    if (bits := _asserts().worst_bits(result)) is not None:
        yield "worst_bits", f"{max(bits, 0.0):.1f}"
    yield "seconds", f"{sum(result.seconds.values()):.1f}"
    if result.causes:
        yield "cause", ", ".join(dict.fromkeys(cause["id"] for cause in result.causes))


def _session(config: pytest.Config) -> Session:
    if SESSION not in config.stash:
        config.stash[SESSION] = _asserts().Session()
    return config.stash[SESSION]


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the processes, if there are any."""
    if SESSION in config.stash:
        config.stash[SESSION].close()
        del config.stash[SESSION]


@pytest.fixture
def parity(request: pytest.FixtureRequest) -> Parity:
    """`parity.assert_match(torch=..., keras=..., inputs=...)`, `parity.assert_pair("my_model.parity.toml")`."""
    return Parity(request.node)


class PairItem(pytest.Item):
    """A pair's file as a test."""

    def runtest(self) -> None:
        """Compare the two models."""
        Parity(self).assert_pair(self.path)

    def reportinfo(self) -> tuple[Path, int, str]:
        """The file, from its first line on."""
        return self.path, 0, self.name


class PairCollector(pytest.File):
    """A file that is one test."""

    def collect(self) -> Iterable[PairItem]:
        """What is wrong with the file is told when the test runs."""
        yield PairItem.from_parent(self, name=self.path.name.removesuffix(SUFFIX))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> PairCollector | None:
    """Files of pairs."""
    return PairCollector.from_parent(parent, path=file_path) if file_path.name.endswith(SUFFIX) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """All pairs that were compared, in one table."""
    rows = [
        row
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for row in _rows(report)
    ]
    if not rows:
        return
    terminalreporter.section("parity")
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    for row in (HEADINGS, *sorted(rows, key=lambda row: row[-1])):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line("  ".join(cells).rstrip())


def _rows(report: pytest.TestReport) -> Iterator[tuple[str, ...]]:
    """One for each pair of a test."""
    facts: list[dict[str, str]] = []
    for name, value in report.user_properties:
        if name == FIRST:
            facts.append({})
        if facts:
            facts[-1][name] = str(value)
    for each in facts:
        if "verdict" in each:
            bits = each.get("worst_bits", "-" if each["verdict"] == "error" else "=")
            yield each[FIRST], each["verdict"], bits, each.get("seconds", "-"), report.nodeid

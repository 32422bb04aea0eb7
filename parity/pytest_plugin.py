"""The pytest plugin: the fixture `parity`, and the collection of *.parity.toml files as tests.

Each pytest session (with pytest-xdist, each worker) starts one process for each framework at its first pair, and ends
them with the session. A pair's verdict is stored in its test's user_properties, which pytest writes to JUnit files and
pytest-xdist carries from the workers to the terminal summary.
"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import parity as package
from parity.core.errors import MissingError, UsageError

if TYPE_CHECKING:
    from parity.asserts import Session
    from parity.results import CaseResult

SUFFIX = ".parity.toml"
PACKAGES = ("torch", "tensorflow", "keras")
SESSION: pytest.StashKey[Session] = pytest.StashKey()
FIRST = "pair"  # the first property of each pair: it separates the pairs of a test that compares several
HEADINGS = ("pair", "verdict", "bits", "s", "test")


def pytest_report_header() -> str:
    """Return the header line with the installed versions; import no framework and query no device, as both are slow."""
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    return f"parity {package.__version__}: {versions}; devices: auto"


def _asserts() -> ModuleType:
    """Import `parity.asserts` at the first pair only: every pytest run in the environment loads this plugin."""
    return importlib.import_module("parity.asserts")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


class Parity:
    """The fixture's value: the assertions of `parity` for one test, which they fail without a traceback.

    Modules are also searched for in the test file's folder.
    """

    def __init__(self, node: pytest.Item) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in package.__all__:
            raise AttributeError(f"the fixture 'parity' has no attribute {name!r}")
        again, folder = f"pytest {shlex.quote(self._node.nodeid)}", str(self._node.path.parent)
        assertions = _asserts().Assertions(_session(self._node.config), [folder], again, self._note)
        return partial(self._run, getattr(assertions, name))

    def _run(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except (UsageError, MissingError, AssertionError) as error:
            if not str(error):  # not that two models differ: a mistake in this program
                raise
            raise pytest.fail.Exception(str(error), pytrace=False) from None  # else it is printed twice

    def _note(self, name: str, result: CaseResult | None) -> None:
        self._node.user_properties.extend(_properties(name, result))


def _properties(name: str, result: CaseResult | None) -> Iterator[tuple[str, str]]:
    yield FIRST, name.removeprefix("pair/")
    yield "verdict", result.verdict if result else "error"
    if result is None:
        return
    if (bits := _asserts().worst_bits(result)) is not None:
        yield "worst_bits", f"{max(bits, 0.0):z.1f}"
    yield "seconds", f"{sum(result.seconds.values()):.1f}"
    if result.causes:
        yield "cause", ", ".join(dict.fromkeys(cause.id for cause in result.causes))


def _session(config: pytest.Config) -> Session:
    if SESSION not in config.stash:
        config.stash[SESSION] = _asserts().Session()
    return config.stash[SESSION]


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the frameworks' processes, if any were started."""
    if SESSION in config.stash:
        config.stash[SESSION].close()
        del config.stash[SESSION]


@pytest.fixture
def parity(request: pytest.FixtureRequest) -> Parity:
    """Compare two models: `parity.assert_match(torch=..., keras=..., inputs=...)` or `parity.assert_pair("FILE.toml")`.

    One by what was recorded of the other: `parity.assert_certified("module:build", "FILE.parity")`. Sides of a file:
    `parity.assert_equivalent("FILE.toml", sides=["torch", "accumulated"])`. Each fails the test if what it compares is
    not the same computation.
    """
    return Parity(request.node)


class PairItem(pytest.Item):
    """A pair file as a test."""

    def runtest(self) -> None:
        """Compare the two models."""
        Parity(self).assert_pair(self.path)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return what pytest shows as the test's location: the pair file from its first line on."""
        return self.path, 0, self.name


class PairCollector(pytest.File):
    """A pair file as a collector, with itself as the only test."""

    def collect(self) -> Iterable[PairItem]:
        """Yield the file's only test, which reads the file when it runs: a wrong file fails that test alone."""
        yield PairItem.from_parent(self, name=self.path.name.removesuffix(SUFFIX))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> PairCollector | None:
    """Collect the files whose name ends in .parity.toml."""
    return PairCollector.from_parent(parent, path=file_path) if file_path.name.endswith(SUFFIX) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one table of all pairs that were compared."""
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
    """Yield a row of the summary for each pair that a test compared."""
    pairs: list[dict[str, str]] = []
    for name, value in report.user_properties:
        if name == FIRST:
            pairs.append({})
        if pairs:
            pairs[-1][name] = str(value)
    for pair in pairs:
        if "verdict" in pair:
            bits = pair.get("worst_bits", "-" if pair["verdict"] == "error" else "=")
            yield pair[FIRST], pair["verdict"], bits, pair.get("seconds", "-"), report.nodeid

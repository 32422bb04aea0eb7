"""Versions of a package as sides of a pair, each of which runs one framework's half of it."""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from parity.config.devices import Kind
from parity.config.pair import UNKNOWN
from parity.config.sides import KINDS, Side
from parity.core.errors import BackendError, MissingError, UsageError
from parity.pairs.compare import compared
from parity.pairs.file import PairFile
from parity.results import CaseResult, Cause, Report, failed
from parity.runtime.releases import Releases
from parity.runtime.runner import Runner
from parity.subjects.sides import SidesOfPair
from parity.subjects.subject import note_environment
from parity.trace.manifest import Trace

SWITCH = "sides.switch"
NOTHING_ELSE = "they differ in nothing but this package's version: one model, weights, data and masks"


class Versions:
    """The version `good`, which is recorded once, and those that are compared with it.

    `file` is the pair, with a side of the framework that is run; `port` the pair in both frameworks, None if it has one
    half. `scratch` is the folder for traces; a backend of `kind` is given up after `patience` seconds.
    """

    def __init__(
        self,
        file: PairFile,
        port: PairFile | None,
        releases: Releases,
        good: str,
        scratch: Path,
        kind: Kind,
        patience: float,
    ) -> None:
        self._framework, self._port, self._releases, self._good = file.sides[0].framework, port, releases, good
        self._scratch, self._kind, self._patience = scratch, kind, patience
        self._environments: dict[str, dict[str, Any]] = {}
        first = self._side(good)
        self._sides = SidesOfPair(file._replace(sides=(first, first)), lambda side: self._runner.worker(side), scratch)

    def compared(self, version: str) -> CaseResult:
        """Record a version, and compare it with the first; one that cannot be installed has the verdict `error`."""
        try:
            side = self._side(version)
        except UsageError as error:
            return failed(self._sides.file.case.name, error)
        with self._running(self._framework) as self._runner:
            result = self._sides.compared(side)
        noted = Report()
        if result.verdict != "error":
            note_environment([Trace(self._scratch / name) for name in self._names(version)], noted)
        self._environments[version] = noted.environment
        shutil.rmtree(self._scratch / side.name, ignore_errors=True)  # the next version may need the disk space
        return result

    def explain(self, result: CaseResult, version: str, report: Report) -> None:
        """Complete the comparison of a version with what changed in it, and note the environments in the report."""
        report.environment = self._environments.get(version, {})
        values = dict(zip(("reference", "candidate"), self._names(version), strict=True), evidence=NOTHING_ELSE)
        switched = [replace(each, **values) for each in result.causes if each.id == SWITCH]
        named = [each for each in result.causes if each.id != SWITCH]
        if switched and not named:
            with contextlib.suppress(UsageError, BackendError, MissingError):  # the other half cannot be run
                named = list(self._changed(version))
        result.causes = [*named, *switched]

    def _changed(self, version: str) -> Iterator[Cause]:
        """Yield what the two halves of the pair differ in with one version, and not, or otherwise, with the other.

        What a layer computes is known of PyTorch's, with which Keras's are compared (parity.diagnose). Raises
        UsageError, BackendError and MissingError.
        """
        named: list[dict[tuple[str, str], Cause]] = []
        if not self._port:
            return
        for each in (self._good, version):
            with self._running("torch", "keras") as runner:
                own = runner.worker(self._side(each))
                workers = [own if side.name == self._framework else side for side in runner.sides]
                result = compared(self._port, workers, self._scratch / "halves" / each, varied=False)
            named.append({(cause.id, cause.where): cause for cause in result.causes if cause.id != UNKNOWN})
        for key, cause in {key: cause for causes in named for key, cause in causes.items()}.items():
            usual = getattr(cause, "keras" if self._framework == "torch" else "torch")  # what the halves agree on
            before, after = (getattr(causes[key], self._framework) if key in causes else usual for causes in named)
            if before != after or not all(key in causes for causes in named):
                yield replace(cause, torch=UNSET, keras=UNSET, reference=before, candidate=after)

    def _names(self, version: str) -> list[str]:
        return [f"{self._releases.package}-{each}" for each in (self._good, version)]

    def _side(self, version: str) -> Side:
        """Return the side that runs a version, which is then installed. Raises UsageError."""
        env = self._releases.variables(version)
        return KINDS[self._framework](name=self._names(version)[-1], python=sys.executable, env=env)

    def _running(self, *frameworks: str) -> Runner:
        folder = Path(tempfile.mkdtemp(dir=self._scratch, prefix="running-"))
        return Runner.of(dict.fromkeys(frameworks, ""), folder, self._kind, self._patience)

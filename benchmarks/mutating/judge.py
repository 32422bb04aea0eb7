"""What the project says of a port, with torch's recording kept: it is the same for every mutant of a pair."""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from parity.core.errors import TraceError, UsageError
from parity.pairs.compare import compared
from parity.pairs.file import PairFile
from parity.repair.search import Repairing, moved
from parity.results import CaseResult, Cause, failed
from parity.runtime.backend import PACKAGES, Backend
from parity.runtime.job import Answer, Job, SurveyJob, VaryJob, Work
from parity.runtime.resources import available
from parity.trace.manifest import Trace

PATIENCE = 90.0  # seconds without progress after which a side counts as hung
MOST = 40  # comparisons, after which the processes are started anew: what models leave behind grows


class Kept(Backend):
    """A side whose recordings are kept: the same job again is answered with the files that it wrote before."""

    kept: Path

    def do(self, job: Work) -> Answer:
        """Run a job, or answer it with what is kept. Experiments are always run."""
        if not isinstance(job, (Job, SurveyJob, VaryJob)):
            return super().do(job)
        place = self.kept / hashlib.sha256(msgspec.json.encode(_without_folders(job))).hexdigest()
        if place.is_dir():
            shutil.copytree(place, job.folder, dirs_exist_ok=True, copy_function=_linked)
            return Answer(status="done")
        answer = super().do(job)
        if answer.status == "done":
            whole = Path(tempfile.mkdtemp(dir=self.kept))
            shutil.copytree(job.folder, whole, dirs_exist_ok=True)
            try:
                whole.rename(place)
            except OSError:  # another process has kept it meanwhile
                shutil.rmtree(whole)
        return answer


def _without_folders(job: Job | SurveyJob | VaryJob) -> Work:
    """Return a job without what differs between mutants: folders, and Keras's side."""
    assert job.pair and job.case
    context = msgspec.structs.replace(job.pair, search=[], survey="")
    return msgspec.structs.replace(job, folder="", pair=context)


def _linked(source: str, target: str) -> None:
    if not os.path.exists(target):
        os.link(source, target)


class Judge:
    """Two sides on which ports are compared. `close` ends them."""

    def __init__(self, kept: Path) -> None:
        self._kept = kept
        self._scratch = tempfile.TemporaryDirectory(prefix="mutants-")
        self._sides: list[Backend] = []
        self._count = 0

    def close(self) -> None:
        """End both sides, and delete what they wrote."""
        self._stop()
        self._scratch.cleanup()

    def judged(self, file: PairFile, home: Path, folder: Path, varied: bool, repair: bool = False) -> dict[str, Any]:
        """Return what is said of the port in `folder`, as plain values; `home` is the folder of the pair's file.

        `repair`: also look for the edits that repair it, and tell the verdict with them.
        """
        if self._count >= MOST:
            self._stop()
        self._count += 1
        file = moved(file, home, folder, {})
        traces = Path(tempfile.mkdtemp(dir=self._scratch.name))
        try:
            result = self._compared(file, traces, varied)
            told = plain(result, traces)
            if repair:
                told["repaired"] = self._repaired(file, result, traces)
            return told
        finally:
            shutil.rmtree(traces, ignore_errors=True)

    def _compared(self, file: PairFile, traces: Path, varied: bool) -> CaseResult:
        try:
            return compared(file, self._started(), traces, varied)
        except UsageError as error:
            return failed(file.case.name, error)

    def _repaired(self, file: PairFile, result: CaseResult, traces: Path) -> str:
        """Return the verdict on the port with the edits that --repair finds."""
        scratch = Path(tempfile.mkdtemp(dir=self._scratch.name))
        return Repairing(file, self._started(), scratch, False).run(result, traces, scratch / "repair.diff").verdict

    def _started(self) -> list[Backend]:
        if not self._sides:
            kind = available(dict.fromkeys(PACKAGES, "")).kind
            folder = Path(tempfile.mkdtemp(dir=self._scratch.name))
            torch = Kept("torch", "", folder, kind, PATIENCE)
            torch.kept = self._kept
            self._sides = [torch, Backend("keras", "", folder, kind, PATIENCE)]
        return self._sides

    def _stop(self) -> None:
        for side in self._sides:
            side.close()
        self._sides, self._count = [], 0


def plain(result: CaseResult, traces: Path) -> dict[str, Any]:
    """Return the verdict, the first place, the causes, and the Keras layers of each place, as plain values."""
    first = result.first_divergence
    places = [first.name] if first else []
    causes = [_plain_cause(cause) for cause in result.causes]
    layers = _layers(result, traces)
    named = dict.fromkeys([*places, *(str(cause["where"]) for cause in causes)])
    return {
        "verdict": result.verdict,
        "reason": result.reason,
        "kind": first.kind if first else "",
        "place": places[0] if places else "",
        "causes": causes,
        "layers": {name: sorted(layers.get(name.partition("#")[0], [])) for name in named},
        "owners": {name: sorted(each) for name, each in layers.items() if name in _weights(result)},
        "unplaced": [[each.side, each.name] for each in (result.mapping.unplaced if result.mapping else [])],
    }


def _weights(result: CaseResult) -> set[str]:
    """Return the names of torch's weights that have a counterpart."""
    return {name for entry in (result.mapping.entries if result.mapping else []) for name in entry.torch}


def _plain_cause(cause: Cause) -> dict[str, Any]:
    sides = {side: _value(value) for side, value in cause.sides.items()}
    return msgspec.to_builtins(cause, enc_hook=str) | sides


def _value(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None), list, dict)) else str(value)


def _layers(result: CaseResult, traces: Path) -> dict[str, set[str]]:
    """Return the Keras layers that correspond to each torch module and weight, or to the weights within a module."""
    found: dict[str, set[str]] = {"(model)": {""}}
    around: dict[str, set[str]] = {}  # of modules without a counterpart: the layers of their weights
    for entry in result.mapping.entries if result.mapping else []:
        owners = {name.rpartition("/")[0] for name in entry.keras}
        for name in entry.torch:
            found.setdefault(name, set()).update(owners)
            around.update({name[:end]: owners | around.get(name[:end], set()) for end in _dots(name)})
    try:
        matching = Trace(traces / "keras").manifest.matching
    except TraceError:
        matching = None
    for match in matching.matches if matching else []:
        found.setdefault(match.torch.partition("#")[0], set()).add(match.keras.partition("#")[0])
    return around | found


def _dots(name: str) -> list[int]:
    return [end for end, sign in enumerate(name) if sign == "."]

"""One pair, from its file to the verdict."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from parity.diagnose.diagnosis import explained
from parity.errors import BackendError
from parity.pairs import exposed
from parity.pairs.activations.matching import summary
from parity.pairs.expect import judge_expected
from parity.pairs.file import PairFile
from parity.pairs.mapping import Halves
from parity.pairs.prepare import Prepared, place, prepare, prepare_keras, survey_torch
from parity.pairs.schema import Pair
from parity.pairs.told import tell
from parity.results import CaseResult
from parity.runtime.backend import Backend, feed
from parity.runtime.job import RUNS, Answer, Job
from parity.trace import keys
from parity.trace.manifest import Trace


def compared(file: PairFile, backends: Sequence[Backend], folder: Path) -> CaseResult:
    """Both sides recorded into `folder`, and judged. `backends`: torch's and Keras's.

    Raises UsageError for what is wrong with the file. A side that fails is a result of verdict error.
    """
    try:
        prepared = prepare(file, {backend.name: backend for backend in backends}, folder)
    except BackendError as error:
        return CaseResult(case=file.case.name, verdict="error", reason=f"{error}{_again(file)}")
    jobs = {backend: [_job(file, backend.name, folder, prepared, RUNS[backend.name])] for backend in backends}
    answers = {result.backend: result.answer for result in feed(jobs)}
    if failures := [answer.message for answer in answers.values() if answer.status != "done"]:
        result = CaseResult(case=file.case.name, verdict="error", reason="\n".join(failures) + _again(file))
    else:
        result = judged(Trace(folder / "torch"), Trace(folder / "keras"))
        result.undecided = prepared.undecided
    result.seconds = {name: round(answer.seconds, 3) for name, answer in answers.items()}
    return result


def judged(reference: Trace, candidate: Trace) -> CaseResult:
    """The verdict on two traces; on those of both sides of a pair with regard to what its file accepts."""
    pair, mapping = reference.case.model, candidate.manifest.mapping
    if not isinstance(pair, Pair) or reference.backend == candidate.backend or mapping is None:
        return explained(reference, candidate)
    shown = exposed.shown(reference, candidate, pair)
    result = explained(shown.reference, shown.candidate)
    result.mapping, result.assumptions = mapping, shown.told
    if candidate.manifest.matching:
        result.matched = summary(candidate.manifest.matching, shown.alone)
    tell(result, mapping, reference, candidate)
    judge_expected(result, pair.expect)
    return result


def recorded(file: PairFile, backend: Backend, folder: Path) -> Answer:
    """One side's trace, with all runs. Keras needs torch's in `folder`. Raises UsageError and BackendError."""
    prepared = None
    if backend.name == "torch":
        survey_torch(file, backend, folder)
    else:
        prepared = prepare_keras(file, backend, folder)
    return backend.do(_job(file, backend.name, folder, prepared, list(keys.RUNS)))


def _job(file: PairFile, side: str, folder: Path, prepared: Prepared | None, runs: list[str]) -> Job:
    """torch is the reference, and is told of no mapping."""
    halves = prepared.halves if prepared else Halves(search=file.search, survey=place(folder, "torch"))
    if side == "torch":
        halves = msgspec.structs.replace(halves, mapping=None, matching=None)
    return Job(case=file.case, runs=runs, folder=str((folder / side).absolute()), pair=halves)


def _again(file: PairFile) -> str:
    flags = " ".join(map(shlex.quote, file.flags))
    return f"\n    again: python -m parity.compare {flags}"

"""One pair, from its file to the verdict."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from parity.config.pair import Pair
from parity.core.errors import BackendError
from parity.diagnose.diagnosis import examined
from parity.pairs import exposed, moved
from parity.pairs.activations.matching import summary
from parity.pairs.evidence import Evidence
from parity.pairs.expect import judge_expected
from parity.pairs.file import PairFile
from parity.pairs.prepare import Prepared, place, prepare, prepare_keras, survey_torch
from parity.pairs.suggest import layout, suggestions
from parity.pairs.told import tell
from parity.pairs.untested import constants, gradients, not_run, unnamed
from parity.pairs.vary.compare import vary
from parity.results import CaseResult, error_kind, failed
from parity.runtime import resources
from parity.runtime.backend import Backend, feed
from parity.runtime.job import RUNS, Answer, Job
from parity.trace import keys, survey
from parity.trace.manifest import Trace
from parity.trace.mapping import PairContext


def compared(file: PairFile, backends: Sequence[Backend], folder: Path, varied: bool = True) -> CaseResult:
    """Both sides recorded into `folder`, and judged. `backends`: torch's and Keras's.

    `varied`: also on variations of the inputs (parity.pairs.vary).

    Raises UsageError for what is wrong with the file. A side that fails is a result of verdict error.
    """
    try:
        prepared = prepare(file, {backend.name: backend for backend in backends}, folder)
        resources.check(file.case, resources.of_pair(survey.read(Path(prepared.halves.survey))), folder)
    except BackendError as error:
        return failed(file.case.name, BackendError(f"{error}{_again(file)}"))
    jobs = {backend: [_job(file, backend.name, folder, prepared, RUNS[backend.name])] for backend in backends}
    answers = {result.backend: result.answer for result in feed(jobs)}
    if failures := [answer.message for answer in answers.values() if answer.status != "done"]:
        result = CaseResult(case=file.case.name, verdict="error", reason="\n".join(failures) + _again(file))
        result.error, result.mapping = error_kind(answers.values()), prepared.halves.mapping
    else:
        result = judged(Trace(folder / "torch"), Trace(folder / "keras"))
        result.undecided = prepared.undecided
        result.not_compared += unnamed(survey.read(Path(prepared.halves.survey)))
        vary(result, file, backends, folder, prepared.halves, given_only=not varied)
    result.seconds = {name: round(answer.seconds, 3) for name, answer in answers.items()}
    return result


def judged(reference: Trace, candidate: Trace) -> CaseResult:
    """The verdict on two traces; on those of both sides of a pair with regard to what its file accepts."""
    pair, mapping = reference.case.model, candidate.manifest.mapping
    if not isinstance(pair, Pair) or reference.backend == candidate.backend or mapping is None:
        return examined(reference, candidate).result
    mapping = moved.known(mapping, reference)
    candidate = moved.told(candidate, mapping)
    shown = exposed.shown(reference, candidate, pair)
    found = examined(shown.reference, shown.candidate)
    result, matching = found.result, candidate.manifest.matching
    result.mapping, result.assumptions = mapping, shown.told
    result.not_compared = [*not_run(pair, reference.manifest.modules), *constants(mapping, reference)]
    if matching:
        result.matched = summary(matching, shown.alone)
        result.not_compared += matching.not_compared
    tell(result, mapping, reference, candidate)
    evidence = Evidence(shown.reference, shown.candidate, found.unequal)
    result.not_compared += gradients(evidence.outputs())
    judge_expected(found, pair.expect, evidence)
    result.suggestions = suggestions(result, list(reference.manifest.modules))
    known = pair.outputs or (result.matched and result.matched.layouts)
    if result.verdict == "diverged" and not known and len(outputs := evidence.outputs()) == 1:
        result.suggestions += [one for key in outputs for one in layout(key, *outputs[key])]
    return result


def recorded(file: PairFile, backend: Backend, folder: Path) -> Answer:
    """One side's trace, with all runs. Keras needs torch's in `folder`. Raises UsageError and BackendError."""
    prepared = None
    if backend.name == "torch":
        survey_torch(file, backend, folder)
    else:
        prepared = prepare_keras(file, backend, folder)
    resources.check(file.case, resources.of_pair(survey.read(Path(place(folder, "torch")))), folder, keys.RUNS)
    return backend.do(_job(file, backend.name, folder, prepared, list(keys.RUNS)))


def _job(file: PairFile, side: str, folder: Path, prepared: Prepared | None, runs: list[str]) -> Job:
    """torch is the reference, and is told of no mapping."""
    halves = prepared.halves if prepared else PairContext(search=file.search, survey=place(folder, "torch"))
    if side == "torch":
        halves = msgspec.structs.replace(halves, mapping=None, matching=None)
    return Job(case=file.case, runs=runs, folder=str((folder / side).absolute()), pair=halves)


def _again(file: PairFile) -> str:
    flags = " ".join(map(shlex.quote, file.flags))
    return f"\n    again: python -m parity.compare {flags}"

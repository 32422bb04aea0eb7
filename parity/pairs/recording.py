"""Record the traces of a pair: both sides at the same time, one alone, or torch's again from an earlier survey."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from parity.pairs.file import PairFile
from parity.pairs.prepare import Prepared, draw_torch, place, prepare_keras, survey_torch
from parity.runtime import resources, survey
from parity.runtime.job import RUNS, Answer, Job
from parity.runtime.runner import Worker, both
from parity.trace import keys
from parity.trace.mapping import PairContext


def recorded_both(
    file: PairFile, backends: Sequence[Worker], folder: Path, prepared: Prepared, summarises: bool
) -> dict[str, Answer]:
    """Record both sides at the same time. Raises UsageError where there is no room."""
    size = resources.of_pair(survey.read(Path(prepared.context.survey)))
    resources.check(file.case, size, folder, summarises=summarises)
    jobs = {side: _job(file, side.name, folder, prepared, RUNS[side.name]) for side in backends}
    return both({side: msgspec.structs.replace(job, summarises=summarises) for side, job in jobs.items()})


def are_done(answers: Mapping[str, Answer]) -> bool:
    """Return whether all sides were recorded."""
    return all(answer.status == "done" for answer in answers.values())


def recorded(
    file: PairFile, backend: Worker, folder: Path, runs: Sequence[str] = keys.RUNS, summarises: bool = False
) -> Answer:
    """Record the trace of one side; with `summarises`, for a certificate, or by one.

    Keras needs torch's recording in `folder`. Raises UsageError and BackendError.
    """
    prepared = None
    if backend.name == "torch":
        survey_torch(file, backend, folder, summarises)
        draw_torch(file, backend, folder)
    else:
        prepared = prepare_keras(file, backend, folder)
    size = resources.of_pair(survey.read(Path(place(folder, "torch"))))
    resources.check(file.case, size, folder, runs, summarises)
    job = _job(file, backend.name, folder, prepared, list(runs))
    return backend.do(msgspec.structs.replace(job, summarises=summarises))


def recorded_again(file: PairFile, torch: Worker, folder: Path, own: Path, summarises: bool) -> Answer:
    """Record torch's candidate for an earlier trace of its own into `own`, from the survey that is in `folder`."""
    context = PairContext(search=file.search, survey=place(folder, "torch"))
    job = Job(case=file.case, runs=RUNS["keras"], folder=str(own.absolute()), pair=context, summarises=summarises)
    return torch.do(job)


def _job(file: PairFile, side: str, folder: Path, prepared: Prepared | None, runs: list[str]) -> Job:
    """Return the recording job of one side; torch is the reference, so its job gets no mapping and no matching."""
    context = prepared.context if prepared else PairContext(search=file.search, survey=place(folder, "torch"))
    if side == "torch":
        context = msgspec.structs.replace(context, mapping=None, matching=None)
    return Job(case=file.case, runs=runs, folder=str((folder / side).absolute()), pair=context)

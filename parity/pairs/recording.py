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
    file: PairFile,
    backends: Sequence[Worker],
    folder: Path,
    prepared: Prepared,
    summarises: bool,
    whole: Sequence[str] = (),
) -> dict[str, Answer]:
    """Record both sides at once; `summarises`: large tensors but those in `whole`. Raises UsageError without room."""
    size = resources.of_pair(prepared.torch)
    resources.check(file.case, size, folder, summarises=summarises)
    context = prepared.context
    jobs = {side: _job(file, side.name, folder, context, RUNS[side.name], summarises) for side in backends}
    jobs = {side: msgspec.structs.replace(job, whole=list(whole)) for side, job in jobs.items()}
    return both(jobs, resources.in_turn(file.case, size))


def are_done(answers: Mapping[str, Answer]) -> bool:
    """Return whether all sides were recorded."""
    return all(answer.status == "done" for answer in answers.values())


def recorded(
    file: PairFile, backend: Worker, folder: Path, runs: Sequence[str] = keys.RUNS, summarises: bool = False
) -> Answer:
    """Record one side (Keras's needs torch's in `folder`), or for a certificate. Raises UsageError and BackendError."""
    if backend.name == "torch":
        context = survey_torch(file, backend, folder, summarises)
        draw_torch(file, backend, folder)
    else:
        context = prepare_keras(file, backend, folder).context
    size = resources.of_pair(survey.read(Path(place(folder, "torch"))))
    resources.check(file.case, size, folder, runs, summarises)
    return backend.do(_job(file, backend.name, folder, context, runs, summarises))


def recorded_again(
    file: PairFile, torch: Worker, folder: Path, own: Path, runs: list[str], summarises: bool = False
) -> Answer:
    """Record torch's side again, into `own`, from the survey that is in `folder`."""
    context = PairContext(search=file.search, survey=place(folder, "torch"))
    return torch.do(Job(case=file.case, runs=runs, folder=str(own.absolute()), pair=context, summarises=summarises))


def _job(file: PairFile, side: str, folder: Path, context: PairContext, runs: Sequence[str], summarises: bool) -> Job:
    """Return the recording job of one side; torch is the reference, so its job gets no mapping and no matching."""
    if side == "torch":
        context = msgspec.structs.replace(context, mapping=None, matching=None)
    own = str((folder / side).absolute())
    return Job(case=file.case, runs=list(runs), folder=own, pair=context, summarises=summarises)

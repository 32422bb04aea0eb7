"""The parent process's part of an examination: start the program's processes, and make findings of their evidence."""

import contextlib
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec

from parity.config.devices import Kind
from parity.core.errors import BackendError, UsageError
from parity.doctor import rules
from parity.doctor.drive import Files, waiting
from parity.doctor.evidence import Evidence
from parity.doctor.finding import Finding
from parity.runtime.backend import Backend, running
from parity.runtime.job import DoctorJob
from parity.runtime.resources import processors


class ExaminedProgram(NamedTuple):
    side: str  # "torch" or "keras"
    python: str  # the interpreter to run it with; "" for the current one
    job: DoctorJob  # what to run


def examine(program: ExaminedProgram, patience: float) -> tuple[list[Finding], list[Evidence]]:
    """Return the findings about a program, and the evidence of each rank that came to an end.

    On a GPU the program also runs on the CPU, if that is possible, to add its times there for comparison.
    `patience`: seconds without progress after which the program counts as hung.
    Raises UsageError if the job asks for something that is not there, BackendError if the program cannot be built.
    """
    findings, evidences = _examine(program, patience)
    if not program.job.virtual and len(evidences) == 1:
        with contextlib.suppress(BackendError):
            cpu_job = msgspec.structs.replace(program.job, virtual=True, profile="")
            _, cpu_evidences = _examine(program._replace(job=cpu_job), patience)
            evidences[0].times += [time for evidence in cpu_evidences for time in evidence.times]
    return findings, evidences


def _examine(program: ExaminedProgram, patience: float) -> tuple[list[Finding], list[Evidence]]:
    threads = max(processors() // program.job.group(program.side).ranks, 1)
    kind: Kind = "cpu" if program.job.virtual else "gpu"
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        backend = Backend(program.side, program.python, Path(scratch), kind, patience, threads)
        with running([backend]):
            return examined(backend, program.job, Path(scratch) / "seen")


def examined(backend: Backend, job: DoctorJob, folder: Path) -> tuple[list[Finding], list[Evidence]]:
    """Return findings and evidence like `examine`, using processes that are already running.

    `backend`: the running processes. `folder`: a folder to be created, for the files of this examination alone.
    """
    folder.mkdir()
    answer = backend.do(msgspec.structs.replace(job, folder=str(folder.absolute())))
    if answer.status == "usage":
        raise UsageError(answer.message)
    ranks = [Files(folder, rank) for rank in range(job.group(backend.name).ranks)]
    evidences = [evidence for rank in ranks if (evidence := rank.read())]
    waits = waiting(ranks)
    findings = rules.findings(evidences, [rank.noted() for rank in ranks], waits)
    # If the ranks' collective calls do not match, a rank may be ended in the middle of one. The files of the
    # examination then say more than the exception.
    failed = [evidence.later or any(step.failure for step in evidence.steps) for evidence in evidences]
    unmatched = [finding for finding in findings if finding.id.startswith("collective.")]
    if answer.status == "error" and not (any(rank.stack for rank in waits) or any(failed) or unmatched):
        raise BackendError(answer.message)
    case = job.case.name if job.case else ""
    for finding in findings:
        finding.side, finding.case = backend.name, case
    for evidence in evidences:
        evidence.case = case
    return findings, evidences

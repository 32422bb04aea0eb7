"""The parent's part of an examination: the program's processes run, and what they saw becomes findings."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec

from parity.config.devices import Kind
from parity.core.errors import BackendError, UsageError
from parity.doctor import rules
from parity.doctor.evidence import Evidence
from parity.doctor.files import Files, waiting
from parity.doctor.finding import Finding
from parity.runtime.backend import Backend, running
from parity.runtime.job import DoctorJob


class ExaminedProgram(NamedTuple):
    """A program on one side, and the interpreter for it; "" for this one."""

    side: str
    python: str
    job: DoctorJob


def examine(program: ExaminedProgram, patience: float) -> tuple[list[Finding], list[Evidence]]:
    """What is found, and what each rank saw that came to an end; beside a GPU's times those of the CPU.

    `patience`: seconds after which the program counts as hung. Raises UsageError, and BackendError where the program
    cannot be built.
    """
    found, seen = _examine(program, patience)
    if not program.job.virtual and len(seen) == 1:
        with contextlib.suppress(BackendError):
            on_cpu = msgspec.structs.replace(program.job, virtual=True, profile="")
            _, there = _examine(program._replace(job=on_cpu), patience)
            seen[0].times += [time for evidence in there for time in evidence.times]
    return found, seen


def _examine(program: ExaminedProgram, patience: float) -> tuple[list[Finding], list[Evidence]]:
    ranks = program.job.group(program.side).ranks
    threads = max(len(os.sched_getaffinity(0)) // ranks, 1)
    kind: Kind = "cpu" if program.job.virtual else "gpu"
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        backend = Backend(program.side, program.python, Path(scratch), kind, patience, threads)
        with running([backend]):
            return examined(backend, program.job, Path(scratch) / "seen")


def examined(backend: Backend, job: DoctorJob, folder: Path) -> tuple[list[Finding], list[Evidence]]:
    """The same by processes that are there already; `folder` is for this examination alone."""
    folder.mkdir()
    answer = backend.do(msgspec.structs.replace(job, folder=str(folder.absolute())))
    if answer.status == "usage":
        raise UsageError(answer.message)
    ranks = [Files(folder, rank) for rank in range(job.group(backend.name).ranks)]
    seen = [evidence for rank in ranks if (evidence := rank.read())]
    where = waiting(ranks)
    findings = rules.findings(seen, [rank.noted() for rank in ranks], where)
    # Calls that do not meet may end a rank in the midst of it: what is on file says why.
    told = any(rank.stack for rank in where) or any(map(_failed, seen)) or any(map(_do_not_meet, findings))
    if answer.status == "error" and not told:
        raise BackendError(answer.message)
    for finding in findings:
        finding.side, finding.case = backend.name, job.case.name if job.case else ""
    for evidence in seen:
        evidence.case = job.case.name if job.case else ""
    return findings, seen


def _do_not_meet(finding: Finding) -> bool:
    return finding.id.startswith("collective.")


def _failed(evidence: Evidence) -> bool:
    return evidence.later is not None or any(step.failure for step in evidence.steps)

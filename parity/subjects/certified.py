"""Judge one side by a certificate that the other side, or itself at an earlier time, has recorded (parity.certify).

Only the framework that is judged needs to be installed. What a comparison does with both models at hand (experiments,
variations of the inputs, a second look at tensors of which there are only summaries) is left out, and the report says
so.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from parity.config.pair import Pair
from parity.config.schema import Case
from parity.core.errors import BackendError, TraceError, UsageError
from parity.core.wording import count
from parity.pairs.causes.sources import add_sources
from parity.pairs.file import PairFile
from parity.pairs.judge import judged
from parity.pairs.recording import INPUTS, recorded, recorded_again, unpack
from parity.results import CaseResult, Report, error_kind, failed
from parity.runtime import survey
from parity.runtime.job import RUNS, Answer, Job
from parity.runtime.runner import Worker
from parity.subjects import check_steps, in_order, note_environment
from parity.trace import certificate
from parity.trace.manifest import Trace
from parity.trace.summary import LARGE
from parity.verdict.traces import difference

# The fields of a pair that say how Keras's half is built and read, beside all whose names begin with "keras".
PORT: Final = ("weights", "ignore", "expect")


def judged_by(
    file: Path,
    side: Worker,
    scratch: Path,
    builder: str = "",
    port: PairFile | None = None,
    report: Report | None = None,
    search: Sequence[str] = (),
) -> CaseResult:
    """Return the verdict on one side by a certificate.

    Args:
        file: the certificate.
        side: the process that records the side.
        scratch: the folder for the traces.
        builder: "module:function" of the model that is judged in place of the one that the certificate names.
        port: a pair's file that tells how Keras's half is built and read.
        report: where to note the environments.
        search: further folders in which the builder's module is searched for.

    Raises UsageError, and TraceError for a certificate that cannot be read or is of another pair.
    """
    head, reference = _unpacked(file, scratch)
    case = _case(file, reference.case, side.name, builder, port)
    inputs = reference.folder / INPUTS
    search = [str(file.parent.absolute()), str(Path.cwd()), *search, *([str(inputs)] if inputs.exists() else [])]
    pair = port or PairFile(case, search, [f"--certificate={file}"])
    folder = reference.folder.parent
    own = folder / side.name if side.name != head.side else folder / "again" / side.name
    try:
        answer = _recorded(pair, side, folder, own)
    except (UsageError, BackendError) as error:
        return failed(case.name, error)
    if answer.status != "done":
        return CaseResult(case=case.name, verdict="error", error=error_kind([answer]), reason=answer.message)
    candidate = Trace(own)
    if report:
        note_environment([reference, candidate], report)
    result = judged(*in_order(reference.replaced(case=case), candidate))
    if candidate.manifest.mapping:  # then a cause has the line of Keras's code
        add_sources(result, survey.read(candidate.folder / "survey"), candidate.manifest.context(search))
    result.case, result.seconds = case.name, {side.name: round(answer.seconds, 3)}
    result.not_compared += _left_out(file, head)
    return result


def _unpacked(file: Path, scratch: Path) -> tuple[certificate.Head, Trace]:
    """Return the text and the trace of a certificate, with what the other side is recorded by. Raises TraceError."""
    head = certificate.unpack(file, scratch / "certificate")
    folder = scratch / "certified"
    folder.mkdir()
    reference = Trace((scratch / "certificate").rename(folder / head.side))
    check_steps(reference)
    if isinstance(reference.case.model, Pair):
        unpack(reference.case, reference.folder)
    return head, reference


def _case(file: Path, case: Case, side: str, builder: str, port: PairFile | None) -> Case:
    """Return the certificate's case with the builder that is judged. Raises UsageError and TraceError."""
    if port:
        if (recorded := _of_reference(case)) != (given := _of_reference(port.case)):
            raise TraceError(
                f"{file}: is of another pair or of other settings than {port.path}: {difference(recorded, given)}"
            )
        return port.case
    if not builder:
        return case
    if not isinstance(case.model, Pair):
        raise UsageError(f"{file}: is of the built-in case {case.name}, which has no builder; leave out --{side}")
    return msgspec.structs.replace(case, model=msgspec.structs.replace(case.model, **{side: builder}))


def _of_reference(value: Any, name: str = "") -> dict[str, Any]:
    """Return what a case says of the reference's half, by the names of the fields with dots between them."""
    fields = value if isinstance(value, dict) else msgspec.to_builtins(value)
    flat: dict[str, Any] = {}
    for key, inner in fields.items():
        if not key.startswith("keras") and key not in PORT:
            path = f"{name}.{key}".lstrip(".")
            flat |= _of_reference(inner, path) if isinstance(inner, dict) else {path: inner}
    return flat


def _recorded(pair: PairFile, side: Worker, folder: Path, own: Path) -> Answer:
    """Record the side that is judged, as the certificate's was recorded. Raises UsageError and BackendError."""
    if not isinstance(pair.case.model, Pair):
        return side.do(Job(case=pair.case, runs=RUNS[side.name], folder=str(own.absolute()), summarises=True))
    if side.name == "keras":
        return recorded(pair, side, folder, RUNS[side.name], summarises=True)
    return recorded_again(pair, side, folder, own, RUNS["keras"], summarises=True)


def _left_out(file: Path, head: certificate.Head) -> Iterator[str]:
    if head.summarised:
        yield (
            f"{count(head.summarised, 'tensor')} of {head.tensors} have more than {LARGE} elements: they are compared "
            "by their summaries"
        )
    further = "experiments, variations of the inputs and whole tensors"
    yield f"judged by {file}: {further} need both frameworks: {head.command}"

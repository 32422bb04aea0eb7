"""Find what has to be known of a pair before it runs: both surveys, the weight mapping, the matching of activations.

torch's survey needs only torch. Keras's part needs the files of torch's survey, but no torch, so that the two sides
can be recorded on different machines.
"""

from concurrent.futures import wait
from pathlib import Path
from typing import NamedTuple

import msgspec

from parity.config.pair import Pair
from parity.core.arrays import Array
from parity.core.errors import BackendError, UsageError
from parity.core.threads import begun, ended
from parity.pairs import disputed
from parity.pairs.activations.dropping import in_training
from parity.pairs.activations.matching import match
from parity.pairs.assume import assume
from parity.pairs.built import Built, moved, read
from parity.pairs.file import PairFile
from parity.pairs.readings import chosen
from parity.pairs.resolve import Resolved, resolve
from parity.pairs.show import complaint
from parity.pairs.weights.propose import Proposal, Reading, propose
from parity.runtime.job import SurveyJob
from parity.runtime.runner import Worker
from parity.trace import survey
from parity.trace.mapping import Mapping, PairContext, UnmappedError
from parity.trace.survey import Survey

Surveyed = tuple[Survey, dict[str, Array]]


class Prepared(NamedTuple):
    """What preparing a pair has found.

    `context` is that of Keras's job. `undecided` lists the modules whose weights could not be told apart even by
    running.
    """

    context: PairContext
    undecided: list[str]


def prepare(file: PairFile, backends: dict[str, Worker], folder: Path) -> Prepared:
    """Survey both sides of a pair, and find which weights and activations correspond.

    Raises UsageError and BackendError.
    """
    reference = begun(lambda: survey_torch(file, backends["torch"], folder))
    try:
        structure = _survey_keras(file, backends["keras"], folder, None)
    except (UsageError, BackendError):
        wait([reference])  # the next pair must find torch's process idle; a signal interrupts this wait
        raise
    ended(reference)
    return prepare_keras(file, backends["keras"], folder, structure)


def place(folder: Path, side: str) -> str:
    """Return the folder of a side's survey, which lies in the folder of its trace."""
    return str((folder / side / "survey").absolute())


def survey_torch(file: PairFile, backend: Worker, folder: Path) -> PairContext:
    """Survey torch's model into its trace folder, and return the context of its recording job.

    Raises UsageError and BackendError.
    """
    own = place(folder, "torch")
    _do(backend, SurveyJob(case=file.case, folder=own, pair=PairContext(search=file.search)))
    return PairContext(search=file.search, survey=own)


def prepare_keras(file: PairFile, backend: Worker, folder: Path, structure: Surveyed | None = None) -> Prepared:
    """Find the mapping and the matching where torch's survey exists already.

    `structure` is Keras's survey without weights, if it has been taken.

    Raises UsageError (UnmappedError if a weight has no counterpart) and BackendError.
    """
    assert isinstance(file.case.model, Pair)
    torch = Path(place(folder, "torch"))
    if not (torch / survey.FILE).exists():
        raise UsageError(
            f"{file.case.name}: Keras's model gets its weights from torch's recording, which was expected in {torch}; "
            "record torch first into the same --out, or copy its recording there"
        )
    structure = structure or _survey_keras(file, backend, folder, None)
    reference, values = survey.read(torch), survey.activations(torch)
    built = read(torch, Path(place(folder, "keras")))
    pair, keras = file.case.model, structure[0]
    last: dict[bytes, Surveyed] = {}

    def run(mapping: Mapping) -> Surveyed:
        entries = msgspec.json.encode(mapping.entries)
        if entries not in last:
            last.clear()  # a further run overwrites what the last one returned
            last[entries] = _survey_keras(file, backend, folder, mapping)
        return last[entries]

    def read_as(reading: Reading) -> Proposal:
        return propose(reference, keras, pair, built, reading)

    proposal = chosen(read_as, reference, values, run)
    if proposal.mapping.unplaced:
        message = f"{file.case.name}: weights without a counterpart:\n{complaint(proposal.mapping)}"
        raise UnmappedError(message, proposal.mapping)

    def solve(proposal: Proposal) -> Resolved:
        return assume(resolve(proposal, reference, values, run), proposal.named, reference, values, run)

    sides = disputed.Sides(reference, structure[0])
    found = disputed.find(proposal.mapping, sides, built, lambda: _drawn(file, backend, folder, built))
    resolved = disputed.resolved(proposal, found, sides, values, solve, run)
    surveyed = msgspec.structs.replace(resolved.survey, rehearsal=structure[0].rehearsal)
    matching = match(reference, values, surveyed, resolved.values, resolved.mapping)
    if file.case.model.train:
        matching = in_training(matching, reference, resolved.survey)
    context = PairContext(search=file.search, survey=str(torch), mapping=resolved.mapping, matching=matching)
    return Prepared(context, resolved.undecided)


def _drawn(file: PairFile, backend: Worker, folder: Path, built: Built) -> set[str]:
    """Return the names of what Keras's builder draws at random: another seed makes it another."""
    own = place(folder, "keras_of_another_seed")
    case = msgspec.structs.replace(file.case, seed=file.case.seed + 1)
    _do(backend, SurveyJob(case=case, folder=own, pair=PairContext(search=file.search, survey=place(folder, "torch"))))
    return moved(built.keras, survey.built(Path(own)))


def _survey_keras(file: PairFile, backend: Worker, folder: Path, mapping: Mapping | None) -> Surveyed:
    """Survey Keras's model; with a mapping, after a forward pass with torch's weights."""
    context = PairContext(search=file.search, survey=place(folder, "torch"), mapping=mapping)
    own = place(folder, "keras")
    _do(backend, SurveyJob(case=file.case, folder=own, pair=context))
    return survey.read(Path(own)), survey.activations(Path(own))


def _do(backend: Worker, job: SurveyJob) -> None:
    """Run a survey, and turn a failure into an exception."""
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    answer = backend.do(job)
    if answer.status == "usage":
        raise UsageError(f"{job.case.name}: {answer.message}")
    if answer.status == "error":
        raise BackendError(f"{backend.name}: {answer.message}")

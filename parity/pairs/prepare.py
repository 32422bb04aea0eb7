"""Find what has to be known of a pair before it runs: both surveys, the weight mapping, the matching of activations.

torch's survey needs only torch. Keras's part needs the files of torch's survey, but no torch, so that the two sides
can be recorded on different machines.
"""

import functools
from collections.abc import Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from parity.config.pair import Ignore
from parity.core.errors import BackendError, UsageError
from parity.pairs.activations.counterparts import is_output, outputs
from parity.pairs.activations.layouts import given_orders, squeezed, unlike_axes
from parity.pairs.activations.matching import match_in_order
from parity.pairs.activations.modules import Surveyed, in_training, module
from parity.pairs.file import PairFile
from parity.pairs.untrained import disputed
from parity.pairs.untrained.built import Built, read
from parity.pairs.untrained.distributions import MORE
from parity.pairs.untrained.random_tables import LARGEST, Draws, Sides, changed
from parity.pairs.weights.layouts import MADE
from parity.pairs.weights.propose import Proposal, Reading, propose
from parity.pairs.weights.readings import chosen
from parity.pairs.weights.resolve import resolve
from parity.pairs.weights.runs import Resolved, Trials, assume, unresolved
from parity.pairs.weights.show import complaint
from parity.runtime import survey
from parity.runtime.job import SurveyJob
from parity.runtime.runner import Worker, begun, ended
from parity.runtime.survey import Survey
from parity.trace.mapping import MappedError, Mapping, Matching, PairContext, UnmappedError

OTHER_OUTPUTS: Final = (
    "what the models return, which is something else on each side, and other inputs: the losses are compared"
)
OUTSIDE: Final = (
    "keras: {} is made with the model and is no part of it: it was called on no tensor that comes from the model's "
    "inputs, so that what it returned is a constant, and it is not trained"
)


class Prepared(NamedTuple):
    """What preparing a pair has found.

    `context` is that of Keras's job, `torch` the survey of torch's model. `undecided` lists the modules whose weights
    could not be told apart even by running.
    """

    context: PairContext
    torch: Survey
    undecided: list[str]


def prepare(file: PairFile, backends: dict[str, Worker], folder: Path) -> Prepared:
    """Survey both sides, and find which weights and activations correspond. Raises UsageError and BackendError."""
    reference = begun(lambda: survey_torch(file, backends["torch"], folder))
    try:
        structure = _survey_keras(file, backends["keras"], folder, None)
    except BackendError as error:
        wait([reference])  # the next pair must find torch's process idle; a signal interrupts this wait
        torch = place(folder, "torch")  # which may explain that Keras's model cannot be called
        hints = unlike_axes(file.pair, survey.read(torch)) if (torch / survey.FILE).exists() else ()
        raise BackendError("\n".join([str(error), *hints])) from None
    except UsageError:
        wait([reference])
        raise
    ended(reference)
    return prepare_keras(file, backends["keras"], folder, structure, backends["torch"])


def place(folder: Path, side: str) -> Path:
    """Return the folder of a side's survey, which lies in the folder of its trace."""
    return (folder / side / "survey").absolute()


def with_survey(file: PairFile, folder: Path, **fields: Any) -> PairContext:
    """Return the context of a job that needs torch's survey, with further fields of it."""
    return PairContext(search=file.search, survey=str(place(folder, "torch")), **fields)


def survey_torch(file: PairFile, backend: Worker, folder: Path, redraws: bool = False) -> PairContext:
    """Survey torch's model into its trace folder, and return the context of its recording job.

    With `redraws`, large initial values are ones that can be drawn again. Raises UsageError and BackendError.
    """
    run_survey(file, backend, place(folder, "torch"), PairContext(search=file.search), redraws=redraws)
    return with_survey(file, folder)


def prepare_keras(
    file: PairFile, backend: Worker, folder: Path, structure: Surveyed | None = None, torch: Worker | None = None
) -> Prepared:
    """Find the mapping and the matching where torch's survey exists already.

    `structure` is Keras's survey without weights, if it has been taken. Without a worker for torch, what torch's
    builder gives with other seeds was recorded (`draw_torch`).

    Raises UsageError (UnmappedError if a weight has no counterpart) and BackendError.
    """
    surveyed = place(folder, "torch")
    if not (surveyed / survey.FILE).exists():
        raise UsageError(
            f"{file.case.name}: Keras's model gets its weights from torch's recording, which was expected in "
            f"{surveyed}; record torch first into the same --out, or copy its recording there"
        )
    structure = structure or _survey_keras(file, backend, folder, None)
    reference = survey.read(surveyed)
    built = read(surveyed, place(folder, "keras"))
    try:
        first = propose(reference, structure.survey, file.pair, built)
    except UsageError as error:  # by a rule of the user's: what is found without rules helps to write one
        free = replace(file.pair, weights=[], ignore=Ignore())
        raise UnmappedError(str(error), propose(reference, structure.survey, free, built).mapping) from None
    try:
        return _Preparation(file, folder, backend, torch, structure.survey, built).prepared()
    except UnmappedError:
        raise
    except UsageError as error:
        raise UnmappedError(str(error), first.mapping) from None
    except BackendError as error:
        raise MappedError(str(error), first.mapping) from None


class _Preparation:
    """Decides by running what the weights' names, shapes and order leave open, and matches the activations.

    `keras` is the survey of Keras's model without torch's weights, `built` what both builders gave.
    """

    def __init__(
        self, file: PairFile, folder: Path, backend: Worker, torch_backend: Worker | None, keras: Survey, built: Built
    ) -> None:
        self.file, self.folder, self.keras, self.built = file, folder, keras, built
        self._backend, self._torch_backend = backend, torch_backend
        surveyed = place(folder, "torch")
        self.torch = Surveyed(survey.read(surveyed), survey.activations(surveyed))
        own, theirs = outputs(self.torch.survey), outputs(keras)
        self._returns_alike = not file.has_scripts or own == theirs
        if not self._returns_alike:
            self.torch = _without_outputs(self.torch)
        self.trials = Trials(self.torch, self._run)
        self._ran: dict[bytes, Surveyed] = {}

    def prepared(self) -> Prepared:
        """Return what was found. Raises UsageError (UnmappedError if a weight has no counterpart) and BackendError."""
        torch, pair = self.torch.survey, self.file.pair
        proposal = chosen(self._read_as, self.trials)
        if proposal.mapping.unplaced:
            needless = _needless(self.file, self._backend, self.folder, proposal.mapping)
            self.keras = replace(self.keras, unused=needless.unused, still=needless.still)
            proposal = chosen(self._read_as, self.trials)
        unlike = list(unlike_axes(pair, torch, self.keras))
        if proposal.mapping.unplaced:
            raise _unmapped(self.file, proposal, [*unlike, *map(OUTSIDE.format, self.keras.outside)])
        sides, scripts = Sides(torch, self.keras), self.file.has_scripts
        look = functools.partial(disputed.find, sides=sides, built=self.built, draw=self._draw, of_scripts=scripts)
        resolved = disputed.resolved(proposal, look, self._solve, self.trials)
        survey.write(place(self.folder, "keras"), resolved.keras.survey)
        matching, draws = self._matched(resolved)
        mapping = replace(resolved.mapping, assumptions=[*resolved.mapping.assumptions, *unlike])
        context = with_survey(self.file, self.folder, mapping=mapping, matching=matching, draws=draws)
        return Prepared(context, torch, resolved.undecided)

    def _run(self, mapping: Mapping) -> Surveyed:
        """Return what Keras's model returns with torch's weights, of a large model what it has last returned alone."""
        loaded = msgspec.json.encode((mapping.entries, mapping.partial))
        if loaded not in self._ran:
            if self.torch.survey.is_large:
                self._ran.clear()  # what a further run overwrites takes room on the disk for as long as it is mapped
            ran = _survey_keras(self.file, self._backend, self.folder, mapping)
            rehearsed = replace(ran.survey, rehearsal=self.keras.rehearsal)
            ran = ran._replace(survey=rehearsed)
            self._ran[loaded] = ran if self._returns_alike else _without_outputs(ran)
        return self._ran[loaded]

    def _read_as(self, reading: Reading) -> Proposal:
        return propose(self.torch.survey, self.keras, self.file.pair, self.built, reading)

    def _solve(self, proposal: Proposal) -> Resolved:
        return assume(resolve(proposal, self.trials), proposal.named, self.trials)

    def _draw(self, further: int, names: Sequence[str]) -> Draws:
        """Return what both builders give with so many further seeds to these tensors, or to all."""
        reference = begun(lambda: _draw(self.file, self._torch_backend, self.folder, further, names))
        _draw(self.file, self._backend, self.folder, further, names)
        ended(reference)
        ours, theirs = (survey.drawn(_drawn(self.folder, side, names)) for side in ("torch", "keras"))
        both = min(len(ours), len(theirs))
        return Draws([self.built.rounded, *ours[:both]], [self.built.keras, *theirs[:both]])

    def _matched(self, resolved: Resolved) -> tuple[Matching, dict[int, list[int]]]:
        """Return which activations correspond, and in which order Keras draws torch's masks, if it is another one."""
        given = given_orders(self.file.pair)
        matching, orders = match_in_order(self.torch, resolved.keras, resolved.mapping, given)
        matching = _without_shifted(matching, resolved.mapping)
        if self.file.has_scripts:
            patterns = squeezed(self.torch.values, resolved.keras.values) if self._returns_alike else {}
            said = [] if self._returns_alike else [OTHER_OUTPUTS]
            matching = replace(
                matching,
                layouts=patterns | matching.layouts,
                not_compared=[*matching.not_compared, *said],
                returns_alike=self._returns_alike,
            )
        trains = self.file.pair.train is not None
        return (in_training(matching, self.torch.survey, resolved.keras.survey) if trains else matching), orders


def _without_outputs(side: Surveyed) -> Surveyed:
    """Return a survey without what the whole model returns, where the other side's returns something else.

    In two scripts the loss tells whether it is the same that is made of it: a distance in one's loss, in the other's
    model.
    """
    inner = [seen for seen in side.survey.outputs if not is_output(seen.key)]
    return side._replace(survey=replace(side.survey, outputs=inner))


def _without_shifted(matching: Matching, mapping: Mapping) -> Matching:
    """Return the matching without what holds other numbers on each side, or holds them in another order.

    That are the inputs of modules of whose weights Keras has a slice, whose indices are others, and the outputs of
    those of which an image is made, whose channels are last in Keras.
    """
    modules = {name.rpartition(".")[0] for entry in mapping.entries if entry.slice for name in entry.torch}
    made = {
        name.rpartition(".")[0] for each in mapping.entries if each.rearrange.startswith(MADE) for name in each.torch
    }
    matches = [
        replace(each, inputs=None) if module(each.torch) in modules else each
        for each in matching.matches
        if module(each.torch) not in made
    ]
    fed = [each for each in matching.fed if each.torch not in modules]
    return replace(matching, matches=matches, fed=fed)


def _unmapped(file: PairFile, proposal: Proposal, hints: list[str]) -> UnmappedError:
    """Return the error on weights without a counterpart, with what was found of the others and what is open there."""
    told = [*proposal.mapping.assumptions, *unresolved(proposal.ambiguities)]
    mapping = replace(proposal.mapping, assumptions=told)
    complaints = "\n".join([complaint(mapping), *hints])
    return UnmappedError(f"{file.case.name}: weights without a counterpart:\n{complaints}", mapping)


def draw_torch(file: PairFile, backend: Worker, folder: Path) -> None:
    """Record what torch's builder gives with other seeds to what it does not train, for Keras's half to be prepared."""
    first = survey.built(place(folder, "torch"))
    if first:
        _draw(file, backend, folder, disputed.FEW, [])
        masks = changed([first, *survey.drawn(_drawn(folder, "torch", []))])
        random = [name for name, mask in masks.items() if mask.size <= LARGEST]
        if random:
            _draw(file, backend, folder, MORE - 1, random)


def _draw(file: PairFile, backend: Worker | None, folder: Path, further: int, names: Sequence[str]) -> None:
    """Keep what a side's builder gives these untrained tensors, or all, with further seeds; none without worker."""
    if not backend:
        return
    seeds = [file.case.seed + number for number in range(1, further + 1)]
    own = _drawn(folder, backend.name, names)
    run_survey(file, backend, own, with_survey(file, folder), seeds=seeds, tables=list(names))


def _drawn(folder: Path, side: str, names: Sequence[str]) -> Path:
    """Return the folder of what a side's builder gives with other seeds: many to tensors by name, or a few to all."""
    return place(folder, side) / ("many_seeds" if names else "few_seeds")


def _needless(file: PairFile, backend: Worker, folder: Path, mapping: Mapping) -> Survey:
    """Return a survey of Keras's model that tells which weights change nothing, as some have no counterpart."""
    own = place(folder, "keras_unused")
    alone = [weight.name for weight in mapping.unplaced if weight.side == "keras"]
    run_survey(file, backend, own, with_survey(file, folder), needless=alone)
    return survey.read(own)


def _survey_keras(file: PairFile, backend: Worker, folder: Path, mapping: Mapping | None) -> Surveyed:
    """Survey Keras's model; with a mapping, after a forward pass with torch's weights."""
    own = place(folder, "keras")
    run_survey(file, backend, own, with_survey(file, folder, mapping=mapping))
    return Surveyed(survey.read(own), survey.activations(own))


def run_survey(file: PairFile, backend: Worker, own: Path, context: PairContext, **fields: Any) -> None:
    """Run a survey into a folder, with further fields of its job. Raises UsageError and BackendError."""
    own.mkdir(parents=True, exist_ok=True)
    answer = backend.do(SurveyJob(case=file.case, folder=str(own), pair=context, **fields))
    if answer.status == "usage":
        raise UsageError(f"{file.case.name}: {answer.message}")
    if answer.status == "error":
        raise BackendError(f"{backend.name}: {answer.message}")

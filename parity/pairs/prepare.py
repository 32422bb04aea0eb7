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

from parity.config.pair import Ignore
from parity.core.arrays import Array
from parity.core.errors import BackendError, UsageError
from parity.pairs.activations.layouts import given_orders, squeezed, unlike_axes
from parity.pairs.activations.matching import match_in_order
from parity.pairs.activations.modules import in_training, module
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
from parity.trace.keys import MODEL
from parity.trace.mapping import Entry, MappedError, Mapping, Match, Matching, PairContext, UnmappedError

Surveyed = tuple[Survey, dict[str, Array]]
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
        torch = Path(place(folder, "torch"))  # which may explain that Keras's model cannot be called
        hints = unlike_axes(file.pair, survey.read(torch)) if (torch / survey.FILE).exists() else ()
        raise BackendError("\n".join([str(error), *hints])) from None
    except UsageError:
        wait([reference])
        raise
    ended(reference)
    return prepare_keras(file, backends["keras"], folder, structure, backends["torch"])


def place(folder: Path, side: str) -> str:
    """Return the folder of a side's survey, which lies in the folder of its trace."""
    return str((folder / side / "survey").absolute())


def survey_torch(file: PairFile, backend: Worker, folder: Path, redraws: bool = False) -> PairContext:
    """Survey torch's model into its trace folder, and return the context of its recording job.

    With `redraws`, large initial values are ones that can be drawn again. Raises UsageError and BackendError.
    """
    own = place(folder, "torch")
    _do(file, backend, own, PairContext(search=file.search), redraws=redraws)
    return PairContext(search=file.search, survey=own)


def prepare_alone(file: PairFile, backend: Worker, folder: Path) -> PairContext:
    """Survey Keras's model, of which several sides are compared, and return the context of their recording jobs.

    Raises UsageError and BackendError.
    """
    own = Path(place(folder, "keras"))
    _do(file, backend, str(own), PairContext(search=file.search))
    surveyed, values = survey.read(own), survey.activations(own)
    floats = (each for each in surveyed.outputs if each.key in values and values[each.key].dtype.kind == "f")
    trained = next((each for each in floats if not each.module or each.module == MODEL), None)
    weights = [
        msgspec.structs.replace(each, constant=not (each.trainable or each.statistic)) for each in surveyed.weights
    ]
    rehearsal = msgspec.structs.replace(surveyed.rehearsal, trained=trained)
    survey.write(own, msgspec.structs.replace(surveyed, rehearsal=rehearsal, weights=weights))
    return alone(file, own)


def alone(file: PairFile, own: Path) -> PairContext:
    """Return the context of jobs of one framework alone, from its survey; Keras's tensors are their own counterparts.

    Raises TraceError where there is no survey.
    """
    surveyed = survey.read(own)
    if surveyed.side == "torch":
        return PairContext(search=file.search, survey=str(own))
    entries = [Entry(torch=[each.name], keras=[each.name], by="name") for each in surveyed.weights]
    matches = [
        Match(torch=each.key, keras=each.key, axes=list(range(len(each.shape))), by="weights")
        for each in surveyed.outputs
        if each.module not in ("", MODEL)
    ]
    mapping, matching = Mapping(entries=entries), Matching(matches=matches)
    return PairContext(search=file.search, survey=str(own), mapping=mapping, matching=matching)


def prepare_keras(
    file: PairFile, backend: Worker, folder: Path, structure: Surveyed | None = None, torch: Worker | None = None
) -> Prepared:
    """Find the mapping and the matching where torch's survey exists already.

    `structure` is Keras's survey without weights, if it has been taken. Without a worker for torch, what torch's
    builder gives with other seeds was recorded (`draw_torch`).

    Raises UsageError (UnmappedError if a weight has no counterpart) and BackendError.
    """
    surveyed = Path(place(folder, "torch"))
    if not (surveyed / survey.FILE).exists():
        raise UsageError(
            f"{file.case.name}: Keras's model gets its weights from torch's recording, which was expected in "
            f"{surveyed}; record torch first into the same --out, or copy its recording there"
        )
    structure = structure or _survey_keras(file, backend, folder, None)
    reference = survey.read(surveyed)
    built = read(surveyed, Path(place(folder, "keras")))
    try:
        first = propose(reference, structure[0], file.pair, built)
    except UsageError as error:  # by a rule of the user's: what is found without rules helps to write one
        free = msgspec.structs.replace(file.pair, weights=[], ignore=Ignore())
        raise UnmappedError(str(error), propose(reference, structure[0], free, built).mapping) from None
    try:
        return _prepared(file, backend, folder, structure[0], built, torch)
    except UnmappedError:
        raise
    except UsageError as error:
        raise UnmappedError(str(error), first.mapping) from None
    except BackendError as error:
        raise MappedError(str(error), first.mapping) from None


def _prepared(
    file: PairFile, backend: Worker, folder: Path, keras: Survey, built: Built, torch_backend: Worker | None
) -> Prepared:
    """Decide by running what the weights' names, shapes and order leave open, and match the activations.

    Raises UsageError (UnmappedError if a weight has no counterpart) and BackendError.
    """
    pair, torch = file.pair, Path(place(folder, "torch"))
    reference, values = survey.read(torch), survey.activations(torch)
    ran: dict[bytes, Surveyed] = {}

    def run(mapping: Mapping) -> Surveyed:
        loaded = msgspec.json.encode((mapping.entries, mapping.partial))
        if loaded not in ran:
            if reference.is_large:
                ran.clear()  # what a further run overwrites takes room on the disk for as long as it is mapped
            surveyed, returned = _survey_keras(file, backend, folder, mapping)
            ran[loaded] = msgspec.structs.replace(surveyed, rehearsal=keras.rehearsal), returned
        return ran[loaded]

    def read_as(reading: Reading) -> Proposal:
        return propose(reference, keras, pair, built, reading)

    trials = Trials(reference, values, run)
    proposal = chosen(read_as, trials)
    if proposal.mapping.unplaced:
        needless = _needless(file, backend, folder, proposal.mapping)
        keras = msgspec.structs.replace(keras, unused=needless.unused, still=needless.still)
        proposal = chosen(read_as, trials)
    if proposal.mapping.unplaced:
        raise _unmapped(file, proposal, [*unlike_axes(pair, reference, keras), *map(OUTSIDE.format, keras.outside)])

    def draw(further: int, names: Sequence[str]) -> Draws:
        reference = begun(lambda: _draw(file, torch_backend, folder, further, names))
        _draw(file, backend, folder, further, names)
        ended(reference)
        ours, theirs = (survey.drawn(_drawn(folder, side, names)) for side in ("torch", "keras"))
        both = min(len(ours), len(theirs))
        return Draws([built.rounded, *ours[:both]], [built.keras, *theirs[:both]])

    def solve(proposal: Proposal) -> Resolved:
        return assume(resolve(proposal, trials), proposal.named, trials)

    sides = Sides(reference, keras)
    look = functools.partial(disputed.find, sides=sides, built=built, draw=draw, of_scripts=file.has_scripts)
    resolved = disputed.resolved(proposal, look, solve, trials)
    survey.write(Path(place(folder, "keras")), resolved.survey)
    matching, orders = _matched(file, reference, values, resolved)
    told = [*resolved.mapping.assumptions, *unlike_axes(pair, reference, keras)]
    mapping = msgspec.structs.replace(resolved.mapping, assumptions=told)
    context = PairContext(search=file.search, survey=str(torch), mapping=mapping, matching=matching, draws=orders)
    return Prepared(context, reference, resolved.undecided)


def _matched(
    file: PairFile, torch: Survey, values: dict[str, Array], resolved: Resolved
) -> tuple[Matching, dict[int, list[int]]]:
    """Return which activations correspond, and in which order Keras draws torch's masks, if that is another one."""
    given = given_orders(file.pair)
    matching, orders = match_in_order(torch, values, resolved.survey, resolved.values, resolved.mapping, given)
    matching = _without_shifted(matching, resolved.mapping)
    if file.has_scripts:
        patterns = squeezed(values, resolved.values)
        matching = msgspec.structs.replace(matching, layouts=patterns | matching.layouts)
    return (in_training(matching, torch, resolved.survey) if file.pair.train else matching), orders


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
        msgspec.structs.replace(each, inputs=None) if module(each.torch) in modules else each
        for each in matching.matches
        if module(each.torch) not in made
    ]
    fed = [each for each in matching.fed if each.torch not in modules]
    return msgspec.structs.replace(matching, matches=matches, fed=fed)


def _unmapped(file: PairFile, proposal: Proposal, hints: list[str]) -> UnmappedError:
    """Return the error on weights without a counterpart, with what was found of the others and what is open there."""
    told = [*proposal.mapping.assumptions, *unresolved(proposal.ambiguities)]
    mapping = msgspec.structs.replace(proposal.mapping, assumptions=told)
    complaints = "\n".join([complaint(mapping), *hints])
    return UnmappedError(f"{file.case.name}: weights without a counterpart:\n{complaints}", mapping)


def draw_torch(file: PairFile, backend: Worker, folder: Path) -> None:
    """Record what torch's builder gives with other seeds to what it does not train, for Keras's half to be prepared."""
    first = survey.built(Path(place(folder, "torch")))
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
    context = PairContext(search=file.search, survey=place(folder, "torch"))
    _do(file, backend, str(_drawn(folder, backend.name, names)), context, seeds=seeds, tables=list(names))


def _drawn(folder: Path, side: str, names: Sequence[str]) -> Path:
    """Return the folder of what a side's builder gives with other seeds: many to tensors by name, or a few to all."""
    return Path(place(folder, side)) / ("many_seeds" if names else "few_seeds")


def _needless(file: PairFile, backend: Worker, folder: Path, mapping: Mapping) -> Survey:
    """Return a survey of Keras's model that tells which weights change nothing, as some have no counterpart."""
    own = place(folder, "keras_unused")
    context = PairContext(search=file.search, survey=place(folder, "torch"))
    alone = [weight.name for weight in mapping.unplaced if weight.side == "keras"]
    _do(file, backend, own, context, needless=alone)
    return survey.read(Path(own))


def _survey_keras(file: PairFile, backend: Worker, folder: Path, mapping: Mapping | None) -> Surveyed:
    """Survey Keras's model; with a mapping, after a forward pass with torch's weights."""
    context = PairContext(search=file.search, survey=place(folder, "torch"), mapping=mapping)
    own = place(folder, "keras")
    _do(file, backend, own, context)
    return survey.read(Path(own)), survey.activations(Path(own))


def _do(file: PairFile, backend: Worker, own: str, context: PairContext, **fields: Any) -> None:
    """Run a survey into a folder, with further fields of its job. Raises UsageError and BackendError."""
    Path(own).mkdir(parents=True, exist_ok=True)
    answer = backend.do(SurveyJob(case=file.case, folder=own, pair=context, **fields))
    if answer.status == "usage":
        raise UsageError(f"{file.case.name}: {answer.message}")
    if answer.status == "error":
        raise BackendError(f"{backend.name}: {answer.message}")

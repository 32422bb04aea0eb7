"""Record the traces of a pair: both sides at the same time, one alone, or torch's again from an earlier survey.

Of a large model it is chosen which tensors are recorded whole once summaries have told where the sides part. A
certificate keeps of torch's half a light survey, and the inputs' files, beside the trace.
"""

import itertools
import math
import shutil
from collections.abc import Mapping as Named
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from msgspec.structs import replace

from parity.config.pair import UNKNOWN
from parity.config.schema import Case
from parity.core.arrays import digest
from parity.core.errors import UsageError
from parity.core.wording import count
from parity.data.pairs import file_of
from parity.pairs.activations.counterparts import is_output
from parity.pairs.activations.equal import joined
from parity.pairs.activations.values import excerpt
from parity.pairs.extent import few
from parity.pairs.file import PairFile
from parity.pairs.prepare import Prepared, draw_torch, place, prepare_keras, run_survey, survey_torch, with_survey
from parity.pairs.script_records import FOLDER, VALUES, names_of_steps, read
from parity.pairs.scripts import completed
from parity.results import CaseResult, Divergence
from parity.runtime import resources, survey
from parity.runtime.job import RUNS, Answer, Job
from parity.runtime.runner import Worker, both
from parity.trace import keys
from parity.trace.keys import MODEL
from parity.trace.manifest import Trace
from parity.trace.mapping import Entry, Mapping, Match, Matching, PairContext
from parity.trace.summary import LARGE
from parity.trace.tensorfile import TensorFile

MOST_WHOLE: Final = 1 << 23  # elements of large tensors, each counted once, that are recorded whole
INPUTS: Final = "inputs"  # the folder of a certificate's input files


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
    jobs = {side: replace(job, whole=list(whole)) for side, job in jobs.items()}
    return both(jobs, resources.in_turn(file.case, size))


def failures(answers: Named[str, Answer]) -> dict[str, str]:
    """Return the messages of the sides that were not recorded."""
    return {side: answer.message for side, answer in answers.items() if answer.status != "done"}


def recorded(
    file: PairFile, backend: Worker, folder: Path, runs: Sequence[str] = keys.RUNS, summarises: bool = False
) -> Answer:
    """Record one side (Keras's needs torch's in `folder`), or for a certificate. Raises UsageError and BackendError."""
    if backend.name == "torch":
        context = survey_torch(file, backend, folder, summarises)
        draw_torch(file, backend, folder)
    else:
        context = prepare_keras(file, backend, folder).context
    size = resources.of_pair(survey.read(place(folder, "torch")))
    resources.check(file.case, size, folder, runs, summarises)
    return backend.do(_job(file, backend.name, folder, context, runs, summarises))


def prepare_alone(file: PairFile, backend: Worker, folder: Path) -> PairContext:
    """Survey Keras's model, of which several sides are compared, and return the context of their recording jobs.

    Raises UsageError and BackendError.
    """
    own = place(folder, "keras")
    run_survey(file, backend, own, PairContext(search=file.search))
    surveyed, values = survey.read(own), survey.activations(own)
    floats = (each for each in surveyed.outputs if each.key in values and values[each.key].dtype.kind == "f")
    trained = next((each for each in floats if not each.module or each.module == MODEL), None)
    weights = [replace(each, constant=not (each.trainable or each.statistic)) for each in surveyed.weights]
    rehearsal = replace(surveyed.rehearsal, trained=trained)
    survey.write(own, replace(surveyed, rehearsal=rehearsal, weights=weights))
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


def recorded_script(file: PairFile, backend: Worker, folder: Path, like: Path | None = None) -> Answer:
    """Record the script that the file's only side runs, with what it trains on and its survey beside the trace.

    It begins with the weights, and trains on the batches, of an earlier recording in the folder `like`, or with its
    own. Raises UsageError, TraceError and BackendError.
    """
    own, batches = place(folder, backend.name), folder.absolute() / FOLDER / backend.name
    if like:
        for part in (own, batches):
            shutil.copytree(like / part.relative_to(folder.absolute()), part, dirs_exist_ok=True)
        # In their order, which a trace's case has lost.
        inputs = {name: file.pair.inputs[name] for name in names_of_steps(np.load(batches / VALUES))}
        model = replace(file.pair, inputs=inputs)
        case = replace(file.case, model=model)
        file = file._replace(case=case, search=[*file.search, str(batches)])
    else:
        file = completed(file, [backend], folder)
        (survey_torch if backend.name == "torch" else prepare_alone)(file, backend, folder)
    context, surveyed = alone(file, own), survey.read(own)
    resources.check(file.case, resources.of_pair(surveyed), folder, keys.RUNS, surveyed.is_large)
    context = replace(context, side=file.sides[0])
    return backend.do(_job(file, backend.name, folder, context, list(keys.RUNS), surveyed.is_large))


def as_unrecorded(folder: Path, side: str) -> str:
    """Say whether a recorded script trained in float32 as it does unrecorded, to the bit; "" where nothing tells.

    Keras's recorded steps run op by op, and `fit` runs a graph, which may round otherwise.
    """
    trace, ends = Trace(folder / side), read(folder / FOLDER / side).ends
    held = trace.of_kind("parameter", trace.case.steps - 1, "low")
    digests = {name: digest([(name, array)]) for name, array in held.items()}
    after = f"after {count(trace.case.steps, 'step')}"
    if not ends or trace.manifest.brief:
        return ""
    if parted := [name for name in ends if ends[name] != digests.get(name)]:
        return (
            f"{after}, the recorded script has other values in {few(parted)} than the bare one: random numbers that a "
            "step draws (dropout, noise) are shared by recordings; a step that draws none must have the same values"
        )
    return f"{after}, all parameters equal those of the bare script bit by bit: recording changes nothing"


def recorded_again(
    file: PairFile, torch: Worker, folder: Path, own: Path, runs: list[str], summarises: bool = False
) -> Answer:
    """Record torch's side again, into `own`, from the survey that is in `folder`."""
    context = with_survey(file, folder)
    return torch.do(Job(case=file.case, runs=runs, folder=str(own.absolute()), pair=context, summarises=summarises))


def _job(file: PairFile, side: str, folder: Path, context: PairContext, runs: Sequence[str], summarises: bool) -> Job:
    """Return the recording job of one side; torch is the reference, so its job gets no mapping and no matching."""
    if side == "torch":
        context = replace(context, mapping=None, matching=None)
    own = str((folder / side).absolute())
    return Job(case=file.case, runs=list(runs), folder=own, pair=context, summarises=summarises)


def nearest(first: Divergence, torch: Trace, keras: Trace) -> list[str]:
    """Return the keys of the tensors nearest to a divergence in the order of the forward pass, as many as fit.

    Nearest are those of its own module, then those of the module called before it, after it, and so on. The traces hold
    summaries. Keys that are one tensor on either side are chosen together, so that both sides hold them alike.
    """
    manifests = torch.manifest, keras.manifest
    sizes = {key: shape for each in manifests for held in each.summarised.values() for key, shape in held.items()}
    same = joined(pair for each in manifests for held in each.aliases.values() for pair in held.items())
    calls = torch.open("high", keys.step_file(first.step or 0))
    owners = [keys.owner(*keys.split(key)) for key in calls if key.startswith("activation/")]
    order = {owner: number for number, owner in enumerate(owners)}
    last = len(owners)
    at = order.get(keys.owner(first.kind, first.name), last)

    def distance(key: str) -> tuple[int, bool]:
        own = order.get(keys.owner(*keys.split(key)), last)
        return abs(own - at), own > at

    chosen, room = dict[str, None](), MOST_WHOLE
    for key in sorted(sizes, key=distance):
        together = same.get(key, {key})
        if key not in chosen and (size := sum(math.prod(sizes.get(each, ())) for each in together)) <= room:
            chosen |= dict.fromkeys(sorted(together))
            room -= size
    return list(chosen)


def has_told_all(result: CaseResult, torch: Trace) -> bool:
    """Return whether a closer look has told all: what differs first is whole in the trace, and all causes are named."""
    first = result.first_divergence
    named = bool(result.causes) and all(cause.id != UNKNOWN for cause in result.causes)
    return named and first is not None and keys.stored(first.kind, first.name) not in torch.manifest.brief


def pack(file: PairFile, trace: Path) -> None:
    """Make what was recorded of a pair ready for a certificate.

    The survey loses the weights that were drawn by a law, and all but excerpts of what large modules return; the .npz
    files of inputs are added. Raises UsageError for one that does not lie below the pair's file.
    """
    folder, inputs = trace / "survey", trace / INPUTS
    laws, weights = survey.read(folder).laws, TensorFile(folder / survey.WEIGHTS)
    survey.keep(folder / survey.WEIGHTS, [(name, array) for name, array in weights.items() if name not in laws])
    returned = survey.activations(folder)
    # Of what inner modules return an excerpt is enough; what the whole model returns is compared as a whole.
    floats = {key: array for key, array in returned.items() if array.dtype.kind == "f" and not is_output(key)}
    large = {key: array for key, array in floats.items() if array.size > LARGE}
    survey.keep(folder / survey.ACTIVATIONS, [(key, array) for key, array in returned.items() if key not in large])
    survey.keep(folder / survey.EXCERPTS, ((key, excerpt(array)) for key, array in large.items()))
    for name, given in file.pair.inputs.items():
        if given.npz:
            target = (inputs / given.npz).resolve()
            if inputs.resolve() not in target.parents:
                raise UsageError(f"inputs.{name}: npz is {given.npz!r}, expected a file below the pair's own folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file_of(name, given, file.search), target)


def unpack(case: Case, trace: Path) -> None:
    """Draw the weights again that `pack` left out. Raises TraceError."""
    folder = trace / "survey"
    surveyed, weights = survey.read(folder), TensorFile(folder / survey.WEIGHTS)
    shapes = {weight.name: weight.shape for weight in surveyed.weights}
    drawn = ((name, law.drawn(case.seed, name, shapes[name], case.precision)) for name, law in surveyed.laws.items())
    survey.keep(folder / survey.WEIGHTS, itertools.chain(weights.items(), drawn))

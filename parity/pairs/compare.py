"""Compare one pair, from its file to the verdict."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from parity.config.pair import HELD, SEED, SPARSE, SUM, UNKNOWN, Expect
from parity.core.errors import BackendError, UsageError
from parity.core.wording import count
from parity.pairs.accepting.suggest import inherent
from parity.pairs.causes.experiment import Experiment
from parity.pairs.causes.sources import add_sources, explain_masks, explain_mode, explain_states
from parity.pairs.extent import hiding, not_run, note_batch_sizes, passed_over, unmoved
from parity.pairs.file import PairFile
from parity.pairs.judge import judged
from parity.pairs.prepare import Prepared, place, prepare
from parity.pairs.recording import failures, has_told_all, nearest, recorded_both
from parity.pairs.script_told import tell
from parity.pairs.scripts import completed
from parity.pairs.vary.compare import PASSED, vary
from parity.pairs.vary.outcome import OTHER_BATCHES, conclude, later_batch, on_other_batches, pair_on, take_causes
from parity.pairs.vary.variations import Variation
from parity.results import CaseResult, error_kind, failed
from parity.results import Variation as VariationResult
from parity.runtime import survey
from parity.runtime.job import RUNS, Answer
from parity.runtime.runner import Worker
from parity.trace.manifest import Trace
from parity.trace.summary import LARGE
from parity.trace.tensorfile import TensorFile

WHOLE = "--record=full compares them whole"


def compared(
    file: PairFile,
    backends: Sequence[Worker],
    folder: Path,
    varied: bool = True,
    whole: bool = False,
    evaluates: bool = False,
) -> CaseResult:
    """Record both sides of a pair into `folder`, and compare them.

    `backends` are torch's and Keras's. With `varied`, the models are also run on variations of the inputs
    (parity.pairs.vary). A side that fails gives a result with the verdict `error`; if only one does, and the forward
    pass differs, the result is of that alone. With `evaluates`, the models are also called in inference between the
    training steps, which is not compared. Of a large model, summaries of large tensors are recorded first, unless
    `whole` is set, and whole tensors only where by the summaries the two are no match.

    Raises UsageError for what is wrong with the pair's file.
    """
    try:
        file = completed(file, backends, folder)
        prepared = prepare(file, {backend.name: backend for backend in backends}, folder)
        prepared = prepared._replace(context=replace(prepared.context, evaluates=evaluates))
        # What a file accepts by its size is accepted by the elements, not by sums of them.
        summarises = prepared.torch.is_large and not whole and not file.pair.expect
        answers, result = _recorded(file, backends, folder, prepared, summarises)
    except BackendError as error:
        result = failed(file.case.name, error)
        result.reason += _rerun_hint(file)
        return result
    missing = failures(answers)
    if "torch" in missing and file.pair.trains and not prepared.torch.rehearsal.trained:
        missing.pop("keras", None)  # the target of its loss would be drawn for torch's output
    if len(missing) == 1 and (without := _without_training(file, backends, folder, missing)):
        return without
    if missing:
        reason = "\n".join(missing.values()) + _rerun_hint(file)
        result = CaseResult(case=file.case.name, verdict="error", reason=reason)
        result.error, result.mapping = error_kind(answers.values()), prepared.context.mapping
    else:
        experiment = Experiment(file, backends, folder, prepared.context, _traces(folder))
        result = result or judged(*experiment.traces, experiment)
        _look_behind(result, experiment, prepared)
        _complete(result, experiment, prepared, varied)
    result.seconds = {name: round(answer.seconds, 3) for name, answer in answers.items()}
    return result


def _look_behind(result: CaseResult, experiment: Experiment, prepared: Prepared) -> None:
    """Add what else differs behind causes that hide later ones and that runs can be held to (HELD).

    Causes that are unknown are looked for there too: a difference that such a cause has made has none of its own.
    Both sides, or torch's alone, are recorded once more, as if the file accepted these causes, and the inherent ones;
    and again, where behind these there are other such causes.
    """
    file, done = experiment.file, set[str]()
    while True:
        causes = result.causes
        seeds = [Expect(cause=SEED, where=cause.where, reason="held") for cause in causes if cause.id == SEED]
        known = [*inherent(causes), *seeds]
        held = {each.cause for each in known}.intersection(HELD)
        unknown = [cause for cause in causes if cause.id == UNKNOWN]
        if len(known) + len(unknown) < len(causes) or held <= done or prepared.torch.is_large:
            return
        done = held
        pair = replace(file.pair, expect=[*file.pair.expect, *known])
        accepting = file._replace(case=replace(file.case, model=pair))
        again = _held(experiment._replace(file=accepting), experiment.folder / f"held{len(done)}", prepared)
        if isinstance(again, str):
            result.not_compared.append(f"what differs behind {' and '.join(sorted(held))}: {again}")
            return
        if unknown and again.verdict == "diverged" and all(cause.id == UNKNOWN for cause in again.causes):
            return  # nothing is told of them there either
        if again.verdict in (*PASSED, "diverged"):
            result.causes = [cause for cause in causes if cause not in unknown]
        if again.verdict != "diverged":
            return
        result.reason, result.first_divergence = again.reason, again.first_divergence
        result.causes[:0], result.suggestions[:0] = again.causes, again.suggestions


def _held(experiment: Experiment, folder: Path, prepared: Prepared) -> CaseResult | str:
    """Record what a file's causes change of the runs, and compare them; return why a side fails, if one does."""
    file, backends, traces = experiment.file, experiment.backends, experiment.traces
    if file.pair.accepts(SUM):  # of the weights that torch's runs hold, which are trained no more
        prepared = prepare(file, {backend.name: backend for backend in backends}, folder)
    is_both = any(map(file.pair.accepts, (SEED, SUM, SPARSE)))
    moved = backends if is_both else backends[:1]
    if missing := failures(recorded_both(file, moved, folder, prepared, summarises=False)):
        return "; ".join(f"{side}: {message}" for side, message in missing.items())
    own = Trace(folder / "torch"), Trace(folder / "keras") if is_both else traces[1].replaced(case=file.case)
    return judged(*own, experiment._replace(context=prepared.context, traces=own))


def _complete(result: CaseResult, experiment: Experiment, prepared: Prepared, varied: bool) -> None:
    """Complete the result with what the surveys tell, and with the comparison on other inputs."""
    file, backends, folder, context, traces = experiment
    result.undecided = prepared.undecided
    keras = survey.read(place(folder, "keras"))
    explain_mode(result, prepared.torch, keras)
    explain_masks(result, prepared.torch, keras, *(survey.activations(place(folder, side)) for side in RUNS))
    explain_states(result, keras, context.matching)
    add_sources(result, keras, context)
    result.not_compared += [*passed_over(prepared.torch, keras), *unmoved(traces[0], prepared.torch)]
    if file.pair.keeps_weights:
        result.not_compared += hiding(TensorFile(Path(context.survey) / survey.WEIGHTS))
    variation = vary(result, file, backends, folder, context, given_only=not varied)
    variation = variation or later_batch(result, file)
    if variation:
        of_its_own = folder / "varied"
        again = compared(pair_on(variation, file, of_its_own), backends, of_its_own, varied=False)
        take_causes(result, again, variation)
    elif varied and not prepared.torch.is_large and result.verdict in PASSED:
        _train_on_other_batches(result, file, backends, folder / "varied")
    note_batch_sizes(result, varied)
    tell(result, file, folder)


def _train_on_other_batches(result: CaseResult, file: PairFile, backends: Sequence[Worker], folder: Path) -> None:
    """Compare the training once more, on batches that nobody gave; one that cannot be compared decides nothing."""
    if (other := on_other_batches(file, folder)) is None:
        return
    try:
        again = compared(other, backends, folder, varied=False, evaluates=True)
    except UsageError as error:  # a model may take the batches given alone
        again = failed(file.case.name, error)
    judged = VariationResult(name=OTHER_BATCHES, verdict=again.verdict, reason=again.reason)
    if again.verdict == "error":
        judged = VariationResult(name=OTHER_BATCHES, verdict="skipped", skipped=again.reason.splitlines()[0])
    result.variations.append(judged)
    if again.verdict == "diverged":
        judged.first_divergence = again.first_divergence
        conclude(result, [])
        take_causes(result, again, Variation(OTHER_BATCHES, {}))


def _recorded(
    file: PairFile, backends: Sequence[Worker], folder: Path, prepared: Prepared, summarises: bool
) -> tuple[dict[str, Answer], CaseResult | None]:
    """Record both sides, of a large model by `summarises` as far as that tells all; then the result is returned too.

    Where summaries are no match, the tensors around the place at which the sides part are recorded whole, and if the
    cause is not named from these, all tensors are.
    """
    answers = recorded_both(file, backends, folder, prepared, summarises)
    if not summarises or failures(answers):
        return answers, None
    traces = _traces(folder)
    result = judged(*traces)
    is_settled = result.verdict == "match" and not result.findings
    if not is_settled and result.first_divergence:
        whole = nearest(result.first_divergence, *traces)
        answers = recorded_both(file, backends, folder, prepared, summarises, whole)
        if failures(answers):
            return answers, None
        traces = _traces(folder)
        seen = traces[0].whole(), traces[1].whole()
        result = judged(*traces, Experiment(file, backends, folder, prepared.context, seen))
        is_settled = has_told_all(result, traces[0])
    if not is_settled:
        return recorded_both(file, backends, folder, prepared, summarises=False), None
    number = count(sum(map(len, traces[0].manifest.summarised.values())), "tensor")
    result.not_compared.append(f"{number} of more than {LARGE} elements are compared by summaries: {WHOLE}")
    return answers, result


def _traces(folder: Path) -> tuple[Trace, Trace]:
    return Trace(folder / "torch"), Trace(folder / "keras")


def _without_training(
    file: PairFile, backends: Sequence[Worker], folder: Path, missing: Mapping[str, str]
) -> CaseResult | None:
    """Return the result without training, or else of the forward pass alone, if both sides differ in it; else None.

    That may be why only one of them fails in what follows: a loss takes no output of another shape, and Keras's
    optimizer nothing where no gradient arrives.
    """
    if not (file.pair.train or file.pair.backward):
        return None
    alone = file.without_training(backward=file.pair.train is not None)
    result = compared(alone, backends, folder, varied=False)
    if result.verdict != "diverged":
        for side in RUNS:
            shutil.rmtree(folder / side, ignore_errors=True)  # what is left there is no trace of this pair
        return None
    of_the_file = not_run(alone.pair, Trace(folder / "torch").manifest.modules)
    if Trace(folder / "torch").case == alone.case:  # else the forward pass alone was compared, and it is told
        passes = "a forward and a backward pass were" if alone.pair.backward else "the forward pass was"
        result.not_compared[:0] = [
            f"only {passes} compared: {side} fails after it: {missing[side]}" for side in missing
        ]
    result.not_compared = [each for each in result.not_compared if each not in of_the_file]
    return result


def _rerun_hint(file: PairFile) -> str:
    flags = " ".join(map(shlex.quote, file.flags))
    return f"\n    to run it again: python -m parity.compare {flags}"

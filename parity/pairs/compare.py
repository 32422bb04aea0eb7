"""Compare one pair, from its file to the verdict."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from parity.config.pair import Expect, Pair
from parity.core.errors import BackendError, UsageError
from parity.core.wording import count
from parity.diagnose.diagnosis import Examined, examined, examined_beyond
from parity.diagnose.entries import internal_error
from parity.diagnose.gradients import without_followers
from parity.diagnose.place import with_module
from parity.pairs import hidden
from parity.pairs.accepting.evidence import Evidence
from parity.pairs.accepting.expect import apply_expected, held_at_zero, left_over
from parity.pairs.accepting.suggest import INHERENT, inherent, layout, loading, order_of_axes, suggestions
from parity.pairs.activations.matching import summary
from parity.pairs.causes import later
from parity.pairs.causes.experiment import Experiment
from parity.pairs.causes.pair_causes import (
    SEED,
    explain_mode,
    name_layout,
    name_pair_causes,
    name_seeds,
    question_unfilled,
)
from parity.pairs.causes.sources import add_sources
from parity.pairs.causes.training import name_fitted, with_changing_buffers
from parity.pairs.decay import as_decayed
from parity.pairs.extent import (
    constants,
    gradients,
    hiding,
    not_run,
    note_batch_sizes,
    note_counterparts,
    overridden,
    schedules,
    unnamed,
    unused,
)
from parity.pairs.file import PairFile
from parity.pairs.momentum import in_torchs_form
from parity.pairs.prepare import Prepared, place, prepare
from parity.pairs.recording import are_done, recorded_both
from parity.pairs.scripts import completed, tell
from parity.pairs.sides.traces import describe, recorded_by_both
from parity.pairs.vary.compare import PASSED, vary
from parity.pairs.vary.outcome import conclude, later_batch, pair_on, take_causes
from parity.pairs.vary.training import NAME, on_other_batches
from parity.pairs.vary.variations import Variation
from parity.results import CaseResult, Divergence, Verdict, error_kind, failed
from parity.results import Variation as VariationResult
from parity.runtime import survey
from parity.runtime.job import RUNS
from parity.runtime.runner import Worker
from parity.trace.keys import MODEL
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
    `whole` is set, and whole tensors only if by the summaries the two are no match.

    Raises UsageError for what is wrong with the pair's file.
    """
    try:
        file = completed(file, backends, folder)
        prepared = prepare(file, {backend.name: backend for backend in backends}, folder)
        prepared = prepared._replace(context=msgspec.structs.replace(prepared.context, evaluates=evaluates))
        # What a file accepts by its size is accepted by the elements, not by sums of them.
        summarises = prepared.torch.is_large and not whole and not file.pair.expect
        answers = recorded_both(file, backends, folder, prepared, summarises)
        brief = _matched_by_summaries(folder) if summarises and are_done(answers) else None
        if summarises and are_done(answers) and not brief:
            answers = recorded_both(file, backends, folder, prepared, summarises=False)
    except BackendError as error:
        result = failed(file.case.name, error)
        result.reason += _rerun_hint(file)
        return result
    failures = {name: answer.message for name, answer in answers.items() if answer.status != "done"}
    if "torch" in failures and file.pair.trains and not prepared.torch.rehearsal.trained:
        failures.pop("keras", None)  # the target of its loss would be drawn for torch's output
    if len(failures) == 1 and (without := _without_training(file, backends, folder, failures)):
        return without
    if failures:
        reason = "\n".join(failures.values()) + _rerun_hint(file)
        result = CaseResult(case=file.case.name, verdict="error", reason=reason)
        result.error, result.mapping = error_kind(answers.values()), prepared.context.mapping
    else:
        traces = Trace(folder / "torch"), Trace(folder / "keras")
        result = brief or judged(*traces, Experiment(file, backends, folder, prepared.context, traces))
        _complete(result, file, backends, folder, prepared, varied)
    result.seconds = {name: round(answer.seconds, 3) for name, answer in answers.items()}
    return result


def _complete(
    result: CaseResult, file: PairFile, backends: Sequence[Worker], folder: Path, prepared: Prepared, varied: bool
) -> None:
    """Complete the result with what the surveys tell, and with the comparison on other inputs."""
    result.undecided = prepared.undecided
    keras = survey.read(Path(place(folder, "keras")))
    explain_mode(result, keras)
    add_sources(result, keras, prepared.context)
    result.not_compared += [*unnamed(prepared.torch), *overridden(keras)]
    if file.pair.keeps_weights:
        result.not_compared += hiding(TensorFile(Path(prepared.context.survey) / survey.WEIGHTS))
    variation = vary(result, file, backends, folder, prepared.context, given_only=not varied)
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
    judged = VariationResult(name=NAME, verdict=again.verdict, reason=again.reason)
    if again.verdict == "error":
        judged = VariationResult(name=NAME, verdict="skipped", skipped=again.reason.splitlines()[0])
    result.variations.append(judged)
    if again.verdict == "diverged":
        judged.first_divergence = again.first_divergence
        conclude(result, [])
        take_causes(result, again, Variation(NAME, {}))


def _matched_by_summaries(folder: Path) -> CaseResult | None:
    """Return the result on traces that hold summaries of large tensors; None if they do not simply match."""
    torch = Trace(folder / "torch")
    result = judged(torch, Trace(folder / "keras"))
    number = count(sum(map(len, torch.manifest.summarised.values())), "tensor")
    result.not_compared.append(f"{number} of more than {LARGE} elements are compared by summaries: {WHOLE}")
    return result if result.verdict == "match" and not result.findings else None


def _without_training(
    file: PairFile, backends: Sequence[Worker], folder: Path, failures: Mapping[str, str]
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
            f"only {passes} compared: {side} fails after it: {failures[side]}" for side in failures
        ]
    result.not_compared = [each for each in result.not_compared if each not in of_the_file]
    return result


def judged(reference: Trace, candidate: Trace, experiment: Experiment | None = None) -> CaseResult:
    """Compare two traces; if they are the two sides of one pair, apply what its file accepts.

    `experiment` names causes that the traces do not tell, where the models can still be called.
    """
    if reference.manifest.side is None or candidate.manifest.side is None:
        return _judged(reference, candidate, experiment)
    result = _judged(*recorded_by_both(reference, candidate))
    describe(result, reference, candidate)
    return result


def _judged(reference: Trace, candidate: Trace, experiment: Experiment | None = None) -> CaseResult:
    pair, mapping = reference.case.model, candidate.manifest.mapping
    if not isinstance(pair, Pair) or reference.backend == candidate.backend or mapping is None:
        return examined(reference, candidate).result
    mapping = with_changing_buffers(mapping, reference)
    candidate = in_torchs_form(candidate.replaced(mapping=mapping))
    traces = hidden.without_one_sided(reference, candidate, pair)
    examination = examined(traces.reference, traces.candidate)
    if _is_loss_scaled(examination, reference, candidate):
        reference, candidate = hidden.without_losses(reference), hidden.without_losses(candidate)
        traces = hidden.without_one_sided(reference, candidate, pair)
        examination = examined(traces.reference, traces.candidate)
        traces.notes.append(
            "a training step returns no loss, and what it differentiates is scaled: no loss is compared"
        )
    decayed = as_decayed(examination.unequal, reference, candidate)
    if decayed:
        reference, candidate, note = decayed
        traces = hidden.without_one_sided(reference, candidate, pair)
        examination = examined(traces.reference, traces.candidate)
    other_form = _slots_in_another_form(examination, pair)
    apart = hidden.with_counterparts_elsewhere(examination, reference, candidate)
    apart |= hidden.equal_by_chance(examination)
    if other_form or apart:
        traces = hidden.without_one_sided(reference, candidate, pair, other_form, apart)
        examination = examined(traces.reference, traces.candidate)
    result, matching = examination.result, candidate.manifest.matching
    result.mapping, result.assumptions = mapping, [*traces.notes, *([note] if decayed else [])]
    result.not_compared = [*not_run(pair, reference.manifest.modules), *constants(mapping, reference), *unused(mapping)]
    if matching:
        result.matched = summary(matching, traces.alone)
        result.not_compared += matching.not_compared
    note_counterparts(result, mapping, matching, reference)
    name_pair_causes(examination, mapping, reference, candidate)
    name_seeds(result, reference, candidate)
    expected, held = held_at_zero(pair.expect, mapping)
    evidence = Evidence(traces.reference, traces.candidate, examination.unequal)
    permuted = _permuted(evidence) if result.verdict == "diverged" and not _has_layout(pair, result) else {}
    if any(cause.id == SEED for cause in result.causes):
        experiment = None  # what is called again draws other numbers than these
    if experiment and not permuted:
        _ask(experiment, examination)
    if left := _left_over(examination, expected, evidence):
        examination = examined_beyond(examination, *left, traces.reference, traces.candidate)
        if experiment:
            _ask(experiment, examination)
    result.not_compared += [*gradients(evidence.outputs()), *schedules((reference, candidate))]
    name_fitted(result, candidate, mapping)
    apply_expected(examination, expected, evidence)
    result.expected += held
    if result.verdict == "diverged":
        result.causes = without_followers(result.causes, examination.unequal, result.expected)
        result.causes.sort(key=lambda cause: cause.id in INHERENT)  # the user's own come first
    question_unfilled(result, mapping)
    if result.first_divergence:
        result.first_divergence = with_module(result.first_divergence, reference.manifest.classes)
    result.suggestions = [*suggestions(result, list(reference.manifest.modules)), *loading(result, mapping)]
    if result.verdict == "diverged" and not _has_layout(pair, result) and len(outputs := evidence.outputs()) == 1:
        result.suggestions += [suggestion for key in outputs for suggestion in layout(key, *outputs[key])]
        for key, axes in permuted.items():
            name_layout(result, key, axes)
    return result


def _left_over(examination: Examined, expected: list[Expect], evidence: Evidence) -> tuple[Verdict, Divergence] | None:
    """Return what is left once all that is accepted is taken away, and else what is inherent too.

    What float32 does not see is none of the latter: the inherent differences make the verdict then.
    """
    if accepted := left_over(examination, expected, evidence):
        return accepted
    known = inherent(examination.result.causes)
    beyond = left_over(examination, [*expected, *known], evidence) if known else None
    return beyond if beyond and beyond[0] == "diverged" else None


def _ask(experiment: Experiment, examination: Examined) -> None:
    """Name the causes that the traces do not tell; a mistake of this program's costs no verdict, nor other pairs'."""
    try:
        experiment.name_causes(examination)
        later.name_causes(experiment, examination)
    except MemoryError:
        raise
    except Exception as error:
        examination.result.causes.append(internal_error(MODEL, ("torch", "keras"), error))


def _has_layout(pair: Pair, result: CaseResult) -> bool:
    """Return whether the order of axes of the model's outputs is known, from the pair's file or from the layers."""
    return bool(pair.outputs or (result.matched and result.matched.layouts))


def _permuted(evidence: Evidence) -> dict[str, str]:
    """Return the pattern of axes, by key, if Keras's only output has torch's numbers in another order of axes."""
    outputs = evidence.outputs()
    patterns = {key: order_of_axes(*sides) for key, sides in outputs.items()} if len(outputs) == 1 else {}
    return {key: pattern for key, pattern in patterns.items() if pattern}


def _is_loss_scaled(examination: Examined, *traces: Trace) -> bool:
    """Return whether losses differ alone that a step of the user's own does not return: they may be scaled."""
    kinds = {tensor.kind for tensor in examination.unequal}
    return kinds == {"loss"} and not all(trace.manifest.training.returns_loss for trace in traces)


def _slots_in_another_form(examination: Examined, pair: Pair) -> set[str]:
    """Return the slots of the user's own optimizers that hold other numbers, and yet give the same updates."""
    own = hidden.has_own_optimizer(pair)
    return hidden.slots_in_another_form(examination, pair.train.steps) if own and pair.train else set()


def _rerun_hint(file: PairFile) -> str:
    flags = " ".join(map(shlex.quote, file.flags))
    return f"\n    to run it again: python -m parity.compare {flags}"

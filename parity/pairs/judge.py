"""Judge two traces; of a pair, name what differs, and apply what its file accepts."""

from collections.abc import Collection

from msgspec.structs import replace

from parity.config.pair import HELD, SEED, UNKNOWN, Expect, Pair
from parity.diagnose.diagnosis import Examined, examined, examined_beyond
from parity.diagnose.entries import internal_error
from parity.diagnose.gradients import without_followers
from parity.diagnose.place import with_module
from parity.pairs import hidden
from parity.pairs.accepting.evidence import Evidence
from parity.pairs.accepting.expect import apply_expected, drop_held, held, left_over
from parity.pairs.accepting.suggest import INHERENT, inherent, layout, loading, order_of_axes, suggestions
from parity.pairs.activations.matching import summary
from parity.pairs.causes import later
from parity.pairs.causes.experiment import Experiment
from parity.pairs.causes.pair_causes import (
    name_layout,
    name_pair_causes,
    name_seeds,
    question_unfilled,
    question_wiring,
)
from parity.pairs.causes.schedules import name_schedules
from parity.pairs.causes.training import name_averages, name_fitted, name_waiting, with_changing_buffers
from parity.pairs.equivalence import describe, recorded_by_both
from parity.pairs.extent import constants, few, gradients, not_run, note_counterparts, schedules, unused
from parity.pairs.one_form import as_decayed, in_torchs_form
from parity.results import CaseResult, Divergence, Verdict
from parity.trace import keys
from parity.trace.calls_alike import with_calls_alike
from parity.trace.keys import MODEL, plain
from parity.trace.manifest import Trace
from parity.trace.mapping import Mapping, Matching


def judged(reference: Trace, candidate: Trace, experiment: Experiment | None = None) -> CaseResult:
    """Compare two traces; of the two sides of one pair, apply what its file accepts. `experiment` names causes."""
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
    if (matching := candidate.manifest.matching) and not matching.returns_alike:
        reference, candidate = (hidden.without_all(each, hidden.RETURNED) for each in (reference, candidate))
    reference, candidate, traces, examination = _without_what_has_no_counterpart(
        *with_calls_alike(reference, candidate), pair, experiment
    )
    result = examination.result
    _say_what_is_compared(result, pair, mapping, traces, candidate.manifest.matching)
    name_pair_causes(examination, mapping, reference, candidate)
    name_averages(result, reference, candidate)
    name_seeds(result, reference, candidate)
    expected = held(result, pair.expect, mapping, reference.manifest.training, candidate.manifest.training)
    evidence = Evidence(traces.reference, traces.candidate, examination.unequal)
    permuted = _permuted(evidence, pair, result)
    if any(cause.id == SEED for cause in result.causes):
        experiment = None  # what is called again draws other numbers than these
    if experiment and not permuted:
        experiment = experiment._replace(traces=(reference, candidate))  # as both are compared
        _ask(experiment, _whole(examination, reference))
    name_schedules(result, reference, candidate)
    if left := _left_over(examination, expected, evidence, experiment is not None and not experiment.is_large):
        examination = examined_beyond(examination, *left, traces.reference, traces.candidate)
        drop_held(result, reference.manifest.training.held)
        if experiment:
            _ask(experiment, _whole(examination, reference))
        name_schedules(result, reference, candidate)
    result.not_compared += [*gradients(evidence.outputs()), *schedules((reference, candidate))]
    name_fitted(result, candidate, mapping)
    name_waiting(result, reference, candidate)
    apply_expected(examination, expected, evidence)
    _sort_causes(examination)
    question_unfilled(result, mapping)
    question_wiring(result, mapping)
    if result.first_divergence:
        result.first_divergence = with_module(result.first_divergence, reference.manifest.classes)
    result.suggestions = [*suggestions(result, list(reference.manifest.modules)), *loading(result, mapping)]
    for key, axes in permuted.items() if result.verdict == "diverged" else ():
        result.suggestions.append(layout(key, axes))
        name_layout(result, key, axes)
    return result


def _say_what_is_compared(
    result: CaseResult, pair: Pair, mapping: Mapping, traces: hidden.ComparedTraces, matching: Matching | None
) -> None:
    reference = traces.reference
    result.mapping, result.assumptions = mapping, traces.notes
    result.not_compared = [*not_run(pair, reference.manifest.modules), *constants(mapping, reference), *unused(mapping)]
    if matching:
        result.matched = summary(matching, traces.alone)
        result.not_compared += matching.not_compared
    note_counterparts(result, mapping, matching, reference)


def _sort_causes(examination: Examined) -> None:
    """Put the user's own causes first, and of these what is told of the first divergence; leave out what follows."""
    result = examination.result
    if result.verdict == "diverged":
        result.causes = without_followers(result.causes, examination.unequal, result.expected)
        first = result.first_divergence and plain(result.first_divergence.name)
        result.causes.sort(key=lambda cause: (cause.id in INHERENT, plain(cause.where) != first))


def _without_what_has_no_counterpart(
    reference: Trace, candidate: Trace, pair: Pair, experiment: Experiment | None
) -> tuple[Trace, Trace, hidden.ComparedTraces, Examined]:
    """Return two traces of a pair, what is compared of them, and that examined.

    What one side alone has, keeps in another form, or scales is hidden; what first tells so is examined before.
    """

    def compared(slots: Collection[str] = (), apart: Collection[str] = ()) -> tuple[hidden.ComparedTraces, Examined]:
        traces = hidden.without_one_sided(reference, candidate, pair, slots, apart)
        return traces, examined(traces.reference, traces.candidate)

    notes = list[str]()
    traces, examination = compared()
    if _is_loss_scaled(examination, reference, candidate):
        reference, candidate = (hidden.without_all(each, hidden.LOSS) for each in (reference, candidate))
        traces, examination = compared()
        traces.notes.append(
            "what the training steps differentiate is scaled on one side, or in other parts: no loss is compared"
        )
    if decayed := as_decayed(examination.unequal, reference, candidate):
        reference, candidate, note = decayed
        notes.append(note)
        traces, examination = compared()
    own = pair.train if hidden.has_own_optimizer(pair) else None
    slots = hidden.slots_in_another_form(examination, own.steps) if own else set()
    apart = hidden.with_counterparts_elsewhere(examination, reference, candidate)
    apart |= hidden.equal_by_chance(examination)
    if mapping := candidate.manifest.mapping:
        apart |= hidden.undone_flattenings(examination, mapping, reference)
    if slots or apart:
        traces, examination = compared(slots, apart)
    # What is hidden may have hidden another name of the same tensor.
    harmless: set[str] = set()
    while experiment and (new := experiment._replace(traces=(reference, candidate)).harmless(examination) - harmless):
        harmless |= new
        traces, examination = compared(slots, apart | harmless)
    if harmless:
        names = few(sorted({keys.split(key)[1] for key in harmless}))
        notes.append(f"{names} of torch: what they return differs, but not what the model makes of it")
    traces.notes.extend(notes)
    return reference, candidate, traces, examination


def _left_over(
    examination: Examined, expected: list[Expect], evidence: Evidence, is_run_again: bool
) -> tuple[Verdict, Divergence] | None:
    """Return what is left once all that is accepted is taken away, and else what is inherent too.

    What float32 does not see is none of the latter: the inherent differences make the verdict then. Nor is what differs
    in a later step behind causes to which the runs are held: `is_run_again` says that they are compared once more so.
    """
    if expected and (accepted := left_over(examination, expected, evidence)):
        return accepted
    quiet, known = _without_noise(examination, evidence), inherent(examination.result.causes)
    beyond = left_over(quiet, [*expected, *known], evidence) if known or quiet is not examination else None
    is_seen_again = is_run_again and any(each.cause in HELD for each in known)
    is_told = beyond and beyond[0] == "diverged" and not (is_seen_again and beyond[1].step)
    return beyond if is_told else None


def _without_noise(examination: Examined, evidence: Evidence) -> Examined:
    """Return an examination without the noise of float32 runs, if that is the first difference and has no cause.

    In float64 all is equal there, so that nothing follows from it, and it hides no other difference.
    """
    first = examination.result.first_divergence
    if first is None or first.bits is None or first.bits < evidence.needed:
        return examination
    sizes = ((tensor, evidence.size(tensor)) for tensor in examination.unequal if tensor.step == 0)
    noisy = {tensor: tensor.name for tensor, size in sizes if size and size.missing <= 0}
    causes = [each for each in examination.result.causes if each.id != UNKNOWN or each.where not in noisy.values()]
    return examination._replace(
        unequal=[tensor for tensor in examination.unequal if tensor not in noisy],
        result=replace(examination.result, causes=causes),
    )


def _ask(experiment: Experiment, examination: Examined) -> None:
    """Name the causes that the traces do not tell; a mistake of this program's costs no verdict, nor other pairs'."""
    try:
        experiment.name_causes(examination)
        later.name_causes(experiment, examination)
    except MemoryError:
        raise
    except Exception as error:
        examination.result.causes.append(internal_error(MODEL, ("torch", "keras"), error))


def _whole(examination: Examined, reference: Trace) -> Examined:
    """Return an examination without the tensors of which only summaries are known: models are not asked about these."""
    brief = reference.manifest.brief
    unequal = [each for each in examination.unequal if keys.stored(each.kind, each.name) not in brief]
    return examination._replace(unequal=unequal)


def _permuted(evidence: Evidence, pair: Pair, result: CaseResult) -> dict[str, str]:
    """Return the pattern of axes, by key, if Keras's only output has torch's numbers in another order of axes.

    Nothing where the pair's file or the layers tell how the model's outputs are laid out.
    """
    outputs, is_told = evidence.outputs(), bool(pair.outputs or (result.matched and result.matched.layouts))
    if result.verdict != "diverged" or is_told or len(outputs) != 1:
        return {}
    patterns = {key: order_of_axes(*sides) for key, sides in outputs.items()}
    return {key: pattern for key, pattern in patterns.items() if pattern}


def _is_loss_scaled(examination: Examined, *traces: Trace) -> bool:
    """Return whether losses differ that a step of the user's own does not return, and no gradient: they may be scaled.

    Or a step has another number of them, as a sum has that is differentiated term by term.
    """
    apart = [tensor for tensor in examination.unequal if tensor.verdict == "diverged"]
    losses = [tensor.step for tensor in apart if tensor.kind == "loss"]
    if not losses or all(trace.manifest.training.returns_loss for trace in traces):
        return False
    before = {tensor.kind for tensor in apart if tensor.step == losses[0]}
    counts = {len(trace.of_kind("loss", 0)) for trace in traces}
    return before.isdisjoint(("input", "activation", "gradient")) or len(counts) > 1

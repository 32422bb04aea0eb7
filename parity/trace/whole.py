"""The check that a trace has all steps of its case: a step that both traces lack would silently not be compared."""

from collections.abc import Iterator

from parity.config.schema import Case
from parity.core.errors import TraceError
from parity.trace import keys
from parity.trace.manifest import Trace


def check_steps(trace: Trace) -> None:
    """Raise TraceError if a replica lacks a step of a run, the state before the first step, or the evaluation."""
    facts = trace.manifest
    demanded, listed = list(_stems(trace.case)), facts.files.keys() | facts.same.keys()
    if not facts.layout.parameters:  # a model without parameters has no state before the first step
        demanded.remove(keys.INITIAL)
    for run in (*keys.RUNS[:2], *keys.RUNS[2:] * (keys.RUNS[2] in facts.runs)):
        for replica, ranks in enumerate(facts.replicas):
            held = {stem for stem in demanded if listed.intersection(f"{run}/rank-{rank}/{stem}" for rank in ranks)}
            if replica:  # nn.DataParallel creates the other replicas in every step, so they have no initial state
                held.add(keys.INITIAL)
            if lost := [stem for stem in demanded if stem not in held]:
                raise TraceError(
                    f"{trace.folder / keys.MANIFEST}: is truncated: its {run} run has no {lost[0]}, which "
                    f"{trace.case.name} with steps={trace.case.steps} must have; record the trace again"
                )


def _stems(case: Case) -> Iterator[str]:
    """Yield the stems of the files that `parity.trace.recorder` writes for a case.

    A pair without [train] has a single step and no evaluation.
    """
    yield keys.INITIAL
    trains = case.model.trains
    last = case.steps if trains else 0
    for step in range(last + 1):
        if step in (0, last - 1, last) or step % case.every == 0:
            yield keys.step_file(step)

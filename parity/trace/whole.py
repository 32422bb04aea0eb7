"""Whether a trace lists all the steps that its case demands: what neither side lists would not be compared."""

from collections.abc import Iterator

from parity.config.pair import Pair
from parity.config.schema import Case
from parity.core.errors import TraceError
from parity.trace import keys
from parity.trace.manifest import Trace


def check_steps(trace: Trace) -> None:
    """Raises TraceError where a run of a replica lacks a step, or the state before the first or the evaluation."""
    facts = trace.manifest
    demanded, listed = list(_stems(trace.case)), facts.files.keys() | facts.same.keys()
    if not facts.layout.parameters:  # a model without any has no state before the first step
        demanded.remove(keys.INITIAL)
    for run in (*keys.RUNS[:2], *keys.RUNS[2:] * (keys.RUNS[2] in facts.runs)):
        for replica, ranks in enumerate(facts.replicas):
            held = {stem for stem in demanded if listed.intersection(f"{run}/rank-{rank}/{stem}" for rank in ranks)}
            if replica:  # nn.DataParallel's other replicas are made anew in every step
                held.add(keys.INITIAL)
            if lost := [stem for stem in demanded if stem not in held]:
                raise TraceError(
                    f"{trace.folder / keys.MANIFEST}: is truncated: its {run} run has no {lost[0]}, which "
                    f"{trace.case.name} with steps={trace.case.steps} demands; record the trace again"
                )


def _stems(case: Case) -> Iterator[str]:
    """What is recorded of it, as parity.trace.recorder says; without [train] a pair has one step and no evaluation."""
    yield keys.INITIAL
    trains = not isinstance(case.model, Pair) or case.model.train is not None
    last = case.steps if trains else 0
    for step in range(last + 1):
        if step in (0, last - 1, last) or step % case.every == 0:
            yield keys.step_file(step)

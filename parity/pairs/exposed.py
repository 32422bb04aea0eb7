"""Tensors that one side of a pair happens not to record: no difference of the computation, whose result is compared.

A layer that is called in a graph, or twice where the other framework's is called once and a function does the rest,
records other tensors than its counterpart. What stands before and behind is judged; what is on one side only is told.
"""

from collections.abc import Iterator
from pathlib import Path

from parity.pairs.activations.counterparts import is_output
from parity.pairs.comparable import comparable
from parity.pairs.schema import Pair
from parity.results import CaseResult
from parity.trace import keys
from parity.trace.manifest import Tensors, Trace

INNER = ("activation", "input")
STATE = "optimizer_state"
LOW, HIGH = keys.RUNS[:2]


class Shown(Trace):
    """A trace without some tensors. `hidden`: by the stem of the step their keys, or kinds with a slash behind them."""

    def __init__(self, folder: Path, hidden: dict[str, set[str]]) -> None:
        super().__init__(folder)
        self.hidden = hidden

    def open(self, run: str, stem: str, replica: int = 0) -> Tensors:
        """The tensors of one step that are shown. Raises TraceError."""
        hidden = self.hidden.get(stem, set())
        found = super().open(run, stem, replica)
        return {
            key: array for key, array in found.items() if key not in hidden and f"{keys.split(key)[0]}/" not in hidden
        }


def shown(reference: Trace, candidate: Trace) -> tuple[Trace, Trace, dict[str, list[str]]]:
    """Both traces without the modules' tensors that one of them lacks; by the side that has them their names."""
    is_comparable = comparable(candidate.manifest.mapping, candidate.manifest.matching)
    hidden: dict[str, set[str]] = {}
    alone: dict[str, dict[str, None]] = {reference.backend: {}, candidate.backend: {}}
    for stem in reference.stems(HIGH):
        held = [{run: set(_inner(trace, run, stem)) for run in (HIGH, LOW)} for trace in (reference, candidate)]
        held[0] = {run: {key for key in found if is_comparable(key)} for run, found in held[0].items()}
        recorded = [found for side in held for found in side.values()]
        hidden[stem] = recorded[0].union(*recorded) - recorded[0].intersection(*recorded)
        for key in sorted(hidden[stem]):
            side = reference if key in held[0][HIGH] | held[0][LOW] else candidate
            alone[side.backend].setdefault(keys.split(key)[1])
    if not any(hidden.values()):
        return reference, candidate, {}
    told = {side: list(names) for side, names in alone.items() if names}
    return _with(reference, hidden), _with(candidate, hidden), told


def without_state(reference: Trace, candidate: Trace) -> tuple[Trace, Trace]:
    """Both traces without what the optimizers hold."""
    stems = {stem: {f"{STATE}/"} for stem in reference.stems(HIGH)}
    return _with(reference, stems), _with(candidate, stems)


def differs_in_state_alone(result: CaseResult, pair: Pair) -> bool:
    """Whether optimizers of the user's own hold something else, and have updated everything alike."""
    if pair.train is None or not (pair.train.torch_optimizer or pair.train.keras_optimizer):
        return False
    unequal = [kind for kind, check in result.checks.items() if check.verdict not in ("match", "subprecision")]
    return unequal == [STATE]


def _inner(trace: Trace, run: str, stem: str) -> Iterator[str]:
    """The keys of what modules were given and returned."""
    for key in trace.manifest.files.get(f"{run}/rank-0/{stem}", []):
        kind, name = keys.split(key)
        if kind in INNER and not is_output(name) and name.partition("#")[0] not in keys.MODEL_INPUTS:
            yield key


def _with(trace: Trace, hidden: dict[str, set[str]]) -> Shown:
    """The trace with more of it hidden."""
    before = trace.hidden if isinstance(trace, Shown) else {}
    stems = {*before, *hidden}
    return Shown(trace.folder, {stem: before.get(stem, set()) | hidden.get(stem, set()) for stem in stems})

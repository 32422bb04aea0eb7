"""Note in a pair's result how its tensors and weights were matched, what stands alone, and what did not run."""

from collections.abc import Iterator
from collections.abc import Mapping as Named

from parity.details import BATCHES, Counterpart
from parity.pairs.vary.variations import BATCH_SIZE
from parity.results import CaseResult, Matched
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.mapping import Mapping, Matching

SIDES = ("torch", "keras")


def note_batch_sizes(result: CaseResult, varied: bool) -> None:
    """Note in a pair's result why no other batch size was compared, if none was."""
    sizes = [each for each in result.variations if each.name.startswith(("all", BATCH_SIZE))]
    if result.extent is None or any(each.verdict != "skipped" for each in sizes):
        return
    left_out = next((each.skipped for each in sizes), "the inputs have no batch in common")
    reason = left_out if result.variations else "inputs are varied only where those given match"
    result.extent.not_run[BATCHES] = reason if varied else "--no-vary"


def note_counterparts(result: CaseResult, mapping: Mapping, matching: Matching | None, reference: Trace) -> None:
    """Note in a pair's result how each weight and tensor was matched, and which of them stand alone on a side."""
    matched = result.matched or Matched()
    alone = {"torch": matched.torch_alone, "keras": matched.keras_alone}
    if result.extent:
        recorded = result.extent.alone
        known = {side: [*recorded.get(side, ()), *alone[side]] for side in SIDES}
        result.extent.alone = _with_weights(known, mapping, reference)
    if result.details:
        result.details.counterparts = list(_counterparts(alone, mapping, matching))


def _with_weights(alone: Named[str, list[str]], mapping: Mapping, reference: Trace) -> dict[str, list[str]]:
    """Return by side the tensors without a counterpart, and the weights that have none or that the file ignores."""
    of_torch = {keys.split(key)[1] for key in reference.manifest.files.get(f"high/rank-0/{keys.INITIAL}", [])}
    weights = [(weight.side, weight.name) for weight in mapping.unplaced]
    weights += [("torch" if name in of_torch else "keras", name) for name in mapping.ignored]
    sides = {side: [*alone[side], *(name for owner, name in weights if owner == side)] for side in SIDES}
    return {side: list(dict.fromkeys(names)) for side, names in sides.items() if names}


def _counterparts(alone: Named[str, list[str]], mapping: Mapping, matching: Matching | None) -> Iterator[Counterpart]:
    """Yield the weights that were matched, then the tensors, then the tensors that stand alone."""
    for entry in mapping.entries:
        yield Counterpart(what="weight", torch=", ".join(entry.torch), keras=", ".join(entry.keras), by=entry.by)
    for match in matching.matches if matching else ():
        yield Counterpart(what="activation", torch=match.torch, keras=match.keras, by=match.by)
    for side, names in alone.items():
        for name in names:
            yield Counterpart(what="activation", **{"torch": "", "keras": "", side: name}, by="")

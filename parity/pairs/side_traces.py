"""The comparison of the traces of two sides: what both have recorded by design, and what the result says of them."""

import re
from collections.abc import Iterator
from typing import Any

from parity.config.pair import UNNAMED
from parity.config.sides import Side
from parity.details import BATCHES
from parity.pairs import hidden
from parity.pairs.file_sides import described
from parity.results import CaseResult, Cause, Finding
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.verdict.traces import side_names

NOT_VARIED = "sides are compared on the inputs of the file alone"
STATISTICS = "batch_norm"
FORWARD = ("activation", "input")
LAST = re.compile(r"[./][^./]*$")  # the name of a weight in its module
RANK = "@rank"  # ends the name of what a rank holds otherwise than the first (parity.trace.parts)


def recorded_by_both(reference: Trace, candidate: Trace) -> tuple[Trace, Trace]:
    """Return the traces of two sides without what one of them does not record, for what it is.

    Of a compiled model that is what modules are given and return. Where batches are cut, or a step is the user's own,
    it is each forward tensor that is not, whole, on both sides.
    """
    traces = reference, candidate
    without_inner = any(trace.manifest.side is not None and trace.manifest.side.is_compiled for trace in traces)
    in_parts = any(_is_in_parts(trace) for trace in traces)
    hiding: dict[str, set[str]] = {}
    for stem in reference.stems(hidden.HIGH):
        names = hiding.setdefault(stem, set())
        if without_inner:
            names |= {key for trace in traces for run in trace.manifest.runs for key in hidden.inner(trace, run, stem)}
        if in_parts:
            opened = [trace.open(hidden.HIGH, stem) for trace in traces if stem in trace.stems(hidden.HIGH)]
            shapes = [
                {key: array.shape for key, array in tensors.items() if keys.split(key)[0] in FORWARD}
                for tensors in opened
            ]
            names |= {key for key in set().union(*shapes) if len({of_side.get(key) for of_side in shapes}) > 1}
    if any(hiding.values()):
        reference, candidate = hidden.Hiding(reference, hiding), hidden.Hiding(candidate, hiding)
    if not all(trace.manifest.training.returns_loss for trace in traces):
        return hidden.without_losses(reference), hidden.without_losses(candidate)
    return reference, candidate


def _is_in_parts(trace: Trace) -> bool:
    side = trace.manifest.side
    return side is not None and (side.parts > 1 or bool(side.step))


def describe(result: CaseResult, reference: Trace, candidate: Trace) -> None:
    """Complete the result with the two sides, what was not compared of them, and what makes them differ."""
    sides = dict(zip(side_names(reference, candidate), (reference, candidate), strict=True))
    switches = {key: trace.manifest.side for key, trace in sides.items() if trace.manifest.side}
    result.sides = switches
    result.case += f"@{','.join(side.name for side in switches.values())}"
    if result.extent:
        result.extent.not_run[BATCHES] = NOT_VARIED
    for key, trace in sides.items():
        result.not_compared += _left_out(switches[key].name, trace)
        for broken in trace.manifest.training.breaks:
            message = f"torch.compile breaks the graph here: {broken}"
            result.findings.append(Finding(id="compile.graph_break", side=key, where=keys.MODEL, message=message))
    if result.verdict not in ("diverged", "subprecision"):
        return
    switched = list(_switched(result, sides, switches))
    if switched or reference.backend == candidate.backend:
        result.causes = [cause for cause in result.causes if cause.id not in UNNAMED and RANK not in cause.where]
        result.causes += [*_unequal_ranks(sides), *switched]


def _left_out(name: str, trace: Trace) -> Iterator[str]:
    """Yield what was not compared because of how a side runs."""
    if by := trace.manifest.training.compiled:
        yield f"{name} is compiled by {by}: what its inner modules return was not compared"
    if not trace.manifest.training.returns_loss:
        yield f"{name} runs a training step that returns no loss: no loss is compared"
    if trace.manifest.side and trace.manifest.side.parts > 1:
        yield f"{name} runs each batch in {trace.manifest.side.parts} parts: their tensors were joined along dim 0"


def _unequal_ranks(sides: dict[str, Trace]) -> Iterator[Cause]:
    """Yield what ranks that train together hold otherwise than the first one, where all should hold the same."""
    for key, trace in sides.items():
        for file, listed in sorted(trace.manifest.files.items()):
            for kind, name in (keys.split(each) for each in listed if RANK in each and file.startswith(hidden.HIGH)):
                plain, _, rank = name.partition(RANK)
                evidence = f"rank {rank} holds another {kind} than rank 0, first in {file.rpartition('/')[2]}"
                value: dict[str, Any] = {key: f"differs on rank {rank}"}
                yield Cause(id="sides.ranks", where=plain, evidence=evidence, **value)
                return


def _switched(result: CaseResult, sides: dict[str, Trace], switches: dict[str, Side]) -> Iterator[Cause]:
    """Yield the cause that the switches of two sides of one framework are: nothing else differs between them.

    Between two frameworks it is one where a batch norm runs on other parts of a batch.
    """
    first, modules = result.first_divergence, next(iter(sides.values())).manifest.modules
    if first is None:
        return
    module = first.name if first.kind == "activation" else LAST.sub("", first.name)
    is_norm, is_port = modules.get(module) == STATISTICS, len({trace.backend for trace in sides.values()}) > 1
    if is_port and not (is_norm and first.kind == "activation" and len({side.parts for side in switches.values()}) > 1):
        return
    evidence = "the two sides differ in nothing else: one model, weights, data and masks"
    if is_norm and any(map(_is_in_parts, sides.values())):
        evidence = "in training it normalises by the statistics of its batch, which are those of a part of it here"
    elif is_norm and first.kind == "buffer":
        evidence = "its forward pass runs again in the backward pass, and updates the statistics a second time"
    base, rest = (trace.manifest.versions | trace.manifest.environment for trace in sides.values())
    if not is_port and (
        apart := [f"{name} {base[name]} against {rest.get(name)}" for name in base if base[name] != rest.get(name)]
    ):
        evidence = f"they differ in {', '.join(apart)} as well"
    values: dict[str, Any] = {key: described(side) for key, side in switches.items()}
    yield Cause(id="sides.switch", where=first.name, evidence=evidence, **values)

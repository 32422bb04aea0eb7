"""Sides of a pair's file: ways to run one model that must be the same computation, each judged against the first.

Which of them the file declares, and are compared; what the traces of two of them both hold by design; and what the
result says of them.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from parity.config import cases
from parity.config.pair import UNNAMED, UNUSED, Pair
from parity.config.schema import Case
from parity.config.sides import KINDS, PLAIN, Side, unknown
from parity.core.errors import UsageError, nearest
from parity.core.script import is_script
from parity.details import BATCHES
from parity.pairs import hidden
from parity.pairs.weights.show import toml_value
from parity.results import CaseResult, Cause, Finding
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.verdict.traces import side_names

Table = dict[str, Any]
NOT_VARIED = "sides are compared on the inputs of the file alone"
STATISTICS = "batch_norm"
FORWARD = ("activation", "input")
LAST = re.compile(r"[./][^./]*$")  # the name of a weight in its module
RANK = "@rank"  # ends the name of what a rank holds otherwise than the first (parity.trace.parts)


class NoSideError(UsageError):
    """A name of --sides that no side of the file has."""


def chosen(path: Path, tables: Any, names: Sequence[str]) -> tuple[Side, ...]:
    """Return the sides that are compared. Raises UsageError if a side's table or a name cannot be used."""
    if not isinstance(tables, dict):
        raise UsageError(f"{path}: sides is {tables!r}, expected sections such as [sides.accumulated]")
    declared = {**PLAIN, **{name: _side(f"{path}: [sides.{name}]", name, table) for name, table in tables.items()}}
    if not names:
        return ()
    if missing := [name for name in names if name not in declared]:
        raise NoSideError(
            f"{path}: there is no side {missing[0]!r}{nearest(missing[0], declared)}; it has the sides "
            f"{', '.join(declared)}; declare another one as [sides.{missing[0] or 'NAME'}]"
        )
    if len(set(names)) < max(len(names), 2):
        raise NoSideError(f"{path}: received --sides={','.join(names)}, expected two or more different sides")
    return tuple(declared[name] for name in names)


def _side(where: str, name: str, table: Any) -> Side:
    if not isinstance(table, dict):
        raise UsageError(f"{where}: received {table!r}, expected a section")
    if problem := unknown(name, table):
        raise UsageError(f"{where}: {problem}")
    kind = KINDS[table.get("framework", "torch")]
    side = replace(cases.checked({"framework": kind.__struct_config__.tag, **table}, kind, where), name=name)
    if side.python and shutil.which(side.python) is None:
        raise UsageError(
            f"{where}: python = {side.python!r}: there is no such program; expected a Python interpreter with "
            f"{side.framework} and this package's requirements"
        )
    return side


def completed(table: Table, sides: Sequence[Side]) -> Table:
    """Return the table of a pair with what it lacks of a framework that none of the sides runs in."""
    others = KINDS.keys() - {side.framework for side in sides} if sides else set()
    for absent in others:
        pair, train = table.get("pair"), table.get("train")
        if isinstance(pair, dict):
            table = {**table, "pair": {absent: UNUSED, **pair}}
        if isinstance(train, dict):
            given = [own for own in ("loss", "optimizer") if {f"torch_{own}", f"keras_{own}"} & train.keys()]
            table = {**table, "train": {**{f"{absent}_{what}": UNUSED for what in given}, **train}}
    return table


def check(path: Path, sides: Sequence[Side], case: Case) -> None:
    """Raise UsageError for a side with a switch that this pair has no use for."""
    assert isinstance(case.model, Pair)
    for side in sides:
        if problem := next(_problems(side, case.model), None):
            raise UsageError(f"{path}: [sides.{side.name}]: {problem}")


def _problems(side: Side, pair: Pair) -> Iterator[str]:
    """Yield which switches of a side this pair has no use for, and why."""
    own = getattr(pair, side.framework)
    if not pair.train and side.needs_training:
        yield f"{side.needs_training[0]} changes a training, and this pair has none; add a section [train]"
    if side.script and not (is_script(side.script) and is_script(own)):
        yield (
            f"script = {side.script!r} is to take the place of {side.framework} = {own!r} in [pair]; expected two "
            'training scripts, such as "train.py"'
        )
    if side.is_sharded and is_script(own):
        yield "fsdp shards a model before its optimizer is made, and a script makes both; expected a builder"
    if side.accumulate > 1 and is_script(own):
        yield (
            "accumulate cuts the batches of a plain step, and a script's steps are its own; give the side a script "
            'that accumulates, as script = "train.py --accumulate=2"'
        )
    if side.accumulate > 1 and pair.train and getattr(pair.train, f"{side.framework}_step"):
        yield (
            f"accumulate cuts the batches of a plain step, and {side.framework}_step is one of your own; give the side "
            'a step that accumulates, as step = "module:function"'
        )


def described(side: Side) -> str:
    """Return a side's switches in words, as they are written in the file."""
    return ", ".join(f"{key} = {toml_value(value)}" for key, value in side.changes.items()) or "plain run"


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
        reference, candidate = hidden.without(reference, hiding), hidden.without(candidate, hiding)
    if not all(trace.manifest.training.returns_loss for trace in traces):
        return hidden.without_all(reference, hidden.LOSS), hidden.without_all(candidate, hidden.LOSS)
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
    if len({described(side) for side in switches.values()}) == 1:
        evidence = "weights, data and masks are the same: the script, or what it imports, has changed between the two"
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

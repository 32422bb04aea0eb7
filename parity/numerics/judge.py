"""Two traces of one case, compared tensor by tensor in execution order."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from parity.errors import TraceError
from parity.layout.compare import compare_layouts
from parity.numerics import kernel
from parity.numerics.kernel import Array
from parity.numerics.statistics import describe, furthest
from parity.numerics.steps import Step, is_whole, steps
from parity.numerics.verdict import FAR_NOISIER, GROSS, NOISIER, VISIBLE, Judge, Judgement
from parity.pairs.survey import OUTPUT
from parity.results import CaseResult, Check, Divergence, Finding, Verdict, worst
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.pages import blocks, equal

FORWARD = ("input", "activation", "loss")
DIVERGED = Judgement("diverged", None, by_bits=False)
MATCH = Judgement("match", None, by_bits=False)


class Unequal(NamedTuple):
    """A tensor that is not a match. `step` is None before the first."""

    step: int | None
    replica: int
    kind: str
    name: str


class Judged(NamedTuple):
    """The verdict on a case, and what it was passed on.

    `unequal`: every tensor that is not a match, in execution order. `noisier`: by side, the tensors of step 0
    that are noisier than the other side's at the run precision, however far.
    """

    result: CaseResult
    unequal: list[Unequal]
    noisier: dict[str, list[str]]


def compare(reference: Trace, candidate: Trace) -> CaseResult:
    """The verdict on a case alone."""
    return judge(reference, candidate).result


def judge(reference: Trace, candidate: Trace) -> Judged:
    """The verdict on a case. Raises TraceError where the traces are not of the same case and data."""
    names = side_names(reference, candidate)
    for what, one, other in (
        ("cases", reference.case, candidate.case),
        ("data", reference.manifest.data, candidate.manifest.data),
    ):
        if one != other:
            raise TraceError(
                f"the traces are of different {what}: {difference(one, other)} "
                f"({reference.folder}, {candidate.folder}); record both with the same flags"
            )
    if reference.replicas != candidate.replicas:
        raise TraceError(
            f"{names[0]} trained {reference.replicas} replicas, {names[1]} {candidate.replicas} "
            f"({reference.folder}, {candidate.folder}); record both with the same --devices"
        )
    comparison = _Comparison(names, reference.case.precision)
    for step, replicas in steps(reference, candidate):
        comparison.step(step, replicas)
    if not comparison.checks:
        raise TraceError(f"{reference.folder} and {candidate.folder} hold no tensor that could be compared")
    layout = compare_layouts(names, reference, candidate)
    traces = reference, candidate
    first = comparison.first.get("diverged") or comparison.first.get("subprecision")
    result = CaseResult(
        case=reference.case.name,
        verdict=worst([layout.verdict, *comparison.first]),
        reason=first.reason if first else "; ".join(layout.differences[:1]),
        first_divergence=first,
        checks={**comparison.checks, "layout": layout},
        findings=comparison.findings(),
        lifted=[
            f"{name}: {place}" for name, trace in zip(names, traces, strict=True) for place in trace.manifest.lifted
        ],
        devices={name: trace.manifest.layout.devices for name, trace in zip(names, traces, strict=True)},
        casts={name: _casts(trace) for name, trace in zip(names, traces, strict=True) if trace.mixed},
    )
    return Judged(result, comparison.unequal, comparison.noisy)


def side_names(reference: Trace, candidate: Trace) -> tuple[str, str]:
    """What the two sides are called: their backends, or their roles if both are of one."""
    if reference.backend == candidate.backend:
        return "reference", "candidate"
    return reference.backend, candidate.backend


class _Comparison:
    """What was found so far. `recorded`: the last step that recorded parameters, and each replica's."""

    def __init__(self, names: tuple[str, str], low: str) -> None:
        self.names = names
        self.judge = Judge(low)
        self.checks: dict[str, Check] = {}
        self.first: dict[Verdict, Divergence] = {}
        self.unequal: list[Unequal] = []
        self.recorded: tuple[int | None, list[Step]] = (None, [])
        self.noisier: dict[str, list[tuple[str, float]]] = {}
        self.noisy: dict[str, list[str]] = {}
        self.outputs: list[str] = []  # of the whole model, in the first step
        self._told = False  # whether one of them has a number that could be wrong
        self._replica = 0
        self._exploded = False  # the loss of both sides is not finite any more

    def step(self, step: int | None, replicas: list[Step]) -> None:
        """Judge every tensor of one step, those of replicas in the order in which they happened."""
        order = [(replica, key) for replica, files in enumerate(replicas) for key in files.in_order()]
        if len(replicas) > 1:
            order.sort(key=lambda place: keys.place(place[1]))
        for replica, key in order:
            # What replicas share bit by bit, as parameters after a reduction, is judged once.
            if replica == 0 or not replicas[replica].repeats(key, replicas[0]):
                self._replica = replica
                self._tensor(step, key, replicas[replica])
        if any(key.startswith("parameter/") for key in replicas[0].reference_high):
            self.recorded = step, replicas

    def _tensor(self, step: int | None, key: str, files: Step) -> None:
        kind, name = keys.split(key)
        if mismatch := files.mismatch(key, self.names):
            self._note(step, kind, name, DIVERGED, mismatch, files)
            return
        if is_whole(files.reference_high[key]) or is_whole(files.candidate_high[key]):
            self._judge_whole(step, kind, name, files)
            return
        if step == 0 and kind == "activation" and name.startswith(OUTPUT):
            self.outputs.append(name)
            self._told |= any(_tells(file[key]) for file in files[:2])
        spread = kernel.measure(files.runs(key))
        recorded, before = self.recorded
        if kind == "parameter" and before and before[self._replica].holds(key, files.reference_high[key].shape):
            update = kernel.measure(files.changes(key, before[self._replica]))
            # Every step since has stored the parameter once.
            stored = spread.scale * max((step or 0) - (recorded or 0), 1)
            self._judge(step, keys.UPDATE, name, update, files, stored)
        self._judge(step, kind, name, spread, files)

    def findings(self) -> list[Finding]:
        """One remark for each side whose low run is noisier than it should be, and one if the outputs say nothing."""
        return [*self._noise(), *(self._vacuous() if self.outputs and not self._told else [])]

    def _vacuous(self) -> Iterator[Finding]:
        message = "the model's outputs are zero, or not finite, everywhere: whatever went before, they would agree"
        yield Finding(id="comparison.vacuous", side=" and ".join(self.names), where=self.outputs[0], message=message)

    def _noise(self) -> list[Finding]:
        return [
            Finding(
                id="precision.noise",
                side=side,
                where=tensors[0][0],
                message=f"{side}'s {self.judge.low} run is {tensors[0][1]:.1f} bits noisier than the other's "
                f"(the first of {len(tensors)} such tensors)",
            )
            for side, tensors in self.noisier.items()
        ]

    def _judge(
        self, step: int | None, kind: str, name: str, spread: kernel.Spread, files: Step, stored: float = 0.0
    ) -> None:
        judgement, reason = self.judge.high(spread, stored, forward=step == 0 and kind in FORWARD), ""
        # Later low runs may part for good when a training explodes, one side a step before the other; and behind
        # a loss that is infinite on both sides it is chance what becomes infinity and what NaN.
        if not ((spread.same_nonfinite or self._exploded) and (spread.same_nonfinite_low or step)):
            judgement, reason = DIVERGED, "NaN or infinity at different positions"
        elif step == 0 and judgement.verdict == "match" and self._noise_tells(kind, name, files):
            judgement, reason = self._judge_noise(keys.key(kind, name), spread, judgement)
        if judgement.verdict != "match" and not reason:
            reason = (
                f"{spread.difference:.1e} apart in float64, {spread.difference / spread.scale:.1e} of the largest "
                f"value: {max(judgement.bits or 0.0, 0.0):.1f} bits, {self.judge.needed} needed"
            )
        self._note(step, kind, name, judgement, reason, files)
        if kind == "loss":
            key = keys.key(kind, name)
            self._exploded |= not any(np.isfinite(file[key]).any() for file in files[:2])

    def _judge_whole(self, step: int | None, kind: str, name: str, files: Step) -> None:
        """Integers and truth values: equal or not, in the high runs and in the low ones."""
        key = keys.key(kind, name)
        pairs = (files[:2], files[2:4])
        same = all(equal(reference[key], candidate[key]) for reference, candidate in pairs)
        self._note(step, kind, name, MATCH if same else DIVERGED, "" if same else "whole numbers differ", files)

    def _noise_tells(self, kind: str, name: str, files: Step) -> bool:
        """Whether the low runs of this tensor are to be judged as well: forward and backward."""
        if kind == "activation":
            for side, (high, low) in enumerate(zip(files[:2], files[2:4], strict=True)):
                key = keys.key(kind, name)
                self.judge.kinks[side] += kernel.sign_changes(high[key], low[key])
        return kind in ("activation", "gradient")

    def _judge_noise(self, key: str, spread: kernel.Spread, judgement: Judgement) -> tuple[Judgement, str]:
        """The low runs, each side against its own high run."""
        noisier, size = self.judge.noisier(spread)
        side = self.names[noisier > 0]
        if abs(noisier) > NOISIER:
            self.noisy.setdefault(side, []).append(key)
        blind = key.startswith("gradient/") and not self.judge.gradients_tell
        if abs(noisier) > FAR_NOISIER and size > (GROSS if blind else VISIBLE):
            reason = f"{side}'s {self.judge.low} run is {abs(noisier):.1f} bits noisier than the other's"
            return judgement._replace(verdict="diverged"), reason
        if abs(noisier) > NOISIER and not blind:
            self.noisier.setdefault(side, []).append((key, abs(noisier)))
        return judgement, ""

    def _note(self, step: int | None, kind: str, name: str, judgement: Judgement, reason: str, files: Step) -> None:
        check = self.checks.setdefault(kind, Check())
        check.compared += 1
        check.verdict = worst([check.verdict, judgement.verdict])
        bits = judgement.bits
        if judgement.by_bits and bits is not None and (check.worst_bits is None or bits < check.worst_bits):
            check.worst_bits, check.worst_name, check.worst_step = bits, name, step
        if judgement.verdict == "match":
            return
        self.unequal.append(Unequal(step, self._replica, kind, name))
        if judgement.verdict not in self.first:
            place = Divergence(step=step, kind=kind, name=name, replica=self._replica, bits=bits, reason=reason)
            self.first[judgement.verdict] = self._described(place, files)

    def _described(self, place: Divergence, files: Step) -> Divergence:
        """The place with what stands there on both sides (the parameter itself for an update)."""
        key = keys.key("parameter" if place.kind == keys.UPDATE else place.kind, place.name)
        arrays = {
            name: file[key]
            for name, file in zip(self.names, (files.reference_high, files.candidate_high), strict=True)
            if key in file
        }
        shapes = {array.shape for array in arrays.values()}
        index = furthest(*arrays.values()) if len(arrays) == 2 and len(shapes) == 1 else None
        place.index = index or []
        place.sides = {name: describe(array, index) for name, array in arrays.items()}
        return place


def _tells(array: Array) -> bool:
    """Whether some number is neither zero nor NaN nor infinite."""
    return any(bool((np.isfinite(block) & (block != 0)).any()) for (block,) in blocks(array))


def _casts(trace: Trace) -> dict[str, list[str]]:
    """The modules by the dtype of what they returned in the low run."""
    casts: dict[str, list[str]] = {}
    for key, array in trace.open("low", keys.step_file(0)).items():
        kind, name = keys.split(key)
        if kind == "activation":
            casts.setdefault(str(array.dtype), []).append(name)
    return casts


def difference(one: object, other: object) -> str:
    """The first field in which two configs or tables differ."""
    fields = one if isinstance(one, dict) else getattr(one, "__struct_fields__", ())
    for field in fields:
        values = [side.get(field) if isinstance(side, dict) else getattr(side, field) for side in (one, other)]
        if values[0] != values[1]:
            return f"{field} is {values[0]!r} against {values[1]!r}"
    return f"{one!r} against {other!r}"

"""The comparison of two traces of one case, tensor by tensor in execution order."""

from typing import NamedTuple

import msgspec
import numpy as np

from parity.config.schema import Case
from parity.core.errors import TraceError
from parity.core.groups import by_key
from parity.core.wording import count
from parity.layout import compare_layouts
from parity.results import RANKING, CaseResult, Check, Divergence, Verdict, worst
from parity.trace import keys, summary
from parity.trace.manifest import Trace
from parity.trace.summary import Summary
from parity.trace.tensorfile import equal
from parity.trace.training import Training
from parity.verdict import kernel
from parity.verdict.details import Collector, Evidence
from parity.verdict.kernel import Runs, Spread
from parity.verdict.low_runs import LowRuns
from parity.verdict.rule import SUBPRECISION, VISIBLE, WITNESS, Rule, TensorVerdict
from parity.verdict.steps import Step, StepTensor, describe, furthest, is_whole, steps

FIRST = ("input", "activation", "loss", "gradient")  # the kinds of the forward and backward pass
FEW = "a few elements of this tensor are further apart in float64 than float32 hides, as their summary shows"


class Unequal(NamedTuple):
    """A tensor that is not a match; `step` is None for the state before the first step.

    `turn`: the number of the optimizer's turn that it belongs to, if it depends on updates of the same step, else 0.
    """

    step: int | None
    replica: int
    kind: str
    name: str
    verdict: Verdict = "diverged"
    turn: int = 0

    @property
    def parameter(self) -> str:
        """Return the parameter that it is, that it belongs to, or whose slot of an optimizer it is."""
        return keys.parameter(self.kind, self.name)

    def divergence(self, reason: str, bits: float | None = None) -> Divergence:
        """Return it as the first tensor that differs."""
        return Divergence(self.step, self.kind, self.name, self.replica, bits, reason)


class Comparison(NamedTuple):
    """The result of comparing two traces, and the tensors that the diagnosis needs."""

    result: CaseResult
    unequal: list[Unequal]  # all tensors that are not a match, in execution order
    # By side, the tensors of step 0 whose low runs are noisier than the other side's or than rounding explains.
    noisier: dict[str, list[str]]
    update: Divergence | None = None  # the first update that diverged


def compare(reference: Trace, candidate: Trace, low_runs: bool = True) -> CaseResult:
    """Compare two traces, and return only the result."""
    return compare_traces(reference, candidate, low_runs).result


def compare_traces(reference: Trace, candidate: Trace, low_runs: bool = True) -> Comparison:
    """Compare two traces tensor by tensor. Raises TraceError if they are not of the same case and data.

    `low_runs`: whether the low runs get verdicts of their own, besides being the noise for those of the high runs.
    """
    names = side_names(reference, candidate)
    _check_comparable(names, reference, candidate)
    comparison = _Comparison(names, reference.case, low_runs, reference.manifest.training)
    with np.errstate(all="ignore"):  # numbers that are not finite get verdicts, not warnings
        for step, replicas in steps(reference, candidate):
            comparison.step(step, replicas)
    if not comparison.checks:
        raise TraceError(f"{reference.folder} and {candidate.folder} hold no tensor that could be compared")
    comparison.evidence.claim(reference, comparison.checks)
    result = _result(comparison, reference, candidate)
    return Comparison(result, comparison.unequal, comparison.low_runs.noisier, comparison.update)


def _check_comparable(names: tuple[str, str], reference: Trace, candidate: Trace) -> None:
    """Raise a TraceError if two traces are not of the same case, data and number of replicas."""
    for what, left, right in (
        ("cases", reference.case, candidate.case),
        ("data", reference.manifest.data, candidate.manifest.data),
    ):
        if left != right:
            raise TraceError(
                f"the traces are of different {what}: {difference(left, right)} "
                f"({reference.folder}, {candidate.folder}); record both with the same flags"
            )
    if reference.replicas != candidate.replicas:
        raise TraceError(
            f"{names[0]} trained {count(reference.replicas, 'replica')}, {names[1]} {candidate.replicas} "
            f"({reference.folder}, {candidate.folder}); record both with the same --devices"
        )


def _result(comparison: "_Comparison", reference: Trace, candidate: Trace) -> CaseResult:
    """Return the result of a comparison that has seen every step, with the device layouts compared."""
    layout = compare_layouts(comparison.names, reference, candidate)
    traces = dict(zip(comparison.names, (reference, candidate), strict=True))
    first = next((comparison.first[verdict] for verdict in reversed(RANKING) if verdict in comparison.first), None)
    unjudged: list[Verdict] = ["inconclusive"] if comparison.evidence.unjudged else []
    return CaseResult(
        case=reference.case.name,
        verdict=worst([layout.verdict, *comparison.first, *unjudged]),
        reason=first.reason if first else "; ".join([*layout.differences[:1], *comparison.evidence.unjudged]),
        first_divergence=first,
        checks={**comparison.checks, "layout": layout},
        findings=[*comparison.evidence.findings, *comparison.low_runs.findings()],
        lifted=[f"{name}: {place}" for name, trace in traces.items() for place in trace.manifest.lifted],
        devices={name: trace.manifest.layout.devices for name, trace in traces.items()},
        # The modules by the dtype of the tensors that they returned in the low run.
        casts={
            name: by_key((str(array.dtype), module) for module, array in trace.of_kind("activation", 0, "low").items())
            for name, trace in traces.items()
            if trace.case.precision != "float32"
        },
        resolved=msgspec.to_builtins(reference.case),
        data=reference.manifest.data,
        extent=comparison.collector.extent(reference),
        details=comparison.collector.details,
    )


def side_names(reference: Trace, candidate: Trace) -> tuple[str, str]:
    """Return the names of the two sides: their backends, or "reference" and "candidate" if these are the same."""
    if reference.backend == candidate.backend:
        return "reference", "candidate"
    return reference.backend, candidate.backend


class _Comparison:
    """The state of a comparison; `recorded` is the last step with parameters, and its tensors by replica."""

    def __init__(self, names: tuple[str, str], case: Case, low_runs: bool, training: Training) -> None:
        self.names, self._turn = names, training.turn
        self.rule = Rule(case.precision)
        self.evidence = Evidence(names, case)
        self.collector = Collector(names, self.rule)
        self.low_runs = LowRuns(names, self.rule)
        self._judges_low_runs = low_runs
        self.checks: dict[str, Check] = {}
        self.first: dict[Verdict, Divergence] = {}
        self.update: Divergence | None = None
        self.unequal: list[Unequal] = []
        self.recorded: tuple[int | None, list[Step]] = (None, [])
        self._drift: float | None = None  # by how much rounding moves the current step's gradients, relatively

    def step(self, step: int | None, replicas: list[Step]) -> None:
        """Compare all tensors of a step, those of all replicas in execution order."""
        self._drift = None
        self.collector.losses(replicas)
        order = [(replica, key) for replica, files in enumerate(replicas) for key in files.in_order()]
        if len(replicas) > 1:
            order.sort(key=lambda place: keys.place(place[1]))
        order.sort(key=lambda entry: self._turn(*keys.split(entry[1])))
        for replica, key in order:
            # Tensors that are bitwise equal in all replicas, such as parameters after a reduction, are compared once.
            if replica == 0 or not replicas[replica].repeats(key, replicas[0]):
                self._tensor(StepTensor(step, replica, *keys.split(key), replicas[replica]))
        if any(key.startswith("parameter/") for key in replicas[0].reference_high):
            self.recorded = step, replicas

    def _tensor(self, tensor: StepTensor) -> None:
        step, replica, kind, _, files = tensor
        key = tensor.key
        if mismatch := files.mismatch(key, self.names):
            self._note(tensor, TensorVerdict("diverged"), mismatch)
            return
        if is_whole(files.reference_high[key]) or is_whole(files.candidate_high[key]):
            self._judge_whole(tensor)
            return
        self.evidence.saw(step, key, files)
        spread = kernel.measure(files.runs(key), self.rule.low)
        if self.rule.excuses and not self.rule.reproduces(spread, files.moved.get(key, 0.0)):
            self.rule.excuses = False
            self.evidence.not_reproducible(step, key, files.moved[key])
        recorded, before = self.recorded
        if kind == "parameter" and before and before[replica].holds(key, files.reference_high[key].shape):
            changes = files.changes(key, before[replica])
            # Each step since then has rounded the parameter once when it stored it.
            stored = spread.scale * max((step or 0) - (recorded or 0), 1)
            self._judge(tensor._replace(kind=keys.UPDATE), kernel.measure(changes, self.rule.low), changes, stored)
        self._judge(tensor, spread, files.runs(key))

    def _judge(self, tensor: StepTensor, spread: Spread, runs: Runs, stored: float = 0.0) -> None:
        step, kind = tensor.step, tensor.kind
        first = step == 0 and kind in FIRST and not self._turn(kind, tensor.name)
        low = self._judges_low_runs and step == 0 and kind in (*FIRST, "buffer", keys.UPDATE)
        verdict, reason = self.rule.high(spread, stored, kind, first), ""
        forced, why = self.evidence.lost(step, kind, spread)
        if worst([forced, verdict.verdict]) != verdict.verdict:
            verdict, reason = TensorVerdict(forced), why
        elif verdict.verdict == "match" and low:
            if reason := self.low_runs.check(tensor.key, spread, runs, stored):
                verdict = verdict._replace(verdict="diverged")
        elif verdict.verdict != "match" and step and (self.evidence.low_exploded or self._parted(spread, tensor.files)):
            verdict, reason = verdict._replace(verdict="inconclusive"), self.evidence.low_exploded
        elif verdict.verdict == "subprecision" and _is_visible(spread, runs):
            verdict, reason = verdict._replace(verdict="diverged"), FEW
        if verdict.verdict != "match" and not reason:
            reason = self.rule.reason(spread, verdict)
        self._note(tensor, verdict, reason, spread)

    def _parted(self, spread: Spread, files: Step) -> bool:
        """Return whether the two trainings have drifted apart by rounding alone, as far as this tensor differs.

        The median of this step's gradients shows the drift; the witness of the tensor itself may be small by luck.
        """
        if self._drift is None:
            gradients = (key for key in files.reference_high if key.startswith("gradient/"))
            reduced = (key for key in gradients if not key.endswith(keys.LOCAL))
            held = (key for key in reduced if files.holds(key, files.reference_high[key].shape))
            spreads = [kernel.measure(files.runs(key)) for key in held]
            self._drift = float(np.median([each.witness / each.scale for each in spreads if each.scale] or [0.0]))
        return VISIBLE < spread.difference / (spread.scale or 1.0) <= WITNESS * self._drift

    def _judge_whole(self, tensor: StepTensor) -> None:
        """Compare integers and booleans, which must be equal in the high runs and in the low runs."""
        reason, files = "", tensor.files
        for run, (reference, candidate) in (("float64", files.highs), (self.rule.low, files.lows)):
            if not reason and not equal(reference[tensor.key], candidate[tensor.key]):
                reason = f"whole numbers differ, of the {run} runs"
        self._note(tensor, TensorVerdict("diverged" if reason else "match"), reason)

    def _note(self, tensor: StepTensor, verdict: TensorVerdict, reason: str, spread: Spread | None = None) -> None:
        step, replica, kind, name, files = tensor
        self.collector.tensor(tensor, verdict, spread)
        check = self.checks.setdefault(kind, Check())
        check.compared += 1
        check.verdict = worst([check.verdict, verdict.verdict])
        bits = verdict.bits
        if verdict.by_bits and bits is not None and (check.worst_bits is None or bits < check.worst_bits):
            check.worst_bits, check.worst_name, check.worst_step = bits, name, step
        if verdict.excused:
            check.excused += 1
            check.excused_most = max(check.excused_most or 0.0, verdict.excused)
        self.evidence.parted[kind] += verdict.excused > SUBPRECISION
        if verdict.verdict == "match":
            return
        unequal = Unequal(step, replica, kind, name, verdict.verdict, self._turn(kind, name))
        self.unequal.append(unequal)
        is_update = self.update is None and kind == keys.UPDATE and verdict.verdict == "diverged"
        if verdict.verdict not in self.first or is_update:
            divergence = unequal.divergence(reason, bits)
            self._describe(divergence, files, verdict.largest)
            self.first.setdefault(verdict.verdict, divergence)
            self.update = divergence if is_update else self.update

    def _describe(self, divergence: Divergence, files: Step, largest: float) -> None:
        """Complete a divergence with the values and statistics of both sides: of the low runs if only these differ.

        Of an update they are the parameter's. `largest`: the magnitude of the elements that the verdict is about.
        """
        key = keys.stored(divergence.kind, divergence.name)
        low = f"of the {self.rule.low} runs" in divergence.reason
        sides = zip(self.names, files.lows if low else files.highs, strict=True)
        arrays = {name: file[key] for name, file in sides if key in file}
        if any(isinstance(array, Summary) for array in arrays.values()):
            return
        has_both = len(arrays) == 2 and len({array.shape for array in arrays.values()}) == 1
        index = furthest(*arrays.values(), magnitude=largest) if has_both else None
        divergence.index = index or []
        divergence.sides = {name: describe(array, index) for name, array in arrays.items()}


def _is_visible(spread: Spread, runs: Runs) -> bool:
    """Return whether float32 may see a difference of summaries, because only a few of the elements differ.

    Beside the sums of many elements an element's difference is smaller than beside the elements themselves.
    """
    left, right = runs.reference_high, runs.candidate_high
    if not isinstance(left, Summary) or not isinstance(right, Summary):
        return False
    is_large = spread.difference > SUBPRECISION * summary.largest(left, right)
    return is_large and summary.is_concentrated(left, right)


def difference(left: object, right: object) -> str:
    """Return a text on the first field in which two configs or dicts differ."""
    fields = left if isinstance(left, dict) else getattr(left, "__struct_fields__", ())
    for field in fields:
        values = [side.get(field) if isinstance(side, dict) else getattr(side, field) for side in (left, right)]
        if values[0] != values[1]:
            return f"{field} is {values[0]!r} against {values[1]!r}"
    return f"{left!r} against {right!r}"

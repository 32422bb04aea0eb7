"""Two traces of one case, compared tensor by tensor in execution order."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from parity.errors import TraceError
from parity.layout.compare import compare_layouts
from parity.numerics import kernel
from parity.numerics.kernel import Array
from parity.numerics.precision import ROUNDOFF
from parity.numerics.statistics import describe, furthest
from parity.numerics.steps import Step, is_whole, steps
from parity.numerics.verdict import FAR_NOISIER, GROSS, NOISIER, SUBPRECISION, VISIBLE, WITNESS, Judge, Judgement
from parity.pairs.survey import OUTPUT
from parity.results import RANKING, CaseResult, Check, Divergence, Finding, Verdict, worst
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.pages import blocks, equal
from parity.trace.repeat import BEYOND

FIRST = ("input", "activation", "loss", "gradient")  # kinds of a forward and a backward pass
CLAIMED = ("activation", "loss", "gradient", "parameter")  # kinds that a match says something about
JUDGED_FINITE = ("activation", "loss", "gradient", "parameter", "buffer", "optimizer_state")
FEW = 64  # a part of the elements that a switched rounding or comparison may change: one of so many
DIVERGED = Judgement("diverged", None, by_bits=False)
INCONCLUSIVE = Judgement("inconclusive", None, by_bits=False)
MATCH = Judgement("match", None, by_bits=False)


class Unequal(NamedTuple):
    """A tensor that is not a match. `step` is None before the first."""

    step: int | None
    replica: int
    kind: str
    name: str


class Noise(NamedTuple):
    """By how many bits a side's low run is noisier, in which tensor, and than what."""

    side: str
    key: str
    bits: float
    than: str


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
    comparison.claim(reference)
    first = next((comparison.first[verdict] for verdict in reversed(RANKING) if verdict in comparison.first), None)
    unjudged: list[Verdict] = ["inconclusive"] if comparison.unjudged else []
    result = CaseResult(
        case=reference.case.name,
        verdict=worst([layout.verdict, *comparison.first, *unjudged]),
        reason=first.reason if first else "; ".join([*layout.differences[:1], *comparison.unjudged]),
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
        self.noisier: dict[str, list[Noise]] = {}
        self.noisy: dict[str, list[str]] = {}
        self.outputs: list[str] = []  # of the whole model, in the first step
        self._told_something = False  # whether one of them has a number that could be wrong
        self.not_reproducible: list[Finding] = []
        self.unjudged: list[str] = []  # what could not be judged, in words
        self._only_excused: Counter[str] = Counter()  # tensors of a kind that rounding moves visibly
        self._replica = 0
        self._exploded = False  # the loss of both sides is not finite any more
        self._drift: float | None = None  # how far rounding moves the gradients of the present step, relatively

    def step(self, step: int | None, replicas: list[Step]) -> None:
        """Judge every tensor of one step, those of replicas in the order in which they happened."""
        self._drift = None
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
            self._told_something |= any(_tells(file[key]) for file in files[:2])
        spread = kernel.measure(files.runs(key), self.judge.low)
        if self.judge.excuses and not self.judge.reproduces(spread, files.moved.get(key, 0.0)):
            self._not_reproducible(step, key, files.moved[key])
        recorded, before = self.recorded
        if kind == "parameter" and before and before[self._replica].holds(key, files.reference_high[key].shape):
            update = kernel.measure(files.changes(key, before[self._replica]), self.judge.low)
            # Every step since has stored the parameter once.
            stored = spread.scale * max((step or 0) - (recorded or 0), 1)
            self._judge(step, keys.UPDATE, name, update, files, stored)
        self._judge(step, kind, name, spread, files)

    def claim(self, reference: Trace) -> None:
        """Note what a match would need evidence of, and has none."""
        if self.outputs and not self._told_something:
            self.unjudged.append("the model's outputs are zero, not finite or empty: they would agree with any others")
        recorded = {keys.split(key)[0] for listed in reference.manifest.files.values() for key in listed}
        for kind in CLAIMED:
            if kind in recorded and (kind not in self.checks or not self.checks[kind].compared):
                self.unjudged.append(f"no {kind} has a counterpart that it could be compared with")
        for kind, check in self.checks.items():
            if check.compared and check.compared == self._only_excused[kind]:
                self.unjudged.append(f"rounding alone moves every {kind} as far as the two sides are apart")

    def _not_reproducible(self, step: int | None, key: str, moved: float) -> None:
        """Note where the reference first is not itself when it is done again: from here on nothing is excused."""
        self.judge.excuses = False
        side, at = self.names[0], "before the first step" if step is None else f"at step {step}"
        apart = "is another tensor or not finite" if moved == BEYOND else f"is {moved:.1e} away"
        message = (
            f"done again with the same inputs and weights, {side}'s {key} {at} {apart}: it is not a function of them"
        )
        self.not_reproducible.append(
            Finding(id="reference.not_reproducible", side=side, where=keys.split(key)[1], message=message)
        )
        self.unjudged.append(f"{message}; seed or remove what is random in it")

    def findings(self) -> list[Finding]:
        """What is told beside the verdict: a reference that is not itself, sides noisier than they should be."""
        return self.not_reproducible + [
            Finding(
                id="precision.noise",
                side=side,
                where=tensors[0].key,
                message=f"{side}'s {self.judge.low} run is {tensors[0].bits:.1f} bits noisier than {tensors[0].than} "
                f"(the first of {len(tensors)} such tensors)",
            )
            for side, tensors in self.noisier.items()
        ]

    def _judge(
        self, step: int | None, kind: str, name: str, spread: kernel.Spread, files: Step, stored: float = 0.0
    ) -> None:
        first = step == 0 and kind in FIRST
        judgement, reason = self.judge.high(spread, stored, kind, first), ""
        if (lost := self._not_finite(step, kind, spread)) and _worse(lost[0], judgement):
            judgement, reason = lost
        elif judgement.verdict == "match" and first and self._noise_tells(kind, name, files):
            judgement, reason = self._judge_noise(keys.key(kind, name), spread, judgement, files)
        elif judgement.verdict == "diverged" and step and self._parted(spread, files):
            judgement = judgement._replace(verdict="inconclusive")
        if judgement.verdict != "match" and not reason:
            reason = self._told(spread, judgement)
        self._note(step, kind, name, judgement, reason, files)
        if kind == "loss":
            key = keys.key(kind, name)
            self._exploded |= not any(np.isfinite(file[key]).any() for file in files[:2])

    def _told(self, spread: kernel.Spread, judgement: Judgement) -> str:
        """Why a tensor is not a match, in words."""
        apart = (
            f"{spread.difference:.1e} apart in float64, {spread.difference / (spread.scale or 1):.1e} of the largest"
        )
        if judgement.verdict == "inconclusive":
            return f"{apart} value, but one rounding in the initial values moves the reference itself as far"
        return f"{apart} value: {max(judgement.bits or 0.0, 0.0):.1f} bits, {self.judge.needed} needed"

    def _not_finite(self, step: int | None, kind: str, spread: kernel.Spread) -> tuple[Judgement, str] | None:
        """The verdict where NaN or infinity leaves something that cannot be compared; None where nothing is lost.

        Infinities at the same positions agree, as in a mask, but not in a loss or a gradient. Later low runs may part
        for good when a training explodes, one side a step before the other; and behind a loss that is infinite on both
        sides it is chance what becomes infinity and what NaN.
        """
        low = self.judge.low
        if not spread.same_nonfinite:
            if self._exploded:
                return INCONCLUSIVE, "behind a loss that is not finite on either side, nothing can be compared"
            return DIVERGED, "NaN or infinity at different positions of the float64 runs"
        if not (spread.same_nonfinite_low or step):
            return DIVERGED, f"NaN or infinity at different positions of the {low} runs"
        lost = spread.nans + (spread.infinite if kind in ("loss", "gradient") else 0)
        if lost and kind in JUDGED_FINITE:
            return (
                INCONCLUSIVE,
                f"{lost} of {spread.size} numbers are not finite on either side",
            )
        if spread.nans_low and step == 0 and not spread.nans and kind in JUDGED_FINITE:
            return INCONCLUSIVE, f"{spread.nans_low} of {spread.size} numbers of the {low} runs are NaN on both sides"
        return None

    def _parted(self, spread: kernel.Spread, files: Step) -> bool:
        """Whether rounding alone has moved this step's gradients, in the middle, as far as this tensor is apart.

        A single number's witness may be small by luck; the gradients say how far the trajectories are from another.
        """
        if self._drift is None:
            found = [kernel.measure(files.runs(key)) for key in files.reference_high if _is_plain_gradient(key, files)]
            self._drift = float(np.median([each.witness / each.scale for each in found if each.scale] or [0.0]))
        return SUBPRECISION < spread.difference / (spread.scale or 1.0) <= WITNESS * self._drift

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

    def _judge_noise(self, key: str, spread: kernel.Spread, judgement: Judgement, files: Step) -> tuple[Judgement, str]:
        """The low runs, each against its own high run: beside the other side's noise, and what rounding explains."""
        noisier, size = self.judge.noisier(spread)
        blind = key.startswith("gradient/") and not self.judge.gradients_tell
        visible = size > (GROSS if blind else VISIBLE)
        excess = self.judge.excess(spread) if files.witness and key in files.witness else ()
        noises = [Noise(self.names[noisier > 0], key, abs(noisier), "the other's")]
        noises += [
            Noise(side, key, bits, "rounding explains")
            for side, bits in zip(self.names, excess, strict=False)
            if bits > NOISIER and not self._switched(key, spread, files)
        ]
        for noise in noises:
            if noise.bits > NOISIER and noise.than == "the other's":
                self.noisy.setdefault(noise.side, []).append(key)
            if noise.bits > FAR_NOISIER and visible:
                reason = f"{noise.side}'s {self.judge.low} run is {noise.bits:.1f} bits noisier than {noise.than}"
                return judgement._replace(verdict="diverged"), reason
            if noise.bits > NOISIER and not blind:
                self.noisier.setdefault(noise.side, []).append(noise)
        return judgement, ""

    def _switched(self, key: str, spread: kernel.Spread, files: Step) -> bool:
        """Whether few elements make all of the noise: a rounding, a sort or a comparison that fell out otherwise."""
        far = 2.0**FAR_NOISIER * ROUNDOFF[self.judge.low] * spread.scale
        few = spread.size // FEW
        return all(
            kernel.count_apart(high[key], low[key], far) <= few for high, low in zip(files[:2], files[2:4], strict=True)
        )

    def _note(self, step: int | None, kind: str, name: str, judgement: Judgement, reason: str, files: Step) -> None:
        check = self.checks.setdefault(kind, Check())
        check.compared += 1
        check.verdict = worst([check.verdict, judgement.verdict])
        bits = judgement.bits
        if judgement.by_bits and bits is not None and (check.worst_bits is None or bits < check.worst_bits):
            check.worst_bits, check.worst_name, check.worst_step = bits, name, step
        if judgement.excused:
            check.excused += 1
            check.excused_most = max(check.excused_most or 0.0, judgement.excused)
            self._only_excused[kind] += judgement.excused > SUBPRECISION
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


def _worse(one: Judgement, other: Judgement) -> bool:
    return RANKING.index(one.verdict) > RANKING.index(other.verdict)


def _is_plain_gradient(key: str, files: Step) -> bool:
    return key.startswith("gradient/") and not key.endswith(keys.LOCAL) and files.holds(key, files[0][key].shape)


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

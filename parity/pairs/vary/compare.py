"""Both halves of a pair called on variations of its inputs, and judged: a difference is one that nobody asked for.

It is only looked for where the outputs on the inputs given are the same computation. What cannot be judged (a scale
that leaves float32's range, outputs that are NaN, a model that does not take the inputs) is told and fails nothing.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from parity.config.pair import Pair
from parity.core.names import MODEL
from parity.pairs.coverage import INPUTS, Seen, by_mode, covered, in_torch_names, updates
from parity.pairs.file import PairFile
from parity.pairs.vary import masks
from parity.pairs.vary.masks import Unshared
from parity.pairs.vary.record import Facts, read, reproduced
from parity.pairs.vary.variations import GIVEN, TRAINING, Variation, variations
from parity.results import CaseResult, Divergence, worst
from parity.results import Variation as VariationResult
from parity.runtime.backend import Backend, feed
from parity.runtime.job import RUNS, VaryJob
from parity.trace import keys, survey
from parity.trace.manifest import Tensors, Trace
from parity.trace.mapping import PairContext
from parity.trace.survey import Survey
from parity.verdict.traces import compare

PASSED = ("match", "subprecision")
SIDES = ("torch", "keras")


def vary(
    result: CaseResult, file: PairFile, backends: Sequence[Backend], folder: Path, halves: PairContext, given_only: bool
) -> None:
    """Run the variations of a pair that has passed, and add them and the coverage to its result.

    `folder`: of the pair's traces. `given_only`: run no variations; the coverage is that of the inputs given.
    """
    if result.verdict not in PASSED:
        return
    scratch = folder / "variations"
    shutil.rmtree(scratch, ignore_errors=True)  # left by a run that was ended
    left: list[VariationResult] = []
    try:
        if failures := _recorded(file, backends, scratch, halves, given_only):
            result.variations = [VariationResult(name="all", verdict="skipped", skipped="; ".join(failures))]
            return
        chosen = variations(file.case, file.search)[: 1 if given_only else None]
        told = _Told(scratch, chosen, survey.read(folder / "torch" / "survey"), bool(result.expected))
        result.variations = [] if given_only else list(told.judged())
        result.coverage = covered(_branches(file, folder, halves, told, result.variations))
        left = told.unshared
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _conclude(result, left)


def _recorded(
    file: PairFile, backends: Sequence[Backend], scratch: Path, halves: PairContext, given_only: bool
) -> list[str]:
    """Have both sides record all of it; what failed."""
    jobs = {}
    for backend in backends:
        own = scratch / backend.name
        own.mkdir(parents=True)
        runs = RUNS[backend.name]
        job = VaryJob(case=file.case, runs=runs, folder=str(own.absolute()), pair=halves, given_only=given_only)
        jobs[backend] = [job]
    answers = [(result.backend, result.answer) for result in feed(jobs)]
    return [f"{name}: {answer.message}" for name, answer in answers if answer.status != "done"]


def _conclude(result: CaseResult, unshared: list[VariationResult]) -> None:
    """A variation that diverged makes the pair diverge; one side's own random numbers leave it inconclusive."""
    found = next((one for one in [*result.variations, *unshared] if one.verdict == "diverged" or one in unshared), None)
    if found is None:
        return
    where = "in inference, on" if found.name == GIVEN else "on inputs that nobody gave:"
    reason = f"{where} {found.name}: {found.reason}"
    result.verdict, result.reason = worst([result.verdict, found.verdict]), reason
    place = Divergence(step=0, kind="activation", name=MODEL, replica=0, bits=None, reason=reason)
    result.first_divergence = msgspec.structs.replace(found.first_divergence or place, reason=reason)


class _Told:
    """What both sides have recorded. `facts`: torch's and Keras's; `torch`: its survey.

    `unshared`: the variations that cannot be compared as one side draws random numbers that the other does not.
    `accepts`: whether the pair's file accepts a difference, which may reach the outputs.
    """

    def __init__(self, folder: Path, chosen: list[Variation], torch: Survey, accepts: bool) -> None:
        self.folder, self.chosen, self.torch, self.accepts = folder, chosen, torch, accepts
        self.unshared: list[VariationResult] = []
        self.facts = [read(folder / side) for side in SIDES]

    def judged(self) -> Iterator[VariationResult]:
        """The verdict on every variation, if the outputs on the inputs given pass."""
        given = self._judged(0)
        if given.verdict == "diverged" and not self.accepts:
            yield given
            return
        if given.verdict not in PASSED:
            reason = f"the outputs on the inputs given are {given.verdict}: {given.reason or given.skipped}"
            yield VariationResult(name="all", verdict="skipped", skipped=reason)
            return
        yield from (self._judged(number) for number in range(1, len(self.chosen)))

    def _judged(self, number: int) -> VariationResult:
        name = self.chosen[number].name
        failed = {side: facts.failed[name] for side, facts in self._sides() if name in facts.failed}
        excluded = {side: facts.excluded[name] for side, facts in self._sides() if name in facts.excluded}
        if why_not := masks.unshared(excluded, self.torch, self.facts[1].draws.get(name, [])):
            return self._left(name, why_not)
        if failed:
            return self._failed(self.chosen[number], failed)
        torch, keras = (Trace(self.folder / side / str(number)) for side in SIDES)
        if why := _not_judged(torch, keras):
            return VariationResult(name=name, verdict="inconclusive", reason=why)
        # Where nobody asked for the inputs (zeros, 100 times as large) float32 may be lost on one side.
        found = compare(torch, keras, low_runs=False)
        if found.verdict not in PASSED and (others := self._draws(name)):
            return others
        first = found.first_divergence if found.verdict not in PASSED else None
        return VariationResult(name=name, verdict=found.verdict, reason=found.reason, first_divergence=first)

    def _draws(self, name: str) -> VariationResult | None:
        """What is said where the sides do not draw the same dropout masks in the same order."""
        torch, keras = (facts.draws.get(name, []) for facts in self.facts)
        # Masks are numbered among tensors of one size: only there does the order count.
        ordered = [sorted(draws, key=lambda draw: draw.size) for draws in (torch, keras)]
        if ordered[0] == ordered[1]:
            return None
        reason = f"torch drops at the rates {masks.told(torch)}, keras {masks.told(keras)}"
        if sorted(torch) == sorted(keras):
            return self._left(name, Unshared(f"{reason}: in another order", alike=False))
        return VariationResult(name=name, verdict="diverged", reason=reason)

    def _left(self, name: str, why: Unshared) -> VariationResult:
        """A variation that is not compared."""
        if why.alike:
            return VariationResult(name=name, verdict="skipped", skipped=why.reason)
        found = VariationResult(name=name, verdict="inconclusive", reason=f"cannot be compared: {why.reason}")
        self.unshared.append(found)
        return found

    def _failed(self, variation: Variation, failed: dict[str, str]) -> VariationResult:
        """One side or both do not take the inputs."""
        if len(failed) == len(SIDES):
            return VariationResult(name=variation.name, verdict="skipped", skipped="both fail", failed=failed)
        takes = next(side for side in SIDES if side not in failed)
        ((fails, message),) = failed.items()
        if fails in variation.may_fail:
            only = f"{takes} alone takes them"
            return VariationResult(name=variation.name, verdict="skipped", skipped=only, failed=failed)
        reason = f"{takes} takes them, {fails} fails: {message}"
        return VariationResult(name=variation.name, verdict="diverged", reason=reason, failed=failed)

    def _sides(self) -> Iterator[tuple[str, Facts]]:
        return zip(SIDES, self.facts, strict=True)


def _not_judged(torch: Trace, keras: Trace) -> str:
    """Why the outputs of both sides say nothing about whether they are the same computation, or ""."""
    stem = keys.step_file(0)
    high, low, witness = (torch.open(run, stem) for run in ("high", "low", "witness"))
    if _has_nan(high):
        beside = "and keras's too" if _has_nan(keras.open("high", stem)) else "keras's are not"
        return f"torch's outputs are NaN, {beside}"
    for side, exact, rounded in (("torch", high, low), ("keras", keras.open("high", stem), keras.open("low", stem))):
        if _finite(exact) > _finite(rounded):
            return f"{side}'s outputs leave the range of {torch.case.precision}"
    if not all(key in witness and reproduced(array, witness[key]) for key, array in high.items()):
        return "torch's own outputs move by more than float32 can see when its weights move by their last bit"
    return ""


def _floats(tensors: Tensors) -> list[np.ndarray]:
    return [array for array in tensors.values() if array.dtype.kind not in "iub"]


def _has_nan(tensors: Tensors) -> bool:
    return any(np.isnan(array).any() for array in _floats(tensors))


def _finite(tensors: Tensors) -> int:
    """How many numbers are finite."""
    return sum(int(np.isfinite(array).sum()) for array in _floats(tensors))


def _branches(
    file: PairFile, folder: Path, halves: PairContext, told: _Told, judged: list[VariationResult]
) -> Iterator[tuple[str, list[Seen]]]:
    """What was reached, by the inputs that reached it; by variations as far as they were compared."""
    assert isinstance(file.case.model, Pair)
    trains = file.case.model.train is not None
    surveys = [survey.read(folder / side / "survey") for side in SIDES]
    compared = {one.name for one in judged if one.verdict in (*PASSED, "diverged")}
    for variation in told.chosen:
        by = INPUTS if variation.name == GIVEN or (variation.name == TRAINING and trains) else variation.name
        seen = [facts.branches.get(variation.name, []) for facts in told.facts]
        modes = [list(by_mode(one, variation.training)) for one in surveys]
        matched = [*in_torch_names([*seen[1], *modes[1]], halves.matching)]
        own = [*seen[0], *modes[0], *matched]
        yield by, own if by == INPUTS or variation.name in compared else [_unreached(one) for one in own]
    changed = [list(updates(one, trains)) for one in surveys]
    yield INPUTS, [*changed[0], *in_torch_names(changed[1], halves.matching)]
    if TRAINING not in {variation.name for variation in told.chosen}:
        modes = [list(by_mode(one, training=True)) for one in surveys]
        seen_in_training = [*modes[0], *in_torch_names(modes[1], halves.matching)]
        yield INPUTS, seen_in_training if trains else [_unreached(one) for one in seen_in_training]


def _unreached(one: Seen) -> Seen:
    return Seen(one.branch, one.where, reached=False, seen=one.seen)

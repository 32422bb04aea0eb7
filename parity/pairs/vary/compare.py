"""Call both models of a pair on variations of its inputs, and compare what they return.

This is only done if the outputs on the inputs given are the same computation. What cannot be judged (a scale that
leaves float32's range, outputs that are NaN, a model that does not accept the inputs) is reported and fails nothing,
since nobody asked for these inputs.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parity.config.pair import SEED
from parity.core.arrays import Array, reproduced
from parity.pairs.accepting.suggest import INHERENT
from parity.pairs.causes.pair_causes import DEFAULT
from parity.pairs.file import PairFile
from parity.pairs.recording import failures
from parity.pairs.vary.coverage import (
    INPUTS,
    Seen,
    Unshared,
    by_mode,
    covered,
    in_torch_names,
    rates_in_words,
    unshared_masks,
    updates,
)
from parity.pairs.vary.outcome import can_be_given, conclude
from parity.pairs.vary.record import read
from parity.pairs.vary.variations import ALWAYS, CALLED, GIVEN, TRAINING, Variation, variations
from parity.results import CaseResult, Cause
from parity.results import Variation as VariationResult
from parity.runtime import resources, survey
from parity.runtime.job import RUNS, VaryJob, Work
from parity.runtime.runner import Worker, both
from parity.runtime.survey import Survey
from parity.trace import keys
from parity.trace.keys import MODEL
from parity.trace.manifest import Tensors, Trace
from parity.trace.mapping import PairContext
from parity.verdict.traces import compare

PASSED = ("match", "subprecision")
NOTHING = 2.0**-30  # numbers apart by less are alike beside an output of zeros
HOW = {"torch": "without gradients and with PyTorch's fast paths", "keras": "without a value for `training`"}
SIDES = ("torch", "keras")


def vary(
    result: CaseResult, file: PairFile, backends: Sequence[Worker], folder: Path, context: PairContext, given_only: bool
) -> Variation | None:
    """Run the variations of a pair that has passed, and add them and the coverage to its result.

    `folder` holds the pair's traces. With `given_only`, only the call that users write is compared, and the coverage is
    that of the inputs given. Returns the variation whose inputs alone show that the pair diverges, if there is one.
    """
    if result.verdict not in PASSED:
        return None
    if context.matching and not context.matching.returns_alike:
        return None
    scratch = folder / "variations"
    shutil.rmtree(scratch, ignore_errors=True)  # an earlier run that was killed may have left it
    unshared: list[VariationResult] = []
    try:
        torch = survey.read(folder / "torch" / "survey")
        in_turn = resources.in_turn(file.case, resources.of_pair(torch))
        if missing := _recorded(file, backends, scratch, context, given_only, in_turn):
            skipped = "; ".join(f"{name}: {message}" for name, message in missing.items())
            result.variations = [VariationResult(name="all", verdict="skipped", skipped=skipped)]
            return None
        chosen = variations(file.case, file.search, torch.is_large)[: ALWAYS if given_only else None]
        if torch.is_large and not given_only:
            tried = "of other batch sizes and other lengths one each was tried, and other values of one sample"
            result.not_compared.append(f"the model is large: {tried}")
        accepted = {cause.id for cause in result.expected} - INHERENT.keys()
        comparisons = _Comparisons(scratch, chosen, torch, accepted)
        result.variations = list(comparisons.judged())
        result.coverage = covered(_branches(file, folder, context, comparisons, result.variations))
        unshared = comparisons.unshared
        result.causes += comparisons.causes(result.variations)
        if given_only:
            result.variations = [each for each in result.variations if each.verdict == "diverged"]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    decisive = conclude(result, unshared)
    diverged = [each for each in chosen if decisive and (each.name, "diverged") == (decisive.name, decisive.verdict)]
    return next(filter(can_be_given, diverged), None)


def _recorded(
    file: PairFile, backends: Sequence[Worker], scratch: Path, context: PairContext, given_only: bool, in_turn: bool
) -> dict[str, str]:
    """Have both sides record all variations, and return the messages of those that failed."""
    jobs: dict[Worker, Work] = {}
    for backend in backends:
        own = scratch / backend.name
        own.mkdir(parents=True)
        runs = RUNS[backend.name]
        job = VaryJob(case=file.case, runs=runs, folder=str(own.absolute()), pair=context, given_only=given_only)
        jobs[backend] = job
    return failures(both(jobs, in_turn))


class _Comparisons:
    """The comparisons of what both sides have recorded.

    `facts` are torch's and Keras's, `torch` is torch's survey. `unshared` collects the variations that cannot be
    compared since one side draws random numbers that the other does not. `accepted` are the accepted causes that may
    reach the outputs of models that are not trained.
    """

    def __init__(self, folder: Path, chosen: list[Variation], torch: Survey, accepted: set[str]) -> None:
        self.folder, self.chosen, self.torch, self.accepted = folder, chosen, torch, accepted
        self.unshared: list[VariationResult] = []
        self.facts = {side: read(folder / side) for side in SIDES}

    def judged(self) -> Iterator[VariationResult]:
        """Yield the verdict on every variation, if the outputs on the inputs given pass."""
        given = self._judged(0)
        is_dropping = self._draws(GIVEN) and not any(cause.startswith("dropout") for cause in self.accepted)
        if given.verdict == "diverged" and (is_dropping or not self.accepted):
            yield given
            return
        if given.verdict not in PASSED:
            reason = f"the outputs on the inputs given are {given.verdict}: {given.reason or given.skipped}"
            yield VariationResult(name="all", verdict="skipped", skipped=reason)
            return
        yield from (self._judged(number) for number in range(1, len(self.chosen)))

    def causes(self, judged: Sequence[VariationResult]) -> Iterator[Cause]:
        """Yield a cause if the plain call differs as it is another one, or if one side repeats its dropout masks."""
        if any(each.name == CALLED and each.verdict == "diverged" and not each.failed for each in judged):
            other = [side for side in SIDES if not self._is_plain_call_inference(side)]
            evidence = "; ".join(f"{side}: called {HOW[side]}, the model returns other numbers" for side in other)
            if other:
                yield _cause(DEFAULT, other, "another computation", "as in inference", evidence)
        if len(sides := self._seeded(TRAINING)) == 1:
            evidence = f"{sides[0]}: a second call draws the masks of the first"
            yield _cause(SEED, sides, "the same masks in every call", "new masks", evidence)

    def _is_plain_call_inference(self, side: str) -> bool:
        """Return whether a side's plain call returns what its call in inference mode does."""
        traces = (Trace(self.folder / side / str(number)) for number in range(ALWAYS))
        inference, plain = (trace.open("high", keys.step_file(0)) for trace in traces)
        return all(key in plain and reproduced(array, plain[key]) for key, array in inference.items())

    def _seeded(self, name: str) -> list[str]:
        return [side for side, facts in self.facts.items() if name in facts.seeded]

    def _judged(self, number: int) -> VariationResult:
        """Compare what both sides returned for one variation."""
        name = self.chosen[number].name
        failed = {side: facts.failed[name] for side, facts in self.facts.items() if name in facts.failed}
        excluded = {side: facts.excluded[name] for side, facts in self.facts.items() if name in facts.excluded}
        if why_not := unshared_masks(excluded, self.torch, self.facts["keras"].draws.get(name, [])):
            return self._left(name, why_not)
        if failed:
            return self._failed(self.chosen[number], failed)
        torch, keras = (Trace(self.folder / side / str(number)) for side in SIDES)
        if reason := _not_judged(torch, keras):
            return VariationResult(name=name, verdict="inconclusive", reason=reason)
        # The low runs are not judged: on inputs such as zeros or 100 times the scale, float32 may lose all digits.
        comparison = compare(torch, keras, low_runs=False)
        if comparison.verdict not in PASSED and (masks_differ := self._draws(name)):
            return masks_differ
        if comparison.verdict in PASSED and len(seeded := self._seeded(name)) == 1:
            reason = f"{seeded[0]} draws the same masks in every call, by a seed; the other side draws new ones"
            return VariationResult(name=name, verdict="diverged", reason=reason)
        first = comparison.first_divergence if comparison.verdict not in PASSED else None
        return VariationResult(name=name, verdict=comparison.verdict, reason=comparison.reason, first_divergence=first)

    def _draws(self, name: str) -> VariationResult | None:
        """Return a result if the sides do not draw the same dropout masks in the same order, else None."""
        torch, keras = (facts.draws.get(name, []) for facts in self.facts.values())
        # Masks are numbered among tensors of the same size, so that only their order within a size counts.
        ordered = [sorted(draws, key=lambda draw: draw.size) for draws in (torch, keras)]
        if ordered[0] == ordered[1]:
            return None
        reason = f"torch drops at the rates {rates_in_words(torch)}, keras {rates_in_words(keras)}"
        if sorted(torch) == sorted(keras):
            return self._left(name, Unshared(f"{reason}: in another order", alike=False))
        return VariationResult(name=name, verdict="diverged", reason=reason)

    def _left(self, name: str, why: Unshared) -> VariationResult:
        """Return the result for a variation that is not compared."""
        if why.alike:
            return VariationResult(name=name, verdict="skipped", skipped=why.reason)
        inconclusive = VariationResult(name=name, verdict="inconclusive", reason=f"cannot be compared: {why.reason}")
        self.unshared.append(inconclusive)
        return inconclusive

    def _failed(self, variation: Variation, failed: dict[str, str]) -> VariationResult:
        """Return the result for a variation that one side or both do not accept."""
        if len(failed) == len(SIDES):
            return VariationResult(name=variation.name, verdict="skipped", skipped="both fail", failed=failed)
        accepting = next(side for side in SIDES if side not in failed)
        ((failing, message),) = failed.items()
        if failing in variation.may_fail:
            skipped = f"{accepting} alone takes them"
            return VariationResult(name=variation.name, verdict="skipped", skipped=skipped, failed=failed)
        reason = f"{accepting} takes them, {failing} fails: {message}"
        return VariationResult(name=variation.name, verdict="diverged", reason=reason, failed=failed)


def _cause(name: str, sides: Sequence[str], theirs: str, others: str, evidence: str) -> Cause:
    """Return a cause by what these sides do, and what others do."""
    values: dict[str, Any] = {side: theirs if side in sides else others for side in SIDES}
    return Cause(id=name, where=MODEL, **values, evidence=evidence)


def _not_judged(torch: Trace, keras: Trace) -> str:
    """Return why the outputs cannot show whether both sides are the same computation; "" if they can."""
    stem = keys.step_file(0)
    high, low, witness = (torch.open(run, stem) for run in ("high", "low", "witness"))
    if _count(np.isnan, high):
        beside = "and keras's too" if _count(np.isnan, keras.open("high", stem)) else "keras's are not"
        return f"torch's outputs are NaN, {beside}"
    for side, exact, rounded in (("torch", high, low), ("keras", keras.open("high", stem), keras.open("low", stem))):
        if _count(np.isfinite, exact) > _count(np.isfinite, rounded):
            return f"{side}'s outputs leave the range of {torch.case.precision}"
    # Nearly zeros move an output of zeros by next to nothing, which is more than any part of it.
    moved = [(array, witness[key]) for key, array in high.items() if key in witness]
    if len(moved) < len(high) or not all(reproduced(*both) or np.allclose(*both, 0, NOTHING) for both in moved):
        return (
            "torch's own outputs move by more than float32 can see when its weights, or zeros, move by their last bit"
        )
    return ""


def _count(test: Callable[[Array], Array], tensors: Tensors) -> int:
    """Return how many numbers pass a test; integers are none."""
    return sum(int(test(array).sum()) for array in tensors.values() if array.dtype.kind not in "iub")


def _branches(
    file: PairFile, folder: Path, context: PairContext, comparisons: _Comparisons, judged: list[VariationResult]
) -> Iterator[tuple[str, list[Seen]]]:
    """Yield what was reached, with the name of the inputs; of variations only if their outputs were compared."""
    trains = file.pair.train is not None
    surveys = [survey.read(folder / side / "survey") for side in SIDES]
    compared = {comparison.name for comparison in judged if comparison.verdict in (*PASSED, "diverged")}

    def of_both(torch: Iterable[Seen], keras: Iterable[Seen]) -> list[Seen]:
        return [*torch, *in_torch_names(keras, context.matching)]

    modes = {training: of_both(*(by_mode(model, training) for model in surveys)) for training in (False, True)}
    for variation in comparisons.chosen:
        by = INPUTS if variation.name == GIVEN or (variation.name == TRAINING and trains) else variation.name
        seen = of_both(*(facts.branches.get(variation.name, []) for facts in comparisons.facts.values()))
        own = [*seen, *modes[bool(variation.training)]]
        yield by, own if by == INPUTS or variation.name in compared else [_unreached(branch) for branch in own]
    yield INPUTS, of_both(*(updates(model, trains) for model in surveys))
    if TRAINING not in {variation.name for variation in comparisons.chosen}:
        yield INPUTS, modes[True] if trains else [_unreached(branch) for branch in modes[True]]


def _unreached(branch: Seen) -> Seen:
    return Seen(branch.branch, branch.where, reached=False, seen=branch.seen)

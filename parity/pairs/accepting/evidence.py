"""Read from a pair's traces how far apart an unequal tensor is, and whether it was a match in an earlier step."""

from collections.abc import Collection, Iterator
from functools import cache, cached_property
from typing import Literal, NamedTuple

import numpy as np

from parity.config.pair import Pair
from parity.core.arrays import Array
from parity.pairs.activations.counterparts import is_output
from parity.trace import keys
from parity.trace.keys import MODEL, plain
from parity.trace.manifest import Trace
from parity.verdict import kernel
from parity.verdict.rule import Rule
from parity.verdict.steps import Step, is_whole
from parity.verdict.traces import Unequal, side_names


class Size(NamedTuple):
    """How large a difference is.

    `difference` is the largest one between the two float64 runs, `missing` how many bits there are fewer than a match
    needs, `scale` the largest magnitude on either side.
    """

    difference: float
    missing: float
    scale: float

    @property
    def relative(self) -> float:
        """Return the difference as a fraction of the largest magnitude."""
        return self.difference / self.scale if self.scale else 0.0


class Evidence:
    """Answers about the tensors of two traces, read when asked for; `unequal` are all that are not a match."""

    def __init__(self, reference: Trace, candidate: Trace, unequal: list[Unequal]) -> None:
        self._traces = reference, candidate
        self._unequal = set(unequal)
        self._rule = Rule(reference.case.precision)
        self._sizes: dict[Unequal, Size | None] = {}
        self._step = cache(self._opened)

    @property
    def needed(self) -> int:
        """Return the bits that a match needs."""
        return self._rule.needed

    @cached_property
    def names(self) -> list[str]:
        """Return all modules and tensors of the reference, as `where` in an [[expect]] names them."""
        manifest = self._traces[0].manifest
        listed = {keys.split(key)[1] for file in manifest.files.values() for key in file}
        return sorted({name for name in (*listed, *manifest.modules) if name})

    def outputs(self) -> dict[str, tuple[Array, Array]]:
        """Return what both whole models returned in the first step, in float64, by name."""
        reference, candidate = (trace.open("high", keys.step_file(0)) for trace in self._traces)
        named = {key: keys.split(key)[1] for key in reference if key.startswith(keys.key("activation", MODEL))}
        return {name: (reference[key], candidate[key]) for key, name in named.items() if key in candidate}

    def matched_before(self, tensor: Unequal) -> bool:
        """Return whether both sides have computed the same tensor before, in the same mode.

        That is in an earlier step of training; or, for the evaluation after the training, in inference with the
        initial weights.
        """
        if self._is_evaluation(tensor):
            return self._was_among("equal", tensor)
        return any(True for _ in self._earlier_matches(tensor))

    def was_hidden(self, tensor: Unequal) -> bool:
        """Return whether float32 has not seen, in the same mode before, what both sides compute differently there."""
        if self._is_evaluation(tensor):
            return self._was_among("hidden", tensor)
        return self.matched_before(tensor._replace(verdict="diverged"))

    def _was_among(self, field: Literal["equal", "hidden"], tensor: Unequal) -> bool:
        """Return whether the matching has a tensor among those of a field: in inference with the initial weights.

        What goes into a module is known by what the module returns, or, where that has no counterpart, by what the
        models return.
        """
        if (matching := self._traces[1].manifest.matching) is None:
            return False
        names, matched = set(getattr(matching, field)), [match.torch for match in matching.matches]
        if tensor.kind == "input" and tensor.name not in matched:
            outputs = set(filter(is_output, matched))
            return bool(outputs) and outputs <= names
        return tensor.name in names

    def _is_evaluation(self, tensor: Unequal) -> bool:
        """Return whether a tensor is of the pass in inference mode that follows a training."""
        return self.trains and tensor.step == self._traces[0].case.steps

    @property
    def trains(self) -> bool:
        """Return whether the pair has a loss of its own; without [train] the loss is one that this project makes."""
        model = self._traces[0].case.model
        return isinstance(model, Pair) and model.train is not None

    def is_returned_by(self, tensor: Unequal, places: Collection[str]) -> bool:
        """Return whether a tensor holds, on both sides, what a module at one of these places returns, in its order."""
        step, key = self._step(keys.step_file(tensor.step)), self._key(tensor)
        sides = step.reference_high, step.candidate_high
        named = [
            each for each in sides[0] if keys.split(each)[0] == tensor.kind and plain(keys.split(each)[1]) in places
        ]
        return any(
            all(key in of and _are_equal(of[key], of.get(each)) for of in sides) for each in named if each != key
        )

    def moved_alike_before(self, tensor: Unequal) -> bool:
        """Return whether a tensor was a match in an earlier step without being all zeros."""
        sizes = map(self.size, self._earlier_matches(tensor))
        return any(size is not None and size.scale for size in sizes)

    def _earlier_matches(self, tensor: Unequal) -> Iterator[Unequal]:
        """Yield the same tensor in the earlier steps in which it was a match."""
        earlier = (tensor._replace(step=keys.step_of(stem)) for stem in self._before(tensor))
        return (each for each in earlier if each.step is not None and each not in self._unequal)

    def size(self, tensor: Unequal) -> Size | None:
        """Return how large a difference is; None if no number says so, as for another shape or whole numbers."""
        if tensor not in self._sizes:
            self._sizes[tensor] = self._measured(tensor)
        return self._sizes[tensor]

    def _measured(self, tensor: Unequal) -> Size | None:
        step, key = self._step(keys.step_file(tensor.step)), self._key(tensor)
        if step.mismatch(key, side_names(*self._traces)) or is_whole(step.reference_high[key]):
            return None
        # Of an update, that is the change since the last step that recorded the parameter.
        earlier = list(self._before(tensor)) if tensor.kind == keys.UPDATE else []
        spread = kernel.measure(step.changes(key, self._step(earlier[-1])) if earlier else step.runs(key))
        if not spread.same_nonfinite:
            return None
        bits = self._rule.high(spread).bits
        return Size(spread.difference, self._rule.needed - bits if bits is not None else 0.0, spread.scale)

    def _before(self, tensor: Unequal) -> Iterator[str]:
        """Yield the stems of the earlier steps' files that hold the tensor, the latest last."""
        stems = self._traces[0].stems("high")
        listed = self._traces[0].manifest.files
        for stem in stems[: stems.index(keys.step_file(tensor.step))]:
            if self._key(tensor) in listed[f"high/rank-0/{stem}"]:
                yield stem

    def _key(self, tensor: Unequal) -> str:
        return keys.stored(tensor.kind, tensor.name)

    def _opened(self, stem: str) -> Step:
        reference, candidate = self._traces
        high, low = ((reference.open(run, stem), candidate.open(run, stem)) for run in ("high", "low"))
        return Step(*high, *low, None)


def _are_equal(one: Array, other: Array | None) -> bool:
    return other is not None and np.array_equal(one.ravel(), other.ravel(), equal_nan=True)

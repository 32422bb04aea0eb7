"""What the traces of a pair tell of a tensor that is not a match: how far apart it is, whether it ever was a match."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from parity.config.pair import Pair
from parity.core.arrays import Array
from parity.core.names import MODEL
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.verdict import kernel
from parity.verdict.kernel import Runs
from parity.verdict.rule import Rule
from parity.verdict.steps import Step, is_whole
from parity.verdict.traces import Unequal, side_names


class Size(NamedTuple):
    """How large a difference is.

    `difference`: the largest between the float64 runs. `missing`: how many bits there are fewer than a match needs.
    `scale`: the largest magnitude of both.
    """

    difference: float
    missing: float
    scale: float

    @property
    def relative(self) -> float:
        """The difference as a part of the largest magnitude."""
        return self.difference / self.scale if self.scale else 0.0


class Evidence:
    """Reads the tensors that are asked for. `unequal`: all that are not a match."""

    def __init__(self, reference: Trace, candidate: Trace, unequal: list[Unequal]) -> None:
        self._traces = reference, candidate
        self._unequal = set(unequal)
        self._judge = Rule(reference.case.precision)
        self._sizes: dict[Unequal, Size | None] = {}
        self._steps: dict[str, Step] = {}

    @property
    def needed(self) -> int:
        """The bits that a match needs."""
        return self._judge.needed

    @cached_property
    def names(self) -> list[str]:
        """All modules and tensors of the reference, as `where` has them."""
        manifest = self._traces[0].manifest
        listed = {keys.split(key)[1] for file in manifest.files.values() for key in file}
        return sorted({name for name in (*listed, *manifest.modules) if name})

    def outputs(self) -> dict[str, tuple[Array, Array]]:
        """What both whole models returned in the first step, in float64, by name."""
        one, other = (trace.open("high", keys.step_file(0)) for trace in self._traces)
        named = {key: keys.split(key)[1] for key in one if key.startswith(keys.key("activation", MODEL))}
        return {name: (one[key], other[key]) for key, name in named.items() if key in other}

    def matched_before(self, each: Unequal) -> bool:
        """Whether both sides have made the same of a tensor before, in the same mode.

        In a step of training before this one; or, of the evaluation behind the training, in inference with the initial
        weights.
        """
        case, matching = self._traces[0].case, self._traces[1].manifest.matching
        if isinstance(case.model, Pair) and case.model.train and each.step == case.steps:
            return matching is not None and each.name in matching.equal
        earlier = (keys.step_of(stem) for stem in self._before(each))
        return any(step is not None and each._replace(step=step) not in self._unequal for step in earlier)

    @property
    def trains(self) -> bool:
        """Whether the loss is of the file's or the user's making: without [train] it is this project's."""
        model = self._traces[0].case.model
        return isinstance(model, Pair) and model.train is not None

    def moved_alike_before(self, each: Unequal) -> bool:
        """Whether a tensor was a match in a step before, and not of zeros alone."""
        earlier = (each._replace(step=keys.step_of(stem)) for stem in self._before(each))
        return any(
            one.step is not None and one not in self._unequal and (size := self.size(one)) is not None and size.scale
            for one in earlier
        )

    def size(self, each: Unequal) -> Size | None:
        """How large a difference is; None where no number says so, as of another shape or of whole numbers."""
        if each not in self._sizes:
            self._sizes[each] = self._measured(each)
        return self._sizes[each]

    def _measured(self, each: Unequal) -> Size | None:
        step, key = self._step(keys.step_file(each.step)), self._key(each)
        if step.mismatch(key, side_names(*self._traces)) or is_whole(step.reference_high[key]):
            return None
        spread = kernel.measure(self._runs(each, step, key))
        if not spread.same_nonfinite:
            return None
        bits = self._judge.high(spread).bits
        return Size(spread.difference, self._judge.needed - bits if bits is not None else 0.0, spread.scale)

    def _runs(self, each: Unequal, step: Step, key: str) -> Runs:
        earlier = list(self._before(each)) if each.kind == keys.UPDATE else []
        return step.changes(key, self._step(earlier[-1])) if earlier else step.runs(key)

    def _before(self, each: Unequal) -> Iterator[str]:
        """The files of the steps before that have the tensor, the latest last."""
        stems = self._traces[0].stems("high")
        listed = self._traces[0].manifest.files
        for stem in stems[: stems.index(keys.step_file(each.step))]:
            if self._key(each) in listed[f"high/rank-0/{stem}"]:
                yield stem

    def _key(self, each: Unequal) -> str:
        return keys.key("parameter" if each.kind == keys.UPDATE else each.kind, each.name)

    def _step(self, stem: str) -> Step:
        if stem not in self._steps:
            one, other = self._traces
            high, low = ((one.open(run, stem), other.open(run, stem)) for run in ("high", "low"))
            self._steps[stem] = Step(*high, *low, None)
        return self._steps[stem]

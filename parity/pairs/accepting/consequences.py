"""Tell which unequal tensors follow from an accepted cause, with no fault of their own.

What no formula recomputes behind it is judged by whether it is apart in proportion to it. Most gradients and updates
are such tensors. They are smooth functions of what went before them, so that a small difference there makes a small one
here, each taken relative to the largest value of its tensor. In right ports with an accepted epsilon, bias or learning
rate it was measured to grow at most 4 times. A tensor that is more than FACTOR times as far apart may show a fault of
the backward pass or of the optimizer. Behind a large difference anything is in proportion, so that beyond MOST this
comparison tells nothing. What functions make between two modules in the forward pass is judged in this way only where
float32 cannot see the difference.
"""

from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Final

from parity.config.pair import SUM, Expect
from parity.core.groups import by_key
from parity.diagnose.diagnosis import Examined
from parity.pairs.accepting.evidence import Evidence
from parity.pairs.activations.counterparts import is_output
from parity.results import Cause
from parity.trace import keys
from parity.trace.keys import plain
from parity.verdict.rule import SUBPRECISION
from parity.verdict.traces import Unequal

OF_MODULES: Final = ("input", "activation")
FORWARD = ("sample", *OF_MODULES, "loss", "buffer")
STORED = (keys.UPDATE, "parameter", "optimizer_state")
CLIPPING: Final = ("clip.", SUM)  # ids of causes of all gradients of a step, though they are named at one
FACTOR: Final = 16
MOST: Final = 1 / 8  # refuses, for one, a gradient that is 1.15 times what it should be


class Consequences:
    """What follows from the causes that are accepted by name, at `places`: modules and weights."""

    def __init__(self, examined: Examined, causes: list[tuple[Cause, Expect | None]], evidence: Evidence) -> None:
        named = [cause for cause, by in causes if by and by.names_cause]
        self.places = {cause.where for cause in named}
        self._examined, self._causes, self._evidence = examined, causes, evidence
        self._clipped = {cause.where for cause in named if cause.id.startswith(CLIPPING)}
        self._summed = {cause.where for cause in named if cause.id == SUM}
        self.proportion = Proportion(examined.unequal, evidence, self._clipped)
        self._replayed: dict[tuple[str, int], bool] = {}

    def follow(self, tensor: Unequal) -> bool:
        """Return whether a tensor is a consequence of an accepted cause, with no fault of its own.

        Behind an accepted cause everything differs. So each module is judged by what it makes of its own inputs, or
        by an earlier step in which its inputs were equal and its output was too. What float32 cannot see at all is
        judged by how far it is apart.
        """
        if self.is_at_cause(tensor):
            return True
        if not self.may_follow(tensor):
            return False
        if self.is_sum_of_outputs(tensor) or self._is_of_cause(tensor):
            return True
        if tensor.kind in FORWARD:
            behind_update = tensor.turn > 0 and self.proportion.holds_later(tensor)
            return self._is_recomputed(tensor) or self.proportion.holds_forward(tensor) or behind_update
        return self.is_replayed(tensor) or any(self._moves(earlier, tensor) for earlier in self._examined.unequal)

    def may_follow(self, tensor: Unequal) -> bool:
        """Return whether a tensor may be a consequence: not given, known to be computed otherwise, or unmeasured."""
        is_given = tensor.kind == "sample" or (tensor.kind == "input" and plain(tensor.name) in keys.MODEL_INPUTS)
        is_failed = diagnosis_key(tensor) in self._examined.failed
        return not is_given and not is_failed and self._evidence.size(tensor) is not None

    def _is_recomputed(self, tensor: Unequal) -> bool:
        """Return whether both sides compute a tensor alike from their inputs, or have done so in an earlier step."""
        return diagnosis_key(tensor) in self._examined.same or self._evidence.matched_before(tensor)

    def is_sum_of_outputs(self, tensor: Unequal) -> bool:
        """Return whether a tensor is the sum of outputs that is made the loss of a pair without training."""
        return tensor.kind == "loss" and not self._evidence.trains

    def _is_of_cause(self, tensor: Unequal) -> bool:
        """Return whether the whole models return what they do at an accepted cause, perhaps in another shape."""
        return is_output(tensor.name) and self._evidence.is_returned_by(tensor, self.places)

    def is_at_cause(self, tensor: Unequal) -> bool:
        """Return whether an accepted cause is one of this very tensor, and not of another kind of the same name."""
        kind = keys.split(diagnosis_key(tensor))[0].replace("input", "activation")
        if tensor.kind in STORED and tensor.parameter in self._summed:  # whatever was asked there
            return True
        return any(
            kind in self._kinds(where) or not self._kinds(where)
            for where in self.places & cause_places(self._examined, tensor)
        )

    def is_replayed(self, tensor: Unequal) -> bool:
        """Return whether the optimizer's formula, as accepted, makes each side's updates of its own gradients."""
        replayed = self._examined.replayed
        if replayed is None or tensor.kind not in STORED or tensor.step is None:
            return False
        accepting = list(self._of_optimizer())
        # The learning rate is no parameter's, but part of every update.
        name = keys.split(diagnosis_key(tensor))[1] or next((where for where, _ in accepting), "")
        if (name, tensor.replica) not in self._replayed:
            named = any(fnmatchcase(name, expected.where) for _, expected in accepting)
            self._replayed[name, tensor.replica] = replayed.reproduces(name, tensor.replica, frozen=named)
        return self._replayed[name, tensor.replica]

    def judged_weakly(self, tensors: list[Unequal]) -> Iterator[str]:
        """Yield a sentence for those tensors, within no accepted size, that could only be judged in a weaker way."""
        if not self.places:
            return
        behind = f"behind the accepted difference at {', '.join(sorted(self.places))}"
        followers = [tensor for tensor in tensors if not self.is_at_cause(tensor)]
        forward = [tensor for tensor in followers if tensor.kind in FORWARD and not self.is_sum_of_outputs(tensor)]
        gradients = [tensor for tensor in followers if tensor.kind == "gradient"]
        if earlier := [tensor for tensor in forward if diagnosis_key(tensor) not in self._examined.same]:
            before = dict.fromkeys(plain(tensor.name) for tensor in earlier if self._is_recomputed(tensor))
            apart = dict.fromkeys(plain(tensor.name) for tensor in earlier if not self._is_recomputed(tensor))
            for how, names in (("the steps before it", before), ("how far they are apart", apart)):
                if names:
                    yield f"{behind} judged only by {how}: {', '.join(names)}"
        if gradients:
            yield f"{behind} judged only by how far they are apart: the gradients from step {gradients[0].step} on"
        if any(tensor.kind == keys.UPDATE and not self.is_replayed(tensor) for tensor in followers):
            yield f"{behind} judged only by how far they are apart: what the optimizer makes of the gradients"

    def _kinds(self, where: str) -> set[str]:
        """Return the kinds of tensors that the diagnosis explained at a place."""
        kinds = (keys.split(key)[0] for key, place in self._examined.places.items() if place == where)
        return {kind.replace("input", "activation") for kind in kinds}

    def _moves(self, earlier: Unequal, tensor: Unequal) -> bool:
        """Return whether an unequal tensor has a part in a gradient, or in what the optimizer makes of it."""
        now, then = _step(tensor), _step(earlier)
        if tensor.kind == "gradient":
            of_forward = earlier.kind in (*OF_MODULES, "loss") or earlier.name in self._clipped
            return (then == now and of_forward) or (earlier.kind == "parameter" and _is_before(earlier, tensor))
        return then <= now and earlier.kind == "gradient"

    def _of_optimizer(self) -> Iterator[tuple[str, Expect]]:
        """Yield place and expectation of each accepted cause in the optimizer, which may hold for other parameters."""
        for cause, expected in self._causes:
            if expected and keys.key(keys.UPDATE, where := cause.where) in self._examined.places:
                yield where, expected


def cause_places(examined: Examined, tensor: Unequal) -> set[str]:
    """Return where the diagnosis may report a tensor's cause; an input's is at the module around the one given it."""
    diagnosed = examined.places.get(diagnosis_key(tensor))
    if tensor.kind == "input" and diagnosed:
        return {diagnosed}
    return {plain(tensor.name), *([diagnosed] if diagnosed else [])} | (
        {tensor.name.rpartition(".")[0]} if tensor.kind in ("buffer", "optimizer_state") else set()
    )


def diagnosis_key(tensor: Unequal) -> str:
    """Return the key by which the diagnosis knows a tensor."""
    if tensor.kind == "buffer":
        return keys.key("activation", tensor.name.rpartition(".")[0])
    if tensor.kind in STORED:
        return keys.key(keys.UPDATE, keys.parameter(tensor.kind, tensor.name))
    return keys.key(tensor.kind, plain(tensor.name))


class Proportion:
    """How far apart gradients and updates may be; what clipping does to the parameters `clipped` is accepted."""

    def __init__(self, unequal: list[Unequal], evidence: Evidence, clipped: Collection[str] = ()) -> None:
        self._unequal, self._evidence, self._clipped = unequal, evidence, clipped
        self._gradients = by_key((tensor.name, tensor) for tensor in unequal if tensor.kind == "gradient")
        self._forward: dict[tuple[int, int], float] = {}  # by step and turn

    def holds(self, tensor: Unequal) -> bool:
        """Return whether a gradient, or what the optimizer makes of it, is no further apart than it may be."""
        size = self._evidence.size(tensor)
        if size is None:
            return False
        limit = FACTOR * self.before(tensor)
        return size.relative <= (limit if self._evidence.moved_alike_before(tensor) else min(limit, MOST))

    def holds_forward(self, tensor: Unequal) -> bool:
        """Return whether a forward tensor is, or was in an earlier step, no further apart than it may be and slight."""
        same = [other for other in self._unequal if other._replace(step=tensor.step) == tensor]
        return any(self._is_slight(other) for other in same if _step(other) <= _step(tensor))

    def holds_later(self, tensor: Unequal) -> bool:
        """Return whether a tensor of the forward pass is no further apart than so many steps of training make it.

        Parameters are not recorded in every step. Where nothing before it is known to differ, nothing is told.
        """
        size, before = self._evidence.size(tensor), self.before_forward(tensor)
        earlier = self._unequal[: self._unequal.index(tensor)]
        recorded = max((_step(other) for other in earlier if other.kind == "parameter"), default=-1)
        steps = max(1, _step(tensor) - recorded)
        return not before or (size is not None and size.relative <= FACTOR * steps * before)

    def _is_slight(self, tensor: Unequal) -> bool:
        size = self._evidence.size(tensor)
        return size is not None and size.relative <= min(SUBPRECISION, FACTOR * self.before_forward(tensor))

    def would_be_slight(self, tensor: Unequal) -> bool:
        """Return whether float32 would see nothing of a tensor, or little, if it did but follow.

        That is an update made of gradients in which float32 sees nothing, what comes behind an update of the first
        step itself, and a later forward pass.
        """
        is_of_same = tensor.kind == keys.UPDATE and self.before(tensor) <= SUBPRECISION
        return is_of_same or (tensor.turn > 0 and tensor.step == 0) or (tensor.kind in OF_MODULES and _step(tensor) > 0)

    def in_words(self, tensor: Unequal) -> str:
        """Describe how far apart a tensor is, and how far what it is computed from."""
        size, before = self._evidence.size(tensor), self.before(tensor)
        origin = "the forward pass" if tensor.kind == "gradient" else "its gradient"
        if tensor.kind in FORWARD:
            origin, before = "what it is computed from", self.before_forward(tensor)
        apart = f"differs by {size.relative:.1e} of its largest value" if size else "differs"
        return f"{apart}, behind a difference of {before:.1e} in {origin}"

    def before_forward(self, tensor: Unequal) -> float:
        """Return the largest relative difference in a forward pass before a tensor, and of weights and buffers."""
        earlier = self._unequal[: self._unequal.index(tensor)]
        return self._largest(
            other
            for other in earlier
            if (other.kind in OF_MODULES and other.step == tensor.step) or other.kind in ("parameter", "buffer")
        )

    def before(self, tensor: Unequal) -> float:
        """Return the largest relative difference among the tensors that a tensor is computed from."""
        step, time = _step(tensor), (_step(tensor), tensor.turn)
        if tensor.kind == "gradient":
            if time not in self._forward:
                losses = (each for each in self._unequal if each.kind == "loss" and _step(each) == step)
                clipped = (each for name in self._clipped for each in self._gradients.get(name, ()))
                before = [*self._in_forward(tensor), *(each for each in clipped if _step(each) == step)]
                self._forward[time] = self._largest(before) or self._largest(losses)
            return self._forward[time]
        gradients = self._gradients.get(keys.parameter(tensor.kind, tensor.name), ())
        return self._largest(gradient for gradient in gradients if _step(gradient) <= step)

    def _in_forward(self, gradient: Unequal) -> Iterable[Unequal]:
        """Yield what differs in the last forward pass recorded before a gradient, and in the parameters before it."""
        step = _step(gradient)
        modules = [
            tensor for tensor in self._unequal if tensor.kind in OF_MODULES and tensor.name not in keys.MODEL_INPUTS
        ]
        last = max((_step(tensor) for tensor in modules if _step(tensor) <= step), default=None)
        yield from (tensor for tensor in modules if _step(tensor) == last)
        yield from (each for each in self._unequal if each.kind == "parameter" and _is_before(each, gradient))

    def _largest(self, tensors: Iterable[Unequal]) -> float:
        sizes = (self._evidence.size(tensor) for tensor in tensors)
        return max((size.relative for size in sizes if size is not None), default=0.0)


def _is_before(updated: Unequal, tensor: Unequal) -> bool:
    """Return whether a parameter was updated before a tensor was computed: in an earlier step, or turn of this one."""
    return (_step(updated), updated.turn) < (_step(tensor), tensor.turn)


def _step(tensor: Unequal) -> int:
    return -1 if tensor.step is None else tensor.step

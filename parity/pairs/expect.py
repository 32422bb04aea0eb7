"""Accepted differences: what a pair's file expects has to be there, and what is there has to be expected.

docs/accepting.md says which tensors follow from an accepted cause.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from parity.config.pair import UNKNOWN, Expect
from parity.core.errors import nearest
from parity.diagnose.diagnosis import Examined
from parity.diagnose.place import plain
from parity.pairs.evidence import Evidence
from parity.pairs.proportion import FORWARD as OF_MODULES
from parity.pairs.proportion import Proportion
from parity.results import CaseResult, Check, Divergence, Finding
from parity.trace import keys
from parity.verdict.traces import Unequal

Cause = dict[str, Any]
FORWARD = ("sample", *OF_MODULES, "loss", "buffer")
STORED = (keys.UPDATE, "parameter", "optimizer_state")
NOISE = "precision.noise"


def judge_expected(examined: Examined, expected: list[Expect], evidence: Evidence) -> None:
    """Change a verdict by what the user accepts.

    A case is a match if all its causes are accepted, and every tensor that is not a match is within an accepted size
    or follows from an accepted cause; `inconclusive` if of a gradient or an update behind it that cannot be told. An
    accepted difference that does not occur is `diverged`.
    """
    result = examined.result
    if not expected or result.verdict == "error":
        return
    accepted = _Accepted(examined, expected, evidence)
    if gone := [each for each in expected if not accepted.occurs(each)]:
        result.verdict, result.reason = "diverged", "; ".join(map(accepted.complaint, gone))
        return
    result.expected = [{**cause, "reason": each.reason} for cause, each in accepted.causes if each]
    result.expected += accepted.sizes()
    if result.verdict not in ("diverged", "subprecision") or not all(each for _, each in accepted.causes):
        return
    if left := [each for each in examined.unequal if not accepted.holds(each)]:
        _say_left(result, left)
        return
    if unjudged := [each for each in examined.unequal if not accepted.is_judged(each)]:
        _say_unjudged(result, unjudged, accepted)
        return
    result.verdict, result.first_divergence = _verdict(result), None
    result.findings = [finding for finding in result.findings if not accepted.explains(finding)]
    result.reason = "; ".join(dict.fromkeys(f"accepted: {each['reason']}" for each in result.expected))
    result.not_compared += accepted.not_compared()


def _verdict(result: CaseResult) -> Any:
    """What is accepted is a match; what could not be judged is not accepted by that."""
    checks = [check for check in result.checks.values() if isinstance(check, Check)]
    return "inconclusive" if any(check.verdict == "inconclusive" for check in checks) else "match"


def _say_left(result: CaseResult, left: list[Unequal]) -> None:
    """The first tensor that neither follows from what is accepted nor is within an accepted size."""
    first = left[0]
    more = f", nor do {len(left) - 1} more" if len(left) > 1 else ""
    result.reason = (
        f"{first.kind} {first.name} does not follow from an accepted cause, and is within no accepted size{more}"
    )
    result.first_divergence = _place(first, result.reason)


def _say_unjudged(result: CaseResult, unjudged: list[Unequal], accepted: "_Accepted") -> None:
    """The first gradient or update that may hide a fault behind what is accepted."""
    first = unjudged[0]
    more = f" (and {len(unjudged) - 1} more)" if len(unjudged) > 1 else ""
    result.verdict = "inconclusive"
    result.reason = (
        f"{first.kind} {first.name}{more} is {accepted.apart(first)}: no formula tells whether that is all of the "
        "accepted difference; accept it by its size ([[expect]] with where and largest_difference), or mend the cause"
    )
    result.first_divergence = _place(first, result.reason)


def _place(each: Unequal, reason: str) -> Divergence:
    return Divergence(step=each.step, kind=each.kind, name=each.name, replica=each.replica, bits=None, reason=reason)


class _Accepted:
    """Which of the causes and tensors of a case are accepted. `causes`: each with what accepts it, or None."""

    def __init__(self, examined: Examined, expected: list[Expect], evidence: Evidence) -> None:
        self.examined, self.expected, self.evidence = examined, expected, evidence
        self.causes = [(cause, self._accepting(cause)) for cause in examined.result.causes]
        self.places = {str(cause["where"]) for cause, each in self.causes if each and each.names_cause}
        self.proportion = Proportion(examined.unequal, evidence)
        self.replayed: dict[tuple[str, int], bool] = {}

    def occurs(self, expected: Expect) -> bool:
        """Whether there is such a difference at all, however large."""
        if expected.names_cause:
            return any(_names(expected, cause) for cause in self.examined.result.causes)
        return any(fnmatchcase(each.name, expected.where) for each in self.examined.unequal)

    def complaint(self, expected: Expect) -> str:
        """What to say of a difference that does not occur, with the nearest name."""
        what = f"{expected.cause} at {expected.where}" if expected.cause else f"at {expected.where}"
        ids = [str(cause["id"]) for cause in self.examined.result.causes]
        hint = nearest(expected.cause, ids) if expected.names_cause and expected.cause not in ids else ""
        if not any(fnmatchcase(name, expected.where) for name in self.evidence.names):
            hint = f"; no module or tensor is called that{nearest(expected.where, self.evidence.names)}"
        return f"the expected difference {what} does not occur{hint}: take it out or correct it"

    def holds(self, each: Unequal) -> bool:
        """Whether a tensor that is not a match is accepted: by its size, or as what follows from an accepted cause."""
        return self._is_within(each) or (bool(self.places) and self._follows(each))

    def is_judged(self, each: Unequal) -> bool:
        """Whether a tensor that is held to be accepted is told from a fault."""
        if each.kind in FORWARD or self._is_within(each) or self._is_at_cause(each):
            return True
        return self._is_replayed(each) or self.proportion.holds(each)

    def apart(self, each: Unequal) -> str:
        """How far apart a tensor is, and what it is made of."""
        size = self.evidence.size(each)
        made = "the forward pass" if each.kind == "gradient" else "its gradient"
        apart = f"{size.relative:.1e} of its largest value apart, " if size else ""
        return f"{apart}behind {self.proportion.before(each):.1e} in {made}"

    def sizes(self) -> list[Cause]:
        """What is accepted by its size alone, in the shape of a cause: each expectation once."""
        found = []
        for expected in self.expected:
            fitting = [each for each in self.examined.unequal if _covers(expected, each)]
            if fitting and not expected.names_cause:
                found.append({"id": UNKNOWN, "where": fitting[0].name, "reason": expected.reason})
        return found

    def explains(self, finding: Finding) -> bool:
        """Whether a finding is of what an accepted cause does in the low runs."""
        return finding.id == NOISE and plain(keys.split(finding.where)[1] or finding.where) in self.places

    def not_compared(self) -> Iterator[str]:
        """What lies behind an accepted cause and could not be judged by itself."""
        behind = f"behind the accepted difference at {', '.join(sorted(self.places))}"
        free = [each for each in self.examined.unequal if not (self._is_within(each) or self._is_at_cause(each))]
        forward = [each for each in free if each.kind in FORWARD and not self._is_sum_of_outputs(each)]
        earlier = [each for each in forward if _key(each) not in self.examined.same]
        gradients = [each for each in free if each.kind == "gradient"]
        if self.places and earlier:
            names = dict.fromkeys(plain(each.name) for each in earlier)
            yield f"{behind} judged only by the steps before it: {', '.join(names)}"
        if self.places and gradients:
            yield f"{behind} judged only by how far they are apart: the gradients from step {gradients[0].step} on"
        if self.places and any(each.kind == keys.UPDATE and not self._is_replayed(each) for each in free):
            yield f"{behind} judged only by how far it is apart: what the optimizer makes of the gradients"

    def _accepting(self, cause: Cause) -> Expect | None:
        named = [each for each in self.expected if _names(each, cause)]
        if named:
            return next((each for each in named if self._is_small(each, cause)), None)
        there = self._at(cause)
        covered = bool(there) and all(map(self._is_within, there))
        return next((each for each in self.expected if covered and _covers(each, there[0])), None)

    def _is_small(self, expected: Expect, cause: Cause) -> bool:
        """Whether the tensors where a cause is are within the size that is expected with it, if one is."""
        return not expected.has_size or all(self._fits(expected, each) for each in self._at(cause))

    def _at(self, cause: Cause) -> list[Unequal]:
        return [each for each in self.examined.unequal if cause["where"] in self._places(each)]

    def _places(self, each: Unequal) -> set[str]:
        """The names by which a cause of a tensor may be told."""
        asked = self.examined.places.get(_key(each))
        return {plain(each.name), *([asked] if asked else [])} | (
            {each.name.rpartition(".")[0]} if each.kind in ("buffer", "optimizer_state") else set()
        )

    def _is_within(self, each: Unequal) -> bool:
        return any(_covers(expected, each) and self._fits(expected, each) for expected in self.expected)

    def _fits(self, expected: Expect, each: Unequal) -> bool:
        size = self.evidence.size(each)
        if size is None:
            return False
        if expected.largest_difference is not None and size.difference > expected.largest_difference:
            return False
        return expected.at_most_bits is None or size.missing <= min(expected.at_most_bits, self.evidence.needed)

    def _follows(self, each: Unequal) -> bool:
        """Whether a tensor is what an accepted cause makes of it; the module that made it does the same on both sides.

        Behind an accepted cause everything differs. So each module is judged by what it makes of its own inputs; or by
        a step before, in which they were equal and its output was too.
        """
        if self._is_at_cause(each):
            return True
        is_given = each.kind == "sample" or (each.kind == "input" and plain(each.name) in keys.MODEL_INPUTS)
        if is_given or _key(each) in self.examined.failed or self.evidence.size(each) is None:
            return False
        if self._is_sum_of_outputs(each):
            return True
        if each.kind in FORWARD:
            return _key(each) in self.examined.same or self.evidence.matched_before(each)
        return self._is_replayed(each) or any(self._moves(other, each) for other in self.examined.unequal)

    def _is_sum_of_outputs(self, each: Unequal) -> bool:
        """Whether it is the loss where nothing trains: this project weighs the outputs, and these are judged."""
        return each.kind == "loss" and not self.evidence.trains

    def _is_at_cause(self, each: Unequal) -> bool:
        """Whether an accepted cause is of this tensor: a cause of an update is not one of the gradient of that name."""
        own = keys.split(_key(each))[0].replace("input", "activation")
        return any(own in self._kinds(where) or not self._kinds(where) for where in self.places & self._places(each))

    def _kinds(self, where: str) -> set[str]:
        """The kinds of tensors that were explained at a place."""
        asked = (keys.split(key)[0] for key, place in self.examined.places.items() if place == where)
        return {kind.replace("input", "activation") for kind in asked}

    def _moves(self, other: Unequal, each: Unequal) -> bool:
        """Whether a tensor that is not a match has a part in a gradient, or in what the optimizer makes of them."""
        now, then = (-1 if one.step is None else one.step for one in (each, other))
        if each.kind == "gradient":
            return (then == now and other.kind in (*OF_MODULES, "loss")) or (then < now and other.kind == "parameter")
        return then <= now and other.kind == "gradient"

    def _is_replayed(self, each: Unequal) -> bool:
        """Whether the optimizer's formula makes a parameter's updates of its own gradients, under accepted settings."""
        replayed = self.examined.replayed
        if replayed is None or each.kind not in STORED or each.step is None:
            return False
        accepting = list(self._of_optimizer())
        told = (where for where, _ in accepting)
        name = keys.split(_key(each))[1] or next(told, "")  # the learning rate is a part of every parameter's updates
        if (name, each.replica) not in self.replayed:
            named = any(fnmatchcase(name, one.where) for _, one in accepting)
            self.replayed[name, each.replica] = replayed.reproduces(name, each.replica, frozen=named)
        return self.replayed[name, each.replica]

    def _of_optimizer(self) -> Iterator[tuple[str, Expect]]:
        """The accepted causes that are told of one parameter and may be the same for others: where, and by what."""
        for cause, each in self.causes:
            if each and keys.key(keys.UPDATE, where := str(cause["where"])) in self.examined.places:
                yield where, each


def _names(expected: Expect, cause: Cause) -> bool:
    return expected.names_cause and cause["id"] == expected.cause and fnmatchcase(str(cause["where"]), expected.where)


def _covers(expected: Expect, each: Unequal) -> bool:
    return expected.has_size and not expected.names_cause and fnmatchcase(each.name, expected.where)


def _key(each: Unequal) -> str:
    """The key by which the diagnosis knows a tensor."""
    if each.kind == "buffer":
        return keys.key("activation", each.name.rpartition(".")[0])
    if each.kind in STORED:
        return keys.key(keys.UPDATE, each.name.rpartition(".")[0] if each.kind == "optimizer_state" else each.name)
    return keys.key(each.kind, plain(each.name))

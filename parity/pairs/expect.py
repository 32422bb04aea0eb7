"""Apply the accepted differences ([[expect]]) of a pair's file to its verdict.

Every difference that the file expects has to occur, and every difference that occurs has to be expected.
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


def apply_expected(examined: Examined, expected: list[Expect], evidence: Evidence) -> None:
    """Change the verdict of a case according to what the user accepts.

    The case becomes a match if all of its causes are accepted and every tensor that is not a match is within an
    accepted size or follows from an accepted cause. It becomes `inconclusive` if this cannot be told of a gradient or
    an update behind an accepted cause, and `diverged` if an accepted difference does not occur.
    """
    result = examined.result
    if not expected or result.verdict == "error":
        return
    accepted = _Accepted(examined, expected, evidence)
    if missing := [expectation for expectation in expected if not accepted.occurs(expectation)]:
        result.verdict, result.reason = "diverged", "; ".join(map(accepted.complaint, missing))
        return
    result.expected = [{**cause, "reason": by.reason} for cause, by in accepted.causes if by]
    result.expected += accepted.sizes()
    if result.verdict not in ("diverged", "subprecision") or not all(by for _, by in accepted.causes):
        return
    if unaccepted := [tensor for tensor in examined.unequal if not accepted.holds(tensor)]:
        _report_unaccepted(result, unaccepted)
        return
    if undecidable := [tensor for tensor in examined.unequal if not accepted.is_decidable(tensor)]:
        _report_undecidable(result, undecidable, accepted)
        return
    result.verdict, result.first_divergence = _verdict(result), None
    result.findings = [finding for finding in result.findings if not accepted.explains(finding)]
    result.reason = "; ".join(dict.fromkeys(f"accepted: {cause['reason']}" for cause in result.expected))
    result.not_compared += accepted.not_compared()


def _verdict(result: CaseResult) -> Any:
    """Return the verdict of a case whose differences are all accepted.

    Accepting differences does not settle a check that could not be judged: the case stays `inconclusive` then.
    """
    checks = [check for check in result.checks.values() if isinstance(check, Check)]
    return "inconclusive" if any(check.verdict == "inconclusive" for check in checks) else "match"


def _report_unaccepted(result: CaseResult, unaccepted: list[Unequal]) -> None:
    """Name the first tensor that neither follows from an accepted cause nor is within an accepted size."""
    first = unaccepted[0]
    more = f"; so do {len(unaccepted) - 1} more" if len(unaccepted) > 1 else ""
    result.reason = (
        f"{first.kind} {first.name} does not follow from an accepted cause and is within no accepted size, "
        f"yet it differs{more}"
    )
    result.first_divergence = _divergence(first, result.reason)


def _report_undecidable(result: CaseResult, undecidable: list[Unequal], accepted: "_Accepted") -> None:
    """Name the first gradient or update in which an accepted difference may hide a fault."""
    first = undecidable[0]
    more = f" (and {len(undecidable) - 1} more)" if len(undecidable) > 1 else ""
    result.verdict = "inconclusive"
    result.reason = (
        f"{first.kind} {first.name}{more} {accepted.apart(first)}: no formula tells whether the accepted difference "
        "alone makes it so; accept it by its size ([[expect]] with where and largest_difference), or mend the cause"
    )
    result.first_divergence = _divergence(first, result.reason)


def _divergence(tensor: Unequal, reason: str) -> Divergence:
    return Divergence(
        step=tensor.step, kind=tensor.kind, name=tensor.name, replica=tensor.replica, bits=None, reason=reason
    )


class _Accepted:
    """Which of a case's causes and tensors are accepted.

    `causes` pairs each cause with the expectation that accepts it, or None. `places` are the modules and weights
    where causes were accepted by name.
    """

    def __init__(self, examined: Examined, expected: list[Expect], evidence: Evidence) -> None:
        self.examined, self.expected, self.evidence = examined, expected, evidence
        self.causes = [(cause, self._accepting(cause)) for cause in examined.result.causes]
        self.places = {str(cause["where"]) for cause, by in self.causes if by and by.names_cause}
        self.proportion = Proportion(examined.unequal, evidence)
        self.replayed: dict[tuple[str, int], bool] = {}

    def occurs(self, expected: Expect) -> bool:
        """Return whether the case has a difference that an expectation names, however large."""
        if expected.names_cause:
            return any(_names(expected, cause) for cause in self.examined.result.causes)
        return any(fnmatchcase(tensor.name, expected.where) for tensor in self.examined.unequal)

    def complaint(self, expected: Expect) -> str:
        """Return the message for an expected difference that does not occur, with the nearest name that exists."""
        what = f"{expected.cause} at {expected.where}" if expected.cause else f"at {expected.where}"
        ids = [str(cause["id"]) for cause in self.examined.result.causes]
        hint = nearest(expected.cause, ids) if expected.names_cause and expected.cause not in ids else ""
        if not any(fnmatchcase(name, expected.where) for name in self.evidence.names):
            hint = f"; no module or tensor is called that{nearest(expected.where, self.evidence.names)}"
        return f"the expected difference {what} does not occur{hint}: take it out of the pair's file, or correct it"

    def holds(self, tensor: Unequal) -> bool:
        """Return whether an unequal tensor is accepted: by its size, or as a consequence of an accepted cause."""
        return self._is_within(tensor) or (bool(self.places) and self._follows(tensor))

    def is_decidable(self, tensor: Unequal) -> bool:
        """Return whether it can be told if an accepted tensor hides a fault."""
        if tensor.kind in FORWARD or self._is_within(tensor) or self._is_at_cause(tensor):
            return True
        return self._is_replayed(tensor) or self.proportion.holds(tensor)

    def apart(self, tensor: Unequal) -> str:
        """Describe how far apart a tensor is, and how far what it is computed from."""
        size = self.evidence.size(tensor)
        origin = "the forward pass" if tensor.kind == "gradient" else "its gradient"
        apart = f"differs by {size.relative:.1e} of its largest value" if size else "differs"
        return f"{apart}, behind a difference of {self.proportion.before(tensor):.1e} in {origin}"

    def sizes(self) -> list[Cause]:
        """Return what is accepted by its size alone, one entry in the form of a cause for each expectation."""
        causes = []
        for expected in self.expected:
            covered = [tensor for tensor in self.examined.unequal if _covers(expected, tensor)]
            if covered and not expected.names_cause:
                causes.append({"id": UNKNOWN, "where": covered[0].name, "reason": expected.reason})
        return causes

    def explains(self, finding: Finding) -> bool:
        """Return whether a finding reports the noise that an accepted cause makes in the low runs."""
        return finding.id == NOISE and plain(keys.split(finding.where)[1] or finding.where) in self.places

    def not_compared(self) -> Iterator[str]:
        """Yield a sentence for what lies behind an accepted cause and could only be judged in a weaker way."""
        behind = f"behind the accepted difference at {', '.join(sorted(self.places))}"
        free = [
            tensor for tensor in self.examined.unequal if not (self._is_within(tensor) or self._is_at_cause(tensor))
        ]
        forward = [tensor for tensor in free if tensor.kind in FORWARD and not self._is_sum_of_outputs(tensor)]
        earlier = [tensor for tensor in forward if _key(tensor) not in self.examined.same]
        gradients = [tensor for tensor in free if tensor.kind == "gradient"]
        if self.places and earlier:
            names = dict.fromkeys(plain(tensor.name) for tensor in earlier)
            yield f"{behind} judged only by the steps before it: {', '.join(names)}"
        if self.places and gradients:
            yield f"{behind} judged only by how far they are apart: the gradients from step {gradients[0].step} on"
        if self.places and any(tensor.kind == keys.UPDATE and not self._is_replayed(tensor) for tensor in free):
            yield f"{behind} judged only by how far they are apart: what the optimizer makes of the gradients"

    def _accepting(self, cause: Cause) -> Expect | None:
        """Return the expectation that accepts a cause, or None.

        An expectation that names the cause decides. Without one, the cause is accepted if all tensors at its place
        are within expected sizes.
        """
        named = [expected for expected in self.expected if _names(expected, cause)]
        if named:
            return next((expected for expected in named if self._is_small(expected, cause)), None)
        tensors = self._at(cause)
        covered = bool(tensors) and all(map(self._is_within, tensors))
        return next((expected for expected in self.expected if covered and _covers(expected, tensors[0])), None)

    def _is_small(self, expected: Expect, cause: Cause) -> bool:
        """Return whether the tensors at a cause's place are within the expected size, if one is given."""
        return not expected.has_size or all(self._fits(expected, tensor) for tensor in self._at(cause))

    def _at(self, cause: Cause) -> list[Unequal]:
        """Return the unequal tensors at the place of a cause."""
        return [tensor for tensor in self.examined.unequal if cause["where"] in self._places(tensor)]

    def _places(self, tensor: Unequal) -> set[str]:
        """Return the names at which the diagnosis may report a cause of this tensor."""
        diagnosed = self.examined.places.get(_key(tensor))
        return {plain(tensor.name), *([diagnosed] if diagnosed else [])} | (
            {tensor.name.rpartition(".")[0]} if tensor.kind in ("buffer", "optimizer_state") else set()
        )

    def _is_within(self, tensor: Unequal) -> bool:
        """Return whether a tensor is within a size that an expectation without a cause accepts at its name."""
        return any(_covers(expected, tensor) and self._fits(expected, tensor) for expected in self.expected)

    def _fits(self, expected: Expect, tensor: Unequal) -> bool:
        """Return whether a tensor is within the size of an expectation."""
        size = self.evidence.size(tensor)
        if size is None:
            return False
        if expected.largest_difference is not None and size.difference > expected.largest_difference:
            return False
        return expected.at_most_bits is None or size.missing <= min(expected.at_most_bits, self.evidence.needed)

    def _follows(self, tensor: Unequal) -> bool:
        """Return whether a tensor is a consequence of an accepted cause, with no fault of its own.

        Behind an accepted cause everything differs. So each module is judged by what it makes of its own inputs, or
        by an earlier step in which its inputs were equal and its output was too.
        """
        if self._is_at_cause(tensor):
            return True
        is_given = tensor.kind == "sample" or (tensor.kind == "input" and plain(tensor.name) in keys.MODEL_INPUTS)
        if is_given or _key(tensor) in self.examined.failed or self.evidence.size(tensor) is None:
            return False
        if self._is_sum_of_outputs(tensor):
            return True
        if tensor.kind in FORWARD:
            return _key(tensor) in self.examined.same or self.evidence.matched_before(tensor)
        return self._is_replayed(tensor) or any(self._moves(earlier, tensor) for earlier in self.examined.unequal)

    def _is_sum_of_outputs(self, tensor: Unequal) -> bool:
        """Return whether a tensor is the loss of a pair that does not train.

        That loss is a weighted sum that this project makes of the outputs, and the outputs are judged themselves.
        """
        return tensor.kind == "loss" and not self.evidence.trains

    def _is_at_cause(self, tensor: Unequal) -> bool:
        """Return whether an accepted cause is one of this very tensor.

        The kinds are compared too: a cause of an update is not one of the gradient of the same name.
        """
        kind = keys.split(_key(tensor))[0].replace("input", "activation")
        return any(kind in self._kinds(where) or not self._kinds(where) for where in self.places & self._places(tensor))

    def _kinds(self, where: str) -> set[str]:
        """Return the kinds of tensors that the diagnosis explained at a place."""
        kinds = (keys.split(key)[0] for key, place in self.examined.places.items() if place == where)
        return {kind.replace("input", "activation") for kind in kinds}

    def _moves(self, earlier: Unequal, tensor: Unequal) -> bool:
        """Return whether an unequal tensor has a part in a gradient, or in what the optimizer makes of it."""
        now, then = (-1 if unequal.step is None else unequal.step for unequal in (tensor, earlier))
        if tensor.kind == "gradient":
            return (then == now and earlier.kind in (*OF_MODULES, "loss")) or (
                then < now and earlier.kind == "parameter"
            )
        return then <= now and earlier.kind == "gradient"

    def _is_replayed(self, tensor: Unequal) -> bool:
        """Return whether the optimizer's formula, with the accepted settings, reproduces a parameter's updates.

        Each side's updates are recomputed from its own gradients.
        """
        replayed = self.examined.replayed
        if replayed is None or tensor.kind not in STORED or tensor.step is None:
            return False
        accepting = list(self._of_optimizer())
        places = (where for where, _ in accepting)
        name = keys.split(_key(tensor))[1] or next(
            places, ""
        )  # the learning rate is no parameter's, but part of every update
        if (name, tensor.replica) not in self.replayed:
            named = any(fnmatchcase(name, expected.where) for _, expected in accepting)
            self.replayed[name, tensor.replica] = replayed.reproduces(name, tensor.replica, frozen=named)
        return self.replayed[name, tensor.replica]

    def _of_optimizer(self) -> Iterator[tuple[str, Expect]]:
        """Yield place and expectation of each accepted cause in the optimizer.

        Such a cause is named at one parameter, and may hold for others.
        """
        for cause, expected in self.causes:
            if expected and keys.key(keys.UPDATE, where := str(cause["where"])) in self.examined.places:
                yield where, expected


def _names(expected: Expect, cause: Cause) -> bool:
    """Return whether an expectation names this cause, at this place."""
    return expected.names_cause and cause["id"] == expected.cause and fnmatchcase(str(cause["where"]), expected.where)


def _covers(expected: Expect, tensor: Unequal) -> bool:
    """Return whether an expectation accepts tensors of this name by their size alone."""
    return expected.has_size and not expected.names_cause and fnmatchcase(tensor.name, expected.where)


def _key(tensor: Unequal) -> str:
    """Return the key by which the diagnosis knows a tensor."""
    if tensor.kind == "buffer":
        return keys.key("activation", tensor.name.rpartition(".")[0])
    if tensor.kind in STORED:
        return keys.key(
            keys.UPDATE, tensor.name.rpartition(".")[0] if tensor.kind == "optimizer_state" else tensor.name
        )
    return keys.key(tensor.kind, plain(tensor.name))

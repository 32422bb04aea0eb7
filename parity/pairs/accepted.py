"""Tell which causes and tensors of a case the accepted differences of a pair's file cover."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from parity.config.pair import UNKNOWN, Expect
from parity.core.errors import nearest
from parity.diagnose.diagnosis import Examined
from parity.diagnose.place import plain
from parity.pairs.consequences import FORWARD, Consequences, cause_places
from parity.pairs.evidence import Evidence
from parity.pairs.proportion import Proportion
from parity.results import Cause, Finding
from parity.trace import keys
from parity.verdict.traces import Unequal

NOISE = "precision.noise"


class Accepted:
    """Which of a case's causes and tensors are accepted.

    `causes` pairs each cause with the expectation that accepts it, or None. `consequences` tells what follows from
    the causes that are accepted by name.
    """

    def __init__(self, examined: Examined, expected: list[Expect], evidence: Evidence) -> None:
        self.examined, self.expected, self.evidence = examined, expected, evidence
        self.causes = [(cause, self._accepting(cause)) for cause in examined.result.causes]
        self.consequences = Consequences(examined, self.causes, evidence)
        self.proportion = Proportion(examined.unequal, evidence)

    def occurs(self, expected: Expect) -> bool:
        """Return whether the case has a difference that an expectation names, however large."""
        if expected.names_cause:
            return any(_names(expected, cause) for cause in self.examined.result.causes)
        return any(fnmatchcase(tensor.name, expected.where) for tensor in self.examined.unequal)

    def may_be_hidden(self, expected: Expect) -> bool:
        """Return whether something else at the place of an expected cause may be why the cause was not found.

        That is a visible difference of another cause, or one that float32 cannot see, whose causes are not looked for
        as long as there are visible ones. A cause whose id was misspelled is not hidden.
        """
        if self.examined.result.verdict != "diverged" or not expected.names_cause or self._meant(expected):
            return False
        is_other = not all(by for _, by in self.causes)
        at_the_place = (tensor for tensor in self.examined.unequal if is_other or tensor.verdict == "subprecision")
        places = {place for tensor in at_the_place for place in cause_places(self.examined, tensor)}
        return any(fnmatchcase(place, expected.where) for place in places)

    def complaint(self, expected: Expect) -> str:
        """Return the message for an expected difference that does not occur, with the nearest name that exists."""
        what = f"{expected.cause} at {expected.where}" if expected.cause else f"at {expected.where}"
        hint = self._meant(expected)
        if not any(fnmatchcase(name, expected.where) for name in self.evidence.names):
            hint = f"; no module or tensor is called that{nearest(expected.where, self.evidence.names)}"
        return f"the expected difference {what} does not occur{hint}: take it out of the pair's file, or correct it"

    def _meant(self, expected: Expect) -> str:
        """Return the end of a message with the cause that a misspelled id may mean."""
        ids = [cause.id for cause in self.examined.result.causes]
        return nearest(expected.cause, ids) if expected.names_cause and expected.cause not in ids else ""

    def holds(self, tensor: Unequal) -> bool:
        """Return whether an unequal tensor is accepted: by its size, or as a consequence of an accepted cause."""
        return self._is_within(tensor) or (bool(self.consequences.places) and self.consequences.follow(tensor))

    def left(self, tensor: Unequal) -> Unequal:
        """Return a tensor that is not accepted, with the verdict on what it has of its own.

        What float32 did not see of a forward pass before a difference that is accepted, it does not see behind it.
        """
        may_be_hidden = tensor.kind in FORWARD and self.consequences.may_follow(tensor)
        return tensor._replace(verdict="subprecision") if may_be_hidden and self.evidence.was_hidden(tensor) else tensor

    def is_decidable(self, tensor: Unequal) -> bool:
        """Return whether it can be told if an accepted tensor hides a fault."""
        if tensor.kind in FORWARD or self._is_within(tensor) or self.consequences.is_at_cause(tensor):
            return True
        return self.consequences.is_replayed(tensor) or self.proportion.holds(tensor)

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
                causes.append(Cause(id=UNKNOWN, where=covered[0].name, reason=expected.reason))
        return causes

    def explains(self, finding: Finding) -> bool:
        """Return whether a finding reports the noise that an accepted cause makes in the low runs."""
        return finding.id == NOISE and plain(keys.split(finding.where)[1] or finding.where) in self.consequences.places

    def not_compared(self) -> Iterator[str]:
        """Yield a sentence for what lies behind an accepted cause and could only be judged in a weaker way."""
        return self.consequences.judged_weakly(
            [tensor for tensor in self.examined.unequal if not self._is_within(tensor)]
        )

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
        return [tensor for tensor in self.examined.unequal if cause.where in cause_places(self.examined, tensor)]

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


def _names(expected: Expect, cause: Cause) -> bool:
    """Return whether an expectation names this cause, at this place."""
    return expected.names_cause and cause.id == expected.cause and fnmatchcase(cause.where, expected.where)


def _covers(expected: Expect, tensor: Unequal) -> bool:
    """Return whether an expectation accepts tensors of this name by their size alone."""
    return expected.has_size and not expected.names_cause and fnmatchcase(tensor.name, expected.where)

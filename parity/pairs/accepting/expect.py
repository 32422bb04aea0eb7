"""Apply the accepted differences ([[expect]]) of a pair's file to its verdict: which causes and tensors they cover.

Every difference that the file expects has to occur, and every difference that occurs has to be expected.
docs/accepting.md says which tensors follow from an accepted cause.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec.structs import replace

from parity.config.pair import CLIP, EPSILON, SEED, SPARSE, SUM, UNKNOWN, VARIANCE, WITHIN, Expect
from parity.core.errors import UsageError, nearest
from parity.core.wording import agree
from parity.diagnose.diagnosis import Examined
from parity.diagnose.entries import unknown
from parity.pairs.accepting.consequences import FORWARD, Consequences, cause_places
from parity.pairs.accepting.evidence import Evidence
from parity.results import CaseResult, Cause, Check, Divergence, Finding, Verdict, worst
from parity.trace import keys
from parity.trace.keys import in_words, plain
from parity.trace.mapping import Mapping
from parity.trace.training import Training
from parity.verdict.traces import Unequal

NOISE = "precision.noise"
# What torch's runs do and Keras's, by the id of the cause to which they are held.
AS_HELD = {EPSILON: ("held before the correction", "before the correction"), CLIP: ("held at 0", 0.0)}
AS_HELD |= {SPARSE: ("dense", "held dense"), **dict.fromkeys(WITHIN, ("outside the root", "held outside the root"))}


class Accepted:
    """Which of a case's causes and tensors are accepted.

    `causes` pairs each cause with the expectation that accepts it, or None; `has_all_causes` says that each has one.
    `consequences` tells what follows from the causes that are accepted by name.
    """

    def __init__(self, examined: Examined, expected: list[Expect], evidence: Evidence) -> None:
        self.examined, self.expected, self.evidence = examined, expected, evidence
        self.causes = [(cause, self._accepting(cause)) for cause in examined.result.causes]
        self.has_all_causes = all(by for _, by in self.causes)
        self.consequences = Consequences(examined, self.causes, evidence)

    @property
    def remaining(self) -> list[Unequal]:
        """Return the tensors that are not accepted, each with the verdict on what it has of its own."""
        return [self._left(tensor) for tensor in self.examined.unequal if not self.holds(tensor)]

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
        is_other = not self.has_all_causes
        at_the_place = (tensor for tensor in self.examined.unequal if is_other or tensor.verdict == "subprecision")
        places = {place for tensor in at_the_place for place in cause_places(self.examined, tensor)}
        return any(fnmatchcase(place, expected.where) for place in places)

    def complaint(self, expected: Expect) -> str:
        """Return the message for an expected difference that does not occur, with the nearest name that exists."""
        what = f"{expected.cause} at {expected.where}" if expected.cause else f"at {expected.where}"
        hint = "; name weights that Keras adds to others" if expected.cause == SUM else self._meant(expected)
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

    def _left(self, tensor: Unequal) -> Unequal:
        """Return a tensor that is not accepted, with the verdict on what it has of its own.

        What float32 did not see of a forward pass before a difference that is accepted, it does not see behind it.
        """
        may_be_hidden = tensor.kind in FORWARD and self.consequences.may_follow(tensor)
        return tensor._replace(verdict="subprecision") if may_be_hidden and self.evidence.was_hidden(tensor) else tensor

    def is_decidable(self, tensor: Unequal) -> bool:
        """Return whether it can be told if an accepted tensor hides a fault."""
        if self._is_within(tensor) or self.consequences.is_at_cause(tensor):
            return True
        if tensor.kind in FORWARD:
            return self.consequences.is_sum_of_outputs(tensor) or self.consequences.proportion.holds_later(tensor)
        return self.consequences.is_replayed(tensor) or self.consequences.proportion.holds(tensor)

    def is_unlike(self, tensor: Unequal) -> bool:
        """Return whether a tensor is so far out of proportion that it is another difference, though it may follow."""
        is_visible = tensor.verdict == "diverged" and self.consequences.proportion.would_be_slight(tensor)
        return is_visible and not self.is_decidable(tensor)

    def sizes(self) -> Iterator[Cause]:
        """Yield what is accepted by its size alone, one entry in the form of a cause for each expectation."""
        for expected in self.expected:
            if first := next((tensor for tensor in self.examined.unequal if _covers(expected, tensor)), None):
                yield Cause(id=UNKNOWN, where=first.name, reason=expected.reason)

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
        tensors = [each for each in self.examined.unequal if cause.where in cause_places(self.examined, each)]
        named = [expected for expected in self.expected if _names(expected, cause)]
        small = (each for each in named if not each.has_size or all(self._fits(each, tensor) for tensor in tensors))
        if named:
            return next(small, None)
        covered = bool(tensors) and all(map(self._is_within, tensors))
        return next((expected for expected in self.expected if covered and _covers(expected, tensors[0])), None)

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


def held(
    result: CaseResult, expected: list[Expect], mapping: Mapping, torch_training: Training, keras_training: Training
) -> list[Expect]:
    """Return the expectations that are left, and add to the result what is accepted since the runs are held to it.

    To what runs are held: Pair.holds, Pair.holds_variance, Pair.accepts. An expectation is left of a running variance
    that Keras computes as torch does, or that differs at other modules.

    Raises UsageError for an expectation that holds anything but further parts of Keras's sums.
    """
    modules, repeated = torch_training.held, (torch_training.repeated, keras_training.repeated)
    sums = {part: entry for entry in mapping.entries if entry.combine == "sum" for part in entry.torch[1:]}
    torch = [name for entry in mapping.entries for name in entry.torch]
    left, variances = [], [cause for cause in result.causes if cause.id == VARIANCE]
    drop_held(result, modules)
    for each in expected:
        names = [name for name in (torch if each.cause == SUM else modules) if fnmatchcase(name, each.where)]
        if each.cause == SUM and (rest := [name for name in names if name not in sums]):
            raise UsageError(
                f"the expected difference {SUM} at {each.where!r} is one of {rest[0]} too, which keras has by itself; "
                f"expected the weights that it has only in a sum: {', '.join(sums) or 'there are none'}"
            )
        if each.cause == SUM and names:
            result.expected += [
                Cause(id=SUM, where=name, torch="held at 0", keras=sums[name].keras[0], reason=each.reason)
                for name in names
            ]
        elif each.cause == VARIANCE and names and not any(fnmatchcase(cause.where, each.where) for cause in variances):
            result.expected += [
                Cause(id=VARIANCE, where=name, torch="held as biased", keras="biased", reason=each.reason)
                for name in names
            ]
        elif each.cause in (*torch_training.causes_held, *keras_training.causes_held):
            ours, theirs = AS_HELD[each.cause]
            result.expected += [Cause(id=each.cause, where=each.where, torch=ours, keras=theirs, reason=each.reason)]
        elif each.cause == SEED and any(repeated):
            torch_draws, keras_draws = ("repeats earlier numbers" if places else "draws anew" for places in repeated)
            cause = Cause(id=SEED, where=each.where, torch=torch_draws, keras=keras_draws, reason=each.reason)
            result.expected.append(cause)
        else:
            left.append(each)
    return left


def drop_held(result: CaseResult, modules: Sequence[str]) -> None:
    """Drop the causes that are told of running variances which torch's run holds as Keras has them: none is its own."""
    result.causes = [cause for cause in result.causes if cause.id != VARIANCE or cause.where not in modules]


def apply_expected(examined: Examined, expected: list[Expect], evidence: Evidence) -> None:
    """Change the verdict of a case according to what the user accepts.

    The case becomes a match if all of its causes are accepted and every tensor that is not a match is within an
    accepted size or follows from an accepted cause. It becomes `inconclusive` if this cannot be told of a gradient or
    an update behind an accepted cause, and `diverged` if an accepted difference does not occur.
    """
    result = examined.result
    if not expected or result.verdict == "error":
        return
    accepted = Accepted(examined, expected, evidence)
    if missing := [each for each in expected if not (accepted.occurs(each) or accepted.may_be_hidden(each))]:
        result.verdict, result.reason = "diverged", "; ".join(map(accepted.complaint, missing))
        return
    result.expected += [replace(cause, reason=by.reason) for cause, by in accepted.causes if by]
    result.expected += accepted.sizes()
    if result.verdict not in ("diverged", "subprecision"):
        return
    if not accepted.has_all_causes:  # then those are told that are left
        result.causes = [cause for cause, by in accepted.causes if not by]
        return
    if unaccepted := accepted.remaining:
        _report_unaccepted(result, unaccepted)
        return
    if undecidable := [tensor for tensor in examined.unequal if not accepted.is_decidable(tensor)]:
        _report_undecidable(result, undecidable, accepted)
        return
    # Accepting differences does not settle a check that could not be judged.
    checks = [check for check in result.checks.values() if isinstance(check, Check)]
    is_open = any(check.verdict == "inconclusive" for check in checks)
    result.verdict, result.first_divergence = "inconclusive" if is_open else "match", None
    result.findings = [finding for finding in result.findings if not accepted.explains(finding)]
    result.reason = "; ".join(dict.fromkeys(f"accepted: {cause.reason}" for cause in result.expected))
    result.not_compared += accepted.not_compared()


def left_over(examined: Examined, expected: list[Expect], evidence: Evidence) -> tuple[Verdict, Divergence] | None:
    """Return the verdict on what is left where every cause is accepted, and the first difference that makes it so.

    None if nothing is left, if there is a cause that is not accepted, or if all that is left is what float32 cannot
    see while it cannot be told whether an accepted difference hides a fault.
    """
    if examined.result.verdict != "diverged":
        return None
    accepted = Accepted(examined, expected, evidence)
    if not accepted.has_all_causes:
        return None
    left = [*accepted.remaining, *filter(accepted.is_unlike, examined.unequal)]
    verdict = worst([tensor.verdict for tensor in left])
    if verdict == "match" or (verdict == "subprecision" and not all(map(accepted.is_decidable, examined.unequal))):
        return None
    first = next(tensor for tensor in left if tensor.verdict == verdict)
    return verdict, _left(first, evidence)


def _left(tensor: Unequal, evidence: Evidence) -> Divergence:
    """Return a difference that no accepted cause explains."""
    size = evidence.size(tensor)
    apart, bits = "it differs", None
    if size:
        apart = f"{size.difference:.1e} apart in float64, {size.relative:.1e} of the largest value"
        bits = evidence.needed - size.missing
    return tensor.divergence(f"{apart}, and this follows from nothing accepted or inherent", bits)


def _report_unaccepted(result: CaseResult, unaccepted: list[Unequal]) -> None:
    """Name the first tensor that follows from no accepted cause and is within no accepted size; no cause is known."""
    verdict = worst([tensor.verdict for tensor in unaccepted])
    first = next(tensor for tensor in unaccepted if tensor.verdict == verdict)
    further = len(unaccepted) - 1
    more = f"; so {agree(further, 'does')} {further} more" if further else ""
    result.reason = (
        f"{in_words(first.kind, first.name)} does not follow from an accepted cause and is within no accepted size, "
        f"yet it differs{more}"
    )
    result.first_divergence = first.divergence(result.reason)
    result.causes = [
        unknown(first.name, ("torch", "keras"), why="it follows from no accepted cause, and no other was found")
    ]


def _report_undecidable(result: CaseResult, undecidable: list[Unequal], accepted: Accepted) -> None:
    """Name the first gradient or update in which an accepted difference may hide a fault."""
    first = undecidable[0]
    more = f" (and {len(undecidable) - 1} more)" if len(undecidable) > 1 else ""
    result.verdict = "inconclusive"
    apart = accepted.consequences.proportion.in_words(first)
    result.reason = (
        f"{in_words(first.kind, first.name)}{more} {apart}: no formula tells whether the accepted "
        "difference alone makes it so; accept it by its size ([[expect]] with where and largest_difference), or mend "
        "the cause"
    )
    result.first_divergence = first.divergence(result.reason)


def _names(expected: Expect, cause: Cause) -> bool:
    """Return whether an expectation names this cause, at this place."""
    return expected.names_cause and cause.id == expected.cause and fnmatchcase(cause.where, expected.where)


def _covers(expected: Expect, tensor: Unequal) -> bool:
    """Return whether an expectation accepts tensors of this name by their size alone."""
    return expected.has_size and not expected.names_cause and fnmatchcase(tensor.name, expected.where)

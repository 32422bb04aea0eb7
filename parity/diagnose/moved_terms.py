"""Terms of sums that one side adds within a module and the other around it, which make the same sum in the end.

One framework's attention adds its residual itself, the other's leaves that to the block. Each of the two modules then
adds up other tensors than its counterpart, and both together do not. So it is with a factor, such as an embedding's.
"""

import math
from collections.abc import Mapping, Sequence

from parity.diagnose import wiring
from parity.diagnose.explain import Change, Explained
from parity.diagnose.formula import Settings
from parity.diagnose.question import Question

Terms = tuple[str, ...]
Sums = Mapping[str, tuple[Terms, Terms]]  # by the key of the sum, its terms on both sides
Answer = tuple[Question, Explained]
TERMS, SCALE = "terms", "scale"
CLOSE = 1e-6


def without_moved(answers: Sequence[Answer]) -> list[Answer]:
    """Return the answers; those that only tell where a term is added say that both sides compute the same."""
    answers = [(ask, answer._replace(changes=_without_order(answer))) for ask, answer in answers]
    sums = {ask.tensor: _terms(answer) for ask, answer in answers if _is_other_sum(ask, answer)}
    moved: set[str] = set()
    for key in sums:
        used: tuple[set[str], set[str]] = set(), set()
        torch, keras = (sorted(_expanded(key, side, sums, used[side])) for side in (0, 1))
        if torch == keras:
            moved |= used[0] | used[1]
    scales = {ask.tensor: answer.changes[0] for ask, answer in answers if _is_other_scale(answer)}
    for ask, answer in answers:
        inner = _scaled(ask, answer) if ask.tensor in scales else ""
        if inner in scales and _cancel(scales[inner], scales[ask.tensor]):
            moved |= {inner, ask.tensor}
    return [
        (ask, answer._replace(same=True, changes=()) if ask.tensor in moved and _is_moved(ask, answer) else answer)
        for ask, answer in answers
    ]


def _without_order(answer: Explained) -> tuple[Change, ...]:
    """Return the changes of an answer without that of the order of terms: of a sum's it says nothing."""
    return tuple(
        change
        for change in answer.changes
        if len(answer.changes) == 1 or change.trait != TERMS or sorted(change.reference) != sorted(change.candidate)
    )


def _is_moved(ask: Question, answer: Explained) -> bool:
    return _is_other_sum(ask, answer) or _is_other_scale(answer)


def _is_other_scale(answer: Explained) -> bool:
    return [change.trait for change in answer.changes] == [SCALE]


def _scaled(ask: Question, answer: Explained) -> str:
    """Return the tensor of which another one is a multiple on both sides; "" if there is none."""
    settings = answer.settings[0] if ask.formula is wiring.FORMULA and answer.settings else {}
    terms: Terms = settings.get(TERMS, ())
    return terms[0] if len(terms) == 1 and _is_plain({**settings, SCALE: 1.0}) else ""


def _cancel(inner: Change, outer: Change) -> bool:
    """Return whether both sides scale by the same in the end."""
    return math.isclose(inner.reference * outer.reference, inner.candidate * outer.candidate, rel_tol=CLOSE)


def _is_other_sum(ask: Question, answer: Explained) -> bool:
    """Return whether both sides make a tensor by adding up others, and only these differ."""
    if ask.formula is not wiring.FORMULA or [change.trait for change in answer.changes] != [TERMS]:
        return False
    return all(_is_plain(settings) for settings in answer.settings or ())


def _is_plain(settings: Settings) -> bool:
    """Return whether nothing is done but adding up."""
    usual = {"function": "identity", "operation": "sum", "added": "nothing", "rounded": "nothing", "scale": 1.0}
    return all(settings[name] == value for name, value in usual.items())


def _terms(answer: Explained) -> tuple[Terms, Terms]:
    assert answer.settings
    return answer.settings[0][TERMS], answer.settings[1][TERMS]


def _expanded(key: str, side: int, sums: Sums, used: set[str]) -> list[str]:
    """Return the terms of a sum on a side, with those of the sums among them in place of these.

    The sums are added to `used`; one that was met before stays as it is.
    """
    used.add(key)
    found = []
    for term in sums[key][side]:
        found += _expanded(term, side, sums, used) if term in sums and term not in used else [term]
    return found

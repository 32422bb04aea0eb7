"""The search for edits, with comparisons that are made up: which are accepted, and in which order they are tried."""

from pathlib import Path
from typing import Any

import pytest

from parity.pairs.file import from_flags
from parity.repair import candidates
from parity.repair.edit import Edit
from parity.repair.search import MOST_TRIALS, Decision, Repairing, decide, key
from parity.repair.source import Span
from parity.results import CaseResult, Cause, Variation

A = Cause(id="layer_norm.epsilon", where="1", torch=1, keras=2)
B = Cause(id="relu.slope", where="2", torch=1, keras=2)
GOOD, BAD, OPEN = Decision("accepted"), Decision("refused", "no good"), Decision("uncertain", "behind it is more")


def change(number: int) -> Edit:
    """The edit of a line of its own."""
    return Edit(Path("port.py"), ((Span(2 * number, 2 * number + 1), "y"),), number, ("x", "y"))


class Scripted(Repairing):
    """A repair whose comparisons end as a table says: by the edits that are tried together, their decision."""

    def __init__(self, known: dict[str, list[Edit]], ends: dict[tuple[int, ...], Decision], tmp_path: Path) -> None:
        super().__init__(
            from_flags("a:b", "port:b", ["x=float32[2]"])._replace(search=[str(tmp_path)]), [], tmp_path, True
        )
        self.known, self.ends, self.order = known, ends, []

    def _try(self, state: Any, wishes: Any) -> Any:
        self._trials += 1
        lines = tuple(edit.line for edit in wishes)
        self.order.append(lines)
        gone = (
            {key(cause) for causes in wishes.values() for cause in causes}
            if self.ends[lines].outcome != "refused"
            else set()
        )
        left = [cause for cause in state.result.causes if (cause.id, cause.where) not in gone]
        result = CaseResult(case="pair/b", verdict="diverged" if left else "match", causes=left)
        return state._replace(result=result), self.ends[lines]


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch):
    """`scripted(known, ends)`: the repair of both causes, for whose ids `known` has edits."""
    (tmp_path / "port.py").write_text("x\n" * 9)
    monkeypatch.setattr(candidates, "edits", lambda cause, port: port.known.get(cause.id, []))
    monkeypatch.setattr(candidates, "why_none", lambda cause, port: "none")

    def run(known: dict[str, list[Edit]], ends: dict[tuple[int, ...], Decision]) -> tuple[Any, Any]:
        it = Scripted(known, ends, tmp_path)
        monkeypatch.setattr(candidates, "read", lambda *_: it)
        causes = [cause for cause in (A, B) if cause.id in known]
        result = CaseResult(case="pair/b", verdict="diverged", causes=causes)
        return it, it.run(result, tmp_path, tmp_path / "it.diff")

    return run


def accepted(repair: Any) -> list[int]:
    return [edit.line for edit in repair.edits if edit.accepted]


def test_a_bad_edit_does_not_spoil_a_good_one(scripted) -> None:
    ends = {(1, 2): BAD, (1,): BAD, (2,): GOOD}
    it, repair = scripted({A.id: [change(1)], B.id: [change(2)]}, ends)
    assert it.order == [(1, 2), (1,), (2,)] and accepted(repair) == [2]
    assert repair.left == ["layer_norm.epsilon at 1: all edits were refused"]


def test_a_nearer_place_is_tried_where_the_origin_is_refused(scripted) -> None:
    it, repair = scripted({A.id: [change(1), change(2)]}, {(1,): BAD, (2,): GOOD})
    assert it.order == [(1,), (2,)] and accepted(repair) == [2]
    assert [edit.why for edit in repair.edits] == ["no good", ""]


@pytest.mark.parametrize(("second", "best"), [(GOOD, 2), (BAD, 1), (OPEN, 1)])
def test_an_uncertain_edit_is_accepted_if_no_other_is_better(second: Decision, best: int, scripted) -> None:
    _, repair = scripted({A.id: [change(1), change(2)]}, {(1,): OPEN, (2,): second})
    assert accepted(repair) == [best] and repair.verdict == "match"


def test_the_search_ends(scripted) -> None:
    edits = [change(number) for number in range(1, MOST_TRIALS + 5)]
    it, repair = scripted({A.id: edits}, {(number,): BAD for number in range(1, MOST_TRIALS + 5)})
    assert len(it.order) == MOST_TRIALS and repair.left == [f"the search ended after {MOST_TRIALS} comparisons"]


def judged(verdict: Any, *causes: dict[str, Any], **more: Any) -> CaseResult:
    return CaseResult(case="pair/b", verdict=verdict, causes=list(causes), **more)


def test_an_edit_that_harms_a_variation_is_refused() -> None:
    match, diverged = (Variation(name="twice", verdict=verdict) for verdict in ("match", "diverged"))
    before, after = judged("diverged", A, variations=[match]), judged("match", variations=[diverged])
    assert decide(before, after, {key(A)}).why == "the pair now diverges on twice"

"""Which slots of the user's own optimizers are in another form, and which may be wrong."""

from parity.diagnose.diagnosis import Examined
from parity.pairs.hidden import slots_in_another_form
from parity.results import CaseResult
from parity.verdict.traces import Unequal


def slots(*unequal: Unequal, same: tuple[str, ...] = (), steps: int = 3) -> set[str]:
    result = CaseResult(case="pair/x", verdict="diverged")
    return slots_in_another_form(Examined(result, list(unequal), same=frozenset(same)), steps)


def state(name: str, step: int | None = 0) -> Unequal:
    return Unequal(step, 0, "optimizer_state", name)


def test_known_formulas_tell_of_the_last_step_too() -> None:
    assert slots(state("a.momentum", 2), same=("update/a",)) == {"momentum"}
    assert slots(state("a.momentum", 2), same=("update/b",)) == set()

"""Which slots of the user's own optimizers are in another form, and which may be wrong."""

import pytest

from parity.diagnose.diagnosis import Examined
from parity.pairs.hidden import slots_in_another_form
from parity.results import CaseResult
from parity.verdict.traces import Unequal


def slots(*unequal: Unequal, same: tuple[str, ...] = (), steps: int = 3) -> set[str]:
    result = CaseResult(case="pair/x", verdict="diverged")
    return slots_in_another_form(Examined(result, list(unequal), same=frozenset(same)), steps)


def state(name: str, step: int | None = 0) -> Unequal:
    return Unequal(step, 0, "optimizer_state", name)


def test_a_slot_that_differs_while_its_updates_are_equal() -> None:
    assert slots(state("a.weight.square")) == {"square"}
    assert slots(state("a.weight.square"), state("b.square", 1), state("a.weight.mean")) == {"square", "mean"}


@pytest.mark.parametrize("kind", ["gradient", "update"])
def test_not_if_the_updates_or_gradients_differ_too(kind: str) -> None:
    assert slots(state("a.square"), Unequal(1, 0, kind, "a")) == set()
    assert slots(state("a.square"), Unequal(1, 0, kind, "b")) == {"square"}


def test_not_if_no_update_was_made_of_it() -> None:
    assert slots(state("a.square", 2)) == set()
    assert slots(state("a.square"), steps=1) == set()


def test_known_formulas_tell_of_the_last_step_too() -> None:
    assert slots(state("a.momentum", 2), same=("update/a",)) == {"momentum"}
    assert slots(state("a.momentum", 2), same=("update/b",)) == set()


def test_a_learning_rate_that_is_set_at_another_time_changes_no_update() -> None:
    assert slots(state("learning_rate")) == {"learning_rate"}
    assert slots(state("learning_rate"), Unequal(1, 0, "update", "a")) == set()
    assert slots(state("learning_rate", 2)) == set()


def test_what_the_training_begins_with_is_no_slot() -> None:
    assert slots(state("a.square", None)) == set()

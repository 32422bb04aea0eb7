"""A term that one side adds within a module and the other around it is no difference; one that is lacking is."""

from typing import Any

import pytest

from parity.diagnose import wiring
from parity.diagnose.explain import Change, Explained
from parity.diagnose.forward import Answer, without_moved
from parity.diagnose.topic import Question


def answer(tensor: str, torch: tuple[str, ...], keras: tuple[str, ...], **other: Any) -> Answer:
    usual = {"function": "identity", "operation": "sum", "added": "nothing", "rounded": "nothing", "scale": 1.0}
    settings = {**usual, "terms": torch}, {**usual, **other, "terms": keras}
    changes = [Change("terms", "module.wiring", torch, keras, 30.0, 0.0)]
    changes += [Change(name, "module.scale", usual[name], value, 30.0, 0.0) for name, value in other.items()]
    ask = Question("activation", tensor, wiring.FORMULA, (None, None))
    return ask, Explained(False, tuple(changes), (), settings=settings)


INNER = answer("attention", ("activation/x", "activation/dense"), ("activation/dense",))


def left(*answers: Answer) -> list[str]:
    return [ask.where for ask, explained in without_moved(answers) if explained.changes]


def test_a_term_that_is_added_around_the_module_is_no_difference() -> None:
    outer = answer("block", ("activation/attention",), ("activation/attention", "activation/x"))
    assert left(INNER, outer) == []
    assert all(explained.same for _, explained in without_moved([INNER, outer]))


def test_a_term_that_is_lacking_is_one() -> None:
    assert left(INNER) == ["attention"]


@pytest.mark.parametrize(("around", "expected"), [(4.0, []), (3.0, ["embedding", "block"])])
def test_a_factor_that_stands_around_the_module_is_no_difference(around: float, expected: list[str]) -> None:
    def scaled(tensor: str, torch: float, keras: float) -> Answer:
        ask, told = answer(tensor, ("activation/embedding",), ("activation/embedding",))
        return ask, told._replace(changes=(Change("scale", "module.scale", torch, keras, 30.0, 0.0),))

    assert left(scaled("embedding", 4.0, 1.0), scaled("block", 1.0, around)) == expected


def test_the_order_of_the_terms_of_a_difference_is_none_of_its_own() -> None:
    ask, told = answer(
        "block", ("activation/x", "activation/y"), ("activation/y", "activation/x"), operation="difference"
    )
    ((_, explained),) = without_moved([(ask, told)])
    assert [change.trait for change in explained.changes] == ["operation"]


def test_a_tensor_in_terms_of_itself_ends() -> None:
    here, there = answer("a", ("activation/b",), ("activation/c",)), answer("b", ("activation/a",), ("activation/c",))
    assert left(here, there) == ["a", "b"]

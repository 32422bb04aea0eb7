"""What is asked about differences after the forward pass, which of the answers are told, and in which words."""

from typing import Any

import numpy as np
import pytest

from parity.diagnose.experiment import later
from parity.diagnose.experiment.later import Parted, difference, likely, parted, with_named
from parity.results import CaseResult, Cause, Divergence
from parity.runtime.experiment import Change, Found, Outcome
from parity.verdict.traces import Unequal


def cause(id_: str, where: str) -> Cause:
    return Cause(id=id_, where=where, torch=None, keras=None)


def result(kind: str, name: str, step: int, *causes: dict[str, Any]) -> CaseResult:
    first = Divergence(step=step, kind=kind, name=name, replica=0, bits=0.0, reason="")
    return CaseResult(case="pair/x", verdict="diverged", first_divergence=first, causes=list(causes))


MOVED = [Unequal(0, 0, "update", "fc.weight"), Unequal(0, 0, "optimizer_state", "out.bias.exp_avg")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (result("loss", "loss", 0, cause("unknown", "loss")), [Parted("loss", "loss", "loss", 0)]),
        (result("gradient", "w", 2, cause("unknown", "w")), [Parted("w", "gradient", "w", 2)]),
        (result("gradient", "w", 0, cause("gradient.stopped", "v")), [Parted("w", "gradient", "w", 0)]),
        (result("gradient", "w", 0, cause("embedding.padding_idx", "w")), []),
        (result("activation", "fc", 0, cause("unknown", "fc")), []),
        (result("activation", "fc", 2, cause("unknown", "fc")), [Parted("fc", "update", "fc.weight", 0)]),
        (result("activation", "fc", 0, cause("unknown", "out.bias")), [Parted("out.bias", "update", "out.bias", 0)]),
        (result("parameter", "fc.weight", 0, cause("adam.epsilon", "fc.weight")), []),
    ],
)
def test_what_is_asked(given: CaseResult, expected: list[Parted]):
    assert parted(given, MOVED) == expected


def test_an_update_is_asked_for_in_the_first_step_in_which_it_differs():
    """Not in that of a slot, which may be kept in another form."""
    unequal = [Unequal(0, 0, "optimizer_state", "w.momentum_buffer"), Unequal(2, 0, "update", "w")]
    given = result("optimizer_state", "w.momentum_buffer", 0, cause("unknown", "w"))
    assert parted(given, unequal) == [Parted("w", "update", "w", 2)]


def test_what_follows_is_told_once():
    asked = Parted("w", "gradient", "w", 0)
    unequal = [Unequal(0, 0, "gradient", name) for name in ("w", "v")]
    causes = [cause("gelu.form", "act"), cause("unknown", "v"), cause("gradient.missing", "w"), cause("unknown", "u")]
    named = [cause("embedding.padding_idx", "w")]
    told = with_named(causes, asked, named, later.moved(asked, unequal))
    assert [each.id for each in told] == ["gelu.form", "embedding.padding_idx", "unknown"]
    assert told[-1].where == "u"


def test_further_modules_of_the_class_are_asked_once_each():
    kinds = {"one": "Embedding", "two": "Embedding", "rnn": "LSTM", "rnn.three": "Embedding"}
    names = ["one.weight", "two.weight", "two.scale", "rnn.weight", "rnn.three.weight"]
    unequal = [Unequal(0, 0, "gradient", name) for name in names] + [Unequal(1, 0, "gradient", "two.late")]
    asked = Parted("one.weight", "gradient", "one.weight", 0)
    assert [each.name for each in later.alike(asked, unequal, kinds)] == ["two.weight", "rnn.three.weight"]


def found(kind: str, before: Any, after: Any) -> Found:
    change = Change(name="x", owner="f", source="", kind=kind, path="", of="", before=before, after=after)
    return Found(changes=[change], bits=30.0, before=0.0)


def test_a_factor_of_zero_is_likelier_than_another_function():
    factor, function = found("constant", 0.02, 0.0), found("function", "mean", "prod")
    assert likely(Outcome(found=[function, factor]), "loss").found == [factor]
    assert likely(Outcome(found=[function]), "loss").found == [function]


def test_a_number_of_many_digits_explains_no_loss():
    number = found("constant", 0.02, 0.02173456781)
    assert likely(Outcome(found=[number]), "loss").found == []
    assert likely(Outcome(found=[number]), "gradient").found == [number]


W = np.arange(1.0, 13.0).reshape(4, 3)


def without(*rows: int) -> np.ndarray:
    array = W.copy()
    array[list(rows)] = 0.0
    return array


def other(row: int) -> np.ndarray:
    array = W.copy()
    array[row, 1] += 1.0
    return array


@pytest.mark.parametrize(
    ("kind", "torch", "keras", "words"),
    [
        ("gradient", W, np.zeros_like(W), "keras gives w no gradient, torch does"),
        ("gradient", without(1), W, "torch gives row 1 of w no gradient, keras does"),
        ("gradient", W, without(0, 2), "keras gives rows 0, 2 of w no gradient, torch does"),
        ("gradient", W, -0.5 * W, "the gradient of w in keras is -0.5 times that in torch"),
        ("gradient", W, other(2), "the gradient of w differs in row 2 alone; the cosine"),
        ("gradient", W, W[:, ::-1], "the gradient of w differs in 8 of 12 elements; the cosine"),
        ("update", W, np.zeros_like(W), "keras leaves w as it is, torch moves it"),
        ("update", W, 2 * W, "the update of w in keras is 2 times that in torch"),
        ("loss", np.array(2.0), np.array(2.5), "keras's loss is torch's + 0.5, or 1.25 times it"),
        ("loss", np.array(0.0), np.array(-1.0), "keras's loss is torch's - 1"),
    ],
)
def test_a_difference_is_told(kind: str, torch: np.ndarray, keras: np.ndarray, words: str):
    assert difference(kind, "w", torch, keras).startswith(words)

"""Experiments: knobs are found in modules and in code, and the search finds the change that reproduces a value."""

import enum
import gc
import math
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pytest
from causes_made import made
from numpy import tanh

from parity.diagnose.experiment import code, knobs, masks, study
from parity.diagnose.experiment.attempts import Attempts, plain
from parity.diagnose.experiment.candidates import alternatives, candidates
from parity.diagnose.experiment.causes import causes
from parity.diagnose.experiment.description import with_causes
from parity.diagnose.experiment.executed import Executed, executed
from parity.diagnose.experiment.knobs import Knob, Owner
from parity.diagnose.experiment.search import Search
from parity.diagnose.formula import Seen, seen
from parity.runtime import experiment
from parity.runtime.experiment import Change, Found, Outcome

X = np.linspace(-3.0, 3.0, 41)
EPSILON = 1e-3
FOLDER = TemporaryDirectory()  # for what is being tried


class Form(enum.Enum):
    """An enumeration that a module may have."""

    EXACT = 1
    TANH = 2


class Module:
    """A module as people write it: settings in attributes, constants in its code and in its file."""

    def __init__(self, slope: float = 0.1, form: str = "exact", shift: int = 2) -> None:
        if form not in ("exact", "tanh"):
            raise ValueError(form)
        self.slope, self.form, self.shift, self.kind = slope, form, shift, Form.EXACT
        self.function = np.tanh
        self.unread = 0.5

    def call(self, x: np.ndarray) -> np.ndarray:
        y = np.where(x > 0, x, self.slope * x)
        y = y * 1.702 if self.form == "exact" else {"tanh": np.tanh}[self.form](y)
        y = np.roll(y, self.shift)
        return helper(y) + EPSILON if self.kind is Form.EXACT else y


def helper(x: np.ndarray, power: float = 2.0) -> np.ndarray:
    return np.maximum(np.sign(x) * np.abs(x) ** power, -4.0)


def run_of(module: Module) -> tuple[list[Executed], set[str]]:
    return executed(lambda: module.call(X), lambda file: file == __file__, lambda: False)


def all_knobs(module: Module) -> list[Knob]:
    run, read = run_of(module)
    found = list(knobs.attributes(Owner("", "module", module), read, object))
    for each in run:
        found += [*code.defaults(each), *code.variables(each), *code.constants(each), *code.operators(each)]
        found += code.functions(each)
    return found


def searching(call: Callable, target: Seen, values: Callable, seconds: float) -> Search:
    return Search(call, target, values, seconds, Attempts(Path(FOLDER.name)))


def search(module: Module, target: np.ndarray, theirs: tuple = ()) -> Search:
    words = ("exact", "tanh")
    return searching(
        lambda: module.call(X),
        seen(target),
        lambda knob: (
            [sign for sign in code.COMPARED if sign != knob.value]
            if knob.kind == "operator" and knob.value in code.COMPARED
            else [sign for sign in code.BINARY if sign != knob.value]
            if knob.kind == "operator"
            else alternatives(knob.name)
            if knob.kind == "function"
            else candidates(knob.value, theirs, words, {})
        ),
        seconds=60.0,
    )


def knob(module: Module, name: str) -> Knob:
    return next(each for each in all_knobs(module) if each.name == name)


def test_what_runs_is_known_with_the_names_that_it_reads() -> None:
    run, read = run_of(Module())
    assert [each.name for each in run if each.is_models][-2:] == ["Module.call", "helper"]
    assert {"slope", "form", "shift", "EPSILON"} <= read
    assert "unread" not in read
    assert sys.getprofile() is None


def test_functions_of_a_framework_that_a_fork_has_frozen():
    """Forks are made of processes that have imported the frameworks, and frozen what they hold."""
    gc.freeze()
    run, _ = executed(lambda: np.linalg.cond(np.eye(2)), lambda file: file == __file__, lambda: False)
    assert "cond" in [each.name for each in run if not each.is_models]


def test_what_tensorflow_calls_a_function_through_is_not_its_caller():
    space: dict = {}
    through = "def error_handler(x):\n  return softmax_v2(x)\ndef softmax_v2(x, axis=None):\n  return x.sum(axis)\n"
    exec(compile(through, "/lib/tensorflow.py", "exec"), space)
    run, _ = executed(lambda: space["error_handler"](X), lambda file: file == __file__, lambda: False)
    (axis,) = code.defaults(next(each for each in run if each.name == "softmax_v2"))
    with axis.changed(0):
        assert np.array_equal(space["error_handler"](X), X.sum(0))


def test_an_activation_is_left_out_of_the_code_wherever_its_name_comes_from() -> None:
    def own(x: np.ndarray) -> np.ndarray:
        return np.tanh(tanh(x)) + math.pi

    run, _ = executed(lambda: own(X), lambda file: file == __file__, lambda: False)
    both, outer, inner = code.functions(next(each for each in run if each.name.endswith("own")))
    before = own(X)
    assert "exp" in both.words and "silu" not in both.words  # numpy has none
    with both.changed(knobs.LEFT_OUT):
        assert np.array_equal(own(X), X + math.pi)
    with outer.changed("exp"):
        assert np.array_equal(own(X), np.exp(np.tanh(X)) + math.pi)
    with inner.changed(knobs.LEFT_OUT):
        assert np.array_equal(own(X), np.tanh(X) + math.pi)
    assert np.array_equal(own(X), before) and not hasattr(np, "_parity_left_out")


def test_an_axis_is_another_in_several_calls_at_once() -> None:
    def mean(x: np.ndarray) -> np.ndarray:
        return x.sum(axis=1) / np.abs(x).sum(axis=1)

    table = X[:40].reshape(8, 5)
    run, _ = executed(lambda: mean(table), lambda file: file == __file__, lambda: False)
    own = next(each for each in run if each.name.endswith("mean"))
    (both,) = (knob for knob in code.constants(own) if knob.owner.endswith("(2 of them)"))
    with both.changed(None):
        assert mean(table) == table.sum() / np.abs(table).sum()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("slope", "attribute"),
        ("form", "attribute"),
        ("shift", "attribute"),
        ("kind", "attribute"),
        ("power", "default"),
        ("EPSILON", "variable"),
        ("1.702", "constant"),
        ("maximum", "function"),
        ("**", "operator"),
        (">", "operator"),
    ],
)
def test_a_knob_changes_the_result_and_is_put_back(name: str, kind: str) -> None:
    module = Module()
    found = knob(module, name)
    before = module.call(X)
    other = {"slope": 0.7, "form": "tanh", "shift": 1, "kind": Form.TANH, "power": 3.0, "EPSILON": 0.5, "1.702": 1.0}
    other |= {"maximum": "minimum", "**": "*", ">": "<"}
    with found.changed(other[name]):
        assert not np.array_equal(module.call(X), before)
    assert found.kind == kind
    np.testing.assert_array_equal(module.call(X), before)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slope", 0.37),
        ("form", "tanh"),
        ("shift", 3),
        ("kind", Form.TANH),
        ("power", 3.0),
        ("EPSILON", 1e-6),
        ("1.702", 1.7),
    ],
)
def test_the_one_change_is_found_with_its_value(name: str, value: object) -> None:
    module = Module()
    with knob(module, name).changed(value):
        target = module.call(X)
    found = search(module, target).found(all_knobs(module))
    changes = {each.changes[0].name: each.changes[0].after for each in found}
    assert all(len(each.changes) == 1 for each in found)
    if isinstance(value, float):
        assert changes[name] == pytest.approx(value, rel=1e-9)
    else:
        assert changes[name] == plain(value)


def test_local_functions_and_comprehensions_are_changed_though_each_call_makes_them() -> None:
    def slopes(count: int) -> list[float]:
        def powers(base: float) -> list[float]:
            return [base**number for number in range(count)]

        return powers(0.5)

    run, _ = executed(lambda: slopes(3), lambda file: file == __file__, lambda: False)
    found = {each.value: each for one in run for each in (*code.operators(one), *code.constants(one))}
    with found["**"].changed("*"):
        assert slopes(3) == [0.0, 0.5, 1.0]
    with found[0.5].changed(2.0), found["**"].changed("+"):
        assert slopes(3) == [2.0, 3.0, 4.0]
    assert slopes(3) == [1.0, 0.5, 0.25]
    assert found["**"].owner.endswith("slopes.powers.<listcomp>") or sys.version_info >= (3, 12)


@pytest.mark.parametrize(("value", "expected"), [("the first alone", X), ("the second alone", 2.0 * np.ones_like(X))])
def test_an_operand_is_left_out_of_a_sum(value: str, expected: np.ndarray) -> None:
    def total(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray((x + y) * 1.0)

    run, _ = executed(lambda: total(X, 2.0 * np.ones_like(X)), lambda file: file == __file__, lambda: False)
    plus = next(each for each in code.operators(run[-1]) if each.value == "+")
    with plus.changed(value):
        np.testing.assert_array_equal(total(X, 2.0 * np.ones_like(X)), expected)
    np.testing.assert_array_equal(total(X, 2.0 * np.ones_like(X)), X + 2.0)


@pytest.mark.parametrize(("name", "of", "expected"), [("p", "dropout", 0), ("attention_dropout", "", 0), ("p", "x", 1)])
def test_a_dropout_of_everything_explains_nothing(name: str, of: str, expected: int) -> None:
    """A branch that is not added is as good as one of which all is dropped."""
    rate = {"p": 0.0}
    dropout = Knob(name, "Dropout", "", 0.0, "attribute", lambda value: knobs.assignment(rate, "p")(value), of=of)
    left = searching(lambda: X * (1.0 - rate["p"]) + 3.0, seen(X * 0.0 + 3.0), lambda _: [1.0], seconds=10.0)
    assert len(left.found([dropout], pairs=False)) == expected


@pytest.mark.parametrize(("value", "expected"), [(30_000, int), (12_345.5, float), (20_000_000, int), (37, int)])
def test_a_large_integer_is_searched_for_as_well(value: float, expected: type) -> None:
    wave = SimpleNamespace(length=10_000)
    target = seen(np.cos(X / value ** np.linspace(0, 1, X.size)))
    search = searching(
        lambda: np.cos(X / wave.length ** np.linspace(0, 1, X.size)),
        target,
        lambda knob: candidates(knob.value, (), (), {}),
        60.0,
    )
    (found,) = search.found(list(knobs.attributes(Owner("", "rope", wave), {"length"}, object)))
    assert found.changes[0].after == pytest.approx(value, rel=1e-9)
    assert type(found.changes[0].after) is expected


def test_none_remains_where_it_switches_something_off() -> None:
    unit = SimpleNamespace(limit=0.3)

    def call() -> np.ndarray:
        return np.minimum(X, unit.limit) if unit.limit else X.copy()

    search = searching(call, seen(X), lambda each: candidates(each.value, [0.0, 0.2], (), {}), 60.0)
    (found,) = search.found(list(knobs.attributes(Owner("", "unit", unit), {"limit"}, object)))
    assert found.changes[0].after is None


@pytest.mark.parametrize(("rest", "expected"), [(0.9, 1), (1.1, 0)])
def test_what_is_left_must_be_less_than_rounding_to_float32_makes(rest: float, expected: int) -> None:
    unit = SimpleNamespace(form="exact")
    target = seen(X)
    missed = rest * target.noise * np.sign(np.sin(9 * X))
    search = searching(lambda: X + missed if unit.form == "tanh" else -X, target, lambda _: ["tanh"], seconds=10.0)
    assert len(search.found(list(knobs.attributes(Owner("", "unit", unit), {"form"}, object)))) == expected


def test_a_change_that_ends_in_an_error_is_passed_over() -> None:
    module = Module()
    with knob(module, "shift").changed(1):
        target = module.call(X)
    found = search(module, target, theirs=("x", None, (1, 2, 3))).found(all_knobs(module))
    assert ("shift", 1) in [(each.changes[0].name, each.changes[0].after) for each in found]


def test_candidates_are_given_once_and_the_other_sides_come_first() -> None:
    found = candidates(1e-3, [1e-6, 1e-6], [], {})
    assert found[:2] == [None, 1e-6]
    assert len(found) == len({repr(each) for each in found})
    assert candidates((1, 2), [[3, 4], (5,)], [], {})[0] == (3, 4)
    assert candidates(10_000, [2, 0.5, 1e6], [], {})[0] == 1_000_000
    assert math.inf not in found


def test_a_setting_that_is_off_may_be_a_number_of_things() -> None:
    """As a window that only one side has: what it can be comes before what else the other side holds."""
    assert candidates(None, [False, 0, 0.5, True, 8, 4], [], {}) == [8, 4, 0, 0.5, False, True]


def test_axes_of_an_equation_are_exchanged_those_of_the_result_first() -> None:
    assert candidates("ab,bc->ac", ["x"], ["relu"], {}) == ["ab,bc->ca", "ab,cb->ac", "ba,bc->ac"]
    assert candidates("...ab->...ba", [], [], {}) == ["...ab->...ab", "...ba->...ba"]


def averaged(x: np.ndarray) -> np.ndarray:
    return x.reshape(2, 2, -1).mean(axis=(0, 1))


def test_axes_in_the_code_are_found() -> None:
    run, _ = executed(lambda: averaged(X[:40]), lambda file: file == __file__, lambda: False)
    found = [each for one in run if one.name == "averaged" for each in code.constants(one)]
    (axes,) = (each for each in found if each.value == (0, 1))
    assert (1, 2) in (values := candidates((0, 1), [], [], {})) and (2,) in values
    with axes.changed((1, 2)):
        assert np.array_equal(averaged(X[:40]), X[:40].reshape(2, 2, -1).mean(axis=(1, 2)))


def test_two_axes_are_tried_for_one_or_as_many_as_the_other_side_takes() -> None:
    assert [each for each in candidates(1, [[2, 3]], [], {}) if type(each) is tuple] == [(0, 1), (1, 2), (1, 3)]
    assert [each for each in candidates(-1, [[2, 3]], [], {}) if type(each) is tuple] == [(0, 3), (1, 3), (2, 3)]
    assert (0, 1) in candidates(1, [], [], {}) and (0, 1, 2) not in candidates(1, [2, [5, 6, 7]], [], {})
    assert (0, 1, 2) in candidates(1, [[1, 2, 3]], [], {})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("/home/user/port/rotary.py:173", True),
        ("/home/user/port/rotary.py:175", True),
        ("/home/user/port/rotary.py:176", False),
        ("/home/user/port/attention.py:173", False),
        ("", False),
    ],
)
def test_what_stands_near_a_line(source: str, expected: bool) -> None:
    setting = Knob("0.5", "turn", source, 0.5, "constant", lambda _: nullcontext())
    assert knobs.is_near(setting.source, ["port/attention.py:9", "port/rotary.py:173"]) is expected


def test_a_count_so_huge_that_nothing_is_left_is_no_explanation() -> None:
    module = SimpleNamespace(heads=2)
    (heads,) = knobs.attributes(Owner("", "attention", module), {"heads"}, object)
    parts = searching(lambda: X + X[module.heads :].sum(), seen(X), lambda knob: [10_000], seconds=60.0)
    assert parts.found([heads], pairs=False) == []


def test_of_wavelengths_the_nearest_comes_first() -> None:
    assert candidates(500_001, [], [], {})[:2] == [500_000, 1_000_000]
    assert candidates(10_000, [], [], {})[0] == 100_000


def change(side_of: str = "", **fields: object) -> Change:
    usual = {"name": "eps", "owner": "LlamaNorm", "source": "", "kind": "attribute", "of": "rms_norm", "path": "norm"}
    return Change(**{**usual, "before": 1e-6, "after": 1e-5, **fields})


def outcome(*changes: Change) -> Outcome:
    return Outcome(found=[Found(changes=[each], bits=30.0, before=0.0) for each in changes])


def test_one_setting_found_on_both_sides_is_one_cause() -> None:
    torch = change()
    keras = change(name="epsilon", owner="Norm", of="rms_norm", before=1e-5, after=1e-6)
    (cause,) = causes("norm", "rms_norm", outcome(torch), outcome(keras))
    assert (cause.id, cause.torch, cause.keras) == ("rms_norm.epsilon", 1e-6, 1e-5)
    assert "Norm.epsilon 1e-05 -> 1e-06, keras returns what torch does to 30 bits" in cause.evidence
    assert len(cause.changes) == 2


def test_other_explanations_are_listed_as_ties() -> None:
    second = change(name="scale", before=1.0, after=2.0)
    (cause,) = causes("norm", "rms_norm", outcome(), outcome(change(), second))
    assert "so it does with LlamaNorm.scale 1.0 -> 2.0" in cause.evidence


def test_a_constant_in_the_code_is_told_with_its_line() -> None:
    inside = change(
        name="1.702", owner="Act.call", source="act.py:7", kind="constant", of="", path="", before=1.702, after=1.7
    )
    (cause,) = causes("act", "gelu", outcome(), outcome(inside))
    assert cause.id == "code.constant"
    assert "1.702 -> 1.7 in Act.call (act.py:7)" in cause.evidence


def test_named_causes_stand_in_the_place_of_the_unknown_one() -> None:
    entries = [made("unknown", "a"), made("unknown", "b"), made("linear.bias", "c")]
    named = [made("relu.slope", "a", [{"name": "1"}])]
    assert with_causes(entries, "a", named) == [*named, *entries[1:]]


def test_an_argument_can_be_what_another_of_its_shape_is() -> None:
    query, key, value = (np.full((2, size), float(size)) for size in (3, 4, 4))
    given = {"query": query, "key": key, "value": value, "mask": np.ones((2, 4), bool), "scale": 0.5}
    found = {knob.name: knob for knob in knobs.tensors(given, Owner("a", "attention", SimpleNamespace()))}
    assert {name: knob.words for name, knob in found.items()} == {"key": ("that of value",), "value": ("that of key",)}
    with found["value"].changed("that of key"):
        assert given["value"] is key
    assert given["value"] is value
    same = {"query": query, "key": query}
    assert list(knobs.tensors(same, Owner("a", "attention", SimpleNamespace()))) == []


def test_what_others_of_the_class_have_is_tried_first() -> None:
    """One of many layers may be set up wrongly, or several of them alike."""
    cells = [SimpleNamespace(padding=text) for text in ("causal", "same", "causal", "valid", "same")]
    found = [
        each
        for number, cell in enumerate(cells)
        for each in knobs.attributes(Owner(str(number), "conv", cell), {"padding"}, object)
    ]
    assert knobs.of_siblings(found[0], found) == ["same", "valid"]
    assert knobs.of_siblings(found[3], found) == ["causal", "same"]
    (causal, same) = knobs.joint(found)
    assert knobs.of_siblings(same, found) == ["causal", "valid"] and knobs.of_siblings(causal, found)[0] == "same"
    gate = knobs.attributes(Owner("gate", "gate", SimpleNamespace(padding="reflect")), {"padding"}, object)
    assert knobs.of_siblings(next(iter(gate)), found) == []


def test_a_change_of_one_module_is_widened_to_all_of_its_kind() -> None:
    cells = [SimpleNamespace(slope=0.1), SimpleNamespace(slope=0.1), SimpleNamespace(slope=0.1)]
    kinds = ["cell", "cell", "gate"]
    found = [
        each
        for number, (cell, kind) in enumerate(zip(cells, kinds, strict=True))
        for each in knobs.attributes(Owner(str(number), kind, cell), {"slope"}, object)
    ]
    knob, value = knobs.widened((found[1], 0.7), knobs.joint(found))
    with knob.changed(value):
        assert [cell.slope for cell in cells] == [0.7, 0.7, 0.1]
    alone = (found[2], 0.7)
    assert knobs.widened(alone, knobs.joint(found)) is alone


def test_numbers_by_which_a_module_was_built_are_settings_to_try() -> None:
    """As the factors of a rotary embedding, of which the module keeps a table alone."""

    class Config(SimpleNamespace):
        pass

    scaling = {"factor": 8.0, "type": "llama3", "bands": {"high": 4.0, "length": 32}}
    module = SimpleNamespace(config=Config(scaling=scaling, size=64, epsilon=1e-6), other=SimpleNamespace(slope=0.5))
    assert sorted(knobs.configured(Owner("", "attention", module))) == [1e-6, 4.0, 8.0]


def typed(array: np.ndarray, like: np.ndarray) -> np.ndarray:
    return array.astype(like.dtype)


def test_zeros_and_ones_with_a_point_may_be_factors_or_summands() -> None:
    given = {"x": X, "mask": np.array([[1.0, 0.0]])}
    factors, summands = masks.knobs(given, Owner("attn", "attention", Module()), [], np.asarray, typed)
    with factors.changed(knobs.INVERTED):
        assert np.array_equal(given["mask"], [[0.0, 1.0]])
    with summands.changed(knobs.INVERTED):
        assert np.array_equal(given["mask"], [[-1e30, 0.0]])


def test_a_mask_for_the_longest_sequence_is_cut() -> None:
    whole = np.tril(np.ones((6, 6), bool))
    cut = next(masks.fitted(whole, (1, 1, 4, 4)))
    assert np.array_equal(cut, whole[None, None, :4, :4]) and not list(masks.fitted(whole, (2, 1, 8, 8)))


def test_a_mask_of_keys_may_be_one_of_queries():
    padding = np.array([[True, True, False], [True, False, False]])
    of_queries, of_keys = masks.fitted(padding, (2, 3, 1))
    assert np.array_equal(of_queries, padding[:, :, None])
    assert np.array_equal(of_keys, np.broadcast_to(padding[:, None, :], (2, 3, 3)))


def test_two_modules_of_a_class_exchange_what_they_have() -> None:
    first, second, third = (SimpleNamespace(stride=stride) for stride in (2, 1, 1))
    made = [
        Knob("stride", "Conv", "", each.stride, "attribute", knobs.assignment(vars(each), "stride"), (), "conv2d", path)
        for path, each in (("first", first), ("second", second), ("third", third))
    ]
    exchange, *further = knobs.exchanges(made)
    assert (exchange.value, exchange.words, len(further)) == ("2 and 1", ("1 and 2",), 1)
    with exchange.changed("1 and 2"):
        assert (first.stride, second.stride, third.stride) == (1, 2, 1)
    assert (first.stride, second.stride) == (2, 1)


def test_another_function_is_likelier_than_a_number_that_switches_it_off() -> None:
    off = change(name="alpha", owner="ELU", of="elu", before=1.0, after=0.0)
    function = change(name="activation", owner="Dense", of="linear", kind="callable", before="relu", after="elu")
    (cause,) = causes("act", "elu", outcome(off), outcome(function))
    assert (cause.id, cause.torch, cause.keras) == ("activation.kind", "elu", "relu")


def test_a_term_that_is_left_out_is_likelier_than_what_makes_it_vanish() -> None:
    found = (
        change(of="", name="2", owner="Own.call", kind="constant", before=2, after=40),
        change(of="", name="sum", owner="Own.call", kind="function", before="sum", after="prod"),
        change(of="", name="+", owner="Own.call", kind="operator", before="+", after="the first alone"),
    )
    (cause,) = causes("loss", "own", outcome(*found), outcome())
    assert (cause.id, cause.torch, cause.keras) == ("module.wiring", "+", "the first alone")


@pytest.mark.parametrize(
    ("large", "kinds", "built"),
    [
        (False, ["returned", "returned"], [1, 1]),
        (True, ["returned", "given", "returned"], [3]),
        (True, ["returned", "gradient", "returned"], [1, 1, 1]),
        (True, ["returned", "unlike", "returned"], [1, 2]),
    ],
)
def test_a_large_model_answers_several_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool, kinds: list[str], built: list[int]
) -> None:
    """One that no longer does what it did, and one whose training was asked about, is built again."""
    models: list[SimpleNamespace] = []
    monkeypatch.setattr(study.survey, "read", lambda _: SimpleNamespace(is_large=large))
    monkeypatch.setattr(study.survey, "Initial", lambda _: {})
    monkeypatch.setattr(study, "PairData", lambda *_: SimpleNamespace(step=lambda _: {}))

    def answer(question: SimpleNamespace, live: SimpleNamespace, _: Attempts) -> Outcome:
        live.asked += 1
        unlike = question.tensor.kind == "unlike" and live.asked > 1
        return Outcome(problem="" if not unlike else "it returns something else", harmless=question.number)

    def opened(*_: object) -> nullcontext[SimpleNamespace]:
        models.append(SimpleNamespace(asked=0, restored=0))
        models[-1].restore = lambda model=models[-1]: setattr(model, "restored", model.restored + 1)
        return nullcontext(models[-1])

    monkeypatch.setattr(study, "_answer", answer)
    asked = [SimpleNamespace(number=n, tensor=SimpleNamespace(kind=kind)) for n, kind in enumerate(kinds)]
    job = SimpleNamespace(folder=str(tmp_path), pair=SimpleNamespace(survey="", search=[]), case=None, questions=asked)
    study.study(job, opened)  # type: ignore[arg-type]
    outcomes = experiment.read(tmp_path)
    assert [(outcome.harmless, outcome.problem) for outcome in outcomes] == [(n, "") for n in range(len(kinds))]
    assert len(models) == len(built) and all(model.restored == model.asked - 1 for model in models)
    assert sum(model.asked for model in models) - sum(built) == kinds.count("unlike")

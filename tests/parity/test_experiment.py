"""Experiments: knobs are found in modules and in code, and the search finds the change that reproduces a value."""

import enum
import math
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from causes_made import made
from numpy import tanh

from parity.diagnose.experiment import attempts, code, knobs, masks, study
from parity.diagnose.experiment import search as search_module
from parity.diagnose.experiment.attempts import Attempts, plain
from parity.diagnose.experiment.candidates import alternatives, candidates
from parity.diagnose.experiment.causes import causes, with_causes
from parity.diagnose.experiment.description import Description, with_descriptions
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


def test_an_activation_is_left_out_of_the_code_wherever_its_name_comes_from() -> None:
    def own(x: np.ndarray) -> np.ndarray:
        return np.tanh(tanh(x)) + math.pi

    run, _ = executed(lambda: own(X), lambda file: file == __file__, lambda: False)
    both, outer, inner = code.functions(next(each for each in run if each.name.endswith("own")))
    before = own(X)
    with both.changed(knobs.LEFT_OUT):
        assert np.array_equal(own(X), X + math.pi)
    with outer.changed("exp"):
        assert np.array_equal(own(X), np.exp(np.tanh(X)) + math.pi)
    with inner.changed(knobs.LEFT_OUT):
        assert np.array_equal(own(X), np.tanh(X) + math.pi)
    assert np.array_equal(own(X), before) and not hasattr(np, "_parity_left_out")


def test_what_a_paused_module_runs_is_left_out() -> None:
    run, _ = executed(lambda: Module().call(X), lambda file: file == __file__, lambda: True)
    assert run == []


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


def test_a_knob_is_put_back_after_an_error() -> None:
    module = Module()
    with pytest.raises(KeyError), knob(module, "1.702").changed("nonsense"):
        raise KeyError
    assert knob(module, "1.702").value == 1.702


def test_constants_have_their_line() -> None:
    source = knob(Module(), "1.702").source
    file, _, line = source.rpartition(":")
    assert file == __file__
    with open(file) as lines:
        assert "1.702" in lines.read().splitlines()[int(line) - 1]


def test_an_attribute_that_the_code_does_not_read_is_no_knob() -> None:
    assert not [each for each in all_knobs(Module()) if each.name == "unread"]


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


@pytest.mark.parametrize(("name", "value"), [("**", "*"), (">", "<"), ("maximum", "minimum")])
def test_an_operator_or_a_function_is_found(name: str, value: str) -> None:
    module = Module()
    with knob(module, name).changed(value):
        target = module.call(X)
    found = search(module, target).found(all_knobs(module))
    assert (name, value) in [(each.changes[0].name, each.changes[0].after) for each in found]


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


@pytest.mark.parametrize(("name", "expected"), [("max_norm", 0), ("length", 1)])
def test_vectors_of_no_length_explain_nothing(name: str, expected: int) -> None:
    """A summand that is not added is as good as vectors that are cut to nothing."""
    most: dict[str, float | None] = {"norm": None}
    norm = Knob(name, "Embedding", "", None, "attribute", lambda value: knobs.assignment(most, "norm")(value))
    cut = searching(lambda: X * (most["norm"] is None) + 3.0, seen(X * 0.0 + 3.0), lambda _: [0], seconds=10.0)
    assert len(cut.found([norm], pairs=False)) == expected


def left_out(name: str) -> Outcome:
    change = Change(
        name="function", owner=name, source="", kind="operation", path="", of="code", before=name, after="left out"
    )
    return Outcome(found=[Found(changes=[change], bits=30.0, before=0.0)])


@pytest.mark.parametrize(("rest", "expected"), [(1e-9, 0), (0.0, 0), (0.5, 1)])
def test_behind_a_change_what_float32_cannot_see_is_no_evidence(rest: float, expected: int) -> None:
    shift, slope = {"a": 0.0}, {"a": 1.0}
    base = Knob("shift", "M", "", 0.0, "attribute", lambda value: knobs.assignment(shift, "a")(value))
    other = Knob("slope", "M", "", 1.0, "attribute", lambda value: knobs.assignment(slope, "a")(value))
    behind = searching(
        lambda: slope["a"] * X + shift["a"],
        seen((1.0 + rest) * X + 1.0),
        lambda knob: [1.0 + rest] if knob is other else [1.0],
        seconds=10.0,
    )
    assert len(behind.found([other], pairs=False, base=((base, 1.0),))) == expected


def test_a_function_that_is_left_out_is_the_activation_that_a_layer_lacks() -> None:
    change = Change(
        name="activation",
        owner="Dense",
        source="",
        kind="callable",
        path="d",
        of="linear",
        before="linear",
        after="relu",
    )
    lacking = Outcome(found=[Found(changes=[change], bits=30.0, before=0.0)])
    (cause,) = causes("(model)", "", left_out("relu"), lacking)
    assert (cause.id, cause.torch, cause.keras) == ("activation.kind", "relu", "linear")
    assert [each.side for each in cause.changes] == ["keras", "torch"]  # it is the layer's that can be repaired


@pytest.mark.parametrize(("name", "expected"), [("relu", "activation.kind"), ("layer_norm", "code.function")])
def test_a_function_that_is_left_out_alone(name: str, expected: str) -> None:
    (cause,) = causes("(model)", "", left_out(name), Outcome())
    assert cause.id == expected


def test_an_operand_that_is_left_out_is_another_wiring() -> None:
    change = Change(
        name="+",
        owner="TNet.forward",
        source="net.py:7",
        kind="operator",
        path="",
        of="",
        before="+",
        after="the first alone",
    )
    (cause,) = causes("(model)", "", Outcome(found=[Found(changes=[change], bits=30.0, before=0.0)]), Outcome())
    assert (cause.id, cause.torch, cause.keras) == ("module.wiring", "+", "the first alone")


def test_a_number_is_found_to_its_last_digit_and_told_with_few() -> None:
    module = Module()
    with knob(module, "slope").changed(0.3333):
        target = module.call(X)
    (found,) = (each for each in search(module, target).found(all_knobs(module)) if each.changes[0].name == "slope")
    assert found.changes[0].after == 0.3333
    assert found.bits >= 20 > found.before


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


def test_a_text_is_found_behind_many_that_are_not_taken() -> None:
    module = Module()
    with knob(module, "form").changed("tanh"):
        target = module.call(X)

    def call() -> np.ndarray:
        if module.form not in ("exact", "tanh"):
            raise ValueError(module.form)
        return module.call(X)

    words = ["a", "b", "c", "d", "e", "f", "tanh"]
    search = searching(call, seen(target), lambda each: candidates(each.value, (), words, {}), 60.0)
    found = search.found([knob(module, "form")])
    assert [each.changes[0].after for each in found] == ["tanh"]


def test_a_value_with_which_the_code_never_ends_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "LONGEST_CALL", 0.2)
    loop = SimpleNamespace(step=2)

    def call() -> np.ndarray:
        reached = 0
        while reached < 12:
            reached += loop.step
        return np.full(3, float(loop.step))

    search = searching(call, seen(np.full(3, 5.0)), lambda each: [0, -1, 3, 5], 60.0)
    (found,) = search.found(list(knobs.attributes(Owner("", "loop", loop), {"step"}, object)))
    assert found.changes[0].after == 5


def test_a_default_is_told_by_its_number_rather_than_none() -> None:
    unit = SimpleNamespace(slope=0.3)

    def call() -> np.ndarray:
        return np.where(X > 0, X, X * (0.2 if unit.slope is None else unit.slope))

    search = searching(
        call, seen(np.where(X > 0, X, X * 0.2)), lambda each: candidates(each.value, [0.2], (), {}), 60.0
    )
    (found,) = search.found(list(knobs.attributes(Owner("", "unit", unit), {"slope"}, object)))
    assert found.changes[0].after == 0.2


def test_none_remains_where_a_place_is_off() -> None:
    """No place is what -1 does as well, while -2 is a place."""
    table = SimpleNamespace(padding=3)

    def call() -> np.ndarray:
        value = X.copy()
        if table.padding not in (None, -1):
            value[table.padding] = 0
        return value

    search = searching(call, seen(X), lambda each: [None, *candidates(each.value, [], (), {})], 60.0)
    (found,) = search.found(list(knobs.attributes(Owner("", "table", table), {"padding"}, object)))
    assert found.changes[0].after is None


def test_none_remains_where_it_switches_something_off() -> None:
    unit = SimpleNamespace(limit=0.3)

    def call() -> np.ndarray:
        return np.minimum(X, unit.limit) if unit.limit else X.copy()

    search = searching(call, seen(X), lambda each: candidates(each.value, [0.0, 0.2], (), {}), 60.0)
    (found,) = search.found(list(knobs.attributes(Owner("", "unit", unit), {"limit"}, object)))
    assert found.changes[0].after is None


def test_a_search_ends_however_long_each_call_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "MOST", 0.2)
    model, ends = SimpleNamespace(width=2), [0.0]
    monkeypatch.setattr(time, "process_time", lambda: ends[-1])

    def call() -> np.ndarray:
        ends.append(ends[-1] + 0.02)
        return np.full(3, float(model.width))

    search = searching(call, seen(np.array([1.0, 2.0, 4.0])), lambda each: range(1000), 0.1)
    assert not search.found(list(knobs.attributes(Owner("", "model", model), {"width"}, object)))
    assert 5 < len(ends) < 50


def test_what_a_busy_machine_adds_to_calls_takes_none_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "MOST", 1.0)
    model, clock = SimpleNamespace(form="plain"), [0.0]
    monkeypatch.setattr(time, "process_time", lambda: clock[-1])

    def call() -> np.ndarray:
        clock.append(clock[-1] + (0.01 if len(clock) % 3 else 1.0))
        return np.full(3, float(len(model.form)))

    words = ["a" * number for number in range(1, 21)]
    search = searching(call, seen(np.full(3, 20.0)), lambda each: words, 60.0)
    (found,) = search.found(list(knobs.attributes(Owner("", "model", model), {"form"}, object)))
    assert found.changes[0].after == words[-1]


def test_a_setting_by_which_a_process_has_ended_is_tried_no_more(tmp_path: Path) -> None:
    """The note of a change remains if the process ends within it; here the next search finds it."""
    loop = SimpleNamespace(step=2, shift=2)
    (step,) = knobs.attributes(Owner("", "loop", loop), {"step"}, object)
    (shift,) = knobs.attributes(Owner("", "loop", loop), {"shift"}, object)

    def tried(*settings: Knob) -> list[object]:
        target = seen(np.full(3, 5.0))
        search = Search(lambda: np.full(3, float(loop.step)), target, lambda _: [0, 5], 60.0, Attempts(tmp_path))
        return [change.after for found in search.found(list(settings), pairs=False) for change in found.changes]

    assert tried(step) == [5]
    assert not experiment.blame(tmp_path)  # a change that did not end the process leaves no note
    with pytest.raises(FileNotFoundError), Attempts(tmp_path).noted([(step, 0)]):
        assert experiment.blame(tmp_path)  # takes the note away
    assert tried(step) == []
    assert Attempts(tmp_path).are_deadly([(shift, 1), (step, 1)]) and not Attempts(tmp_path).are_deadly([(shift, 0)])


def test_two_changes_are_found_where_one_does_not_do() -> None:
    module = Module()
    with knob(module, "form").changed("tanh"), knob(module, "shift").changed(3):
        target = module.call(X)
    found = search(module, target).found(all_knobs(module), [])
    assert {frozenset((each.name, each.after) for each in one.changes) for one in found} >= {
        frozenset({("form", "tanh"), ("shift", 3)})
    }


def test_without_pairs_only_single_changes_are_tried() -> None:
    module = Module()
    with knob(module, "form").changed("tanh"), knob(module, "shift").changed(3):
        target = module.call(X)
    assert search(module, target).found(all_knobs(module), pairs=False) == []


def test_nothing_is_found_for_what_no_setting_makes() -> None:
    module = Module()
    assert search(module, np.cos(7 * X)).found(all_knobs(module)) == []


def test_values_that_matter_are_tried_before_further_ones_that_do_not(monkeypatch) -> None:
    """In the time for a few calls, a setting is found among many without an effect."""
    module = SimpleNamespace(window=None, **{f"idle{number}": None for number in range(20)})
    found = list(knobs.attributes(Owner("", "attention", module), set(vars(module)), object))
    monkeypatch.setattr(search_module, "LEAST", 65)

    def attend() -> np.ndarray:
        return X[: module.window]

    target = seen(X[:3])
    values = [30, 20, 5, 4, 3, 2, 1]
    (one,) = searching(attend, target, lambda knob: values, seconds=0.0).found(found)
    assert (one.changes[0].name, one.changes[0].after) == ("window", 3)


def test_a_text_that_only_has_to_be_another_is_told_so() -> None:
    """Which of the words of a class is tried first says nothing, if all but one lead to the same branch."""
    module = SimpleNamespace(form="rotary")
    (form,) = knobs.attributes(Owner("", "attention", module), {"form"}, object)

    def search_for(target: np.ndarray, call) -> tuple:
        (found,) = searching(call, seen(target), lambda knob: ["float32", "absolute"], seconds=60.0).found([form])
        return found.changes[0].after, found.bits >= 20

    assert search_for(X, lambda: -X if module.form == "rotary" else X) == ("another", True)
    assert search_for(X, lambda: X if module.form == "absolute" else -X) == ("absolute", True)


def test_a_number_so_huge_that_a_branch_vanishes_is_no_explanation() -> None:
    module = SimpleNamespace(epsilon=1e-6)
    (epsilon,) = knobs.attributes(Owner("", "norm", module), {"epsilon"}, object)

    def search_for(target: np.ndarray, call) -> list:
        return searching(call, seen(target), lambda knob: [1e-5, 1e30], seconds=60.0).found([epsilon])

    assert search_for(X, lambda: X + X / module.epsilon) == []  # as if the second summand were left out
    assert search_for(X + X / 1e-5, lambda: X + X / module.epsilon)


def test_what_is_given_is_kept_and_not_found() -> None:
    module = Module()
    slope, shift = knob(module, "slope"), knob(module, "shift")
    with slope.changed(0.3):
        target = module.call(X)
    assert search(module, target).found([slope, shift], base=((slope, 0.3),)) == []
    with slope.changed(0.3), shift.changed(1):
        target = module.call(X)
    (found,) = search(module, target).found([shift], pairs=False, base=((slope, 0.3),))
    assert [(each.name, each.after) for each in found.changes] == [("slope", 0.3), ("shift", 1)]


def test_an_approximation_is_no_explanation() -> None:
    """A change that comes near, but leaves a difference that float32 sees, names nothing."""
    module = Module()
    with knob(module, "slope").changed(0.3):
        target = module.call(X) + 1e-5 * np.sin(9 * X)
    assert search(module, target).found(all_knobs(module)) == []


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


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, [False]), (Form.EXACT, [Form.TANH]), ("same", ["valid"]), (None, [3, 0.5])],
)
def test_candidates_of_each_kind(value: object, expected: list) -> None:
    found = candidates(value, [3, 0.5, "valid"], ["same", "valid"], {})
    assert [each for each in expected if each not in found] == []
    assert value not in [each for each in found if type(each) is type(value)]


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


def weighted(x: np.ndarray) -> np.ndarray:
    return np.einsum("ab,cb->ac", x.reshape(-1, 1), np.exp(x).reshape(-1, 1))


def test_an_equation_in_the_code_is_found() -> None:
    run, _ = executed(lambda: weighted(X), lambda file: file == __file__, lambda: False)
    found = [each for one in run if one.name == "weighted" for each in code.constants(one)]
    (equation,) = (each for each in found if each.value == "ab,cb->ac")
    before = weighted(X)
    with equation.changed("ab,cb->ca"):
        assert np.array_equal(weighted(X), before.T)


def averaged(x: np.ndarray) -> np.ndarray:
    return x.reshape(2, 2, -1).mean(axis=(0, 1))


def test_axes_in_the_code_are_found() -> None:
    run, _ = executed(lambda: averaged(X[:40]), lambda file: file == __file__, lambda: False)
    found = [each for one in run if one.name == "averaged" for each in code.constants(one)]
    (axes,) = (each for each in found if each.value == (0, 1))
    assert (1, 2) in (values := candidates((0, 1), [], [], {})) and (2,) in values
    with axes.changed((1, 2)):
        assert np.array_equal(averaged(X[:40]), X[:40].reshape(2, 2, -1).mean(axis=(1, 2)))


def test_several_axes_are_tried_for_one_where_the_other_side_takes_several() -> None:
    assert [each for each in candidates(1, [[2, 3]], [], {}) if type(each) is tuple] == [(0, 1), (1, 2), (1, 3)]
    assert [each for each in candidates(-1, [[2, 3]], [], {}) if type(each) is tuple] == [(0, 3), (1, 3), (2, 3)]
    assert not [each for each in candidates(1, [2, [2, 2], [5, 6]], [], {}) if type(each) is tuple]


def is_fused() -> bool:
    return False


def test_a_truth_value_that_a_function_returns_is_no_setting() -> None:
    """With another one the code goes another way, past what is wrong."""
    run, _ = executed(lambda: np.full(3, float(is_fused())), lambda file: file == __file__, lambda: False)
    (function,) = (one for one in run if one.name == "is_fused")
    assert list(code.constants(function)) == []


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
    assert knobs.is_near(setting, ["port/attention.py:9", "port/rotary.py:173"]) is expected


def test_an_attribute_that_getattr_reads_is_a_setting() -> None:
    def attend(module: SimpleNamespace) -> np.ndarray:
        return X if getattr(module, "is_causal", True) else -X

    module = SimpleNamespace(is_causal=True, other=1)
    _, read = executed(lambda: attend(module), lambda file: file == __file__, lambda: False)
    assert [each.name for each in knobs.attributes(Owner("", "attention", module), read, object)] == ["is_causal"]


def test_a_count_so_huge_that_nothing_is_left_is_no_explanation() -> None:
    module = SimpleNamespace(heads=2)
    (heads,) = knobs.attributes(Owner("", "attention", module), {"heads"}, object)
    parts = searching(lambda: X + X[module.heads :].sum(), seen(X), lambda knob: [10_000], seconds=60.0)
    assert parts.found([heads], pairs=False) == []


def test_of_wavelengths_the_nearest_comes_first() -> None:
    assert candidates(500_001, [], [], {})[:2] == [500_000, 1_000_000]
    assert candidates(10_000, [], [], {})[0] == 100_000


def test_a_number_may_be_held_in_float32() -> None:
    assert float(np.float32(0.044715)) in candidates(0.044715, [], [], {})


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


def test_a_setting_that_is_a_list_is_one_cause_as_well() -> None:
    torch, keras = change(before=[1.0], after=[1024]), change(before=[1024], after=[1])
    (cause,) = causes("norm", "rms_norm", outcome(torch), outcome(keras))
    assert (cause.torch, cause.keras) == ([1.0], [1024])


def test_what_one_side_alone_can_tell_is_told_for_both() -> None:
    (cause,) = causes("norm", "rms_norm", outcome(change()), outcome())
    assert (cause.id, cause.torch, cause.keras) == ("rms_norm.epsilon", 1e-6, 1e-5)
    assert causes("norm", "rms_norm", outcome(), outcome()) == []


def test_other_explanations_are_listed_as_ties() -> None:
    second = change(name="scale", before=1.0, after=2.0)
    (cause,) = causes("norm", "rms_norm", outcome(), outcome(change(), second))
    assert "so it does with LlamaNorm.scale 1.0 -> 2.0" in cause.evidence


def test_what_is_returned_is_hardly_a_cause() -> None:
    scores = change(name="return_attention_scores", kind="argument", before=False, after=True)
    mask = change(name="padding_mask", kind="argument", of="Encoder", before="as given", after="inverted")
    (cause,) = causes("attn", "Encoder", outcome(), outcome(scores, mask))
    assert (cause.id, cause.torch, cause.keras) == ("encoder.mask", "inverted", "as given")


def test_of_changes_in_code_those_of_the_module_itself_come_first() -> None:
    inner = change(name="+", owner="Attention.forward", kind="operator", of="", path="", before="+", after="*")
    own = msgspec.structs.replace(inner, owner="DecoderLayer.forward", after="the first alone")
    (cause,) = causes("layers.0", "DecoderLayer", outcome(inner, own), outcome())
    assert (cause.id, cause.keras) == ("module.wiring", "the first alone")
    (cause,) = causes("layers.0.attention", "Attention", outcome(own, inner), outcome())
    assert (cause.id, cause.keras) == ("code.operator", "*")


def test_a_setting_comes_first_by_its_side_whatever_module_it_is_of() -> None:
    pad = change(name="pad", owner="Layer", of="Layer", before=[4, 0], after=[2, 2])
    padding = change(name="padding", owner="Conv1D", of="Conv1D", before="same", after="causal")
    (cause,) = causes("layers.2", "Layer", outcome(pad), outcome(padding))
    assert (cause.id, cause.keras) == ("conv.padding", "same")


def test_a_constant_that_differs_only_by_float32_is_one_of_precision() -> None:
    (cause,) = causes("act", "gelu", outcome(change(name="slope", before=0.3, after=0.3)), outcome())
    assert (cause.id, cause.torch, cause.keras) == ("constant.precision", "float64", "float32")
    assert "LlamaNorm.slope 0.3 -> 0.3 rounded to float32, torch returns" in cause.evidence


def test_a_constant_in_the_code_of_fewer_digits_is_one_of_precision() -> None:
    short = change(name="0.79788456", kind="constant", of="", path="", before=0.79788456, after=0.7978845608028654)
    (cause,) = causes("act", "gelu", outcome(short), outcome())
    assert (cause.id, cause.torch, cause.keras) == ("constant.precision", 0.79788456, 0.7978845608028654)


@pytest.mark.parametrize("name", ["GptOssAttention", "OPTAttention", "GPTNeoXAttention", "T5Attention"])
def test_attention_is_named_so_by_whatever_class(name: str) -> None:
    window = change(name="sliding_window", owner=name, of=name, before=None, after=3)
    (cause,) = causes("attn", name, outcome(), outcome(window), ("attn", "norm"))
    assert (cause.id, cause.torch, cause.keras) == ("attention.window", 3, None)


def test_how_an_op_is_done_is_named_by_the_op() -> None:
    padding = change(name="padding", owner="conv2d", kind="operation", of="conv2d", path="m", before="1", after="same")
    (cause,) = causes("m", "Block", outcome(padding), outcome(), ("m", "m"))
    assert (cause.id, cause.torch, cause.keras) == ("conv2d.padding", "1", "same")
    assert "padding '1' -> 'same' in conv2d" in cause.evidence
    for of, expected in (("conv1d", "conv.padding"), ("conv_transpose3d", "conv_transpose.padding")):
        (cause,) = causes("m", "Block", outcome(msgspec.structs.replace(padding, of=of)), outcome())
        assert cause.id == expected


def test_a_cast_is_named_by_the_precision_that_it_rounds_to() -> None:
    cast = change(
        name="float16", owner="cast", kind="operation", of="precision", before="cast to float16", after="left out"
    )
    (cause,) = causes("m", "Block", outcome(), outcome(cast))
    assert (cause.id, cause.torch, cause.keras) == ("precision.float16", "left out", "cast to float16")


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


def test_the_owner_of_an_attribute_is_named_by_its_kind() -> None:
    (found,) = knobs.attributes(Owner("a", "leaky", SimpleNamespace(slope=0.1)), {"slope"}, object)
    assert (found.of, found.owner, found.name) == ("leaky", "SimpleNamespace", "slope")


def test_a_setting_that_several_modules_have_alike_is_changed_in_all_of_them() -> None:
    cells = [SimpleNamespace(slope=0.1), SimpleNamespace(slope=0.1), SimpleNamespace(slope=0.2)]
    found = [
        each
        for number, cell in enumerate(cells)
        for each in knobs.attributes(Owner(str(number), "cell", cell), {"slope"}, object)
    ]
    (together,) = knobs.joint(found)
    with together.changed(0.7):
        assert [cell.slope for cell in cells] == [0.7, 0.7, 0.2]
    assert [cell.slope for cell in cells] == [0.1, 0.1, 0.2]
    target = seen(np.array([0.5, 0.5, 0.2]))
    search = searching(
        lambda: np.array([cell.slope for cell in cells], float),
        target,
        lambda knob: candidates(knob.value, (), (), {}),
        60.0,
    )
    (both,) = search.found(found, [], [together])
    assert (both.changes[0].owner, both.changes[0].after) == ("SimpleNamespace (2 of them)", 0.5)


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


def test_the_kind_of_the_place_names_a_setting_of_the_module_itself() -> None:
    keras = change(owner="Qwen3LayerNorm", of="Qwen3LayerNorm", path="blocks/norm", before=1e-5, after=1e-6)
    (cause,) = causes("norm", "rms_norm", outcome(), outcome(keras), ("norm", "blocks/norm"))
    assert cause.id == "rms_norm.epsilon"
    (cause,) = causes("norm", "rms_norm", outcome(), outcome(keras), ("blocks", "blocks"))
    assert cause.id == "qwen3_layer_norm.epsilon"


def test_numbers_by_which_a_module_was_built_are_settings_to_try() -> None:
    """As the factors of a rotary embedding, of which the module keeps a table alone."""

    class Config(SimpleNamespace):
        pass

    scaling = {"factor": 8.0, "type": "llama3", "bands": {"high": 4.0, "length": 32}}
    module = SimpleNamespace(config=Config(scaling=scaling, size=64, epsilon=1e-6), other=SimpleNamespace(slope=0.5))
    assert sorted(knobs.configured(Owner("", "attention", module))) == [1e-6, 4.0, 8.0]


def typed(array: np.ndarray, like: np.ndarray) -> np.ndarray:
    return array.astype(like.dtype)


@pytest.mark.parametrize(
    ("mask", "inverse"),
    [
        (np.array([True, False]), np.array([False, True])),
        (np.array([[1, 0]]), np.array([[0, 1]])),
        (np.array([[0.0, -1e9]]), np.array([[-1e30, 0.0]])),
        (np.array([[0.0, -100.0]]), np.array([[-1e30, 0.0]])),
    ],
)
def test_masks_can_be_inverted_and_left_out_of_the_call(mask: np.ndarray, inverse: np.ndarray) -> None:
    given = {"x": X, "mask": mask, "scale": None}
    (found,) = masks.knobs(given, Owner("attn", "attention", Module()), [], np.asarray, typed)
    for how, expected in ((knobs.INVERTED, inverse), (knobs.AS_GIVEN, mask)):
        with found.changed(how):
            assert np.array_equal(given["mask"], expected) and given["mask"].dtype == mask.dtype
    with found.changed(knobs.LEFT_OUT):
        assert given["mask"] is None
    assert given["mask"] is mask
    inverted = change(name="attn_mask", kind="argument", of="attention", before=knobs.AS_GIVEN, after=knobs.INVERTED)
    (cause,) = causes("attn", "attention", outcome(inverted), outcome())
    assert (cause.id, cause.torch, cause.keras) == ("attention.mask", "as given", "inverted")


def test_a_mask_without_elements_is_none() -> None:
    given = {"mask": np.ones((0, 3), np.bool_)}
    assert list(masks.knobs(given, Owner("attn", "attention", Module()), [], np.asarray, typed)) == []


def test_zeros_and_ones_with_a_point_may_be_factors_or_summands() -> None:
    given = {"x": X, "mask": np.array([[1.0, 0.0]])}
    factors, summands = masks.knobs(given, Owner("attn", "attention", Module()), [], np.asarray, typed)
    with factors.changed(knobs.INVERTED):
        assert np.array_equal(given["mask"], [[0.0, 1.0]])
    with summands.changed(knobs.INVERTED):
        assert np.array_equal(given["mask"], [[-1e30, 0.0]])


THEIRS = np.tril(np.ones((2, 5, 5), np.bool_))


@pytest.mark.parametrize(
    "own",
    [
        np.ones((2, 1, 5, 5), np.bool_),
        np.ones((2, 5, 5), np.int32),
        np.where(np.triu(np.ones((2, 1, 5, 5)), 2) > 0, -1e30, 0.0),
        np.ones((2, 1, 1, 5), np.bool_),
    ],
)
def test_the_other_sides_mask_takes_the_place_of_ones_own(own: np.ndarray) -> None:
    given = {"x": X, "ids": np.arange(6).reshape(2, 3), "attention_mask": own}
    (theirs,) = masks.told({"x": X, "mask": THEIRS}, np.asarray)
    owner = Owner("attn", "attention", Module())
    _, found = masks.knobs(given, owner, [theirs], np.asarray, typed)
    with found.changed(knobs.THEIRS):
        mask = given["attention_mask"]
        assert mask.dtype == own.dtype
        counts = mask == 0 if own.dtype.kind == "f" else mask.astype(np.bool_)
        assert np.array_equal(counts.reshape(2, 5, 5), THEIRS)
    assert given["attention_mask"] is own
    told = change(name=found.name, kind="argument", of="attention", before=found.value, after=knobs.THEIRS)
    (cause,) = causes("attn", "attention", outcome(), outcome(told))
    assert (cause.id, cause.torch, cause.keras) == ("attention.mask", "another", "its own")


@pytest.mark.parametrize(
    ("own", "words"),
    [(THEIRS.astype(np.int32), [(masks.OPPOSITE,)]), (~THEIRS, [(knobs.THEIRS,)]), (np.ones((2, 7, 7), np.bool_), [])],
)
def test_an_equal_mask_and_one_of_other_lengths_are_not_tried(own: np.ndarray, words: list[tuple[str, ...]]) -> None:
    theirs = masks.told({"mask": THEIRS}, np.asarray)
    owner = Owner("attn", "attention", Module())
    _, *found = masks.knobs({"mask": own}, owner, theirs, np.asarray, typed)
    assert [knob.words for knob in found] == words


def test_another_function_is_likelier_than_a_number_that_switches_it_off() -> None:
    off = change(name="alpha", owner="ELU", of="elu", before=1.0, after=0.0)
    function = change(name="activation", owner="Dense", of="linear", kind="callable", before="relu", after="elu")
    (cause,) = causes("act", "elu", outcome(off), outcome(function))
    assert (cause.id, cause.torch, cause.keras) == ("activation.kind", "elu", "relu")


def test_one_description_of_one_place_is_told_once() -> None:
    entries = [made("unknown", "a"), made("unknown", "a"), made("unknown", "b")]
    told = with_descriptions(entries, {"a": Description("they part at line 7")})
    assert [(each.where, each.evidence) for each in told] == [("a", "they part at line 7"), ("b", "")]


def test_a_change_that_is_told_already_is_not_told_for_what_follows() -> None:
    told = made("relu.slope", "a", [{"name": "1"}])
    entries = [told, made("unknown", "b")]
    assert with_causes(entries, "b", [made("relu.slope", "b", [{"name": "1"}])]) == [told]
    twice = [made("unknown", "b"), made("unknown", "b")]
    assert with_causes(twice, "b", [made("relu.cap", "b", [{"name": "2"}])]) == [made("relu.cap", "b", [{"name": "2"}])]


def test_none_is_found_as_a_value() -> None:
    row = SimpleNamespace(padding=3)

    def call() -> np.ndarray:
        return X if row.padding is None else np.where(np.arange(X.size) == row.padding, 0.0, X)

    setting = Knob("padding", "row", "", 3, "attribute", knobs.assignment(vars(row), "padding"))
    (found,) = searching(call, seen(X), lambda _: [None, 5], 2.0).found([setting])
    assert [(each.name, each.after) for each in found.changes] == [("padding", None)]


def scaled_and_moved(x: np.ndarray) -> np.ndarray:
    return 2.5 * x + 2.5


def test_each_place_of_a_constant_is_changed_by_itself() -> None:
    run, _ = executed(lambda: scaled_and_moved(X), lambda file: file == __file__, lambda: False)
    of_function = [each for one in run if one.name == "scaled_and_moved" for each in code.constants(one)]
    factor, term = (each for each in of_function if each.value == 2.5)
    with factor.changed(4.0):
        assert np.array_equal(scaled_and_moved(X), 4.0 * X + 2.5)
    with term.changed(0.0):
        assert np.array_equal(scaled_and_moved(X), 2.5 * X)
    assert np.array_equal(scaled_and_moved(X), 2.5 * X + 2.5)


@pytest.mark.parametrize("mask", [knobs.LEFT_OUT, knobs.INVERTED, knobs.THEIRS])
def test_what_makes_a_mask_is_likelier_than_another_mask(mask: str) -> None:
    given = change(name="attention_mask", kind="argument", of="attention", before=knobs.AS_GIVEN, after=mask)
    window = change(name="sliding_window", of="attention", before=None, after=3)
    (cause,) = causes("attention", "attention", outcome(given), outcome(window))
    assert cause.id == "attention.window"
    operator = change(name=">", owner="made", kind="operator", of="", path="", before=">", after="<")
    (cause,) = causes("attention", "attention", outcome(operator), outcome(given))
    assert cause.id == "attention.mask"


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
        return Outcome(problem="" if not unlike else "it returns something else", tried=question.number)

    def opened(*_: object) -> nullcontext[SimpleNamespace]:
        models.append(SimpleNamespace(asked=0, restored=0))
        models[-1].restore = lambda model=models[-1]: setattr(model, "restored", model.restored + 1)
        return nullcontext(models[-1])

    monkeypatch.setattr(study, "_answer", answer)
    asked = [SimpleNamespace(number=n, tensor=SimpleNamespace(kind=kind)) for n, kind in enumerate(kinds)]
    job = SimpleNamespace(folder=str(tmp_path), pair=SimpleNamespace(survey="", search=[]), case=None, questions=asked)
    study.study(job, opened)  # type: ignore[arg-type]
    outcomes = experiment.read(tmp_path)
    assert [(outcome.tried, outcome.problem) for outcome in outcomes] == [(n, "") for n in range(len(kinds))]
    assert len(models) == len(built) and all(model.restored == model.asked - 1 for model in models)
    assert sum(model.asked for model in models) - sum(built) == kinds.count("unlike")

"""Values that both builders compute: when they are the same, whose they are, and what running says of them."""

from typing import Any, cast

import numpy as np
import pytest
from msgspec.structs import replace
from pair_surveys import PAIR

from parity.core.arrays import Array
from parity.diagnose.diagnosis import Examined
from parity.pairs import disputed
from parity.pairs.built import Built, moved
from parity.pairs.disputed import KEPT, LOADED, Disputed, Found, Sides
from parity.pairs.pair_causes import name_pair_causes
from parity.pairs.reproduced import Values
from parity.pairs.resolve import Resolved
from parity.pairs.weights.propose import Proposal, propose
from parity.results import CaseResult, Verdict
from parity.trace.manifest import Trace
from parity.trace.mapping import Entry, Mapping
from parity.trace.survey import Module, Rehearsal, Seen, Survey, Weight

ANGLES = np.arange(64.0)[:, None] / 10000 ** (np.arange(8) / 8)
TABLE, OTHER = np.sin(ANGLES), np.sin(ANGLES * 1.001)
ROUNDED = np.sin(ANGLES.astype(np.float32))
ENTRY = Entry(torch=["t"], keras=["k"])


def built(torch: Array, keras: Array, rounded: Array | None = None) -> Built:
    return Built({"t": torch}, {"t": torch if rounded is None else rounded}, {"k": keras})


def weight(name: str, side: str, shape: tuple[int, ...] = (64, 8), **more: Any) -> Weight:
    module, _, role = name.rpartition("." if side == "torch" else "/")
    return Weight(name=name, shape=shape, dtype="float32", module=module, role=role, trainable=False, **more)


def survey(side: str, *weights: Weight, **more: Any) -> Survey:
    modules = [Module(path=path, kind="Net") for path in dict.fromkeys(one.module for one in weights)]
    outputs = [Seen(key="(model)", module="", shape=(4,))]
    return Survey(side=side, modules=modules, weights=list(weights), called=[], outputs=outputs, **more)


@pytest.mark.parametrize(
    ("torch", "keras", "is_same"),
    [
        (TABLE, TABLE, True),
        (TABLE, TABLE.astype(np.float32), True),
        (TABLE, TABLE + 1e-6 * np.eye(64, 8), False),
        (TABLE, OTHER, False),
        (np.array(0.07), np.array(0.7), False),
        (np.arange(9), np.arange(9), True),
        (np.arange(9)[::-1], np.arange(9), False),
        (np.array([True, False]), np.array([1.0, 0.0]), True),
        (np.array([-np.inf, 0.0]), np.array([-np.inf, 0.0]), True),
        (np.array([-np.inf, 0.0]), np.array([-1e9, 0.0]), False),
        (np.array([np.finfo(np.float64).min, 0.0]), np.array([np.finfo(np.float32).min, 0.0]), True),
        (np.array([-1e9, 5.0]), np.array([-1e9, 5.001]), False),
    ],
)
def test_values_are_the_same_to_float32s_rounding_of_each_element(torch: Array, keras: Array, is_same: bool) -> None:
    assert (built(torch, keras).unlike(ENTRY) is None) == is_same


def test_what_the_run_precision_loses_in_the_same_table_is_rounding() -> None:
    assert built(TABLE, ROUNDED).unlike(ENTRY) is not None
    assert built(TABLE, ROUNDED, rounded=ROUNDED).unlike(ENTRY) is None
    assert built(TABLE, OTHER, rounded=ROUNDED).unlike(ENTRY) is not None


def test_what_is_drawn_anew_at_each_precision_is_not_rounding() -> None:
    drawn = np.random.default_rng(0).random((2, 64, 8))
    assert built(drawn[0], TABLE, rounded=drawn[1]).unlike(ENTRY) is not None


def test_the_difference_is_told_where_it_is_largest() -> None:
    how = built(np.array([1.0, 2.0, 3.0]), np.array([1.0, 5.0, 3.0])).unlike(ENTRY)
    assert how is not None
    assert (how.torch, how.keras) == ("min 1, max 3, at [1] 2", "min 1, max 5, at [1] 5")
    assert how.said == (
        "t of torch (min 1, max 3, at [1] 2) and k of keras (min 1, max 5, at [1] 5) differ as their builders make "
        "them, by up to 3"
    )


def test_values_stand_as_the_mapping_moves_them() -> None:
    moved_axes = Entry(torch=["t"], keras=["k"], rearrange="a b -> b a")
    assert built(TABLE, TABLE.T).unlike(moved_axes) is None
    assert built(TABLE, OTHER.T).unlike(moved_axes) is not None


def test_another_seed_moves_what_is_drawn() -> None:
    assert moved({"a": TABLE, "b": TABLE}, {"a": TABLE.copy(), "b": OTHER}) == {"b"}


# What is disputed. Every row: torch's weight, Keras's, the values of Keras, what of it is drawn, what follows.
BUFFER, FROZEN = weight("t", "torch", constant=True), weight("t", "torch")
MADE, LAYER = weight("k", "keras", fixed=True), weight("k", "keras")
TO_BE_DECIDED, SILENT, TOLD = "decided", "loaded", "told"


@pytest.mark.parametrize(
    ("torch", "keras", "values", "drawn", "outcome"),
    [
        (BUFFER, MADE, TABLE, set(), SILENT),
        (BUFFER, MADE, OTHER, set(), TO_BE_DECIDED),
        (BUFFER, LAYER, OTHER, set(), TO_BE_DECIDED),
        (FROZEN, MADE, OTHER, set(), TO_BE_DECIDED),
        (FROZEN, LAYER, OTHER, set(), TO_BE_DECIDED),
        (BUFFER, MADE, np.ones((64, 8)), set(), TO_BE_DECIDED),
        (FROZEN, LAYER, np.ones((64, 8)), set(), SILENT),
        (BUFFER, MADE, OTHER, {"k"}, TOLD),
        (FROZEN, MADE, OTHER, {"k"}, TOLD),
        (FROZEN, LAYER, OTHER, {"k"}, SILENT),
        (FROZEN, LAYER, OTHER, {"t"}, SILENT),
        (BUFFER, MADE, OTHER, {"t"}, TO_BE_DECIDED),
        (replace(FROZEN, trainable=True), MADE, OTHER, set(), SILENT),
        (BUFFER, replace(LAYER, trainable=True), OTHER, set(), SILENT),
        (replace(BUFFER, constant=False, statistic=True), MADE, OTHER, set(), SILENT),
    ],
)
def test_what_is_disputed(torch: Weight, keras: Weight, values: Array, drawn: set[str], outcome: str) -> None:
    sides = Sides(survey("torch", torch, drawn=sorted(drawn & {"t"})), survey("keras", keras))
    found = disputed.find(Mapping(entries=[ENTRY]), sides, built(TABLE, values), lambda: drawn - {"t"})
    assert (bool(found.disputed), bool(found.assumptions)) == (outcome == TO_BE_DECIDED, outcome == TOLD)


def test_a_layer_that_draws_anything_has_initial_values() -> None:
    kernel, bias = weight("layer/kernel", "keras"), weight("layer/bias", "keras")
    sides = Sides(survey("torch", FROZEN), survey("keras", kernel, bias))
    entry, values = Entry(torch=["t"], keras=["layer/bias"]), Built({"t": TABLE}, {"t": TABLE}, {"layer/bias": OTHER})
    assert not disputed.find(Mapping(entries=[entry]), sides, values, lambda: {"layer/kernel"}).disputed
    assert disputed.find(Mapping(entries=[entry]), sides, values, set).disputed


def test_what_training_changes_is_loaded_and_told() -> None:
    sides = Sides(survey("torch", BUFFER, rehearsal=Rehearsal(changing=["t"])), survey("keras", MADE))
    found = disputed.find(Mapping(entries=[ENTRY]), sides, built(TABLE, OTHER), set)
    assert not found.disputed and found.assumptions[0].endswith("training changes it, and torch's values were loaded")


def test_nobody_is_asked_what_is_drawn_where_values_are_the_same_or_a_rule_gives_them() -> None:
    def never() -> set[str]:
        raise AssertionError("asked")

    sides = Sides(survey("torch", BUFFER), survey("keras", MADE))
    assert disputed.find(Mapping(entries=[ENTRY]), sides, built(TABLE, TABLE), never) == Found([], [])
    rule = replace(ENTRY, by="rule")
    assert disputed.find(Mapping(entries=[rule]), sides, built(TABLE, OTHER), never) == Found([], [])


# What running says. The models return the same with torch's values in the variables named, and no others.


class Runs:
    """Keras's model: it returns what torch's does if exactly `needed` of the disputed variables hold torch's values."""

    def __init__(self, needed: set[str], free: set[str] = frozenset()) -> None:
        self.needed, self.free = needed, set(free)
        self.torch: Values = {"(model)": np.arange(4.0)}

    def run(self, mapping: Mapping) -> tuple[Survey, Values]:
        loaded = {name for entry in mapping.entries for name in entry.keras} - self.free
        return survey("keras"), {"(model)": np.arange(4.0) + (loaded != self.needed)}

    def solve(self, proposal: Proposal) -> Resolved:
        return Resolved(proposal.mapping, *self.run(proposal.mapping), undecided=[], runs=1)

    def resolved(self, *unfilled: bool) -> Mapping:
        entries = [Entry(torch=[f"t{number}"], keras=[f"k{number}"]) for number in range(len(unfilled))]
        how = built(TABLE, OTHER).unlike(ENTRY)
        assert how
        found = Found([Disputed(entry, how, is_so) for entry, is_so in zip(entries, unfilled, strict=True)], [])
        proposal = Proposal(mapping=Mapping(entries=entries), ambiguities=[])
        sides = Sides(survey("torch"), survey("keras"))
        return disputed.resolved(proposal, found, sides, self.torch, self.solve, self.run).mapping


def test_a_table_that_only_torchs_values_make_equal_is_wrong() -> None:
    mapping = Runs({"k0"}).resolved(False)
    assert (mapping.entries, list(mapping.unlike), mapping.constants) == ([], ["t0"], ["t0", "k0"])


def test_each_of_several_is_asked() -> None:
    mapping = Runs({"k1"}, free={"k0"}).resolved(False, False)
    assert (mapping.entries, list(mapping.unlike)) == ([], ["t1"])
    assert [sentence.endswith(KEPT) for sentence in mapping.assumptions] == [True]


def test_many_are_asked_together() -> None:
    mapping = Runs({f"k{number}" for number in range(9)}).resolved(*[False] * 9)
    assert len(mapping.unlike) == 9 and not mapping.entries


def test_what_is_left_at_0_or_1_holds_torchs_values_and_is_told() -> None:
    mapping = Runs({"k0"}).resolved(True)
    assert (len(mapping.entries), list(mapping.unfilled), mapping.unlike) == (1, ["t0"], {})
    assert [sentence.endswith(LOADED) for sentence in mapping.assumptions] == [True]


@pytest.mark.parametrize("unfilled", [False, True])
def test_what_is_equal_with_kerass_own_values_is_not_overwritten(unfilled: bool) -> None:
    for runs in (Runs(set()), Runs(set(), free={"k0"})):
        mapping = runs.resolved(unfilled)
        assert (mapping.entries, mapping.unlike, mapping.unfilled) == ([], {}, {})
        assert [sentence.endswith(KEPT) for sentence in mapping.assumptions] == [True]


def test_models_that_are_never_equal_keep_what_each_computes() -> None:
    mapping = Runs({"nothing"}).resolved(False, True)
    assert [entry.keras for entry in mapping.entries] == [["k1"]] and not mapping.unlike
    assert mapping.unfilled == {}  # it makes no difference
    assert [sentence.rpartition(": ")[2] for sentence in mapping.assumptions] == [KEPT, LOADED]


def test_of_models_that_are_never_equal_only_a_table_that_matters_is_held_against_the_port() -> None:
    runs = Runs({"nothing"})
    runs.run = lambda mapping: (survey("keras"), {"(model)": np.arange(4.0) + 1.0})  # whatever it holds
    mapping = runs.resolved(True)
    assert mapping.unfilled == {} and [sentence.endswith(LOADED) for sentence in mapping.assumptions] == [True]
    runs.run = lambda mapping: (survey("keras"), {"(model)": np.arange(4.0) + 1.0 + len(mapping.entries)})
    assert list(runs.resolved(True).unfilled) == ["t0"]


@pytest.mark.parametrize("verdict", ["diverged", "match"])
def test_a_table_left_at_zeros_that_matters_is_a_cause_where_the_models_differ(verdict: Verdict) -> None:
    how = built(TABLE, OTHER).unlike(ENTRY)
    assert how
    result = CaseResult(case="pair/x", verdict=verdict, causes=[{"id": "unknown", "where": "head"}])
    trace = cast(Trace, None)
    name_pair_causes(Examined(result, []), Mapping(entries=[ENTRY], unfilled={"ids": how}), trace, trace)
    found = [(cause["id"], cause["where"]) for cause in result.causes]
    assert found == [("unknown", "head"), *[("buffer.values", "ids")] * (verdict == "diverged")]


# Which variable is a buffer's counterpart.


def test_equal_values_say_which_variable_is_a_buffers_counterpart() -> None:
    here = survey("torch", weight("m.table", "torch", constant=True), weight("m.other", "torch", constant=True))
    there = survey("keras", weight("m/other", "keras", fixed=True), weight("m/mine", "keras", fixed=True))
    torch = {"m.table": TABLE, "m.other": OTHER}
    values = Built(torch, torch, {"m/other": TABLE, "m/mine": OTHER})
    pairs = {entry.torch[0]: entry.keras[0] for entry in propose(here, there, PAIR, values).mapping.entries}
    assert pairs == {"m.table": "m/other", "m.other": "m/mine"}


def test_of_equal_values_names_say_it_and_one_number_everywhere_is_no_evidence() -> None:
    names = ("alpha", "beta")
    here = survey("torch", *(weight(f"m.{name}", "torch", constant=True) for name in names))
    there = survey("keras", *(weight(f"m/{name}", "keras", fixed=True) for name in reversed(names)))
    torch = {"m.alpha": TABLE, "m.beta": TABLE}
    values = Built(torch, torch, {"m/alpha": TABLE, "m/beta": TABLE})
    pairs = {entry.torch[0]: entry.keras[0] for entry in propose(here, there, PAIR, values).mapping.entries}
    assert pairs == {"m.alpha": "m/alpha", "m.beta": "m/beta"}
    assert not built(np.ones(3), np.ones(3)).same(ENTRY) and built(TABLE, TABLE).same(ENTRY)

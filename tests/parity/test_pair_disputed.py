"""Values that both builders compute: when they are the same, whose they are, and what running says of them."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from msgspec.structs import replace
from pair_surveys import PAIR

from parity.core.arrays import Array
from parity.diagnose.diagnosis import Examined
from parity.pairs.activations.modules import Surveyed
from parity.pairs.causes.pair_causes import name_pair_causes
from parity.pairs.untrained import disputed
from parity.pairs.untrained.built import Built
from parity.pairs.untrained.disputed import KEPT, LOADED, Disputed, Found
from parity.pairs.untrained.random_tables import DISTRIBUTION, Draw, Draws, Sides
from parity.pairs.weights.propose import Proposal, propose
from parity.pairs.weights.runs import Resolved, Trials, Values
from parity.results import CaseResult, Cause, Verdict
from parity.runtime.survey import Frame, Made, Module, Seen, Survey, Weight
from parity.trace.manifest import Trace
from parity.trace.mapping import Entry, Mapping, Unlike

ANGLES = np.arange(64.0)[:, None] / 10000 ** (np.arange(8) / 8)
TABLE, OTHER = np.sin(ANGLES), np.sin(ANGLES * 1.001)
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


# What is disputed. Every row: torch's weight, Keras's, the values of Keras, what of it is drawn, what follows.
BUFFER, FROZEN = weight("t", "torch", constant=True), weight("t", "torch")
MADE, LAYER, CHOSEN = weight("k", "keras", fixed=True), weight("k", "keras"), weight("k", "keras", chosen=True)
TO_BE_DECIDED, SILENT, TOLD = "decided", "loaded", "told"
BY_THE_USER = Made(source="m.py:1", calls=[Frame(file="m.py", line=1, column=0, end_line=1, end_column=9)])


def drawing(torch: Array, keras: Array, **rows: float) -> Draw:
    """Builders of these tables of which these rows are random: `t0=2.0`, the first of torch's, as far spread as 2."""

    def draw(further: int, names: Sequence[str]) -> Draws:
        random, sides = np.random.default_rng(0), {"t": torch, "k": keras}
        builds = {name: [values] for name, values in sides.items()}
        for name, values in sides.items():
            for _ in range(further):
                builds[name].append(np.array(values, np.float64))
                for row, scale in ((int(key[1:]), scale) for key, scale in rows.items() if key[0] == name):
                    builds[name][-1][row] = scale * random.standard_normal(values.shape[1])
        return Draws(*([{name: values} for values in builds[name]] for name in sides))

    return draw


def everywhere(names: set[str]) -> dict[str, float]:
    return {f"{name}{row}": 1.0 for name in names for row in range(64)}


@pytest.mark.parametrize(
    ("torch", "keras", "values", "drawn", "outcome"),
    [
        (BUFFER, MADE, TABLE, set(), SILENT),
        (BUFFER, MADE, OTHER, set(), TO_BE_DECIDED),
        (BUFFER, LAYER, OTHER, set(), TO_BE_DECIDED),
        (FROZEN, MADE, OTHER, set(), TO_BE_DECIDED),
        (FROZEN, LAYER, OTHER, set(), SILENT),
        (FROZEN, CHOSEN, OTHER, set(), TO_BE_DECIDED),
        (BUFFER, MADE, np.ones((64, 8)), set(), TO_BE_DECIDED),
        (FROZEN, CHOSEN, np.ones((64, 8)), set(), SILENT),
        (BUFFER, MADE, OTHER, {"k"}, TO_BE_DECIDED),
        (BUFFER, MADE, OTHER, {"t"}, TO_BE_DECIDED),
        (BUFFER, MADE, OTHER, {"t", "k"}, TOLD),
        (BUFFER, MADE, np.ones((64, 8)), {"t"}, TO_BE_DECIDED),
        (FROZEN, MADE, OTHER, {"k"}, TO_BE_DECIDED),
        (FROZEN, LAYER, OTHER, {"k"}, TOLD),
        (FROZEN, LAYER, OTHER, {"t"}, TOLD),
        (FROZEN, LAYER, OTHER, {"t", "k"}, TOLD),
        (FROZEN, CHOSEN, OTHER, {"t", "k"}, TOLD),
        (FROZEN, CHOSEN, OTHER, {"k"}, TOLD),
        (replace(FROZEN, trainable=True), MADE, OTHER, set(), SILENT),
        (BUFFER, replace(LAYER, trainable=True), OTHER, set(), SILENT),
        (replace(BUFFER, constant=False, statistic=True), MADE, OTHER, set(), SILENT),
    ],
)
def test_what_is_disputed(torch: Weight, keras: Weight, values: Array, drawn: set[str], outcome: str) -> None:
    sides = Sides(survey("torch", torch), survey("keras", keras))
    draw = drawing(TABLE, values, **everywhere(drawn))
    found = disputed.find(Mapping(entries=[ENTRY]), sides, built(TABLE, values), draw)
    assert (bool(found.disputed), bool(found.assumptions)) == (outcome == TO_BE_DECIDED, outcome == TOLD)


@pytest.mark.parametrize(
    ("mean", "variance", "same"),
    [
        (300.0, 4.0, (True, True)),
        (300.004, 4.00005, (True, True)),
        (300.01, 4.0, (False, True)),  # the mean of 40,000 other samples
        (300.0, 4.0 * 2000 / 1999, (True, False)),
    ],
)
def test_statistics_of_the_same_data(mean: float, variance: float, same: tuple[bool, bool]) -> None:
    torch = {"m": np.array([300.0, 0.0]), "s": np.array([2.0, 1.0])}
    both = Built(torch, torch, {"mean": np.array([mean, 0.0]), "variance": np.array([variance, 1.0])})
    entries = Entry(torch=["m"], keras=["mean"]), Entry(torch=["s"], keras=["variance"], combine="square")
    assert both.statistics(*entries)[1:] == same


ALIKE = (
    "torch's values are used in Keras for row 0 of t [64, 8], random on both sides and drawn alike (32 seeds); the rest"
)


@pytest.mark.parametrize(
    ("keras", "rows", "cause"),
    [
        (TABLE, {"t0": 1, "k0": 1}, ""),
        (OTHER, {"t0": 1, "k0": 1}, "buffer.values"),
        (TABLE, {"t0": 1, "k0": 3}, DISTRIBUTION),
        (TABLE, {"t0": 1}, DISTRIBUTION),
        (TABLE, {"k0": 1}, DISTRIBUTION),
        (TABLE, {"t0": 1, "k63": 1}, DISTRIBUTION),
        (OTHER, {"t0": 1, "k0": 3}, "buffer.values"),
    ],
)
@pytest.mark.parametrize("sides", [(BUFFER, MADE), (FROZEN, CHOSEN)])
def test_a_table_that_is_random_in_part(
    sides: tuple[Weight, Weight], keras: Array, rows: dict[str, float], cause: str
) -> None:
    here, there = survey("torch", sides[0]), survey("keras", sides[1])
    there = replace(there, modules=[replace(each, made=BY_THE_USER) for each in there.modules])
    values = keras + 1e-3 * (np.arange(64) == 0)[:, None]  # the pair's own seed draws the row too
    draw = drawing(TABLE, values, **rows)
    found = disputed.find(Mapping(entries=[ENTRY]), Sides(here, there), built(TABLE, values), draw)
    assert [each.unlike.cause for each in found.disputed] == [cause] * bool(cause)
    is_partial = cause == "buffer.values" and rows["k0"] == 1
    assert [sentence.startswith(ALIKE) for sentence in found.assumptions] == [True] * (not cause or is_partial)
    assert [each.partial is not None for each in found.disputed] == [is_partial] * bool(cause)


# What running says. The models return the same with torch's values in the variables named, and no others.


class Runs:
    """Keras's model: it returns what torch's does if exactly `needed` of the disputed variables hold torch's values."""

    def __init__(self, needed: set[str], free: set[str] = frozenset()) -> None:
        self.needed, self.free = needed, set(free)
        self.torch: Values = {"(model)": np.arange(4.0)}

    def run(self, mapping: Mapping) -> Surveyed:
        loaded = {name for entry in mapping.entries for name in entry.keras} - self.free
        return Surveyed(survey("keras"), {"(model)": np.arange(4.0) + (loaded != self.needed)})

    def solve(self, proposal: Proposal) -> Resolved:
        return Resolved(proposal.mapping, self.run(proposal.mapping), undecided=[])

    def resolved(self, *unfilled: bool) -> Mapping:
        entries = [Entry(torch=[f"t{number}"], keras=[f"k{number}"]) for number in range(len(unfilled))]
        how = built(TABLE, OTHER).unlike(ENTRY)
        assert how
        return self.resolved_as(
            how, [Disputed(*each) for each in zip(entries, [how] * len(entries), unfilled, strict=True)]
        )

    def resolved_as(self, how: Unlike, disputes: list[Disputed] | None = None) -> Mapping:
        disputes = disputes or [Disputed(Entry(torch=["t0"], keras=["k0"]), how)]
        entries, found = [each.entry for each in disputes], Found(disputes, [])
        proposal = Proposal(mapping=Mapping(entries=entries), ambiguities=[])
        trials = Trials(Surveyed(survey("torch"), self.torch), self.run)
        return disputed.resolved(proposal, lambda _: found, self.solve, trials).mapping


def test_many_are_asked_together() -> None:
    mapping = Runs({f"k{number}" for number in range(9)}).resolved(*[False] * 9)
    assert len(mapping.unlike) == 9 and not mapping.entries


def test_a_table_that_is_not_drawn_alike_is_held_against_the_port_where_it_matters() -> None:
    how = replace(built(TABLE, OTHER).unlike(ENTRY), cause=DISTRIBUTION)
    never_equal = Runs({"nothing"})
    never_equal.run = lambda mapping: Surveyed(
        survey("keras"), {"(model)": np.arange(4.0) + 1.0 + len(mapping.entries)}
    )
    for runs, unlike in ((Runs({"k0"}), ["t0"]), (never_equal, ["t0"]), (Runs(set(), free={"k0"}), [])):
        mapping = runs.resolved_as(how)
        assert (mapping.entries, list(mapping.unlike), mapping.constants) == ([], unlike, ["t0", "k0"])


def test_models_that_are_never_equal_keep_what_each_computes() -> None:
    mapping = Runs({"nothing"}).resolved(False, True)
    assert [entry.keras for entry in mapping.entries] == [["k1"]] and not mapping.unlike
    assert mapping.unfilled == {}  # it makes no difference
    assert [sentence.rpartition(": ")[2] for sentence in mapping.assumptions] == [KEPT, LOADED]


@pytest.mark.parametrize("verdict", ["diverged", "match"])
def test_a_table_left_at_zeros_that_matters_is_a_cause_where_the_models_differ(verdict: Verdict) -> None:
    how = built(TABLE, OTHER).unlike(ENTRY)
    assert how
    result = CaseResult(case="pair/x", verdict=verdict, causes=[Cause(id="unknown", where="head")])
    trace = cast(Trace, None)
    name_pair_causes(Examined(result, []), Mapping(entries=[ENTRY], unfilled={"ids": how}), trace, trace)
    found = [(cause.id, cause.where) for cause in result.causes]
    assert found == [("unknown", "head"), *[("buffer.values", "ids")] * (verdict == "diverged")]


# Which variable is a buffer's counterpart.


def test_equal_values_say_which_variable_is_a_buffers_counterpart() -> None:
    here = survey("torch", weight("m.table", "torch", constant=True), weight("m.other", "torch", constant=True))
    there = survey("keras", weight("m/other", "keras", fixed=True), weight("m/mine", "keras", fixed=True))
    torch = {"m.table": TABLE, "m.other": OTHER}
    values = Built(torch, torch, {"m/other": TABLE, "m/mine": OTHER})
    pairs = {entry.torch[0]: entry.keras[0] for entry in propose(here, there, PAIR, values).mapping.entries}
    assert pairs == {"m.table": "m/other", "m.other": "m/mine"}

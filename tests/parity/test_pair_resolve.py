"""Doubts about the mapping of weights, decided by running: small models whose weights can be mapped in several ways."""

from collections.abc import Callable

import numpy as np
import pytest
from pair_halves import Half, normal

from parity.core.arrays import Array
from parity.pairs.weights.links import Ambiguity
from parity.pairs.weights.propose import Proposal
from parity.pairs.weights.resolve import MOST_RUNS, resolve
from parity.pairs.weights.runs import Resolved
from parity.runtime.survey import Survey
from parity.trace.mapping import Entry, Mapping

Weights = dict[str, Array]
Forward = Callable[[Half, Weights], None]
TURNED = "i o -> o i"


def entry(torch: str, keras: str, rearrange: str = "") -> Entry:
    return Entry(torch=[torch], keras=[keras], rearrange=rearrange)


def turned_or_not(module: str, role: str = "w") -> Ambiguity:
    """A square matrix of unknown orientation: as it is comes first."""
    name = f"{module}.{role}", f"{module.replace('.', '/')}/{role}"
    return Ambiguity(place=module, choices=[[entry(*name)], [entry(*name, TURNED)]])


def proposal(*ambiguities: Ambiguity, more: tuple[Entry, ...] = ()) -> Proposal:
    """The first choices are in the mapping; weights that several ambiguities are about have their first."""
    entries = {tuple(one.keras): one for ambiguity in reversed(ambiguities) for one in ambiguity.choices[0]}
    return Proposal(mapping=Mapping(entries=[*reversed(entries.values()), *more]), ambiguities=list(ambiguities))


class Models:
    """torch's model, and a Keras model that runs with whatever weights a mapping gives it."""

    def __init__(self, weights: Weights, torch: Forward, keras: Forward) -> None:
        self.weights, self.forward = weights, keras
        half = Half("torch")
        torch(half, weights)
        self.torch = half
        self.runs: list[Mapping] = []
        self.last: dict[str, Array] = {}

    def run(self, mapping: Mapping) -> tuple[Survey, dict[str, Array]]:
        """What the last run returned is spoilt: a survey's file is written again."""
        for array in self.last.values():
            array[...] = np.nan
        self.runs.append(mapping)
        given = {}
        for one in mapping.entries:
            values = self.weights[one.torch[0]]
            given[one.keras[0]] = values.T if one.rearrange == TURNED else values
        half = Half("keras")
        self.forward(half, given)
        self.last = half.values = {key: value.copy() for key, value in half.values.items()}
        return half.survey(), half.values

    def resolve(self, asked: Proposal) -> Resolved:
        resolved = resolve(asked, self.torch.survey(), self.torch.values, self.run)
        assert resolved.runs == len(self.runs) <= MOST_RUNS
        last, found = self.runs[-1].entries, resolved.mapping.entries  # what is handed back was run last
        assert [(one.torch, one.keras, one.rearrange) for one in last] == [
            (one.torch, one.keras, one.rearrange) for one in found
        ]
        assert all(not np.isnan(value).all() for value in resolved.values.values())
        return resolved


def turned(resolved: Resolved) -> list[str]:
    return [one.keras[0] for one in resolved.mapping.entries if one.rearrange == TURNED]


def by(resolved: Resolved) -> set[str]:
    return {one.by for one in resolved.mapping.entries}


def chain(layers: int, transposed: set[int], fault: float = 1.0, epsilon_at: int = -1) -> Models:
    """Layers of one square matrix; in Keras some multiply by its transpose."""

    def torch(half: Half, weights: Weights) -> None:
        x = normal(0, 5, 8)
        for layer in range(layers):
            x = half.returns(f"l{layer}", "Custom", np.tanh(x @ weights[f"l{layer}.w"] / 3))
        half.ends(x)

    def keras(half: Half, weights: Weights) -> None:
        x = normal(0, 5, 8)
        for layer in range(layers):
            w = weights[f"l{layer}/w"]
            x = np.tanh(x @ (w.T if layer in transposed else w) / 3) * (fault if layer == epsilon_at else 1.0)
            half.returns(f"l{layer}", "Layer", x)
        half.ends(x)

    return Models({f"l{layer}.w": normal(layer + 1, 8, 8) for layer in range(layers)}, torch, keras)


def test_a_right_default_takes_one_run() -> None:
    models = chain(6, set())
    resolved = models.resolve(proposal(*(turned_or_not(f"l{layer}") for layer in range(6))))
    assert resolved.runs == 1 and not turned(resolved) and not resolved.undecided and by(resolved) == {"run"}


def test_without_doubts_the_model_runs_once() -> None:
    models = chain(1, set())
    resolved = models.resolve(Proposal(mapping=Mapping(entries=[entry("l0.w", "l0/w")]), ambiguities=[]))
    assert resolved.runs == 1 and by(resolved) == {"order"}


def test_layers_alike_are_decided_together() -> None:
    models = chain(36, set(range(36)))
    resolved = models.resolve(proposal(*(turned_or_not(f"l{layer}") for layer in range(36))))
    assert len(turned(resolved)) == 36 and not resolved.undecided
    assert resolved.runs == 3  # the default, the other choice of the first layer, that choice everywhere


def test_layers_alike_may_still_differ() -> None:
    models = chain(9, {1, 2, 5})
    resolved = models.resolve(proposal(*(turned_or_not(f"l{layer}") for layer in range(9))))
    assert turned(resolved) == ["l1/w", "l2/w", "l5/w"] and not resolved.undecided


@pytest.mark.parametrize("fault", [1.001, 1 + 1e-8])
def test_a_fault_before_the_doubt_does_not_hide_the_answer(fault: float) -> None:
    models = chain(4, {2}, fault, epsilon_at=0)
    resolved = models.resolve(proposal(*(turned_or_not(f"l{layer}") for layer in range(4))))
    assert turned(resolved) == ["l2/w"] and not resolved.undecided and by(resolved) == {"run"}


def test_what_neither_choice_reproduces_stays_in_doubt() -> None:
    models = chain(3, {1}, -1.0, epsilon_at=0)
    models.weights["l1.w"] = np.ones((8, 8))
    resolved = models.resolve(proposal(turned_or_not("l1"), more=(entry("l0.w", "l0/w"), entry("l2.w", "l2/w"))))
    assert resolved.undecided == ["l1"] and not turned(resolved)
    assert by(resolved) == {"order"}  # nothing was told by running


def test_two_matrices_of_one_module() -> None:
    def model(half: Half, weights: Weights) -> None:
        separator = "." if half.side == "torch" else "/"
        turn = half.side == "keras"
        u, w = weights[f"m{separator}u"], weights[f"m{separator}w"]
        x = np.tanh(normal(0, 5, 8) @ (u.T if turn else u)) @ (w.T if turn else w)
        half.ends(half.returns("m", "Custom", x))

    models = Models({"m.u": normal(1, 8, 8), "m.w": normal(2, 8, 8)}, model, model)
    resolved = models.resolve(proposal(turned_or_not("m", "u"), turned_or_not("m", "w")))
    assert turned(resolved) == ["m/u", "m/w"] and not resolved.undecided


def gated(half: Half, weights: Weights, layers: int, flat: bool = False) -> None:
    """Gate and up have one shape: only what is behind them tells which is which."""
    dot = "." if half.side == "torch" else "/"
    names = ("gate", "up") if half.side == "torch" else ("dense", "dense_1")
    x = normal(0, 5, 8)
    for layer in range(layers):
        block = f"b{layer}{'_' if flat else dot}"
        gate, up = (x @ weights[f"{block}{name}{dot}w"] for name in names)
        half.returns(block + names[1], "linear", up)
        half.returns(block + names[0], "linear", gate)
        x = x + half.returns(
            f"{block}down", "linear", (gate / (1 + np.exp(-gate)) * up) @ weights[f"{block}down{dot}w"]
        )
        if not flat:
            half.returns(f"b{layer}", "Block", x)
    half.ends(x)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_siblings_of_one_shape(flat: bool, swapped: bool) -> None:
    layers = 8
    weights = {
        f"b{layer}{'_' if flat else '.'}{name}.w": normal(10 * layer + number, 8, 8) / 3
        for layer in range(layers)
        for number, name in enumerate(("gate", "up", "down"))
    }
    models = Models(weights, lambda h, w: gated(h, w, layers, flat), lambda h, w: gated(h, w, layers, flat))
    ambiguities, rest = [], []
    for layer in range(layers):
        ours, theirs = f"b{layer}{'_' if flat else '.'}", f"b{layer}{'_' if flat else '/'}"
        ways = [
            [entry(f"{ours}{one}.w", f"{theirs}dense/w"), entry(f"{ours}{other}.w", f"{theirs}dense_1/w")]
            for one, other in (("gate", "up"), ("up", "gate"))
        ]
        ambiguities.append(Ambiguity(place=f"{ours}gate", choices=ways[::-1] if swapped else ways))
        rest.append(entry(f"{ours}down.w", f"{theirs}down/w"))
    resolved = models.resolve(proposal(*ambiguities, more=tuple(rest)))
    found = {one.torch[0]: one.keras[0] for one in resolved.mapping.entries}
    assert all(
        found[name].replace("/", ".") == name.replace("gate", "dense").replace("up", "dense_1") for name in found
    )
    assert resolved.runs == (3 if swapped else 1) and not resolved.undecided


def test_a_doubt_in_a_module_that_says_nothing() -> None:
    """Only the block around it returns something."""

    def model(half: Half, weights: Weights) -> None:
        dot = "." if half.side == "torch" else "/"
        x = normal(0, 5, 8)
        for layer in range(4):
            w = weights[f"b{layer}{dot}attn{dot}out{dot}w"]
            x = half.returns(f"b{layer}", "Block", x + np.tanh(x @ (w if half.side == "torch" else w.T) / 3))
        half.ends(x)

    models = Models({f"b{layer}.attn.out.w": normal(layer + 1, 8, 8) for layer in range(4)}, model, model)
    resolved = models.resolve(proposal(*(turned_or_not(f"b{layer}.attn.out") for layer in range(4))))
    assert len(turned(resolved)) == 4 and not resolved.undecided and resolved.runs == 3


def test_a_doubt_that_only_a_faulty_model_has() -> None:
    """The model is wrong at its end: the first layers are decided all the same, and no run is wasted on them."""
    models = chain(12, set(range(12)), -2.0, epsilon_at=11)
    resolved = models.resolve(proposal(*(turned_or_not(f"l{layer}") for layer in range(12))))
    assert turned(resolved)[:11] == [f"l{layer}/w" for layer in range(11)]
    assert resolved.undecided in ([], ["l11"])


def test_no_more_runs_than_allowed() -> None:
    """Nothing is reproduced from the start, and every layer asks."""
    models = chain(40, {3}, -7.0, epsilon_at=0)
    for name in models.weights:
        models.weights[name] = np.ones((8, 8))
    resolved = models.resolve(proposal(*(turned_or_not(f"l{layer}") for layer in range(40))))
    assert len(resolved.undecided) == 40


def test_constants_and_nan_decide_nothing() -> None:
    def model(half: Half, weights: Weights) -> None:
        dot = "." if half.side == "torch" else "/"
        half.returns("m", "Custom", np.zeros((4, 4)))
        half.returns("n", "Custom", np.full((4, 4), np.nan))
        half.ends(normal(0, 4) * (1 if half.side == "torch" else 2) + 0 * weights[f"m{dot}w"][0])

    models = Models({"m.w": normal(1, 4, 4)}, model, model)
    resolved = resolve(proposal(turned_or_not("m")), models.torch.survey(), models.torch.values, models.run)
    assert resolved.undecided == ["m"] and not turned(resolved)


def fused(fault: float = 1.0, behind: float = 1.0) -> Models:
    """Two projections of one input; Keras's second has the activation within it. The first order is the wrong one.

    `fault` is a factor within the activation of Keras's, `behind` one of its output.
    """

    def torch(half: Half, weights: Weights) -> None:
        x = normal(0, 5, 8)
        gate = half.returns("gate", "Custom", x @ weights["gate.w"])
        active = half.returns("act", "act", np.tanh(gate))
        up = half.returns("up", "Custom", x @ weights["up.w"])
        half.ends(half.returns("out", "Out", active * up))

    def keras(half: Half, weights: Weights) -> None:
        x = normal(0, 5, 8)
        first = half.returns("a", "Layer", x @ weights["a/w"])
        second = half.returns("b", "Layer", np.tanh(fault * (x @ weights["b/w"])))
        half.ends(half.returns("out", "Out", first * second * behind))

    return Models({"gate.w": normal(1, 8, 8), "up.w": normal(2, 8, 8)}, torch, keras)


def either(*names: str) -> Ambiguity:
    """Gate and up are these layers of Keras's, in this order or in the other."""
    orders = (names, names[::-1])
    choices = [[entry("gate.w", f"{one}/w"), entry("up.w", f"{other}/w")] for one, other in orders]
    return Ambiguity(place="gate", choices=choices)


def gate(resolved: Resolved) -> str:
    return next(one.keras[0] for one in resolved.mapping.entries if one.torch == ["gate.w"])


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_the_outcome_decides_between_layers_of_the_same_input(names: tuple[str, str]) -> None:
    resolved = fused().resolve(proposal(either(*names)))
    assert gate(resolved) == "b/w" and not resolved.undecided


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_what_an_open_layer_itself_returns_proves_nothing(names: tuple[str, str]) -> None:
    """With a fault in the activation, gate's own output is that of the layer without one: its place is not proven."""
    resolved = fused(fault=-30.0).resolve(proposal(either(*names)))
    assert gate(resolved) == f"{names[0]}/w" and resolved.undecided == ["gate"]


def test_behind_a_fault_the_activation_tells_which_is_the_gate() -> None:
    resolved = fused(behind=1.5).resolve(proposal(either("a", "b")))
    assert gate(resolved) == "b/w" and not resolved.undecided

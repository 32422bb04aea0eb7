"""Doubts about the mapping of weights, decided by running: small models whose weights can be mapped in several ways."""

from collections.abc import Callable

import numpy as np
import pytest
from pair_halves import Half, normal

from parity.core.arrays import Array
from parity.pairs.activations.modules import Surveyed
from parity.pairs.weights.links import Ambiguity
from parity.pairs.weights.propose import Proposal
from parity.pairs.weights.resolve import MOST_RUNS, resolve
from parity.pairs.weights.runs import Resolved, Trials
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

    def run(self, mapping: Mapping) -> Surveyed:
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
        return half.returned()

    def resolve(self, asked: Proposal) -> Resolved:
        resolved = resolve(asked, Trials(self.torch.returned(), self.run))
        assert len(self.runs) <= MOST_RUNS
        last, found = self.runs[-1].entries, resolved.mapping.entries  # what is handed back was run last
        assert [(one.torch, one.keras, one.rearrange) for one in last] == [
            (one.torch, one.keras, one.rearrange) for one in found
        ]
        assert all(not np.isnan(value).all() for value in resolved.keras.values.values())
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


def test_layers_alike_may_still_differ() -> None:
    models = chain(9, {1, 2, 5})
    resolved = models.resolve(proposal(*(turned_or_not(f"l{layer}") for layer in range(9))))
    assert turned(resolved) == ["l1/w", "l2/w", "l5/w"] and not resolved.undecided


@pytest.mark.parametrize("fault", [1.001, 1 + 1e-8])
def test_a_fault_before_the_doubt_does_not_hide_the_answer(fault: float) -> None:
    models = chain(4, {2}, fault, epsilon_at=0)
    resolved = models.resolve(proposal(*(turned_or_not(f"l{layer}") for layer in range(4))))
    assert turned(resolved) == ["l2/w"] and not resolved.undecided and by(resolved) == {"run"}


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


def test_no_more_runs_than_allowed() -> None:
    """Nothing is reproduced from the start, and every layer asks."""
    models = chain(40, {3}, -7.0, epsilon_at=0)
    for name in models.weights:
        models.weights[name] = np.ones((8, 8))
    resolved = models.resolve(proposal(*(turned_or_not(f"l{layer}") for layer in range(40))))
    assert len(resolved.undecided) == 40


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
def test_what_an_open_layer_itself_returns_proves_nothing(names: tuple[str, str]) -> None:
    """With a fault in the activation, gate's own output is that of the layer without one: its place is not proven."""
    resolved = fused(fault=-30.0).resolve(proposal(either(*names)))
    assert gate(resolved) == f"{names[0]}/w" and resolved.undecided == ["gate"]

"""What a mapping assumes is told, and tried the other way: small models with two layers of one shape."""

import numpy as np
import pytest
from pair_halves import Array, Half, normal

from parity.pairs.activations.modules import Surveyed
from parity.pairs.weights.links import Ambiguity
from parity.pairs.weights.propose import Proposal
from parity.pairs.weights.resolve import resolve
from parity.pairs.weights.runs import Trials, assume
from parity.trace.mapping import Entry, Mapping


def ambiguity(block: str = "", counted: bool = False) -> Ambiguity:
    """Whether one and two are a and b, or b and a."""
    orders = (("a", "b"), ("b", "a"))
    ways = [
        [Entry(torch=[f"{block}{n}.w"], keras=[f"{block}{k}/w"]) for n, k in zip(("one", "two"), order, strict=True)]
        for order in orders
    ]
    return Ambiguity(place=f"{block}one", choices=ways, counted=counted)


def forward(half: Half, weights: dict[str, Array], names: tuple[str, str], blocks: list[str], even: bool) -> None:
    """Of two branches the first is bent, unless they are `even`."""
    dot = "." if half.side == "torch" else "/"
    x = normal(0, 5, 8)
    for block in blocks:
        first, second = (x @ weights[f"{block}{name}{dot}w"] for name in names)
        x = x + half.returns(f"{block}mix", "Mix", (first if even else np.tanh(first)) * second)
    half.ends(x)


class Models:
    def __init__(self, blocks: list[str], even: bool, exchanged: bool = False) -> None:
        names = [f"{block}{name}" for block in blocks for name in ("one", "two")]
        self.weights = {f"{name}.w": normal(number + 1, 8, 8) for number, name in enumerate(names)}
        self.blocks, self.even, self.order = blocks, even, ("b", "a") if exchanged else ("a", "b")
        self.torch = Half("torch")
        forward(self.torch, self.weights, ("one", "two"), blocks, even)

    def run(self, mapping: Mapping) -> Surveyed:
        half = Half("keras")
        given = {one.keras[0]: self.weights[one.torch[0]] for one in mapping.entries}
        forward(half, given, self.order, self.blocks, self.even)
        return half.returned()

    def assumed(self, ambiguities: list[Ambiguity], named: list[Ambiguity]) -> Mapping:
        """With the first choices of all."""
        entries = [entry for one in (*ambiguities, *named) for entry in one.choices[0]]
        trials = Trials(self.torch.returned(), self.run)
        resolved = resolve(Proposal(mapping=Mapping(entries=entries), ambiguities=ambiguities), trials)
        return assume(resolved, named, trials).mapping


@pytest.mark.parametrize("counted", [False, True])
def test_against_the_order(counted: bool) -> None:
    """What the models return decides; only where both sides created what nobody names in another order is it told."""
    mapping = Models([""], False, exchanged=True).assumed([ambiguity(counted=counted)], [])
    (said,) = mapping.assumptions
    assert said.startswith("one, two of torch were taken to be b, a of keras (by what the models return, against the")
    assert mapping.contradicted == ([said] if counted else [])


def test_names_decide_and_an_exchange_is_named() -> None:
    models = Models([""], False, exchanged=True)
    mapping = models.assumed([], [ambiguity()])
    assert mapping.exchanged == {"one": "one, two of torch were taken to be b, a of keras"}
    assert [entry.keras for entry in mapping.entries] == [["a/w"], ["b/w"]]  # names decide all the same
    assert Models([""], False).assumed([], [ambiguity()]).exchanged == {}

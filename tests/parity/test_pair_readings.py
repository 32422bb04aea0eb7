"""The readings of two models: orders and towers that names leave open, chosen by what running returns."""

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace
from pair_halves import Half, normal
from pair_surveys import PAIR, dense, keras, linear, torch

from parity.core.arrays import Array
from parity.pairs.activations.modules import Surveyed
from parity.pairs.weights.propose import Proposal, Reading, propose
from parity.pairs.weights.readings import chosen, towers
from parity.pairs.weights.runs import Trials
from parity.runtime.survey import Survey
from parity.trace.mapping import Entry, Mapping

SIZE = 4
INPUTS = [normal(number, 5, SIZE) for number in range(3)]


def here(names: tuple[str, ...]) -> Survey:
    """torch's model: towers of two matrices, in the order of calls."""
    return torch(*(linear(f"{name}.fc{layer}", SIZE, SIZE) for name in names for layer in range(2)))


def there(names: tuple[str, ...]) -> Survey:
    return keras(*(dense(f"{name}/dense_{layer}", SIZE, SIZE) for name in names for layer in range(2)))


def forward(towers_of: tuple[str, ...], separator: str, weight: Callable[[str], Array], factor: float) -> Half:
    """The n-th tower gets the n-th input."""
    half, outputs = Half("torch" if separator == "." else "keras"), []
    for name, x in zip(towers_of, INPUTS, strict=False):
        for layer in range(2):
            x = half.returns(f"{name}{layer}", "Layer", np.tanh(x @ weight(f"{name}#{layer}")))
        outputs.append(x)
    half.ends(factor * np.concatenate(outputs))
    return half


class Case:
    """torch's towers get the inputs in the order of `ours`, Keras's in that of `theirs`."""

    def __init__(self, ours: Survey, theirs: Survey, order: tuple[tuple[str, ...], ...], factor: float = 1.0) -> None:
        self.sides, self.order, self.factor, self.runs = (ours, theirs), order, factor, 0
        names = [weight.name for weight in ours.weights]
        self.values = {name: normal(10 + number, SIZE, SIZE) for number, name in enumerate(names)}
        half = forward(order[0], ".", lambda name: self.values[f"{name.replace('#', '.fc')}.weight"].T, 1.0)
        self.reference = half.returned()

    def run(self, mapping: Mapping) -> Surveyed:
        self.runs += 1
        given = {entry.keras[0]: self.values[entry.torch[0]].T for entry in mapping.entries}
        half = forward(self.order[1], "/", lambda name: given[f"{name.replace('#', '/dense_')}/kernel"], self.factor)
        return half.returned()

    def chosen(self) -> Proposal:
        def proposed(reading: Reading) -> Proposal:
            return propose(*self.sides, PAIR, reading=reading)

        return chosen(proposed, Trials(self.reference, self.run))


def pairs(proposal: Proposal) -> set[tuple[str, str]]:
    entries = proposal.mapping.entries
    return {(entry.torch[0].partition(".")[0], entry.keras[0].partition("/")[0]) for entry in entries}


UNNAMED = ("this", "that", "those"), ("x_part", "y_part", "z_part")


def test_where_no_reading_makes_the_models_equal_it_stays_open_and_is_told() -> None:
    ours, theirs = UNNAMED
    found = Case(here(ours), there(theirs), (ours, theirs[::-1]), factor=2.0).chosen()
    assert pairs(found) == set(zip(ours, theirs[::-1], strict=True)), "most of torch's tensors are reproduced"
    assert [line for line in found.mapping.assumptions if line.endswith("this stays open")]


def test_names_that_agree_outrank_the_outcome() -> None:
    """A port that exchanges text and vision is at fault, and the exchange is told."""
    ours, theirs = ("text_model", "vision_model"), ("vision_encoder", "text_encoder")
    case = Case(here(ours), there(theirs), (ours, theirs))
    found = case.chosen()
    assert pairs(found) == {("text_model", "text_encoder"), ("vision_model", "vision_encoder")}
    assert list(found.mapping.exchanged) == ["text_model"]


def test_the_first_reading_is_run_though_names_speak_more_for_another() -> None:
    """A word in common may be chance: where the first reading makes the models equal, it is right."""
    ours, theirs = UNNAMED
    case = Case(here(ours[:1]), there(theirs[:1]), (ours[:1], theirs[:1]))
    first = propose(*case.sides, PAIR)
    turned = dict(zip([entry.torch[0] for entry in first.mapping.entries], first.mapping.entries[::-1], strict=True))
    entries = [Entry(torch=[name], keras=entry.keras, by="name") for name, entry in turned.items()]

    def proposed(reading: Reading) -> Proposal:
        other = replace(first, mapping=replace(first.mapping, entries=entries))
        return first if reading.keras == "calls" else other

    assert chosen(proposed, Trials(case.reference, case.run)) == first and case.runs == 1


def test_a_single_reading_is_not_run() -> None:
    ours, theirs = (
        here(("text", "vision")),
        keras(*(dense(f"part/dense_{number}", SIZE, SIZE + 1) for number in range(2))),
    )
    case = Case(ours, theirs, (("text", "vision"), ()))
    assert case.chosen().mapping.unplaced and case.runs == 0


def test_numbered_layers_are_named() -> None:
    ours = torch(*(linear(f"layers.{number}.fc{layer}", SIZE, SIZE) for number in range(3) for layer in range(2)))
    blocks = [f"block{f'_{number}' if number else ''}" for number in range(3)]
    counted = keras(*(dense(f"{block}/dense_{layer}", SIZE, SIZE) for block in blocks for layer in range(2)))
    found = list(towers(propose(ours, counted, PAIR).links))
    assert [(each.paths, each.are_named) for each in found] == [(["layers.0", "layers.1", "layers.2"], True)]
    turned = replace(counted, called=counted.called[::-1])
    assert not all(each.are_named for each in towers(propose(ours, turned, PAIR).links))

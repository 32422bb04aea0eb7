"""A model that takes several inputs in one argument gets them as what its code takes apart: a dict or a tuple."""

import math as ops
from typing import Any

import pytest

from parity.pairs.structure import as_taken, nested

BOTH = {"x": 1, "t": 2}


class Model:
    def unpacks(self, inputs):
        x, t = inputs
        return x + t

    def indexes(self, inputs):
        return inputs[0] + inputs[-1]

    def cuts(self, inputs):
        return sum(inputs[1:])

    def walks(self, inputs):
        return [part + 1 for part in inputs]

    def spreads(self, inputs):
        return max(*inputs)

    def zips(self, inputs):
        return list(zip(inputs, (1, 2), strict=True))

    def gives_to_a_module(self, inputs):
        return ops.prod(inputs)

    def passes_on(self, inputs, training=False):
        return self.unpacks(inputs)

    def by_key(self, inputs):
        return inputs["x"] + inputs["t"]

    def by_keys(self, inputs):
        x, t = (inputs[k] for k in ("x", "t"))
        return x + t

    def by_keys_of_another(self, inputs):
        return [inputs[name] for name in BOTH]

    def by_places(self, inputs):
        return [inputs[place] for place in range(2)]

    def by_method(self, inputs):
        return inputs.get("t")

    def asks(self, inputs):
        return 1 if "t" in inputs else 2

    def as_keywords(self, inputs):
        return dict(**inputs)

    def passes_on_to_a_dict(self, inputs):
        return self.by_key(inputs)

    def says_nothing(self, inputs):
        return self.other(inputs)

    def calls_itself(self, inputs):
        return self.calls_itself(inputs)


SEQUENCES = ["unpacks", "indexes", "cuts", "walks", "spreads", "zips", "by_places", "gives_to_a_module", "passes_on"]
DICTS = [
    "by_key",
    "by_keys",
    "by_keys_of_another",
    "by_method",
    "asks",
    "as_keywords",
    "passes_on_to_a_dict",
    "says_nothing",
    "calls_itself",
]


@pytest.mark.parametrize(("name", "expected"), [*((n, (1, 2)) for n in SEQUENCES), *((n, BOTH) for n in DICTS)])
def test_a_model_gets_what_it_takes_apart(name: str, expected: Any) -> None:
    function = getattr(Model(), name)
    assert as_taken(function, [BOTH], {}) == ([expected], {})
    assert as_taken(function, [], {"inputs": BOTH}) == ([], {"inputs": expected})


def test_what_has_no_source_gets_a_dict() -> None:
    assert as_taken(eval("lambda inputs: inputs[0]"), [BOTH], {}) == ([BOTH], {})
    assert as_taken(print, [3, BOTH], {"sep": BOTH}) == ([3, BOTH], {"sep": BOTH})


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"x": 1}, {"x": 1}),
        ({"person.age": 1, "person.sex": 2, "y": 3}, {"person": {"age": 1, "sex": 2}, "y": 3}),
        ({"pair.1": 2, "pair.0": 1}, {"pair": (1, 2)}),
        ({"a.10": 3, "a.9": 2, "a.0": 1}, {"a": (1, 2, 3)}),
        ({"a.0.x": 1, "a.1.x": 2}, {"a": ({"x": 1}, {"x": 2})}),
        ({"0": 1, "1": 2}, {"0": 1, "1": 2}),  # names of inputs
    ],
)
def test_dots_nest_and_numbers_make_tuples(named: dict[str, int], expected: dict[str, Any]) -> None:
    assert nested(named) == expected

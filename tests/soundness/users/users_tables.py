"""Rows: tables that builders compute, draw, or both: what is random is loaded, and what is computed is the port's."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from users_rows import NONE, Arrays, Row, floats

Truth = Literal["same", "differs"]
X = {"x": floats(8, 8)}
PLACES = {"x": floats(2, 6, 8)}
POINTS = {"x": floats(8, 4)}


def _row(
    name: str, truth: Truth, why: str, model: str, inputs: Any, torch: Any = NONE, keras: Any = NONE, **rest: Any
) -> Row:
    """`model`: both builders, or Keras's after torch's."""
    builders = (model.split() * 2)[:2]
    return Row(name, "tables", truth, why, inputs, *builders, torch_kwargs=torch, keras_kwargs=keras, **rest)


def parts(name: str, *index: Any) -> dict[str, Callable[[Arrays, np.ndarray], np.ndarray]]:
    """Load the part of a table that is drawn, and leave the rest as Keras's builder made it."""

    def loaded(arrays: Arrays, own: np.ndarray) -> np.ndarray:
        own = own.copy()
        own[index] = arrays[name][index]
        return own

    return {name: loaded}


ALL = slice(None)
DRAWN = {"first": (slice(0, 1),), "last": (slice(4, 6),), "columns": (ALL, slice(4, 8))}


def _drawn(drawn: str, name: str, truth: Truth, why: str, **keras: Any) -> Row:
    own = {"drawn": drawn} | keras
    return _row(
        f"table_{drawn}_{name}",
        truth,
        why,
        "Positions",
        PLACES,
        {"drawn": drawn},
        own,
        tables=parts("table", *DRAWN[drawn]),
    )


def _features(name: str, truth: Truth, why: str, model: str, torch: Any = NONE, keras: Any = NONE) -> Row:
    table = parts("frequencies", ALL)
    return _row(name, truth, why, model, POINTS, torch, keras, tables=table, random=("frequencies", "frequencies"))


def own_table(arrays: Arrays) -> list[Any]:
    """The frozen embedding keeps what its builder gave."""
    return [None, arrays["head.weight"].T, arrays["head.bias"]]


BASE = {"base": 1000.0}
TURN = 2 * math.pi
TABLES = [
    *(_row(f"table_{kept}", "same", f"a computed table, kept as {kept}", "Positions", PLACES,
        keras={"kept": kept}) for kept in ("weight", "constant", "array")),
    *(_row(f"table_{kept}_base", "differs", "another base", "Positions", PLACES,
        keras={"kept": kept} | BASE) for kept in ("weight", "constant", "array")),
    _row("table_exchanged", "differs", "cosines before sines", "Positions", PLACES, keras={"exchanged": True}),
    _row("table_shifted", "differs", "positions from 1 on", "Positions", PLACES, keras={"first": 1}),
    _row("table_drawn_in_torch", "differs", "only torch's first row is drawn", "Positions", PLACES, {"drawn": "first"}),
    _row("table_drawn_in_keras", "differs", "only Keras's first row is drawn", "Positions", PLACES, {},
        {"drawn": "first"}),
    *(_drawn(drawn, "right", "same", f"{drawn}: a part is drawn, the rest is computed alike") for drawn in DRAWN),
    *(_drawn(drawn, "base", "differs", f"{drawn}: beside what is drawn, another base", **BASE) for drawn in DRAWN),
    *(_drawn(drawn, "exchanged", "differs", f"{drawn}: beside what is drawn, cosines before sines",
        exchanged=True) for drawn in DRAWN),
    _drawn("first", "shifted", "differs", "behind the row that is drawn, positions from 1 on", first=1),
    _row("table_initialized", "same", "an initializer draws one row and computes the others", "Positions Initialized",
        PLACES, {"drawn": "first"}, tables=parts("table", slice(0, 1))),
    _row("table_initialized_base", "differs", "an initializer draws one row and computes the others by another base",
        "Positions Initialized", PLACES, {"drawn": "first"}, BASE, tables=parts("table", slice(0, 1))),
    _row("table_frozen", "same", "a frozen embedding of sinusoids", "Frozen", PLACES, weights=own_table),
    _row("table_frozen_base", "differs", "a frozen embedding of another base", "Frozen", PLACES, keras=BASE,
        weights=own_table),
    _features("features", "same", "2 pi in both calls", "Features features"),
    _features("features_in_table", "same", "2 pi in both tables", "Features features", {"scale": TURN, "factor": 1.0},
        {"deviation": TURN, "factor": 1.0}),
    _features("features_without", "differs", "2 pi in torch's table, nowhere in Keras", "Features features",
        {"scale": TURN,
        "factor": 1.0}, {"factor": 1.0}),
    _features("features_without_in_call", "differs", "2 pi in torch's call, nowhere in Keras", "Features features", {},
        {"factor": 1.0}),
    _features("features_wide", "differs", "frequencies of another deviation", "Features features", {"scale": 4.0},
        {"deviation": 0.25}),
    _features("features_glorot", "differs", "add_weight's own initializer for normal numbers",
        "Features features_glorot"),
    _features("features_even", "same", "both are uniform", "Features features_even", {"even": True}),
    _features("features_even_wide", "differs", "uniform within the normal's deviation", "Features features_even",
        {"even": True}, {"limit": math.sqrt(3)}),
    _features("features_even_or_normal", "differs", "uniform numbers of the normal's deviation",
        "Features features_even", {}, {"limit": math.sqrt(3)}),
    _features("features_signs", "same", "signs on both sides", "Features features_signs", {"signs": True}),
    _features("features_signs_or_normal", "differs", "signs for normal numbers, of one deviation",
        "Features features_signs"),
    _row("phases", "same", "phases within a turn", "Phases", X, tables=parts("phases", ALL), random=("phases",
        "phases")),
    _row("phases_of_one", "differs", "phases within 1", "Phases", X, keras={"largest": 1.0}, tables=parts("phases",
        ALL), random=("phases", "phases")),
    _row("prototypes", "same", "drawn, but for a row of zeros", "Prototypes", X, tables=parts("prototypes", slice(1,
        5))),
    _row("prototypes_drawn", "differs", "Keras draws the row of zeros as well", "Prototypes", X, keras={"zero": False},
        tables=parts("prototypes", slice(1, 5))),
    _row("rotary", "same", "rotary angles of an array", "Rotary", PLACES),
    _row("rotary_base", "differs", "another base", "Rotary", PLACES, keras={"base": 500000.0}),
    _row("rotary_turns", "differs", "neighbours are rotated, not halves", "Rotary", PLACES, keras={"turns": True}),
    _row("window", "same", "an index of distances", "Window", PLACES),
    _row("window_transposed", "differs", "the index of query and key exchanged", "Window", PLACES,
        keras={"transposed": True}),
    _row("slopes", "same", "linear biases", "slopes", PLACES),
    _row("slopes_of_eight", "differs", "slopes of eight heads", "slopes", PLACES, keras={"step": 1.0}),
    _row("standard", "same", "mean and variance of a Normalization", "Standard standard", X),
    _row("standard_deviation", "differs", "the deviation is given as variance", "Standard standard", X,
        keras={"squared": False}),
    _row("cosines", "same", "an orthonormal transform", "Cosines", X),
    _row("cosines_plain", "differs", "the first row is not divided by the root of two", "Cosines", X,
        keras={"orthonormal": False}),
    _row("hann", "same", "a periodic window", "Hann", X),
    _row("hann_symmetric", "differs", "a symmetric window", "Hann", X, keras={"periodic": False}),
    _row("mixed", "same", "order and signs, drawn with one seed", "Mixed mixed", X),
    _row("mixed_seed", "differs", "order and signs, drawn with another seed", "Mixed mixed", X, keras={"seed": 1}),
]  # fmt: skip

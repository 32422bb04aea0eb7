"""Where both sides' calls part, by what they have written into their folders."""

from pathlib import Path

import numpy as np
from causes_made import changed, made
from msgspec.structs import replace

from parity.core.arrays import Array
from parity.diagnose.experiment import ops
from parity.diagnose.experiment.description import Description, description, with_descriptions, with_lines
from parity.diagnose.experiment.ops import Recorder

X = np.random.default_rng(0).normal(size=(2, 6))


def leaky(slope: float, x: Array) -> Array:
    return np.where(x > 0, x, slope * x)


def write(folder: Path, slope: float) -> Path:
    """What a side writes of a leaky ReLU."""
    recorder = Recorder(id, np.array)
    x, y = X.copy(), leaky(slope, X)
    recorder.add("leaky_relu", "model.py:7", [recorder.number(x)], [y])
    ops.write(recorder.recording([y]), folder)
    return folder


def test_the_lines_are_told(tmp_path: Path) -> None:
    told = description(write(tmp_path / "torch", 0.01), write(tmp_path / "keras", 0.3), ())
    assert told.lines == (["model.py:7"], ["model.py:7"]) and told.line == "model.py:7"
    assert told.places == "torch `leaky_relu` at model.py:7, keras `leaky_relu` at model.py:7"
    assert told.words.startswith(f"{told.places}: what goes in agrees")


def test_what_is_missing_is_left_out(tmp_path: Path) -> None:
    torch, keras = write(tmp_path / "torch", 0.01), write(tmp_path / "keras", 0.3)
    (keras / "ops.json").unlink()
    assert description(torch, keras, ()) == description(tmp_path / "none", torch, ()) == Description("")


def test_causes_that_name_no_line_of_keras_s_get_the_place_where_the_calls_part() -> None:
    formula = made("module.scale", "(model)", evidence="recomputed")
    in_torch = replace(formula, changes=[changed(side="torch", source="model.py:3")])
    of_keras = replace(formula, changes=[changed(source="port.py:3")])
    unknown = replace(formula, id="unknown")
    places, lines = "torch `mul` at model.py:3", (["model.py:3"], ["port.py:4", "port.py:2"])
    described = {"(model)": Description("words", lines, places, line="port.py:4")}
    told = with_lines([formula, in_torch, of_keras, unknown], described)
    text = f"recomputed; in the code: {places}"
    new = {"evidence": text, "source": "port.py:4", "lines": ["port.py:4", "port.py:2"]}
    assert told[:2] == [replace(each, **new) for each in (formula, in_torch)]
    assert told[2:] == [of_keras, unknown]
    assert with_lines([formula], {"(model)": Description("words")}) == [formula]


def test_only_unknown_causes_get_a_description() -> None:
    unknown, known = made("unknown", "act", evidence="?"), made("relu.slope", "act")
    told = with_descriptions([unknown, known], {"act": Description("words")})
    assert told == [made("unknown", "act", evidence="words"), known]
    assert with_descriptions([unknown], {"act": Description("")}) == with_descriptions([unknown], {}) == [unknown]

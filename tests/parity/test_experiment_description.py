"""The description of a difference, of what both sides have written into their folders."""

from pathlib import Path

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.experiment import ops, probes
from parity.diagnose.experiment.causes import with_descriptions, with_lines
from parity.diagnose.experiment.description import Description, description
from parity.diagnose.experiment.ops import Recorder

X = np.random.default_rng(0).normal(size=(2, 6))


def leaky(slope: float, x: Array) -> Array:
    return np.where(x > 0, x, slope * x)


def write(folder: Path, slope: float, answers: bool = True) -> Path:
    """What a side writes of a leaky ReLU."""
    recorder = Recorder(id, np.array)
    x, y = X.copy(), leaky(slope, X)
    recorder.add("leaky_relu", "model.py:7", [recorder.number(x)], [y])
    ops.write(recorder.recording([y]), folder)
    if answers:
        probes.write(probes.responses(lambda inputs: leaky(slope, inputs[0]), [X]), folder)
    return folder


def test_line_and_behaviour_are_told(tmp_path: Path) -> None:
    told = description(write(tmp_path / "torch", 0.01), write(tmp_path / "keras", 0.3))
    assert told.lines == (["model.py:7"], ["model.py:7"]) and told.line == "model.py:7"
    assert told.places == "torch `leaky_relu` at model.py:7, keras `leaky_relu` at model.py:7"
    words = told.words
    assert words.startswith("torch `leaky_relu` at model.py:7, keras `leaky_relu` at model.py:7: what goes in agrees")
    assert words.endswith("both act on each element alone; torch 0.01 x below zero, keras 0.3 x")


def test_what_is_missing_is_left_out(tmp_path: Path) -> None:
    torch, keras = write(tmp_path / "torch", 0.01, answers=False), write(tmp_path / "keras", 0.3)
    words = description(torch, keras).words
    assert "below zero" not in words and "leaky_relu" in words
    (keras / "ops.json").unlink()
    assert description(torch, keras) == description(tmp_path / "none", keras) == Description("")


def test_causes_that_name_no_line_of_keras_s_get_the_place_where_the_calls_part() -> None:
    formula = {"id": "module.scale", "where": "(model)", "evidence": "recomputed"}
    in_torch = {**formula, "changes": [{"side": "torch", "source": "model.py:3"}]}
    of_keras = {**formula, "changes": [{"side": "keras", "source": "port.py:3"}]}
    unknown = {**formula, "id": "unknown"}
    places, lines = "torch `mul` at model.py:3", (["model.py:3"], ["port.py:4", "port.py:2"])
    described = {"(model)": Description("words", lines, places, line="port.py:4")}
    told = with_lines([formula, in_torch, of_keras, unknown], described)
    text = f"recomputed; in the code: {places}"
    new = {"evidence": text, "source": "port.py:4", "lines": ["port.py:4", "port.py:2"]}
    assert told[:2] == [{**each, **new} for each in (formula, in_torch)]
    assert told[2:] == [of_keras, unknown]
    assert with_lines([formula], {"(model)": Description("words")}) == [formula]


def test_only_unknown_causes_get_a_description() -> None:
    unknown, known = {"id": "unknown", "where": "act", "evidence": "?"}, {"id": "relu.slope", "where": "act"}
    told = with_descriptions([unknown, known], {"act": "words"})
    assert told == [{"id": "unknown", "where": "act", "evidence": "words"}, known]
    assert with_descriptions([unknown], {"act": ""}) == with_descriptions([unknown], {}) == [unknown]

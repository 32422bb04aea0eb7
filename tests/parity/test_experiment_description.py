"""Where both sides' calls part, by what they have written into their folders."""

from pathlib import Path

import numpy as np
import pytest
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


@pytest.mark.parametrize(("error", "side"), [(1e-8, "keras"), (1e-3, "")])
def test_an_op_that_computes_in_float32_is_the_cause_if_that_is_all(error: float, side: str, tmp_path: Path) -> None:
    """Nothing but rounding: a larger difference is no rounding."""
    recorders = Recorder(id, np.array), Recorder(id, np.array)
    outputs = X**2, (X**2 * (1 + error)).astype(np.float32).astype(np.float64)
    for recorder, name, folder, y in zip(recorders, ("mul", "Resize"), ("torch", "keras"), outputs, strict=True):
        recorder.add(name, "model.py:7", [recorder.number(X)], [y])
        ops.write(recorder.recording([y]), tmp_path / folder)
    told = description(tmp_path / "torch", tmp_path / "keras", ())
    assert told.rounds == side and "keras's computes in float32" in told.words
    unknown = made("unknown", "up", torch=None, keras=None, evidence="?")
    (cause,) = with_descriptions([unknown], {"up": told})
    assert (cause.id, cause.torch, cause.keras) == (
        ("op.precision", "float64", "float32") if side else ("unknown", None, None)
    )

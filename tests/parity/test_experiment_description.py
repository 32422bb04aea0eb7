"""The description of a difference, of what both sides have written into their folders."""

from pathlib import Path

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.experiment import ops, probes
from parity.diagnose.experiment.causes import with_descriptions
from parity.diagnose.experiment.description import description
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
    words, lines = description(write(tmp_path / "torch", 0.01), write(tmp_path / "keras", 0.3))
    assert lines == (["model.py:7"], ["model.py:7"])
    assert words.startswith("torch `leaky_relu` at model.py:7, keras `leaky_relu` at model.py:7: what goes in agrees")
    assert words.endswith("both act on each element alone; torch 0.01 x below zero, keras 0.3 x")


def test_what_is_missing_is_left_out(tmp_path: Path) -> None:
    torch, keras = write(tmp_path / "torch", 0.01, answers=False), write(tmp_path / "keras", 0.3)
    words, _ = description(torch, keras)
    assert "below zero" not in words and "leaky_relu" in words
    (keras / "ops.json").unlink()
    assert description(torch, keras) == ("", ([], []))
    assert description(tmp_path / "none", keras) == ("", ([], []))


def test_only_unknown_causes_get_a_description() -> None:
    unknown, known = {"id": "unknown", "where": "act", "evidence": "?"}, {"id": "relu.slope", "where": "act"}
    told = with_descriptions([unknown, known], {"act": "words"})
    assert told == [{"id": "unknown", "where": "act", "evidence": "words"}, known]
    assert with_descriptions([unknown], {"act": ""}) == with_descriptions([unknown], {}) == [unknown]

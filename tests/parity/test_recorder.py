"""The recorder: which tensors of which steps are stored, and as what."""

from pathlib import Path

import numpy as np
import pytest

from parity.trace import keys
from parity.trace.recorder import Recorder
from parity.trace.tensorfile import TensorFile


def recorded(folder: Path, steps: int, every: int) -> dict[str, set[str]]:
    """The kinds in each file of a recording that offers every kind at every step."""
    recorder = Recorder(folder, steps, every)
    for step in range(-1, steps + 1):
        if step >= 0:
            recorder.drew(np.arange(2))
        for kind in keys.KINDS[1:]:
            recorder.add(kind, "x", np.zeros(1))
        recorder.next_step()
    return {stem: {keys.split(key)[0] for key in written} for stem, written in recorder.files.items()}


EVERYTHING, BETWEEN = set(keys.KINDS), {"sample", "loss", "gradient"}
STATE, FORWARD = {"parameter", "buffer"}, {"sample", "input", "activation"}


def test_first_and_last_steps_in_full_losses_and_gradients_between(tmp_path: Path) -> None:
    assert recorded(tmp_path, 5, 1) == {
        "initial": STATE,
        "step-000000": EVERYTHING,
        "step-000001": BETWEEN,
        "step-000002": BETWEEN,
        "step-000003": BETWEEN,
        "step-000004": EVERYTHING,
        "step-000005": FORWARD,
    }


@pytest.mark.parametrize("every", [1, 3, 100])
@pytest.mark.parametrize("offered", [True, False])
def test_the_samples_of_every_step_are_stored(every: int, offered: bool, tmp_path: Path) -> None:
    """Also those of a step of which nothing else is, and of the evaluation."""
    recorder = Recorder(tmp_path, 5, every)
    recorder.next_step()
    for step in range(6):
        recorder.drew(np.arange(4) + 10 * step)
        if offered:
            recorder.add("loss", "loss", np.asarray(1.0))
        recorder.next_step()
    assert list(recorder.files) == [f"step-{step:06d}" for step in range(6)]
    for step, stem in enumerate(recorder.files):
        stored = TensorFile(tmp_path / f"{stem}.safetensors")
        assert list(stored) == recorder.files[stem]
        assert next(iter(stored)) == "sample/indices"
        assert stored["sample/indices"].tolist() == [10 * step + i for i in range(4)]
        assert ("loss/loss" in stored) == (offered and step < 5 and (step in (0, 4) or step % every == 0))


def test_tensors_are_stored_as_they_were_when_they_happened(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 1, 1)
    weight = np.zeros(3)
    recorder.add("parameter", "w", weight)
    recorder.add("activation", "too early", weight)
    recorder.next_step()
    recorder.drew(np.array([4, 2]))
    recorder.add("activation", "a", weight)
    weight += 1
    recorder.add("activation", "a", weight)
    recorder.add("activation", "b", weight)
    weight += 1
    recorder.add("activation", "a", weight)
    recorder.next_step()
    recorder.drew(np.array([1, 3]))
    recorder.add("activation", "a", weight)
    recorder.next_step()
    first, last = (TensorFile(tmp_path / f"step-00000{step}.safetensors") for step in (0, 1))
    assert list(TensorFile(tmp_path / "initial.safetensors")) == ["parameter/w"]
    assert {key: array.tolist() for key, array in first.items()} == {
        "sample/indices": [4, 2],
        "activation/a": [0.0] * 3,
        "activation/a#1": [1.0] * 3,
        "activation/b": [1.0] * 3,
        "activation/a#2": [2.0] * 3,
    }
    assert list(first) == ["sample/indices", "activation/a", "activation/a#1", "activation/b", "activation/a#2"]
    assert list(last) == ["sample/indices", "activation/a"]  # repeats are counted from anew

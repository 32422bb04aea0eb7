"""The recorder: which tensors of which steps are stored, and as what."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import same

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


@pytest.mark.parametrize("every", [1, 2, 3, 100])
def test_every_kth_step_between(every: int, tmp_path: Path) -> None:
    files = recorded(tmp_path, 9, every)
    between = {f"step-{step:06d}": {"sample"} if step % every else BETWEEN for step in range(1, 8)}
    first, last = {"initial": STATE, "step-000000": EVERYTHING}, {"step-000008": EVERYTHING, "step-000009": FORWARD}
    assert files == {**first, **between, **last}
    assert list(files) == [*first, *between, *last]
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(files)


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


def test_samples_that_were_drawn_ahead_belong_to_their_own_step(tmp_path: Path) -> None:
    """As by a loader that prefetches."""
    recorder = Recorder(tmp_path, 2, 1)
    for first in (0, 10, 20):
        recorder.drew(np.arange(first, first + 2))
    for _ in range(4):
        recorder.next_step()
    stored = {stem: TensorFile(tmp_path / f"{stem}.safetensors")["sample/indices"][0] for stem in recorder.files}
    assert stored == {"step-000000": 0, "step-000001": 10, "step-000002": 20}


def test_a_step_of_which_nothing_was_drawn_and_nothing_stored_has_no_file(tmp_path: Path) -> None:
    """A rank that holds no part of it."""
    recorder = Recorder(tmp_path, 2, 1)
    for _ in range(4):
        recorder.next_step()
    assert recorder.files == {} and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("steps", [1, 2])
def test_few_steps_are_all_in_full(steps: int, tmp_path: Path) -> None:
    files = recorded(tmp_path, steps, 1)
    full = {f"step-{step:06d}": EVERYTHING for step in range(steps)}
    assert files == {"initial": STATE, **full, f"step-{steps:06d}": FORWARD}


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


def test_a_run_whose_batches_are_in_reverse_is_turned_back(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 1, 1)
    recorder.flipped_axis = 1
    recorder.next_step()
    recorder.drew(np.arange(3))
    array = np.arange(6.0).reshape(2, 3)
    for kind in ("input", "activation", "gradient"):
        recorder.add(kind, "x", array)
    recorder.next_step()
    recorder.next_step()
    stored = TensorFile(tmp_path / "step-000000.safetensors")
    assert stored["sample/indices"].tolist() == [0, 1, 2]
    assert [same(stored[f"{kind}/x"], array[:, ::-1]) for kind in ("input", "activation")] == [True, True]
    assert same(stored["gradient/x"], array)


@pytest.mark.parametrize("shape", [(), (4,), (5, 4), (3, 2)])
def test_an_activation_without_the_batch_axis_does_not_break_the_witness(shape: Any, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 1, 1)
    recorder.flipped_axis = 1
    recorder.next_step()
    recorder.drew(np.arange(3))
    recorder.add("input", "x", np.ones((2, 3)))
    recorder.add("activation", "pooled", np.ones(shape))  # cannot be turned back: left out
    recorder.add("activation", "hidden", np.ones((5, 3)))
    recorder.next_step()
    recorder.next_step()
    assert list(TensorFile(tmp_path / "step-000000.safetensors")) == ["sample/indices", "input/x", "activation/hidden"]


@pytest.mark.parametrize(
    ("samples", "micro_batches", "training", "evaluation"),
    [
        (6, 1, {6}, {6}),
        (6, 3, {2}, {6}),
        (7, 3, {2, 3}, {7}),
        (5, 4, {1, 2}, {5}),
    ],
)
def test_as_many_samples_as_were_drawn_are_turned_back(
    samples: int, micro_batches: int, training: set[int], evaluation: set[int], tmp_path: Path
) -> None:
    """The length of a batch is that of the drawn samples: of a micro-batch in training, of all in the evaluation."""
    recorder = Recorder(tmp_path, 1, 1, micro_batches)
    recorder.flipped_axis = 0
    recorder.next_step()
    kinds = ("input", "activation", "gradient")
    for _ in range(2):
        recorder.drew(np.arange(samples))
        for kind in kinds:
            for length in range(10):
                recorder.add(kind, f"x{length}", np.arange(float(length)))
        recorder.next_step()
    for step, lengths in enumerate((training, evaluation)):
        stored = TensorFile(tmp_path / f"step-{step:06d}.safetensors")
        for kind in kinds[:2]:
            assert {int(key.rpartition("x")[2]) for key in stored if key.startswith(f"{kind}/")} == lengths
            assert all(same(stored[f"{kind}/x{n}"], np.arange(float(n))[::-1]) for n in lengths)
        gradients = [key for key in stored if key.startswith("gradient/")]
        assert len(gradients) == (0 if step else 10)
        assert all(same(stored[key], np.sort(stored[key])) for key in gradients)


def test_the_lengths_are_those_of_each_step_s_own_samples(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 2, 1)
    recorder.flipped_axis = 0
    recorder.next_step()
    for samples in (4, 3, 5):
        recorder.drew(np.arange(samples))
        for length in (3, 4, 5):
            recorder.add("activation", f"x{length}", np.arange(float(length)))
        recorder.next_step()
    assert list(recorder.files.values()) == [["sample/indices", f"activation/x{n}"] for n in (4, 3, 5)]


def test_without_drawn_samples_nothing_can_be_turned_back(tmp_path: Path) -> None:
    for axis, stored in ((0, ["gradient/x"]), (None, ["input/x", "activation/x", "gradient/x"])):
        recorder = Recorder(tmp_path / str(axis), 1, 1)
        recorder.flipped_axis = axis
        recorder.next_step()
        for kind in ("input", "activation", "gradient"):
            recorder.add(kind, "x", np.arange(3.0))
        recorder.next_step()
        assert recorder.files == {"step-000000": stored}


def test_a_tensor_that_is_stored_already_is_an_alias_in_its_place(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 1, 1)
    recorder.next_step()
    stored = recorder.add("activation", "linear", np.arange(3.0))
    assert stored == "activation/linear"
    recorder.alias("input", "norm", stored)
    assert recorder.add("input", "norm", np.arange(4.0)) == "input/norm#1"
    recorder.alias("input", "norm", "input/norm#1")
    recorder.next_step()
    step = "step-000000"
    assert recorder.files == {step: ["activation/linear", "input/norm", "input/norm#1", "input/norm#2"]}
    assert recorder.aliases == {step: {"input/norm": "activation/linear", "input/norm#2": "input/norm#1"}}
    assert list(TensorFile(tmp_path / f"{step}.safetensors")) == ["activation/linear", "input/norm#1"]


def test_a_step_that_does_not_record_a_kind_has_no_aliases_of_it(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 3, 1)
    assert recorder.add("activation", "linear", np.zeros(2)) is None  # before the first step
    for _ in range(2):
        recorder.next_step()
    recorder.alias("input", "norm", "activation/linear")
    recorder.add("loss", "loss", np.zeros(()))
    recorder.next_step()
    assert (recorder.files, recorder.aliases) == ({"step-000001": ["loss/loss"]}, {})

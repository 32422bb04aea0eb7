"""The samples and their order: shapes, standardisation, windows of text, micro-batches, and what is refused."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.config import cases
from parity.core.errors import UsageError
from parity.data import sources
from parity.data.batches import Dataset

BLOCK, TEXT, CLASSES = "simple_block/single", "transformer/single", "two_linear/single@cross_entropy"


def dataset(name: str = BLOCK, source: object = "synthetic", **changes: Any) -> Dataset:
    return Dataset(cases.resolve(name, {"data": {"source": str(source)}}, changes))


def refused(name: str = BLOCK, source: object = "synthetic", **changes: Any) -> str:
    with pytest.raises(UsageError) as error:
        dataset(name, source, **changes)
    message = str(error.value)
    assert message and message.count("\n") == 0
    return message


def drawn(data: Dataset) -> list[Any]:
    """The indices of each step, all micro-batches of all replicas in a row, then those of the evaluation."""
    steps = [[batch.indices for replica in step for batch in replica] for step in data.steps()]
    return [np.concatenate(parts) for parts in (*steps, [batch.indices for batch in data.evaluation()])]


def archive(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "own.npz", **arrays)
    return folder / "own.npz"


@pytest.mark.parametrize("name", cases.names())
def test_every_case_has_batches_of_its_shape(name: str) -> None:
    case = cases.resolve(name, {"steps": 2})
    data = Dataset(case)
    count = {"diabetes": 442, "digits": 1797 if name.startswith("two") else 1797 // 8}.get(case.data.source)
    assert count in (None, data.size)
    replicas = next(data.steps())
    assert [len(micro_batches) for micro_batches in replicas] == [case.accumulate] * case.replicas
    assert len(data.evaluation()) == case.replicas
    first = replicas[0][0]
    largest = -(-case.data.batch // case.replicas)
    assert len(first.indices) == -(-largest // case.accumulate)
    axis = 1 if name.startswith("transformer") else 0
    assert {array.shape[axis] for array in (*first.inputs, first.target)} == {len(first.indices)}
    assert all(array.flags.c_contiguous for array in (*first.inputs, first.target))


@pytest.mark.parametrize(
    ("name", "source", "changes", "shapes", "target"),
    [
        (BLOCK, "diabetes", {}, [(442, 10)], None),
        ("two_linear/single", "diabetes", {}, [(442, 10)], (442, 1)),
        ("linear_stack/single", "digits", {}, [(224, 512)], None),
        (BLOCK, "digits", {"model": {"inputs": 128}}, [(898, 128)], None),
        (CLASSES, "digits", {}, [(1797, 64)], (1797,)),
        ("residual_block/single", "photographs", {}, [(2 * 13 * 20, 3, 32, 32)], None),
        ("residual_block/single", "photographs", {"data": {"size": 427}}, [(2, 3, 427, 427)], None),
        (BLOCK, "synthetic", {}, [(128, 10)], None),
        ("residual_block/single", "synthetic", {"data": {"size": 5}}, [(128, 3, 5, 5)], None),
        (TEXT, "synthetic", {}, [(80, 10), (80, 10)], (80, 10)),
    ],
)
def test_shapes(name: str, source: str, changes: dict[str, Any], shapes: list[Any], target: Any) -> None:
    data = dataset(name, source, **changes)
    assert [array.shape for array in data.inputs] == shapes
    assert (None if data.target is None else data.target.shape) == target


def test_targets_of_zeros_have_the_shape_of_the_output() -> None:
    expected = {BLOCK: (32, 5), "linear_stack/single": (32, 512), "residual_block/single": (32, 16, 8, 8)}
    for name, shape in expected.items():
        ((batch,),), *_ = dataset(name, "synthetic", data={"size": 8}).steps()
        assert batch.target.shape == shape
        assert not batch.target.any()


def test_standardised_channels() -> None:
    values = sources.load(cases.resolve("residual_block/single")).inputs[0]
    assert np.abs(values.mean(axis=(0, 2, 3))).max() < 1e-12
    assert values.var(axis=(0, 2, 3)) == pytest.approx(1.0)
    assert np.abs(values.mean(axis=(0, 2))).max() > 1e-3  # by channel, not by pixel


def test_photographs_are_cut_without_mixing_axes() -> None:
    from sklearn.datasets import load_sample_images

    picture = load_sample_images().images[0].astype(np.float64)
    values = sources.load(cases.resolve("residual_block/single", {"data": {"size": 40}})).inputs[0]
    patch = picture[40:80, 80:120].transpose(2, 0, 1)  # row 1, column 2 of sixteen columns
    assert np.corrcoef(values[1 * 16 + 2, 1].reshape(-1), patch[1].reshape(-1))[0, 1] == pytest.approx(1.0)
    assert np.corrcoef(values[1 * 16 + 2, 1].T.reshape(-1), patch[1].reshape(-1))[0, 1] < 0.99


def test_words_go_by_frequency_and_the_target_is_the_source_moved_by_one(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("The cat, the DOG; the cat! A bird? the end")
    changes: dict[str, Any] = {"model": {"vocabulary": 4}, "data": {"length": 3, "batch": 2}}
    data = dataset(TEXT, f"text:{tmp_path / 'own.txt'}", **changes)
    words = np.array([1, 2, 1, 0, 1, 2, 3, 0, 1, 0])  # the, cat, then the first by the alphabet: a
    for i in range(6):
        assert data.inputs[0][i].tolist() == words[i : i + 3].tolist()
        assert data.inputs[1][i].tolist() == words[i + 1 : i + 4].tolist()
        assert data.target is not None and data.target[i].tolist() == words[i + 2 : i + 5].tolist()
    assert data.size == 6


def test_digests_are_stable_and_differ_with_the_data(tmp_path: Path) -> None:
    inputs = np.arange(40.0).reshape(4, 10)

    def images(shape: tuple[int, ...]) -> Dataset:
        return dataset("residual_block/single", archive(tmp_path, inputs=np.arange(48.0).reshape(shape)))

    makers = {
        "diabetes": lambda: dataset(BLOCK, "diabetes"),
        "bfloat16": lambda: dataset(BLOCK, "diabetes", precision="bfloat16"),
        "target": lambda: dataset("two_linear/single", "diabetes"),
        "synthetic": lambda: dataset(),
        "seed": lambda: dataset(seed=1),
        "npz": lambda: dataset(BLOCK, archive(tmp_path, inputs=inputs)),
        "one value": lambda: dataset(BLOCK, archive(tmp_path, inputs=inputs + np.eye(4, 10))),
        "integers": lambda: dataset(BLOCK, archive(tmp_path, inputs=inputs.astype(int))),
        **{str(shape): partial(images, shape) for shape in ((4, 3, 2, 2), (2, 3, 2, 4), (2, 3, 4, 2))},
    }
    digests = {name: make().digest for name, make in makers.items()}
    assert len(set(digests.values())) == len(digests)
    assert {name: make().digest for name, make in makers.items()} == digests
    assert all(len(digest) == 64 for digest in digests.values())


@settings(max_examples=40)
@given(size=st.integers(1, 12), batch=st.integers(1, 15), steps=st.integers(1, 8), seed=st.integers(0, 9))
def test_the_order_covers_every_sample_once_per_epoch(size: int, batch: int, steps: int, seed: int) -> None:
    data = dataset()  # 128 samples, of which the order is to know `size`
    data.size, data.case = size, cases.resolve(BLOCK, {"data": {"batch": batch}, "steps": steps, "seed": seed})
    *chunks, evaluation = drawn(data)
    stream = np.concatenate(chunks).tolist()
    assert [len(chunk) for chunk in chunks] == [batch] * steps
    assert evaluation.tolist() == chunks[0].tolist()
    for start in range(0, len(stream), size):
        epoch = stream[start : start + size]
        assert len(set(epoch)) == len(epoch)
        assert set(epoch) <= set(range(size))
    whole = [tuple(stream[start : start + size]) for start in range(0, len(stream) - size + 1, size)]
    assert len(whole) == len(stream) // size


@pytest.mark.parametrize("parts", [1, 3, 5, 32])
def test_micro_batches_are_the_step_cut_up(parts: int) -> None:
    data = dataset(BLOCK, "diabetes", accumulate=parts)
    for (step,), chosen in zip(data.steps(), drawn(dataset(BLOCK, "diabetes")), strict=False):
        assert len(step) == parts
        assert sum(batch.share for batch in step) == pytest.approx(1.0, abs=1e-15)
        assert all(batch.share == len(batch.indices) / 32 for batch in step)
        assert np.concatenate([batch.indices for batch in step]).tolist() == chosen.tolist()
        for batch in step:
            assert np.array_equal(batch.inputs[0], data.inputs[0][batch.indices])


FOUR = np.zeros((4, 10))
IDS, IMAGES, OBJECTS = FOUR.astype(int), np.zeros((4, 64)), np.array([[{}] * 10] * 4, object)
LINEAR, RESIDUAL = "two_linear/single", "residual_block/single"
# Of each: the case, the source or an archive's arrays, the case's changes, and what the message says.
REFUSED: dict[str, tuple[str, Any, dict[str, Any], list[str]]] = {
    **{f"{source} for {name}": (name, source, {}, [name, repr(source), "choose one of"]) for name, source in (
        (BLOCK, "photographs"), (BLOCK, "text"), (TEXT, "diabetes"), (TEXT, "photographs"), (RESIDUAL, "digits"),
        ("linear_stack/single", "diabetes"), (BLOCK, "diabets"), (BLOCK, ""))},
    "a file behind a source that takes none": (BLOCK, "diabetes:mine.csv", {}, []),
    "other features": (BLOCK, "diabetes", {"model": {"inputs": 11}}, ["(10,)"]),
    "other pixels": (BLOCK, "digits", {"model": {"inputs": 100}}, ["64 pixels"]),
    "a patch larger than the picture": (RESIDUAL, "photographs", {"data": {"size": 428}}, ["427"]),
    "an axis too many": (BLOCK, {"inputs": np.zeros((4, 3, 2))}, {}, ["(3, 2)"]),
    "a feature too few": (BLOCK, {"inputs": np.zeros((4, 9))}, {}, ["(9,)"]),
    "a channel too many": (RESIDUAL, {"inputs": np.zeros((4, 4, 5, 5))}, {}, ["(4, 5, 5)"]),
    "no target": (LINEAR, "synthetic", {}, ["no target"]),
    "other outputs": (LINEAR, "diabetes", {"model": {"outputs": 2}}, ["(442, 1)"]),
    "a target without its axis": (LINEAR, {"inputs": FOUR, "target": np.zeros(4)}, {}, ["(4,)", "(4, 1)"]),
    "a target for each class": (CLASSES, {"inputs": IMAGES, "target": FOUR}, {}, ["(4, 10)"]),
    "another name": (BLOCK, {"x": FOUR}, {}, ["'x'"]),
    "other numbers of samples": (BLOCK, {"inputs": FOUR, "target": np.zeros((5, 5))}, {}, ["axis 0"]),
    "objects": (BLOCK, {"inputs": OBJECTS}, {}, ["own.npz"]),
    "no samples": (BLOCK, {"inputs": np.zeros((0, 10))}, {}, []),
    "a scalar": (BLOCK, {"inputs": FOUR, "note": np.float64(3)}, {}, []),
    "strings": (BLOCK, {"inputs": np.full((4, 10), "a")}, {}, []),
    "complex numbers": (BLOCK, {"inputs": FOUR * 1j}, {}, []),
    "two inputs for one": (BLOCK, {"input_0": FOUR, "input_1": FOUR}, {}, []),
    "one input for two": (TEXT, {"inputs": IDS, "target": IDS}, {}, []),
    "floats for ids": (TEXT, {"input_0": FOUR, "input_1": FOUR, "target": IDS}, {}, []),
    "ids beyond the vocabulary": (TEXT, {"input_0": IDS + 1000, "input_1": IDS, "target": IDS}, {}, []),
    "negative ids": (TEXT, {"input_0": IDS - 1, "input_1": IDS, "target": IDS}, {}, []),
    "labels beyond the classes": (CLASSES, {"inputs": IMAGES, "target": np.full(4, 10)}, {}, []),
    "floats for labels": (CLASSES, {"inputs": IMAGES, "target": np.zeros(4)}, {}, []),
    "fewer outputs than classes": (CLASSES, "digits", {"model": {"outputs": 5}}, []),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_data_that_the_case_cannot_take(what: str, tmp_path: Path) -> None:
    name, source, changes, said = REFUSED[what]
    message = refused(name, archive(tmp_path, **source) if isinstance(source, dict) else source, **changes)
    assert all(part in message for part in said), message


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    for source in (tmp_path / "none.npz", f"text:{tmp_path / 'none.txt'}", f"text:{tmp_path}"):
        assert str(tmp_path) in refused(TEXT if str(source).startswith("text") else BLOCK, source)
    (tmp_path / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    assert "UTF-8" in refused(TEXT, f"text:{tmp_path / 'latin.txt'}")


@pytest.mark.parametrize(("words", "enough"), [(11, False), (12, True), (0, False)])
def test_too_few_words(tmp_path: Path, words: int, enough: bool) -> None:
    (tmp_path / "short.txt").write_text("word " * words)
    if enough:
        assert dataset(TEXT, f"text:{tmp_path / 'short.txt'}").size == 1
    else:
        assert f"{words} words" in refused(TEXT, f"text:{tmp_path / 'short.txt'}")


@pytest.mark.parametrize("kind", ["empty", "text", "truncated", "flipped", "begun", "npy"])
def test_damaged_archives(kind: str, tmp_path: Path) -> None:
    path = archive(tmp_path, inputs=np.random.default_rng(0).random((400, 10)))
    whole = path.read_bytes()
    np.save(tmp_path / "own.npy", FOUR)
    contents = {
        "empty": b"",
        "text": b"hello\nthere",
        "truncated": whole[: len(whole) // 2],
        "flipped": whole[:600] + bytes([whole[600] ^ 255]) + whole[601:],
        "begun": whole[:10],
        "npy": (tmp_path / "own.npy").read_bytes(),
    }
    path.write_bytes(contents[kind])
    assert "own.npz" in refused(BLOCK, path)


@pytest.mark.parametrize(("name", "axis"), [(BLOCK, 0), (TEXT, 1)])
def test_the_witness_s_batches_hold_the_same_samples_in_reverse(name: str, axis: int) -> None:
    data = dataset(name, "synthetic", steps=2, **({} if axis else {"accumulate": 3}))
    other = data.reversed()
    assert data.batch_axis == axis
    assert (other.digest, data.backwards, other.reversed().backwards) == (data.digest, False, False)
    assert [part.tolist() for part in drawn(other)] == [part.tolist() for part in drawn(data)]
    for (step,), (turned,) in zip(data.steps(), other.steps(), strict=True):
        for batch, flipped in zip(step, turned, strict=True):
            assert flipped.share == batch.share
            assert flipped.indices.tolist() == batch.indices.tolist()  # noted in one order, for the comparison
            assert not np.array_equal(flipped.inputs[0], batch.inputs[0])
            for one, back in zip((*batch.inputs, batch.target), (*flipped.inputs, flipped.target), strict=True):
                assert np.array_equal(np.flip(back, axis), one)
    (evaluation,), (turned_evaluation,) = data.evaluation(), other.evaluation()
    assert np.array_equal(np.flip(turned_evaluation.inputs[0], axis), evaluation.inputs[0])

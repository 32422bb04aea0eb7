"""The sources of samples. Each gives arrays with the sample on axis 0, in PyTorch's axis order.

Real ones come with scikit-learn (diabetes: Efron et al. 2004; digits: Alpaydin and Kaynak 1998; two
photographs) and with this package (english.txt: the text of the Apache License 2.0).
"""

import re
import zipfile
from collections import Counter
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from parity.config import schema
from parity.core import random
from parity.core.arrays import Array, Floats
from parity.core.errors import UsageError

NUMBERED = re.compile(r"input_\d+")
SPECIMEN = (3, 16, 16)  # channels, height and width of its images


class Samples(NamedTuple):
    """All samples of a source. `target` is None where the source has none for this model."""

    inputs: tuple[Array, ...]
    target: Array | None


def load(case: schema.Case) -> Samples:
    """The samples of a case. Raises UsageError where source and model do not fit together."""
    samples = _choose(case)
    expected, ids = _features(case.model), isinstance(case.model, schema.Transformer)
    if len(samples.inputs) != 1 + ids:
        raise _misfit(case, f"gives {len(samples.inputs)} inputs, the model takes {1 + ids}")
    for array in samples.inputs:
        if not _fits(array.shape[1:], expected) or not len(array):
            shape = tuple("any" if size is None else size for size in expected)
            raise _misfit(case, f"gives {len(array)} samples of the shape {array.shape[1:]}, the model takes {shape}")
        if isinstance(case.model, schema.Transformer):
            check_ids(case, array, case.model.vocabulary, "words")
        else:
            check_numbers(case, array)
    return samples


def check_ids(case: schema.Case, array: Array, limit: int, what: str) -> None:
    """Raises UsageError unless the array holds whole numbers from 0 to below `limit`."""
    if not np.issubdtype(array.dtype, np.integer):
        raise _misfit(case, f"gives {what} as {array.dtype}, expected whole numbers below {limit}")
    if array.size and (array.min() < 0 or array.max() >= limit):
        raise _misfit(case, f"gives {what} from {array.min()} to {array.max()}, the model knows 0 to {limit - 1}")


def check_numbers(case: schema.Case, array: Array) -> None:
    """Raises UsageError unless the array holds finite real numbers."""
    if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
        raise _misfit(case, f"gives values of the dtype {array.dtype}, expected finite real numbers")


def _misfit(case: schema.Case, what: str) -> UsageError:
    advice = "resize the model or choose another data.source"
    return UsageError(f"case {case.name!r}: the source {case.data.source!r} {what}; {advice}")


def _choose(case: schema.Case) -> Samples:
    source, _, file = case.data.source.partition(":")
    if file and source != "text":
        source = ""
    if case.data.source.endswith(".npz"):
        return _archive(Path(case.data.source))
    match source, case.model:
        case "synthetic", _:
            return _synthetic(case)
        case "text", schema.Transformer(vocabulary=vocabulary):
            return _text(vocabulary, case.data.length, Path(file) if file else None)
        case "photographs", schema.ResidualBlock():
            return _photographs(case.data.size)
        case "diabetes", schema.SimpleBlock() | schema.TwoLinear():
            return _diabetes()
        case "digits", schema.LinearStack() | schema.SimpleBlock() | schema.TwoLinear():
            return _digits(width(case.model))
    raise UsageError(
        f"case {case.name!r}: no source {case.data.source!r} for the model {type(case.model).__name__}; choose one of "
        "diabetes (simple_block, two_linear), digits (these and linear_stack), photographs (residual_block), "
        "text, text:FILE (transformer), synthetic, FILE.npz"
    )


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    if len(shape) != len(expected):
        return False
    return all(want in (None, got) for want, got in zip(expected, shape, strict=True))


def _features(model: schema.Model) -> tuple[int | None, ...]:
    """The shape of one sample of each input; None where any size does."""
    match model:
        case schema.ResidualBlock(in_channels=channels):
            return (channels, None, None)
        case schema.Specimen():
            return SPECIMEN
        case schema.Transformer():
            return (None,)
        case _:
            return (width(model),)


def width(model: schema.Model) -> int:
    """The number of input features of a model that has one input of features. Raises TypeError for others."""
    match model:
        case schema.LinearStack():
            return model.width
        case schema.SimpleBlock() | schema.TwoLinear():
            return model.inputs
    raise TypeError(f"a {type(model).__name__} has no one number of input features")


def standardise(values: Array, axis: tuple[int, ...] = (0,)) -> Floats:
    """Mean 0 and variance 1 over `axis`; features of zero variance are centred only."""
    centred = values - values.mean(axis=axis, keepdims=True, dtype=np.float64)
    deviation = centred.std(axis=axis, keepdims=True)
    scaled: Floats = centred / np.where(deviation == 0.0, 1.0, deviation)
    return scaled


def _shipped(name: str) -> Path:
    """A file of scikit-learn's data sets, without importing it: that takes every process a second."""
    found = find_spec("sklearn")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    return Path(found.origin).parent / "datasets" / name


def _diabetes() -> Samples:
    """442 patients: 10 features, and the progression of the disease as the target, (442, 1)."""
    inputs, target = (np.loadtxt(_shipped(f"data/diabetes_{part}.csv.gz")) for part in ("data_raw", "target"))
    return Samples((standardise(inputs),), standardise(target[:, None]))


def _digits(features: int) -> Samples:
    """1797 digits of 64 pixels, `features` / 64 of them in a row; the class where a row is one digit."""
    table = np.loadtxt(_shipped("data/digits.csv.gz"), delimiter=",")
    inputs, labels = table[:, :-1], table[:, -1]
    if features % 64:
        raise UsageError(f"digits have 64 pixels each: the model takes {features} features, expected a multiple of 64")
    in_a_row = features // 64
    rows = len(inputs) // in_a_row
    pixels = standardise(inputs)[: rows * in_a_row].reshape(rows, features)
    return Samples((pixels,), labels.astype(np.int64) if in_a_row == 1 else None)


def _photographs(size: int) -> Samples:
    """Square patches of two photographs, (patches, 3, size, size), standardised by channel."""
    patches = []
    for name in ("china", "flower"):
        photograph = np.asarray(Image.open(_shipped(f"images/{name}.jpg")))
        rows, columns = photograph.shape[0] // size, photograph.shape[1] // size
        if not rows or not columns:
            raise UsageError(f"data.size is {size}; the photographs are 427 x 640, so that at most 427 fits")
        grid = photograph[: rows * size, : columns * size].reshape(rows, size, columns, size, 3)
        patches.append(grid.transpose(0, 2, 4, 1, 3).reshape(-1, 3, size, size))
    return Samples((standardise(np.concatenate(patches), axis=(0, 2, 3)),), None)


def _text(vocabulary: int, length: int, file: Path | None) -> Samples:
    """Windows of words as ids: source, target (the source moved by one word), labels (by two).

    Ids go by frequency; 0 stands for every word outside the vocabulary.
    """
    try:
        text = (file or resources.files("parity.data").joinpath("english.txt")).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"data.source 'text:{file}': expected a text file in UTF-8: {error}") from None
    words = re.findall(r"[a-z]+", text.lower())
    if len(words) < length + 2:
        raise UsageError(f"the text has {len(words)} words, too few for data.length = {length}")
    by_frequency = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))
    ids = {word: i for i, (word, _) in enumerate(by_frequency[: vocabulary - 1], start=1)}
    stream = np.array([ids.get(word, 0) for word in words], dtype=np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(stream, length + 2)
    return Samples((windows[:, :length], windows[:, 1 : length + 1]), windows[:, 2:])


def _synthetic(case: schema.Case) -> Samples:
    """Seeded normal numbers, or ids, in the shape that the model takes."""
    count = 4 * case.data.batch
    match case.model:
        case schema.Transformer(vocabulary=vocabulary):
            shape = (count, case.data.length + 2)
            words = random.bits(case.seed, "data/ids", count * shape[1]).reshape(shape) % np.uint64(vocabulary)
            ids = words.astype(np.int64)
            return Samples((ids[:, :-2], ids[:, 1:-1]), ids[:, 2:])
        case schema.Specimen(classes=classes):
            images = random.normal(case.seed, "data/inputs", (count, *SPECIMEN))
            return Samples((images,), random.normal(case.seed, "data/target", (count, classes)))
        case schema.ResidualBlock(in_channels=channels):
            features: tuple[int, ...] = (channels, case.data.size, case.data.size)
        case _:
            features = (width(case.model),)
    return Samples((random.normal(case.seed, "data/inputs", (count, *features)),), None)


def _archive(file: Path) -> Samples:
    """An .npz with `inputs`, or `input_0`, `input_1`..., and `target`; nothing pickled is read."""
    try:
        with file.open("rb") as content, np.load(content, allow_pickle=False) as archive:
            arrays = dict(archive)
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise UsageError(f"data.source {str(file)!r}: expected an .npz file of plain arrays: {error}") from None
    names = (
        ["inputs"] if "inputs" in arrays else sorted(filter(NUMBERED.fullmatch, arrays), key=lambda name: int(name[6:]))
    )
    if not names:
        raise UsageError(f"{file}: expected the array 'inputs' (or 'input_0'...), received {sorted(arrays)}")
    if any(array.ndim == 0 for array in arrays.values()) or len({len(array) for array in arrays.values()}) != 1:
        shapes = {name: array.shape for name, array in arrays.items()}
        raise UsageError(f"{file}: every array needs one entry per sample on axis 0, received {shapes}")
    return Samples(tuple(arrays[name] for name in names), arrays.get("target"))

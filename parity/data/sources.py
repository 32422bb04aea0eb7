"""The data sources. Each gives arrays with the samples on axis 0 and the other axes in PyTorch's order.

The real data come with scikit-learn (diabetes: Efron et al. 2004; digits: Alpaydin and Kaynak 1998; two
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
from parity.core.wording import count

NUMBERED = re.compile(r"input_\d+")


class Samples(NamedTuple):
    """All samples of a source; `target` is None if the source has none for the model."""

    inputs: tuple[Array, ...]
    target: Array | None


def load(case: schema.Case) -> Samples:
    """Return the samples of a case. Raises UsageError if source and model do not fit together."""
    samples = _choose(case)
    expected, vocabulary = case.model.sample_shape, case.model.vocabulary
    taken = 2 if vocabulary else 1
    if len(samples.inputs) != taken:
        raise _misfit(case, f"gives {count(len(samples.inputs), 'input')}, but the model takes {taken}")
    for array in samples.inputs:
        sizes = zip(array.shape[1:], expected, strict=False)
        fits = array.ndim - 1 == len(expected) and all(wanted in (None, size) for size, wanted in sizes)
        if not fits or not len(array):
            shape = tuple("any" if size is None else size for size in expected)
            raise _misfit(
                case, f"gives {count(len(array), 'sample')} of the shape {array.shape[1:]}, but the model takes {shape}"
            )
        if vocabulary:
            check_ids(case, array, vocabulary, "words")
        else:
            check_numbers(case, array)
    return samples


def check_ids(case: schema.Case, array: Array, limit: int, what: str) -> None:
    """Raise UsageError unless the array holds integers of at least 0 and below `limit`.

    `what` names them in the message, e.g. "classes".
    """
    if not np.issubdtype(array.dtype, np.integer):
        raise _misfit(case, f"gives {what} as {array.dtype}, expected whole numbers below {limit}")
    if array.size and (array.min() < 0 or array.max() >= limit):
        raise _misfit(case, f"gives {what} from {array.min()} to {array.max()}, but the model takes 0 to {limit - 1}")


def check_numbers(case: schema.Case, array: Array) -> None:
    """Raise UsageError unless the array holds finite real numbers."""
    if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
        raise _misfit(case, f"gives values of the dtype {array.dtype}, not all of them finite real numbers")


def _misfit(case: schema.Case, what: str) -> UsageError:
    advice = "resize the model or choose another data.source"
    return UsageError(f"case {case.name!r}: the data source {case.data.source!r} {what}; {advice}")


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
            return _digits(_shape(case)[0])
    raise UsageError(
        f"case {case.name!r}: there is no data source {case.data.source!r} for the model {type(case.model).__name__}; "
        "choose one of diabetes (for simple_block and two_linear), digits (for simple_block, two_linear and "
        "linear_stack), photographs (for residual_block), text or text:FILE (for transformer), synthetic or FILE.npz "
        "(for any model)"
    )


def _shape(case: schema.Case) -> tuple[int, ...]:
    """Return the shape of one sample of the model's input; sizes that the model leaves open are data.size."""
    return tuple(case.data.size if size is None else size for size in case.model.sample_shape)


def standardise(values: Array, axis: tuple[int, ...] = (0,)) -> Floats:
    """Scale to mean 0 and variance 1 over `axis`; features of zero variance are only centred."""
    centred = values - values.mean(axis=axis, keepdims=True, dtype=np.float64)
    deviation = centred.std(axis=axis, keepdims=True)
    scaled: Floats = centred / np.where(deviation == 0.0, 1.0, deviation)
    return scaled


def _shipped(name: str) -> Path:
    """Return the path of a data file in scikit-learn, which is not imported: that takes a second in every process."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    return Path(spec.origin).parent / "datasets" / name


def _diabetes() -> Samples:
    """Return 442 patients with 10 features each; the target, of shape (442, 1), is the progression of the disease."""
    inputs, target = (np.loadtxt(_shipped(f"data/diabetes_{part}.csv.gz")) for part in ("data_raw", "target"))
    return Samples((standardise(inputs),), standardise(target[:, None]))


def _digits(features: int) -> Samples:
    """Return 1797 digits of 64 pixels each, with `features` / 64 consecutive digits per sample.

    The target is the digit's class if a sample is a single digit. Raises UsageError if 64 does not divide `features`.
    """
    table = np.loadtxt(_shipped("data/digits.csv.gz"), delimiter=",")
    inputs, labels = table[:, :-1], table[:, -1]
    if features % 64:
        raise UsageError(
            f"data.source 'digits': a digit has 64 pixels; the model has {count(features, 'feature')}, expected a "
            "multiple of 64"
        )
    in_a_row = features // 64
    rows = len(inputs) // in_a_row
    pixels = standardise(inputs)[: rows * in_a_row].reshape(rows, features)
    return Samples((pixels,), labels.astype(np.int64) if in_a_row == 1 else None)


def _photographs(size: int) -> Samples:
    """Return square patches of two photographs, (patches, 3, size, size), standardised by channel."""
    patches = []
    for name in ("china", "flower"):
        photograph = np.asarray(Image.open(_shipped(f"images/{name}.jpg")))
        rows, columns = photograph.shape[0] // size, photograph.shape[1] // size
        if not rows or not columns:
            raise UsageError(f"data.size is {size}, expected at most 427: the photographs are 427 x 640 pixels large")
        grid = photograph[: rows * size, : columns * size].reshape(rows, size, columns, size, 3)
        patches.append(grid.transpose(0, 2, 4, 1, 3).reshape(-1, 3, size, size))
    return Samples((standardise(np.concatenate(patches), axis=(0, 2, 3)),), None)


def _text(vocabulary: int, length: int, file: Path | None) -> Samples:
    """Return windows of a text as word ids: the source, the decoder's input (one word later) and the labels (two).

    Words are numbered from 1 by decreasing frequency; 0 stands for every word outside the vocabulary.
    """
    try:
        text = (file or resources.files("parity.data").joinpath("english.txt")).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"data.source 'text:{file}': expected a text file in UTF-8: {error}") from None
    words = re.findall(r"[a-z]+", text.lower())
    if len(words) < length + 2:
        raise UsageError(
            f"the text has only {count(len(words), 'word')}, but data.length = {length} needs at least {length + 2}"
        )
    by_frequency = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))
    ids = {word: i for i, (word, _) in enumerate(by_frequency[: vocabulary - 1], start=1)}
    stream = np.array([ids.get(word, 0) for word in words], dtype=np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(stream, length + 2)
    return Samples((windows[:, :length], windows[:, 1 : length + 1]), windows[:, 2:])


def _synthetic(case: schema.Case) -> Samples:
    """Return seeded normal numbers, or word ids for the transformer, in the shape that the model takes."""
    model, count = case.model, 4 * case.data.batch
    if model.vocabulary:
        shape = (count, case.data.length + 2)
        words = random.bits(case.seed, "data/ids", count * shape[1]).reshape(shape) % np.uint64(model.vocabulary)
        ids = words.astype(np.int64)
        return Samples((ids[:, :-2], ids[:, 1:-1]), ids[:, 2:])
    inputs = random.normal(case.seed, "data/inputs", (count, *_shape(case)))
    if isinstance(model, schema.Specimen):
        return Samples((inputs,), random.normal(case.seed, "data/target", (count, model.classes)))
    return Samples((inputs,), None)


def _archive(file: Path) -> Samples:
    """Return the arrays `inputs` (or `input_0`, `input_1`...) and `target` of an .npz file; refuse pickled ones."""
    try:
        with file.open("rb") as content, np.load(content, allow_pickle=False) as archive:
            arrays = dict(archive)
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise UsageError(f"data.source {str(file)!r}: expected an .npz file of plain arrays: {error}") from None
    numbered = sorted(filter(NUMBERED.fullmatch, arrays), key=lambda name: int(name[6:]))
    names = ["inputs"] if "inputs" in arrays else numbered
    if not names:
        raise UsageError(f"{file}: expected the array 'inputs' (or 'input_0'...), received {sorted(arrays)}")
    if any(array.ndim == 0 for array in arrays.values()) or len({len(array) for array in arrays.values()}) != 1:
        shapes = {name: array.shape for name, array in arrays.items()}
        raise UsageError(f"{file}: expected arrays with the same number of samples on axis 0, received {shapes}")
    return Samples(tuple(arrays[name] for name in names), arrays.get("target"))

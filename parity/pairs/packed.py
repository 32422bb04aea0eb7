"""What a certificate keeps of torch's half of a pair, beside the trace: a light survey, and the inputs' files."""

import itertools
import shutil
from pathlib import Path

from parity.config.schema import Case
from parity.core.arrays import Array
from parity.core.errors import UsageError
from parity.data.pairs import file_of
from parity.pairs.activations.counterparts import is_output
from parity.pairs.activations.values import excerpt
from parity.pairs.file import PairFile
from parity.runtime.survey import ACTIVATIONS, EXCERPTS, WEIGHTS, activations, keep, read
from parity.trace.summary import LARGE
from parity.trace.tensorfile import TensorFile

INPUTS = "inputs"


def pack(file: PairFile, trace: Path) -> None:
    """Make what was recorded of a pair ready for a certificate.

    The survey loses the weights that were drawn by a law, and all but excerpts of what large modules return; the .npz
    files of inputs are added. Raises UsageError for one that does not lie below the pair's file.
    """
    folder, inputs = trace / "survey", trace / INPUTS
    laws, weights = read(folder).laws, TensorFile(folder / WEIGHTS)
    keep(folder / WEIGHTS, [(name, array) for name, array in weights.items() if name not in laws])
    returned = activations(folder)
    large = {key: array for key, array in returned.items() if _is_large(key, array)}
    keep(folder / ACTIVATIONS, [(key, array) for key, array in returned.items() if key not in large])
    keep(folder / EXCERPTS, ((key, excerpt(array)) for key, array in large.items()))
    for name, given in file.pair.inputs.items():
        if given.npz:
            target = (inputs / given.npz).resolve()
            if inputs.resolve() not in target.parents:
                raise UsageError(f"inputs.{name}: npz is {given.npz!r}, expected a file below the pair's own folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file_of(name, given, file.search), target)


def _is_large(key: str, array: Array) -> bool:
    """Return whether an excerpt is enough: what the whole model returns is compared as a whole."""
    return array.size > LARGE and array.dtype.kind == "f" and not is_output(key)


def unpack(case: Case, trace: Path) -> None:
    """Draw the weights again that `pack` left out. Raises TraceError."""
    folder = trace / "survey"
    survey, weights = read(folder), TensorFile(folder / WEIGHTS)
    shapes = {weight.name: weight.shape for weight in survey.weights}
    drawn = ((name, law.drawn(case.seed, name, shapes[name], case.precision)) for name, law in survey.laws.items())
    keep(folder / WEIGHTS, itertools.chain(weights.items(), drawn))

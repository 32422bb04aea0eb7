"""What two ops do otherwise that take the same, where two calls part: another constant, or a reduction of other axes.

A constant is what stands in the code or is computed there: an offset, a mask, frequencies.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.diagnose.experiment import ops
from parity.diagnose.experiment.first_difference import Difference, Parting, places
from parity.diagnose.experiment.ops import Value

# What ops compute, by their names in either framework without case, version and trailing underscore.
COMPUTED: Final = {
    **dict.fromkeys(("add", "biasadd"), "add"),
    **dict.fromkeys(("sub", "rsub"), "subtract"),
    **dict.fromkeys(("mul",), "multiply"),
    **dict.fromkeys(("div", "realdiv", "divnonan"), "divide"),
    **dict.fromkeys(("mm", "bmm", "matmul", "batchmatmul", "einsum"), "matrix product"),
    **dict.fromkeys(("pow",), "power"),
    **dict.fromkeys(("where", "select"), "choice"),
    **dict.fromkeys(("index", "gather", "gathernd", "embedding", "index_select"), "lookup"),
}
REDUCED: Final[Mapping[str, Callable[..., Array]]] = {
    "sum": np.sum, "mean": np.mean, "max": np.max, "amax": np.max, "min": np.min, "amin": np.min, "prod": np.prod,
}  # fmt: skip
RANDOM: Final = re.compile("rand|norm|bernoulli|dropout", re.IGNORECASE)
SHOWN: Final = 6  # numbers of a constant
CONSTANT, AXES = "code.tensor", "reduction.axes"


class Named(NamedTuple):
    """A cause that the ops tell: its id, what each side has, and the evidence in words."""

    id: str
    torch: str
    keras: str
    words: str


def named(difference: Difference, weights: Iterable[Array]) -> Named | None:
    """Return what the first ops that part do otherwise; None if they do not tell.

    `weights`: torch's; a part of one is no constant.
    """
    torch, keras = difference.torch, difference.keras
    if torch is None or keras is None:
        return None
    return _reduced(torch, keras, difference) or _constant(torch, keras, difference, list(weights))


def _constant(torch: Parting, keras: Parting, difference: Difference, weights: list[Array]) -> Named | None:
    kinds = [COMPUTED.get(_plain(op.name)) for op in (torch, keras)]
    mine, theirs = torch.constants or (), keras.constants or ()
    if len(mine) != 1 or len(theirs) != 1 or any(RANDOM.search(op.name) for op in (torch, keras)):
        return None
    are_made = torch.output is mine[0] and keras.output is theirs[0]
    are_taken = kinds[0] == kinds[1] is not None and bool(torch.shared and keras.shared)
    if not (are_made or are_taken) or any(_is_part(each.array, weights) for each in (*mine, *theirs)):
        return None
    what = "make other constants" if are_made else "take another constant, and else the same"
    torch_numbers, keras_numbers, start = *(each.array.ravel() for each in (*mine, *theirs)), 0
    if (
        torch_numbers.size == keras_numbers.size > SHOWN
        and (apart := np.flatnonzero(torch_numbers != keras_numbers)).size
    ):
        start = int(min(apart[0], torch_numbers.size - SHOWN))
    words = f"{places(difference)} {what}" + (f"; shown from element {start} on" if start else "")
    return Named(CONSTANT, _shown(torch_numbers, start), _shown(keras_numbers, start), words)


def _reduced(torch: Parting, keras: Parting, difference: Difference) -> Named | None:
    functions = [REDUCED.get(_plain(op.name)) for op in (torch, keras)]
    if functions[0] is None or functions[0] is not functions[1] or not (torch.shared and keras.shared):
        return None
    axes = [next(_axes(op, functions[0]), None) for op in (torch, keras)]
    in_words = ["all axes" if not each else f"axes {', '.join(map(str, each))}" for each in axes if each is not None]
    if len(set(in_words)) < len(axes):
        return None
    words = f"{places(difference)} reduce the same tensor, in the order of its axes on each side"
    return Named(AXES, in_words[0], in_words[1], words)


def _axes(op: Parting, function: Callable[..., Array]) -> Iterator[tuple[int, ...]]:
    """Yield the axes of what an op takes over which it gives what the op returns; () are all."""
    array = max(op.shared, key=lambda value: value.size).array
    every = range(array.ndim)
    for count in (array.ndim, *range(1, array.ndim)):
        for axes in itertools.combinations(every, count):
            reduced = np.asarray(function(array.astype(np.float64), axis=axes))
            if reduced.size == op.output.size and ops.equal(Value(reduced), op.output):
                yield () if count == array.ndim else axes


def _plain(name: str) -> str:
    return re.sub(r"(v\d+|_)$", "", name.lower()).partition(".")[0]


def _is_part(array: Array, weights: Iterable[Array]) -> bool:
    """Return whether all numbers of a tensor stand in one of torch's weights, as those of a packed one do."""
    few = array.ravel()[:64]
    return any(weight.size >= array.size and bool(np.isin(few, weight).all()) for weight in weights if weight.size > 1)


def _shown(numbers: Array, start: int) -> str:
    few = numbers[start : start + SHOWN]
    listed = ", ".join(f"{number:.6g}" if few.dtype.kind == "f" else str(number) for number in few.tolist())
    return f"[{listed}{f', ... {numbers.size} in all' if numbers.size > SHOWN else ''}]"

"""What one of two scripts has in one tensor and the other in several, part by part: inputs, and outputs."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from parity.config.pair import PairOutput
from parity.core.arrays import Array
from parity.pairs.script_records import BATCH, FIRST, Batches, Ran, Shapes, names_of_calls
from parity.pairs.script_steps import alike, axes
from parity.pairs.structure import PART


def with_columns(torch: Ran, keras: Ran) -> tuple[Ran, Ran, dict[str, str]]:
    """Return what two scripts train on with columns in place of the matrices of which one is given these one by one.

    With the names of the columns in the matrices. One may give its model a matrix of categories, and the other each of
    them as an input of its own.
    """
    ours = {name: torch.arrays[f"{name}@0"] for name in names_of_calls(torch.arrays)}
    theirs = {name: keras.arrays[name] for name in keras.trained.inputs}
    if len(ours) == len(theirs):
        return torch, keras, {}
    is_torchs = len(ours) < len(theirs)
    matrices = _columns(*((ours, theirs) if is_torchs else (theirs, ours)))
    parts = {name: [f"{name}_{column}" for column in range(number)] for name, number in matrices.items()}
    trained, arrays = torch if is_torchs else keras
    inputs = [key for name in trained.inputs for key in parts.get(name, [name])]
    labels = {name: each for name, each in trained.labels.items() if name not in parts}
    changed = Ran(
        replace(trained, inputs=inputs, labels=labels | {key: [] for keys in parts.values() for key in keys}),
        _apart(arrays, matrices),
    )
    placed = {key: f"{name}{PART}{at}]" for name, keys in parts.items() for at, key in enumerate(keys)}
    return (changed, keras, placed) if is_torchs else (torch, changed, placed)


def _columns(ours: Batches, theirs: Batches) -> dict[str, int]:
    """Return which matrices of one script's model the other's is given column by column, with how many these are.

    That is told by shapes: what has no counterpart is matrices here, and as many single numbers of a sample there.
    """
    left = dict(theirs)
    matrices: dict[str, int] = {}
    for name, array in ours.items():
        if (own := next((key for key in left if alike({name: array}, {key: left[key]})), None)) is not None:
            del left[own]
        else:
            matrices[name] = array.shape[-1] if array.ndim == 2 else 0
    are_single = all(each.size == len(each) for each in left.values())
    return matrices if are_single and 0 not in matrices.values() and sum(matrices.values()) == len(left) else {}


def _apart(arrays: Batches, matrices: Mapping[str, int]) -> dict[str, Array]:
    """Return a script's arrays with the columns of these matrices in their place, also in what a dataset gives."""
    first = {name: arrays.get(f"{name}@0", arrays.get(name, np.zeros(0))) for name in matrices}
    parts: dict[str, Array] = {}
    for key, array in arrays.items():
        stem, at, step = key.partition("@")
        name = stem.removeprefix(FIRST).removeprefix(BATCH)
        batch = arrays.get(f"{BATCH}{name}@0", np.zeros(0))
        number = matrices.get(stem) or next((matrices[own] for own in matrices if np.array_equal(batch, first[own])), 0)
        if number and array.ndim == 2:
            parts |= {f"{stem}_{column}{at}{step}": array[:, column] for column in range(number)}
        else:
            parts[key] = array
    return parts


def outputs_by_shape(torch: Shapes, keras: Shapes) -> dict[str, PairOutput]:
    """Return the outputs whose shapes tell their counterparts in Keras's model; several of one shape in their order."""
    chosen: dict[str, PairOutput] = {}
    for ours, shape in torch.items():
        of_shape = [key for key in torch if torch[key] == shape]
        fitting = [key for key in keras if axes(shape, keras[key]) is not None]
        if len(of_shape) <= len(fitting):
            theirs = fitting[of_shape.index(ours)]
            layout = axes(shape, keras[theirs]) or ""
            chosen[f"output{ours}"] = PairOutput(torch=ours, keras=theirs, keras_layout=layout)
    if not chosen and min(len(torch), len(keras)) == 1:  # all in one tensor, as the loss that compile is given needs it
        is_torchs, several = len(torch) == 1, max(torch, keras, key=len)
        parts = _parts(next(iter((torch if is_torchs else keras).values())), list(several.values()))
        for own, part in zip(several, parts, strict=False):
            chosen[f"output{own}"] = PairOutput(torch=part if is_torchs else own, keras=own if is_torchs else part)
    return chosen


def _parts(whole: Sequence[int], shapes: Sequence[Sequence[int]]) -> list[str]:
    """Return the parts of a tensor's last axis that have these shapes, in their order; none if they have others."""
    if all(list(shape[1:]) == list(whole[1:-1]) for shape in shapes) and len(shapes) == whole[-1]:
        return [f"[..., {number}]" for number in range(len(shapes))]
    ends = [0, *itertools.accumulate(shape[-1] for shape in shapes)]
    if ends[-1] != whole[-1] or any(list(shape[1:-1]) != list(whole[1:-1]) for shape in shapes):
        return []
    return [f"[..., {first}:{last}]" for first, last in itertools.pairwise(ends)]

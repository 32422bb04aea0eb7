"""Which parts of two scripts' data correspond: batches with which steps begin, the models' inputs, their outputs.

Where steps make what their models are given, of a batch, of random numbers or by another model, or where the batches
are alike, the steps of both begin with the same batch: PyTorch's with that of its DataLoader, Keras's with that of
`fit` or of a dataset. Outside of them, the modules that PyTorch's script trains, and the layers that Keras's step
calls, are given what PyTorch's were given first in a step.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from parity.config.pair import OF_BATCH, SAMPLE_WEIGHT, TARGET, Pair, PairInput
from parity.core.arrays import Array, Floats
from parity.core.errors import UsageError
from parity.core.script import name_of
from parity.pairs.script_records import (
    BATCH,
    GIVEN,
    INNER,
    OF_LOSS,
    VALUES,
    Batches,
    Fetched,
    Trained,
    are_rows_of_ids,
    of_stem,
)

SCALE, CLEARLY, FEWEST = 1.5, 6, 8  # of data that is not of one scale: the factor, the certainty, the samples


def axes(given: Sequence[int], own: Sequence[int]) -> str | None:
    """Return the einops pattern that brings a batch's axes into the order of another's, which may have more samples.

    "" if they are in that order, None if there is no such pattern. Axes of size 1 may be dropped or added. Of several
    patterns, those are preferred that move the channels behind the other axes, and leave these in their order. An axis
    of size 0 is one of any length.
    """
    if len(given) == len(own) and all(ours in (0, theirs) for ours, theirs in zip(given[1:], own[1:], strict=True)):
        return ""
    names = ["b", *(f"a{axis}" if size > 1 else "1" for axis, size in enumerate(given[1:], 1))]
    wanted = [size for size in own[1:] if size > 1]
    inner = [axis for axis, size in enumerate(given) if axis and size > 1]
    for order in [sorted(inner, key=lambda axis: axis == 1), *map(list, itertools.permutations(inner))]:
        if [given[axis] for axis in order] == wanted:
            ordered = iter(order)
            right = [names[next(ordered)] if size > 1 else "1" for size in own[1:]]
            return f"{' '.join(names)} -> {' '.join(['b', *right])}"
    return None


class Steps(msgspec.Struct, frozen=True):
    """What steps that begin with a batch are given: the inputs of the pair, and PyTorch's arrays by their names.

    `fetched` and `keras` tell how both scripts take it, Keras's with the calls that are PyTorch's; `are_made`:
    whether they must begin so, as both make what their models are given (by random numbers, or of several views), or
    PyTorch's has several passes; `are_alike`: whether the batches are data of one kind, of which both steps are then
    given all, and what they do to it is compared.
    """

    inputs: dict[str, PairInput]
    arrays: dict[str, Array]
    fetched: Fetched
    keras: Fetched
    are_made: bool
    are_alike: bool

    def target(self, torch: Batches) -> str | None:
        """Return the input that the loss of PyTorch's script takes as it is, if it takes nothing else of a batch."""
        taken = [array.ravel() for key, array in torch.items() if key.startswith(OF_LOSS) and key.endswith("@0")]
        parts = {key.removesuffix("@0"): each.ravel() for key, each in self.arrays.items() if key.startswith(OF_BATCH)}
        names = [name for name, part in parts.items() if len(taken) == 1 and np.array_equal(part, taken[0])]
        return names[0] if len(names) == 1 else None


def steps(fetched: Fetched | None, torch: Batches, keras_fetched: Fetched | None, keras: Batches) -> Steps | None:
    """Return what the steps of two scripts are given that begin with a batch; None if the two take no such batches.

    `fetched`, `keras_fetched`: how the scripts train on what they take. `torch`, `keras`: what that is, with targets of
    Keras's fit, and what modules and layers are given.
    """
    if not fetched or not keras_fetched or not keras_fetched.calls:
        return None
    if bool(fetched.function) != bool(keras_fetched.function):
        return None
    first = first_step(torch)
    batch, given = _of(first, BATCH), _of(first, GIVEN)
    targets, of_batch = list(of_stem(TARGET, keras)), _of(keras, BATCH)
    if weights := of_stem(SAMPLE_WEIGHT, keras):  # all that a train_step takes may be data, and no target
        of_batch |= {name: keras[name] for name in targets} | weights
        targets = []
    if (taken := alike(batch, of_batch)) is None:
        return None
    left = [name for name in batch if name not in taken.values()]
    chosen = _chosen(given, fetched, keras_fetched, keras, taken | dict(zip(targets, left, strict=False)))
    if chosen is None or len(left) < len(targets):
        return None
    own_fetched, of_step, called = chosen
    renamed = {own: f"{OF_BATCH}.{own}" if own else OF_BATCH for own in taken.values()}
    renamed |= dict(zip(left, targets, strict=False))
    inputs = {own: _as(f"{GIVEN}{key}", of_step[key], given[own]) for key, own in called.items()}
    if len(fetched.modules) > 1:
        inputs = {own: msgspec.structs.replace(each, torch=own) for own, each in inputs.items()}
    inputs |= {renamed[own]: _as(f"{BATCH}{key}", of_batch[key], batch[own]) for key, own in taken.items()}
    inputs |= {name: described(batch[own]) for own, name in renamed.items() if name in targets}
    names_in_pair = {f"{BATCH}{own}": name for own, name in renamed.items()}
    names_in_pair |= {f"{GIVEN}{own}": own for own in given}
    makes = any(not any(np.array_equal(made, own) for own in of_batch.values()) for made in of_step.values())
    makes |= own_fetched.makes_more
    joins = {len(each) for each in given.values() if each.ndim}.isdisjoint(len(each) for each in batch.values())
    are_made = fetched.is_several or keras_fetched.is_several or ((fetched.is_random or joins) and makes)
    is_made_before = fetched.is_random and not makes  # Keras's script draws it for its data
    both = ((torch[f"{BATCH}{own}@0"], of_batch[key]) for key, own in taken.items())
    are_alike = not is_made_before and all(itertools.starmap(are_data_alike, both))
    fetched = msgspec.structs.replace(fetched, names={own: renamed.get(own, "") for own in fetched.names})
    return Steps(inputs, _renamed(torch, names_in_pair), fetched, own_fetched, are_made, are_alike)


def _renamed(arrays: Batches, names: Mapping[str, str]) -> dict[str, Array]:
    """Return those arrays of all steps that have a name in the pair, by that; `names`: by their own."""
    parts = ((key.rpartition("@"), array) for key, array in arrays.items())
    return {f"{names[name]}@{step}": array for (name, _, step), array in parts if name in names}


def _chosen(
    given: Batches, fetched: Fetched, keras_fetched: Fetched, keras: Batches, taken: Mapping[str, str]
) -> tuple[Fetched, dict[str, Array], dict[str, str]] | None:
    """Return how Keras's script calls the layers that are given what PyTorch's modules are, with tensors and names.

    They return as much as all that are called of what PyTorch's have returned, by its shapes.
    """
    most = _common(fetched.returned, keras_fetched.returned)
    prefixes = (GIVEN, *(f"{INNER}{number}." for number in range(len(keras_fetched.inner))))
    for each, prefix in zip((keras_fetched, *keras_fetched.inner), prefixes, strict=True):
        each, of_step = _in_torchs_order(each, _of(keras, prefix), fetched, taken)
        called = alike(given, of_step)
        if called and len(called) == len(given) and _common(fetched.returned, each.returned) >= most:
            own = {"calls": each.calls, "returned": each.returned, "modules": each.modules or keras_fetched.modules}
            return msgspec.structs.replace(keras_fetched, **own), of_step, called
    return None


def _in_torchs_order(
    each: Fetched, of_step: dict[str, Array], fetched: Fetched, taken: Mapping[str, str]
) -> tuple[Fetched, dict[str, Array]]:
    """Return the calls of layers, and what these are given, in the order of the modules that take the same of a batch.

    Several modules may be alike, as those of two domains are. Those that do not tell it stay in their order.
    """
    theirs = _kinds(each.returned, [[taken.get(name, "") for name in names] for names in each.takes])
    ours = _kinds(fetched.returned, fetched.takes)
    if not ours or len(ours) != len(theirs):
        return each, of_step
    told: dict[int, int] = {}
    for place, kind in enumerate(ours):
        fitting = (number for number, own in enumerate(theirs) if own == kind and number not in told.values())
        if (number := next(fitting, None)) is not None:
            told[place] = number
    rest = (number for number in range(len(theirs)) if number not in told.values())
    in_turn = [told[place] if place in told else next(rest) for place in range(len(ours))]
    calls, returned = [each.calls[number] for number in in_turn], [each.returned[number] for number in in_turn]
    tensors = [number for call in calls for number in call.numbers("tensor")]
    renumbered = [call.renumbered({number: place for place, number in enumerate(tensors)}) for call in calls]
    in_order = {f"{number}": of_step[f"{number}"] for number in tensors}
    return msgspec.structs.replace(each, calls=renumbered, returned=returned), in_order


def _kinds(returned: Sequence[Sequence[int]], takes: Sequence[Sequence[str]]) -> list[tuple[Any, ...]]:
    """Return by what modules are told apart that return a tensor each: its sizes, and what they take of a batch."""
    if len(returned) != len(takes):
        return []
    return [(*sorted(shape), *dict.fromkeys(names)) for shape, names in zip(returned, takes, strict=True)]


def _common(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> int:
    """Return how many of PyTorch's shapes have a counterpart among Keras's."""
    left, number = list(theirs), 0
    for shape in ours:
        if (own := next((each for each in left if axes(shape, each) is not None), None)) is not None:
            left.remove(own)
            number += 1
    return number


def refuse_several(text: str, trained: Trained | None) -> None:
    """Raise UsageError if a script trains several models where its steps begin with their calls."""
    fetched = trained.fetched if trained and not trained.chain else None
    if fetched and len(fetched.modules) > 1:
        raise UsageError(
            f"{name_of(text)}: trains several models that it calls one by one, {' and '.join(fetched.modules)}; "
            "expected one, or two scripts whose steps take the same batches, PyTorch's of a DataLoader and Keras's "
            "of a tf.data.Dataset or of fit, and call a model for each"
        )


def described(array: Array) -> PairInput:
    """Return the inputs' table of a pair file for an array of the batches."""
    dtype = "float32" if array.dtype.kind == "f" else str(array.dtype)
    return msgspec.convert({"npz": VALUES, "dtype": dtype}, PairInput)


def _of(arrays: Batches, prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def alike(torch: Batches, keras: Batches) -> dict[str, str] | None:
    """Return PyTorch's arrays by Keras's that are of their kind and shape, each the first that is left; None if not."""
    counterparts: dict[str, str] = {}
    for key, array in keras.items():
        left = (name for name in torch if name not in counterparts.values() and _layout(torch[name], array) is not None)
        if (name := next(left, None)) is None:
            return None
        counterparts[key] = name
    return counterparts


def _layout(torch: Array, keras: Array) -> str | None:
    if torch.dtype.kind in "iu" and are_rows_of_ids(keras):
        return "" if axes(torch.shape, keras.shape[:-1]) == "" else None
    are_alike = (torch.dtype.kind == "f") == (keras.dtype.kind == "f")
    return axes(torch.shape, keras.shape) if are_alike else None


def _as(key: str, keras: Array, torch: Array) -> PairInput:
    """Return the table of an input that is given to Keras by a name, in the order of its axes there."""
    return msgspec.structs.replace(described(torch), keras=key, keras_layout=_layout(torch, keras) or "")


def first_step(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the first step's arrays, without elements if they are rows of ids or have another length later."""
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for key, array in arrays.items():
        shapes.setdefault(key.rpartition("@")[0], set()).add(array.shape)

    def cut(name: str, first: Array) -> Array:
        are_ids = first.ndim == 2 and first.dtype.kind in "iu"
        varies = [are_ids or len(set(sizes)) > 1 for sizes in zip(*shapes[name], strict=False)]
        return first[tuple(slice(0 if axis and each else None) for axis, each in enumerate(varies))]

    return {name: cut(name, each) for key, each in arrays.items() if (name := key.removesuffix("@0")) != key}


def layout_of(pair: Pair, name: str, torch: Array, keras: Array) -> str:
    """Return how PyTorch's input is brought into the form of Keras's. Raises UsageError if they are no such two."""
    layout = axes(torch.shape, keras.shape)
    whole = keras.dtype.kind in "iu" and torch.dtype.kind == "f"
    if layout is None or whole:
        ours, theirs = (f"{list(each.shape)} {each.dtype}" for each in (torch, keras))
        hint = "; what is done to the data must stand in both models, or before both" if whole else ""
        raise UsageError(
            f"input {name}: {name_of(pair.torch)} gives its model {ours}, {name_of(pair.keras)} {theirs}, "
            f"expected the same data{hint}"
        )
    return layout


def are_data_alike(torch: Array, keras: Array) -> bool:
    """Return whether two batches may be of the same data: neither their means nor their scales are clearly others."""
    if "f" not in (torch.dtype.kind, keras.dtype.kind) or min(torch.ndim, keras.ndim) == 0:
        return True
    sides = list(map(rows, (torch, keras)))
    spread = np.sqrt(np.mean([each.var() for each in sides]))
    is_moved = _are_apart([each.mean(1) for each in sides], spread / 4)
    return not is_moved and not are_of_other_scales([np.square(each).mean(1) for each in sides])


def rows(array: Array) -> Floats:
    return array.reshape(len(array), -1).astype(np.float64)


def are_of_other_scales(squares: Sequence[Floats]) -> bool:
    return _are_apart([np.log(each[each > 0]) / 2 for each in squares], np.log(SCALE))


def _are_apart(sides: Sequence[Floats], least: float) -> bool:
    """Return whether the means of numbers of the samples are apart by so much, and clearly."""
    if min(map(len, sides)) < FEWEST:
        return False
    error = np.sqrt(sum(each.var(ddof=1) / len(each) for each in sides))
    return bool(abs(sides[0].mean() - sides[1].mean()) > max(least, CLEARLY * error))

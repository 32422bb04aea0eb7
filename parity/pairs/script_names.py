"""The names by which a pair knows what PyTorch's script gives to its model and its loss: those that Keras's has."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from parity.config.pair import SAMPLE_WEIGHT, TARGET, Pair
from parity.core.arrays import Array
from parity.core.errors import UsageError
from parity.core.script import name_of
from parity.core.wording import count
from parity.pairs.script_records import IGNORED, OF_LOSS, Batches, of_stem

ROUNDED = 1e-5  # how far from 1 the sum of some probabilities of float32 may be


def with_names(
    pair: Pair, torch: Batches, keras: Batches, held: Mapping[str, str], compared: Mapping[str, int | None]
) -> tuple[dict[str, Array], list[str]]:
    """Return PyTorch's batches, in which what its loss takes has got the names of Keras's targets, and of weights.

    Return also these names in the order in which the loss uses the tensors, "" for what is left out. `held`: what is
    known to hold the data of a target; `compared`: with which output the loss compares a tensor. Raises UsageError
    where the two are not given the same.
    """
    given = {key.removesuffix("@0"): array for key, array in torch.items() if key.endswith("@0")}
    taken = {name: array for name, array in given.items() if name.startswith(OF_LOSS)}
    samples = next((len(array) for name, array in given.items() if name not in taken and array.ndim), 1)
    names, left = dict.fromkeys(taken, ""), dict(taken)
    targets = {name: array for name, array in of_stem(TARGET, keras).items() if name not in given}
    firsts = first_alike(targets)
    if len(targets) > 1:
        # What comes behind another that is compared with the same output is no target: it weighs that one.
        first = {at: own for own in reversed(taken) if (at := compared.get(own)) is not None}
        apart = [own for own in taken if own in first.values() or compared.get(own) is None]
        for name in dict.fromkeys(firsts.values()):
            among = [own for own in apart if own in left] or left
            likest = min(among, key=lambda each: _unlike(left[each], samples, targets[name]), default=None)
            if (best := held.get(name) or likest) is None:
                break
            names[best] = name
            del left[best]
    elif left and TARGET not in given:
        best = (
            min(left, key=lambda each: _unlike(left[each], samples, targets[TARGET])) if targets else next(iter(left))
        )
        names[best] = TARGET
        del left[best]
    sizes = {samples, next((array.size for array in taken.values()), samples)}
    weights = [name for name, array in left.items() if array.dtype.kind == "f" and array.size in sizes]
    is_unknown = not targets and len(left) > len(weights)  # a loop does not tell which of them is its target
    is_missing = len(targets) > 1 and not set(names.values()).issuperset(firsts.values())
    of_weights = _names_of_weights(weights, names, of_stem(SAMPLE_WEIGHT, keras), compared)
    if len(of_weights) < len(weights) or is_unknown or is_missing:
        raise _unmatched(pair, taken, len(targets), is_unknown)
    _refuse_mixed(pair, {name: taken[own] for own, name in names.items()}, targets)
    names |= {own: name for name, own in of_weights.items()}
    renamed = dict(_renamed(torch, names, firsts))
    if SAMPLE_WEIGHT in keras and f"{SAMPLE_WEIGHT}@0" not in renamed:
        renamed |= _weights_of_counted(renamed, keras[SAMPLE_WEIGHT])
    return renamed, list(names.values())


def first_alike(arrays: Batches) -> dict[str, str]:
    """Return by the name of each array that of the first one that holds the same."""
    return {
        name: next(first for first, each in arrays.items() if np.array_equal(each, array))
        for name, array in arrays.items()
    }


def _names_of_weights(
    weights: Sequence[str], names: Mapping[str, str], keras: Batches, compared: Mapping[str, int | None]
) -> dict[str, str]:
    """Return PyTorch's weights of the samples by their names in the pair, as far as these are told.

    Those that are no output's alone have the first name, others that of the target of the same output.
    """
    if len(weights) < 2 > len(set(first_alike(keras).values())):
        return dict(zip([SAMPLE_WEIGHT], weights, strict=False))
    of_outputs = {compared.get(own): name for own, name in names.items() if name}
    told = {own: of_outputs[compared[own]] for own in weights if compared.get(own) in of_outputs}
    return {SAMPLE_WEIGHT + name.removeprefix(TARGET): own for own, name in told.items()}


def _renamed(torch: Batches, names: Mapping[str, str], firsts: Mapping[str, str]) -> Iterator[tuple[str, Array]]:
    """Yield PyTorch's tensors by their new names, one for each target that holds the same (`firsts`)."""
    for key, array in torch.items():
        name, _, step = key.partition("@")
        name = names.get(name, name)
        alike = [target for target, first in firsts.items() if first == name] or [name]
        yield from ((f"{each}@{step}", array) for each in alike if each)


def _unmatched(pair: Pair, taken: Batches, targets: int, is_unknown: bool) -> UsageError:
    """Return the error where it does not tell which of what PyTorch's loss takes are Keras's targets."""
    shapes = ", ".join(str(array.shape) for array in taken.values())
    expected = "a target, and at most a weight of each sample" if targets < 2 else count(targets, "target")
    expected += ", or loops that train on the same batches" if is_unknown else ""
    return UsageError(
        f"{name_of(pair.torch)}: its loss takes {count(len(taken), 'tensor')} beside what the model returns "
        f"({shapes}), expected {expected}"
    )


def _weights_of_counted(torch: Batches, keras: Array) -> dict[str, Array]:
    """Return weights of 0 where PyTorch's loss ignores a target, if Keras's weights are but 0 and 1."""
    targets = {key: array for key, array in torch.items() if key.startswith(f"{TARGET}@") and array.dtype.kind in "iu"}
    if not np.isin(keras, (0, 1)).all() or not any((each == IGNORED).any() for each in targets.values()):
        return {}
    return {
        f"{SAMPLE_WEIGHT}@{key.partition('@')[2]}": (each != IGNORED).astype(np.float32)
        for key, each in targets.items()
    }


def counted(target: Array, weights: Array | None) -> Array:
    """Return a target with 0 where the weights leave out what PyTorch's loss ignores: Keras's takes no such id."""
    return target if weights is None else np.where(target == IGNORED, 0, target)


def _refuse_mixed(pair: Pair, torch: Batches, keras: Batches) -> None:
    """Raise UsageError if PyTorch's loss takes ids of classes where Keras's target has rows that mix several."""
    if any(array.dtype.kind in "iu" and _are_mixed(keras.get(name)) for name, array in torch.items()):
        raise UsageError(
            f"{name_of(pair.torch)}: its loss takes the ids of classes, and {name_of(pair.keras)} gives fit rows that "
            "are mixed of several; expected ids on both sides, or rows on both, that are mixed or smoothed alike"
        )


def _are_mixed(target: Array | None) -> bool:
    """Return whether a target has rows of probabilities that are not all of one class."""
    if target is None or target.dtype.kind != "f" or target.ndim < 2:
        return False
    are_shares = bool((target >= 0).all()) and np.allclose(target.sum(-1), 1, rtol=0, atol=ROUNDED)
    return are_shares and bool((target.max(-1) < 1 - ROUNDED).any())


def _unlike(torch: Array, samples: int, keras: Array) -> int:
    """Return how little a tensor of PyTorch's is like a target of Keras's: in kind, size, or ids for one-hot rows."""
    ours, theirs = torch.size / samples, keras.size / max(len(keras), 1)
    if ours == theirs:
        return 2 * ((torch.dtype.kind == "f") != (keras.dtype.kind == "f"))
    are_ids = torch.dtype.kind in "iu" and keras.ndim and ours * keras.shape[-1] == theirs
    return 1 if are_ids or (keras.dtype.kind in "iu" and ours % theirs == 0) else 3

"""Which inputs and targets of two scripts correspond: those that hold the same data, or that both call alike."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from einops import rearrange
from msgspec.structs import replace

from parity.config.pair import TARGET, Pair
from parity.core.arrays import Array
from parity.core.errors import UsageError
from parity.core.script import name_of
from parity.core.wording import count
from parity.pairs.script_records import BATCH, FIRST, GIVEN, IGNORED, OF_LOSS, PART, Batches, Trained
from parity.pairs.script_steps import alike, axes


def held_alike(torch: Batches, keras: Batches, inputs: Sequence[str]) -> dict[str, str]:
    """Return which of PyTorch's arrays, of the model and the loss, holds what each of Keras's inputs and targets does.

    The first samples of PyTorch's dataset tell, if Keras's script has the same data in the same order. Nothing is
    returned unless they tell it of all.
    """
    targets = [name for name in keras if name.partition(".")[0] == TARGET]
    first = {key.removeprefix(FIRST): array for key, array in torch.items() if key.startswith(FIRST)}
    counterparts: dict[str, str] = {}
    for name in (*inputs, *targets):
        parts = [part for part, array in first.items() if _begin_alike(array, keras[name])]
        taken = [torch.get(f"{BATCH}{part}@0", np.zeros(0)).ravel() for part in parts]
        own = [key for key, array in torch.items() if key.endswith("@0") and not key.startswith((BATCH, GIVEN))]
        own = [key for key in own if any(np.array_equal(torch[key].ravel(), each) for each in taken)]
        if len(parts) == 1 and len(own) == 1:
            counterparts[name] = own[0].removesuffix("@0")
    is_told = len(set(counterparts.values())) == len(inputs) + len(targets)
    are_apart = all((ours.startswith(OF_LOSS)) == (name in targets) for name, ours in counterparts.items())
    return counterparts if is_told and are_apart else {}


def called_alike(
    torch: Batches, keras: Batches, ours: Mapping[str, Sequence[str]], theirs: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return what `held_alike` does, where what both scripts call their arrays tells it: u, user_id, users are one.

    A variable tells what an array holds, rather than the key under which a dict gives it to the model. `ours`,
    `theirs`: the labels of PyTorch's arrays and of Keras's inputs and targets, of these the variable first.
    """
    by_variable = {name: labels[:1] for name, labels in theirs.items()}
    return _called_alike(torch, keras, ours, by_variable) or _called_alike(torch, keras, ours, theirs)


def _called_alike(
    torch: Batches, keras: Batches, ours: Mapping[str, Sequence[str]], theirs: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    counterparts: dict[str, str] = {}
    for name, labels in theirs.items():
        fitting = [
            own
            for own in ours
            if own.startswith(OF_LOSS) == (name.partition(".")[0] == TARGET)
            and axes(torch[f"{own}@0"].shape, keras[name].shape) is not None
        ]
        called = [own for own in fitting if any(map(_is_named_alike, itertools.product(ours[own], labels)))]
        if len(only := fitting if len(fitting) == 1 else called) != 1:
            return {}
        counterparts[name] = only[0]
    return counterparts if len(set(counterparts.values())) == len(counterparts) else {}


def _is_named_alike(labels: tuple[str, str]) -> bool:
    """Return whether one of two names begins with the other, or with one of its words."""
    first, second = (each.rpartition(".")[2].lower().strip("_") for each in labels)
    return any(a.startswith(word) for a, b in ((first, second), (second, first)) for word in [b, *b.split("_")] if word)


def _begin_alike(torch: Array, keras: Array) -> bool:
    """Return whether two arrays hold the same first samples, in some order of their further axes, and not just one."""
    number, layout = min(map(len, (torch, keras))), axes(torch.shape, keras.shape)
    ours = torch if not layout else rearrange(torch, layout)
    return (
        number > 1
        and layout is not None
        and len(np.unique(keras[:number])) > 1
        and ours[:number].shape == keras[:number].shape
        and np.array_equal(ours[:number].astype(np.float32), keras[:number].astype(np.float32))
    )


def initial_states(
    torch: Batches, names: Sequence[str], carried: Sequence[str], keras: Mapping[str, Array]
) -> tuple[list[str], list[str]]:
    """Return which inputs of PyTorch's model are zero at first, and `carried` on, with those of Keras's model.

    There are none unless Keras's has as many, or none of them. `torch`: what PyTorch's is given, by NAME@STEP;
    `names`: of its inputs; `keras`: what Keras's is given.
    """
    states = [name for name in names if name in carried and not torch[f"{name}@0"].any()]
    theirs = [name for name, each in keras.items() if each.dtype.kind == "f" and not each.any()]
    if len(names) - len(states) == len(keras) > 0:
        return states, []
    are_both = len(states) == len(theirs) < len(names) == len(keras)
    return (states, theirs) if are_both else ([], [])


def counterparts(pair: Pair, torch: Batches, names: Sequence[str], keras: Batches) -> dict[str, str]:
    """Return the inputs of Keras's model, of these `names`, by those of PyTorch's: by name, else in order.

    Lengths and masks, which are no floats, PyTorch's model alone may be given: Keras's layers make them of the rest.
    Raises UsageError.
    """
    named = {name: name for name in torch if name in names}
    ours = [name for name in torch if name not in named]
    rest = [name for name in names if name not in named]
    if len(ours) > len(rest):
        own, theirs = {name: torch[name] for name in ours}, {name: keras[name] for name in rest}
        numbers = {name: array for name, array in own.items() if array.dtype.kind != "b"}
        like = alike(numbers, theirs) or alike(own, theirs) or {}  # a mask is no ids where there are others
        ours = [name for name in ours if name in like.values() or torch[name].dtype.kind == "f"]
    if len(ours) != len(rest):
        if rest and not ours:  # the others have names
            raise UsageError(
                f"{name_of(pair.keras)} alone gives its model {', '.join(rest)}, and nothing of which it is made tells "
                f"how; give it to the model of {name_of(pair.torch)} as well, or compute it within Keras's model"
            )
        raise UsageError(
            f"{name_of(pair.torch)} gives its model {count(len(torch), 'tensor')} ({', '.join(torch)}), "
            f"{name_of(pair.keras)} {len(names)} ({', '.join(names)}); expected the same inputs; where one makes its "
            "inputs in the training step, give a file with torch_step and keras_step"
        )
    chosen = named | dict(zip(ours, rest, strict=True))
    return {name: chosen[name] for name in torch if name in chosen}


def ignored_as(torch: Array, keras: Array) -> int | None:
    """Return the id that Keras's targets alone have, if they have none for what PyTorch's losses ignore; else None."""
    if "f" in (torch.dtype.kind, keras.dtype.kind) or not (torch == IGNORED).any() or (keras < 0).any():
        return None
    alone = np.setdiff1d(keras, torch)
    return int(alone[0]) if len(alone) == 1 else None


def without_parts(torch: Batches, keras: Batches) -> tuple[dict[str, Array], bool]:
    """Return PyTorch's arrays, with the parts of ids that its loss takes in place of these if they are the targets.

    They are if Keras's targets are as large; the truth value says so.
    """
    arrays = {key: array for key, array in torch.items() if not key.startswith(PART)}
    parts = {key.removeprefix(PART): array for key, array in torch.items() if key.startswith(PART)}
    samples = next((len(array) for key, array in arrays.items() if key.endswith("@0") and array.ndim), 1)
    sizes = {array.size // samples for key, array in parts.items() if key.endswith("@0")}
    targets = [array for name, array in keras.items() if name.partition(".")[0] == TARGET]
    takes_parts = any(array[0].size in sizes for array in targets)
    return arrays | (parts if takes_parts else {}), takes_parts


def with_steps_joined(
    ours: Trained, torch: Batches, theirs: Trained, keras: Batches
) -> tuple[Trained, dict[str, Array]] | None:
    """Return what PyTorch's script trains on with the steps joined whose gradients are those of one batch of Keras's.

    Where Keras's fit accumulates gradients, that is noted instead. None if each step is one of the other's, or if what
    PyTorch's steps are given beside their samples differs.
    """
    lengths = [len(next(each for each in arrays.values() if each.ndim)) for arrays in (torch, keras)]
    times, rest = divmod(max(lengths), max(min(lengths), 1))
    every = (ours if lengths[0] < lengths[1] else theirs).every
    trains_several = ours.fetched is not None and len(ours.fetched.modules) > 1  # by turns, of which each is a step
    if rest or times < 2 or every % times or trains_several or ours.early or ours.carried:
        return None
    if lengths[0] > lengths[1]:
        return replace(ours, keras_joined=times), dict(torch)
    own: dict[str, dict[str, Array]] = {}  # by name
    for key, array in torch.items():
        own.setdefault(key.rpartition("@")[0] or key, {})[key] = array
    number, joined = max(map(len, own.values())), dict[str, Array]()
    for name, of_steps in own.items():
        if len(of_steps) < number:  # whole batches, which a step cuts itself, or the first samples of a dataset
            joined |= of_steps
            continue
        for step, parts in enumerate(zip(*[iter(of_steps.values())] * times, strict=False)):
            is_cut = parts[0].ndim > 0 and len(parts[0]) == lengths[0]
            if any(each.shape != parts[0].shape or not (is_cut or np.array_equal(each, parts[0])) for each in parts):
                return None
            joined[f"{name}@{step}"] = np.concatenate(parts) if is_cut else parts[0]
    takes_parts = any(key.startswith(BATCH) and len(array) == lengths[0] for key, array in torch.items())
    epoch = ours.epoch // times if takes_parts else ours.epoch
    return replace(ours, joined=times, asked=0, epoch=epoch), joined

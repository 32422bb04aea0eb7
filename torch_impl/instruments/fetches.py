"""Where a script takes batches from its DataLoader: what it makes of each, and what stands in its place.

Many loops make the inputs of their models themselves, of a batch and of random numbers: what is diffused, masked, or
generated. The steps of those begin where they take a batch, and not where they call a model.
"""

import contextlib
import math
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_map_with_path
from torch.utils.data import dataloader

from parity.core.errors import UsageError
from parity.core.patches import around
from parity.core.script import Sources
from parity.pairs.script_records import BATCH, FIRST, GIVEN, Fetched
from torch_impl.instruments import source

Taken = dict[str, torch.Tensor]
FIRST_SAMPLES, MOST_BYTES = 1024, 2**22  # of a dataset, to know by them what the other script's data are
MOST_SAMPLES, SECONDS = 2048, 1.0  # in which samples are looked for that are unlike those of the steps
LARGER = 2  # times as large as all numbers of the steps


class Fetch:
    """A batch that was taken: its tensors by name, what each module was given first, and how it was trained on.

    `before`: those that were taken from other datasets right before it, for the same step.
    """

    def __init__(self, number: int, batch: Any, dataset: int, is_unlike: bool, before: "Sequence[Fetch]") -> None:
        self.number, self.dataset, self.before = number, dataset, before
        # Whether it stands in for another one, with what no step has met, or one before it does.
        self.is_unlike = is_unlike or any(each.is_unlike for each in before)
        self.batch = _leaves(batch)
        self.given: dict[nn.Module, Taken] = {}
        self.returned: list[list[int]] = []  # the shapes of what these have returned
        # What each of them is given of the batch, call by call: the number of the batch, from the last, and the name.
        self.takes: dict[nn.Module, list[tuple[int, str]]] = {}
        self.backwards = 0
        self.is_random = False  # whether random numbers were drawn before a module was called, and not within one
        self._drawn = torch.get_rng_state()

    @property
    def is_used(self) -> bool:
        """Return whether a module was called behind it."""
        return bool(self.given or self.backwards)

    def of_step(self, parts: int) -> "list[Fetch]":
        """Return it behind those that were taken for the same step, so many in all."""
        return [*self.before, self][-parts:]

    def note(self, module: nn.Module, taken: Taken, returned: Any) -> None:
        """Note a call of a module that is trained."""
        if module not in self.given:
            self.given[module] = {name: each.detach().clone() for name, each in taken.items()}
            self.returned += [list(each.shape) for each in tree_leaves(returned) if isinstance(each, torch.Tensor)]
        self._drawn = torch.get_rng_state()
        parts = [(number, part.batch.items()) for number, part in enumerate([self, *self.before[::-1]])]
        held = [(number, name, own) for number, part in parts for name, own in part]
        given = [(number, name) for each in taken.values() for number, name, own in held if _are_equal(each, own)]
        self.takes.setdefault(module, []).extend(given)

    def begin(self) -> None:
        """Note that a module is about to be called that is trained."""
        self.is_random |= not torch.equal(self._drawn, torch.get_rng_state())


class Fetches:
    """The batches that one run of a script takes from its DataLoaders.

    `on_step` is called when it has taken one for training; it returns what stands in its place, by name.
    """

    def __init__(self, known: Fetched | None, on_step: Callable[[], Mapping[str, torch.Tensor]]) -> None:
        self._known, self._on_step = known, on_step  # how the script trains, if its steps begin where it takes one
        self._made: list[weakref.ref[nn.Module]] = []  # all modules, as they are made
        self._names: dict[nn.Module, str] = {}
        self._all: list[Fetch] = []  # unless it is known how the script trains
        self._taken, self.are_all = 0, False  # how many; whether the script has ended
        self._sources, self._first = Sources(), dict[int, Taken]()  # the datasets, and the first samples of each
        self._lengths: dict[int, int] = {}  # how many batches a pass over each of them has
        self._datasets: list[int] = []  # the numbers of those on which the script trains
        self._given: Mapping[str, torch.Tensor] = {}  # what stands in the place of the batches of a step
        self.seeks_unlike = False  # whether the next batch is to be one that is unlike those before, if there is one

    @property
    def last(self) -> Fetch | None:
        """Return the batch that was taken last."""
        return self._all[-1] if self._all else None

    def patches(self) -> Iterator[AbstractContextManager[Any]]:
        """Yield what has to be patched while the script runs."""
        yield around(dataloader._BaseDataLoaderIter, "__next__", self._on_next)
        yield around(nn.Module, "__init__", self._on_module)

    def modules(self) -> dict[str, nn.Module]:
        """Return the modules that are known to be trained, by name, once they are made."""
        numbers = self._known.modules.items() if self._known else ()
        return {name: module for name, number in numbers if (module := self._made[number]()) is not None}

    def number(self, module: nn.Module) -> int:
        """Return the number of a module among all that the script has made; -1 for a copy."""
        return next((number for number, made in enumerate(self._made) if made() is module), -1)

    def made(self, number: int) -> nn.Module:
        """Return a module that another run has made as well, by its number. Raises UsageError if it is gone."""
        module = self._made[number]() if number < len(self._made) else None
        if module is None:
            raise UsageError("the script makes other modules than in its first run; seed what decides which it makes")
        return module

    def name(self, module: nn.Module) -> str:
        """Return the name that the running code has for a module; without one, that of its class."""
        if module not in self._names:
            spaces = (space for frame in source.frames() for space in (frame.f_locals, frame.f_globals))
            named = (name for space in spaces for name, value in list(space.items()) if value is module)
            name = next(named, type(module).__name__.lower())
            self._names[module] = f"{name}{len(self._names)}" if name in self._names.values() else name
        return self._names[module]

    def trained_on(self) -> list[Fetch]:
        """Return the batches that were trained on, the last of them only where the script has ended."""
        seen = self._all if self.are_all else self._all[:-1]
        trained = [each for each in seen if each.backwards and not each.is_unlike]
        return [each for each in trained if each.dataset == trained[0].dataset]

    @property
    def _parts(self) -> int:
        """Return how many datasets a step takes a batch from: the first may be looked at before."""
        return min((1 + len(each.before) for each in self.trained_on()), default=1)

    @property
    def epoch(self) -> int:
        """Return how many batches an epoch has on which the script trains; 0 if that is not known."""
        return next((self._lengths.get(each.dataset, 0) for each in self.trained_on()), 0)

    def described(self) -> Fetched | None:
        """Return how the script trains on what it takes; None if it does not."""
        if not (fetches := self.trained_on()):
            return None
        first, parts = fetches[0], self._parts
        return Fetched(
            first=first.of_step(parts)[0].number,
            parts=parts,
            modules={self._names[module]: self.number(module) for module in first.given},
            names=dict.fromkeys(_named([each.batch for each in first.of_step(parts)]), ""),
            takes=[
                [f"{parts - 1 - number}.{name}" if parts > 1 else name for number, name in first.takes[module]]
                for module in first.given
            ],
            returned=first.returned,
            is_random=any(each.is_random for each in fetches),
            is_several=any(len(each.given) > 1 or each.backwards > 1 for each in fetches),
        )

    def arrays(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield what was trained on, by BATCH and the name in it, and what modules were given, by GIVEN and theirs.

        A batch that is unlike those of the steps comes last.
        """
        unlike, parts = (each for each in self._all if each.is_unlike and each.backwards), self._parts
        for step, fetch in enumerate((*self.trained_on(), *unlike)):
            for name, each in _named([part.batch for part in fetch.of_step(parts)]).items():
                yield f"{BATCH}{name}@{step}", each
            for module, taken in fetch.given.items():
                prefix = f"{self._names[module]}." if len(fetch.given) > 1 else ""
                for name, each in taken.items():
                    yield f"{GIVEN}{prefix}{name}@{step}", each
        for fetch in self.trained_on()[:1]:
            for name, each in _named([self._first[part.dataset] for part in fetch.of_step(parts)]).items():
                yield f"{FIRST}{name}", each

    def _on_module(self, init: Callable[..., None], module: nn.Module, *args: Any, **kwargs: Any) -> None:
        self._made.append(weakref.ref(module))
        init(module, *args, **kwargs)

    def _on_next(self, following: Callable[..., Any], iterator: Any) -> Any:
        batch, known = following(iterator), self._known
        if not torch.is_grad_enabled():
            return batch
        self._taken += 1
        dataset = self._sources.number(iterator._dataset, source.line())
        if known is None:
            if dataset not in self._first:
                self._first[dataset] = _first_samples(iterator)
                with contextlib.suppress(TypeError):  # of an iterable dataset
                    self._lengths[dataset] = len(iterator._index_sampler)
            of_steps = [each.batch for each in self._all if each.dataset == dataset]
            unlike = _unlike(iterator, of_steps) if self.seeks_unlike and of_steps else None
            batch = batch if unlike is None else unlike
            waiting = [] if self.last is None or self.last.is_used else [*self.last.before, self.last]
            before = [] if any(each.dataset == dataset for each in waiting) else waiting
            self._all.append(Fetch(self._taken, batch, dataset, unlike is not None, before))
            self.seeks_unlike &= unlike is None
            return batch
        if self._taken == known.first:
            self._datasets = [dataset]
        elif dataset not in self._datasets and 0 < len(self._datasets) < known.parts:
            self._datasets.append(dataset)
        if dataset not in self._datasets:
            return batch
        if (part := self._datasets.index(dataset)) == 0:
            self._given = self._on_step()
        prefix = f"{part}." if known.parts > 1 else ""

        def given(path: Any, leaf: Any) -> Any:
            return self._given.get(known.names.get(f"{prefix}{_name(path)}", ""), leaf)

        return tree_map_with_path(given, batch)


def _first_samples(iterator: Any) -> Taken:
    """Return a batch of the first samples of an iterator's dataset, in its order; nothing if it has none."""
    dataset, samples, start = iterator._dataset, list[Any](), time.monotonic()
    with contextlib.suppress(Exception), torch.random.fork_rng(devices=()):  # of the user's dataset
        size = sum(each.nbytes for each in _leaves(iterator._collate_fn([dataset[0]])).values())
        for index in range(min(FIRST_SAMPLES, MOST_BYTES // max(size, 1), len(dataset))):
            samples.append(dataset[index])
            if time.monotonic() - start > SECONDS:
                break
        return _leaves(iterator._collate_fn(samples))
    return {}


def _unlike(iterator: Any, of_steps: Sequence[Taken]) -> Any:
    """Return a batch of an iterator's dataset with what those of the steps have not met; None if it has none.

    That is the size of the last batch, numbers that are larger, or of another sign, and ids or masks of padding.
    """
    dataset, sampler, start = iterator._dataset, iterator._index_sampler, time.monotonic()
    with contextlib.suppress(Exception), torch.random.fork_rng(devices=()):  # of the user's dataset
        size, seen = sampler.batch_size, {name: _extent([each[name] for each in of_steps]) for name in of_steps[0]}
        rest = 0 if sampler.drop_last else len(sampler.sampler) % size
        rest -= rest > 1 and 2 * rest == size  # as a half may have another reason
        chosen: dict[int, None] = {}
        for index in range(0, len(dataset), -(-len(dataset) // MOST_SAMPLES)):
            sample = _leaves(iterator._collate_fn([dataset[index]]))
            if sum(_widens(seen[name], each) for name, each in sample.items()):
                chosen[index] = None
            if time.monotonic() - start > SECONDS:
                break
        indices = [*chosen, *(index for index in range(len(dataset)) if index not in chosen)]
        if chosen or rest:
            return iterator._collate_fn([dataset[index] for index in indices[: rest or size]])
    return None


def _extent(tensors: Sequence[torch.Tensor]) -> list[float]:
    """Return the smallest and the largest number of some tensors."""
    return [min(float(each.min()) for each in tensors), max(float(each.max()) for each in tensors)]


def _widens(extent: list[float], sample: torch.Tensor) -> bool:
    """Return whether a sample has numbers of a kind that lie outside of an extent, which is then made to hold them.

    That is one that is LARGER, and of floats one of another sign, of integers one that is 0 or below, as padding is.
    """
    (least, most), (low, high) = extent, _extent([sample])
    is_float = sample.is_floating_point()
    is_lower = low < least and (low < 0 <= least if is_float else low <= 0)
    is_larger = max(-low, high) > LARGER * max(-least, most, 0 if is_float else 1)
    if (is_lower or is_larger) and math.isfinite(high - low):
        extent[:] = min(low, least), max(high, most)
        return True
    return False


def _are_equal(given: torch.Tensor, own: torch.Tensor) -> bool:
    return given.shape == own.shape and bool((given.cpu() == own.cpu()).all())


def _named(parts: Sequence[Taken]) -> Taken:
    """Return the tensors of a step's batches by their names, behind the number of the batch if there are several."""
    if len(parts) == 1:
        return parts[0]
    return {f"{number}.{name}": each for number, part in enumerate(parts) for name, each in part.items()}


def _leaves(batch: Any) -> Taken:
    named = ((_name(path), leaf) for path, leaf in tree_flatten_with_path(batch)[0])
    return {name: leaf.clone() for name, leaf in named if isinstance(leaf, torch.Tensor)}


def _name(path: Any) -> str:
    """Return the name of a part of a batch: its keys and indices."""
    return ".".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path)

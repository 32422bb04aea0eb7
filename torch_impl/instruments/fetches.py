"""Where a script takes batches from its DataLoader: what it makes of each, and what stands in its place.

Many loops make the inputs of their models themselves, of a batch and of random numbers: what is diffused, masked, or
generated. The steps of those begin where they take a batch, and not where they call a model.
"""

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_with_path
from torch.utils.data import Dataset, dataloader

from parity.core import program
from parity.core.errors import UsageError
from parity.core.patches import around, wrapping
from parity.core.script import Sources
from parity.pairs.script_records import BATCH, FIRST, GIVEN, Fetched
from torch_impl.instruments import samples, source
from torch_impl.instruments.samples import Taken


class Fetch:
    """A batch that was taken: its tensors by name, what each module was given first, and how it was trained on.

    `before`: those that were taken from other datasets right before it, for the same step.
    """

    def __init__(self, number: int, batch: Any, dataset: int | str, is_unlike: bool, before: "Sequence[Fetch]") -> None:
        self.number, self.dataset, self.before = number, dataset, before
        # Whether it stands in for another one, with what no step has met, or one before it does.
        self.is_unlike = is_unlike or any(each.is_unlike for each in before)
        self.batch = samples.leaves(batch)
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

    `on_step` is called when it has taken one for training; it returns what stands in its place, by name. Where it has
    no DataLoader, the batches are those that a function of its own returns outside of its modules.
    """

    def __init__(
        self, known: Fetched | None, on_step: Callable[[], Mapping[str, torch.Tensor]], is_within: Callable[[], bool]
    ) -> None:
        self._is_within = is_within  # whether a module is called
        self._returned: Counter[str] = Counter()  # how many batches each function has returned
        self._has_loader = False
        self._known, self._on_step = known, on_step  # how the script trains, if its steps begin where it takes one
        self._made: list[weakref.ref[nn.Module]] = []  # all modules, as they are made
        self._names: dict[nn.Module, str] = {}
        self._all: list[Fetch] = []  # unless it is known how the script trains
        self._taken, self.are_all = 0, False  # how many; whether the script has ended
        self._sources, self._first = Sources(), dict[int | str, Taken]()  # the datasets, and the first samples of each
        self._lengths: dict[int | str, int] = {}  # how many batches a pass over each of them has
        self._datasets: list[int | str] = []  # the numbers of those on which the script trains
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
            function=first.dataset if isinstance(first.dataset, str) else "",
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
        if not self._has_loader:
            self._has_loader, self._all = True, []
        self._taken += 1
        dataset = self._sources.number(iterator._dataset, source.line())
        if known is None:
            if dataset not in self._first:
                self._first[dataset] = samples.first(iterator)
                with contextlib.suppress(TypeError):  # of an iterable dataset
                    self._lengths[dataset] = len(iterator._index_sampler)
            of_steps = [each.batch for each in self._all if each.dataset == dataset]
            unlike = samples.unlike(iterator, of_steps) if self.seeks_unlike and of_steps else None
            batch = batch if unlike is None else unlike
            waiting = [] if self.last is None or self.last.is_used else [*self.last.before, self.last]
            before = [] if any(each.dataset == dataset for each in waiting) else waiting
            self._all.append(Fetch(self._taken, batch, dataset, unlike is not None, before))
            self.seeks_unlike &= unlike is None
            return batch
        return self._in_place_of(batch, dataset, self._taken, known)

    def seek_functions(self) -> None:
        """Look from now on at what functions of the user's own return, such as a replay buffer's `sample`."""
        for holder, name, function in program.functions():
            path = f"{function.__module__}:{function.__qualname__}"
            is_of_torch = isinstance(holder, type) and issubclass(holder, (nn.Module, Dataset))
            if not is_of_torch and (self._known is None or path == self._known.function):
                setattr(holder, name, wrapping(self._on_return, function, path))

    def _on_return(self, function: Callable[..., Any], path: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function of the user's, whose result may be a batch, but not in the middle of a step."""
        batch, last = function(*args, **kwargs), self.last
        if self._has_loader or self._is_within() or not (torch.is_grad_enabled() and _are_rows(batch)):
            return batch
        self._returned[path] += 1
        if self._known:
            return self._in_place_of(batch, path, self._returned[path], self._known)
        if not last or not last.is_used or last.backwards:
            self._first.setdefault(path, {})
            self._all.append(Fetch(self._returned[path], batch, path, False, []))
        return batch

    def _in_place_of(self, batch: Any, dataset: int | str, number: int, known: Fetched) -> Any:
        """Return what stands for a batch, which may begin a step; `number`: how many were taken."""
        if number == known.first:
            self._datasets = [dataset]
        elif dataset not in self._datasets and 0 < len(self._datasets) < known.parts:
            self._datasets.append(dataset)
        if dataset not in self._datasets:
            return batch
        if (part := self._datasets.index(dataset)) == 0:
            self._given = self._on_step()
        prefix = f"{part}." if known.parts > 1 else ""

        def given(path: Any, leaf: Any) -> Any:
            return self._given.get(known.names.get(f"{prefix}{samples.name(path)}", ""), leaf)

        return tree_map_with_path(given, batch)


def _are_rows(batch: Any) -> bool:
    """Return whether a structure holds several tensors of as many rows, and none that is differentiated."""
    leaves = tree_leaves(batch) if isinstance(batch, (tuple, list, dict)) else []
    tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
    rows = {len(each) if each.dim() else 0 for each in tensors}
    return len(tensors) > 1 and len(rows) == 1 and rows.pop() > 1 and not any(each.requires_grad for each in tensors)


def _are_equal(given: torch.Tensor, own: torch.Tensor) -> bool:
    return given.shape == own.shape and bool((given.cpu() == own.cpu()).all())


def _named(parts: Sequence[Taken]) -> Taken:
    """Return the tensors of a step's batches by their names, behind the number of the batch if there are several."""
    if len(parts) == 1:
        return parts[0]
    return {f"{number}.{name}": each for number, part in enumerate(parts) for name, each in part.items()}

"""Both sides' tensors in the order of execution, and which of them have been found to correspond."""

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from parity.core.arrays import Array
from parity.core.names import MODEL
from parity.pairs.activations.owners import SEPARATORS, ancestors, owned
from parity.pairs.activations.values import SAME, Fit, Order, Shape, Tensor, fit
from parity.trace.mapping import Mapping
from parity.trace.survey import Module, Survey

By = Literal["weights", "value", "order"]
NOTHING: frozenset[int] = frozenset()
# Parts of the names of kinds that do nothing in inference, and change their tensor in training.
RANDOM = ("drop", "noise", "stochastic")
# Kinds that are something else with an activation behind them; a recurrent layer's is its own affair.
PLAIN = ("linear", "linear_io", "einsum_dense")
# How many of the next tensors tell whether a difference lived on, and how many that are the same say it did not.
AHEAD, RECOVERED = 8, 6


class Place(NamedTuple):
    """A tensor that a module returned. `number`: in the order of execution. `owns`: entries of the mapping.

    `fused`: its module has an activation within it, as Keras's Dense may have. `behind`: how many masks training has
    drawn for tensors of its size when it is returned; None where that is not known of both sides alike.
    """

    number: int
    key: str
    module: str
    kind: str
    leaf: bool
    fused: bool
    owns: frozenset[int]
    tensor: Tensor
    is_random: bool = False
    behind: int | None = None


def may_be_behind(torch: Place, keras: Place, otherwise: bool = True) -> bool:
    """Whether as many masks may have been drawn before both; `otherwise`: where that is not known of both sides."""
    return otherwise if torch.behind is None or keras.behind is None else torch.behind == keras.behind


def drops(module: Module) -> bool:
    """Whether a module is a dropout or its like: it does nothing in inference, and something at random in training."""
    return is_random(module.kind) and bool(module.facts.get("rate", 1.0))


def is_random(kind: str) -> bool:
    """Whether modules of a kind do something at random in training."""
    return any(part in kind.lower() for part in RANDOM)


class Found(NamedTuple):
    """Two tensors that correspond."""

    torch: Place
    keras: Place
    fit: Fit
    by: By


class Counterparts:
    """What corresponds so far. `torch`, `keras`: all tensors but the whole model's."""

    def __init__(self, torch: Sequence[Place], keras: Sequence[Place], outputs_apart: float) -> None:
        self.torch, self.keras = torch, keras
        self.found: dict[int, Found] = {}
        self.taken: set[int] = set()
        self._orders: dict[tuple[int, int], list[tuple[int, Order]]] = {}
        self.outputs_apart = outputs_apart
        self.fits: dict[tuple[bytes, Shape, bytes, Shape], Fit | None] = {}

    def add(self, torch: Place, keras: Place, fit: Fit, by: By) -> None:
        """They correspond, and neither has another counterpart."""
        self.found[torch.number] = Found(torch, keras, fit, by)
        self.taken.add(keras.number)
        ranks = len(keras.tensor.shape), len(torch.tensor.shape)
        insort(self._orders.setdefault(ranks, []), (keras.number, fit.order))

    def is_free(self, torch: Place, keras: Place) -> bool:
        """Whether both have no counterpart yet."""
        return torch.number not in self.found and keras.number not in self.taken

    def fit(self, torch: Place, keras: Place) -> Fit | None:
        """The best order of axes: where several are equally good, that of tensors nearby."""
        return fit(torch.tensor, keras.tensor, self.usual(keras, torch.tensor.shape))

    def fit_once(self, torch: Place, keras: Place) -> Fit | None:
        """The same; equal tensors, of which models may have hundreds, are compared once."""
        one, other = torch.tensor, keras.tensor
        key = one.digest, one.shape, other.digest, other.shape
        if key not in self.fits:
            self.fits[key] = self.fit(torch, keras)
        return self.fits[key]

    def usual(self, keras: Place, shape: Shape) -> list[Order]:
        """The order of axes that the nearest tensor of such ranks has."""
        near = self._orders.get((len(keras.tensor.shape), len(shape)), [])
        place = bisect_left(near, (keras.number, ()))
        nearest = min(near[max(place - 1, 0) : place + 1], key=lambda one: abs(one[0] - keras.number), default=None)
        return [nearest[1]] if nearest else []

    def anchors(self) -> list[Found]:
        """The longest run of pairs that do not cross, in order."""
        pairs = sorted(self.found.values(), key=lambda found: found.torch.number)
        ends: list[int] = []  # Keras's numbers at which the best runs of each length end
        links: list[tuple[int, Found]] = []
        for pair in pairs:
            length = bisect_left(ends, pair.keras.number)
            ends[length : length + 1] = [pair.keras.number]
            links.append((length, pair))
        chosen: list[Found] = []
        wanted, below = len(ends) - 1, math.inf
        for length, pair in reversed(links):
            if length == wanted and pair.keras.number < below:
                chosen.append(pair)
                wanted, below = wanted - 1, pair.keras.number
        return chosen[::-1]

    def gaps(self) -> tuple[list[int], list[int]]:
        """Of each tensor of torch and of Keras the gap between two anchors that it is in."""
        anchors = self.anchors()
        torch, keras = [found.torch.number for found in anchors], [found.keras.number for found in anchors]
        return [bisect_left(torch, p.number) for p in self.torch], [bisect_left(keras, p.number) for p in self.keras]

    def died_out(self, torch: Place, apart: float) -> bool:
        """Whether a difference is not seen behind a tensor: then another tensor is not its faulty counterpart.

        The modules around it, the whole model, or most of the tensors that follow have the same values on both sides.
        """
        limit = SAME * min(apart, 1.0)
        around = (self._is_same(path, limit) for path in ancestors(torch.module, SEPARATORS["torch"]))
        return self.outputs_apart <= limit or any(around) or self._recovered(torch.number, limit)

    def _recovered(self, number: int, limit: float) -> bool:
        ahead = self._telling[bisect_left(self._telling, number + 1) :][:AHEAD]
        return sum(self._apart(place) <= limit for place in ahead) >= RECOVERED

    def _is_same(self, path: str, limit: float) -> bool:
        numbers = [number for number in self._of_module.get(path, []) if not self.torch[number].tensor.is_constant]
        return bool(numbers) and all(self._apart(number) <= limit for number in numbers)

    def _apart(self, number: int) -> float:
        return self.found[number].fit.distance if number in self.found else math.inf

    @cached_property
    def _telling(self) -> list[int]:
        """torch's tensors from modules whose weights some module of Keras owns too."""
        theirs = {place.owns for place in self.keras if place.owns}
        return [place.number for place in self.torch if place.owns in theirs and not place.tensor.is_constant]

    @cached_property
    def _of_module(self) -> dict[str, list[int]]:
        modules: dict[str, list[int]] = {}
        for place in self.torch:
            modules.setdefault(place.module, []).append(place.number)
        return modules


def drawn_alike(torch: Survey, keras: Survey) -> bool:
    """Whether both sides draw masks for tensors of the same sizes."""
    masks = torch.rehearsal.masks, keras.rehearsal.masks
    return all(side.rehearsal.drawn for side in (torch, keras)) and sorted(masks[0]) == sorted(masks[1])


def places(survey: Survey, values: dict[str, Array], mapping: Mapping, alike: bool) -> list[Place]:
    """A side's tensors, without the whole model's. `alike`: both sides draw masks alike."""
    random = {module.path for module in survey.modules if drops(module)}
    kinds = {module.path: module.kind for module in survey.modules}
    fused = {module.path for module in survey.modules if "activation" in module.facts and _is_plain(module.kind)}
    separator = SEPARATORS[survey.side]
    parents = {above for path in kinds for above in ancestors(path, separator)}
    owners = owned(survey, mapping)
    seen = [one for one in survey.outputs if not is_output(one.key) and one.key in values]
    return [
        Place(
            number,
            one.key,
            one.module,
            kinds.get(one.module, ""),
            one.module not in parents,
            one.module in fused,
            owners.get(one.module, NOTHING),
            Tensor(values[one.key]),
            one.module not in parents and one.module in random,
            survey.rehearsal.behind(one.key, values[one.key].size) if alike else None,
        )
        for number, one in enumerate(seen)
    ]


def _is_plain(kind: str) -> bool:
    return kind in PLAIN or "conv" in kind


def is_output(key: str) -> bool:
    """Whether a key is the whole model's: (model), (model)#1 or (model).name."""
    return key == MODEL or key.startswith((f"{MODEL}#", f"{MODEL}."))


def outputs(keys: Iterable[str]) -> list[str]:
    """The whole model's among them."""
    return [key for key in keys if is_output(key)]

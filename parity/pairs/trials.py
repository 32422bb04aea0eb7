"""Trial passes of a user's model: what both sides do alike to find which of its weights are unused.

A weight is unused if no compared output can pass a gradient to it, and none changes in a single bit when the weight is
given other values, both in inference and in training. The first alone proves nothing: a weight that is detached, or
behind a stop_gradient, has none and is used all the same. Nor does the second: a weight behind a ReLU that is closed
for these inputs changes nothing here, and yet it is used.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from parity.config.schema import Case
from parity.core import random
from parity.core.arrays import Array
from parity.core.errors import BackendError, UsageError

MOST_ALONE = 16  # at most so many weights without a gradient are moved one by one


Numbers = Callable[[Any], Array]


class Trials(ABC):
    """Calls of a model without dropping.

    `weights`: by name, those that the model trains, which are `trained`, and the statistics of its modules.
    `separator`: between the names of a path. `array`: returns the numbers of a tensor.
    """

    def __init__(self, case: Case, weights: Mapping[str, Any], trained: Iterable[str], separator: str, array: Numbers):
        self.case, self.weights, self.trained, self.training = case, weights, set(trained), False
        self._separator, self._array = separator, array

    @abstractmethod
    def _outputs(self) -> list[Any]:
        """Call the model, in training if `training`, and return what is compared of that call."""

    @abstractmethod
    def _without_gradient(self, names: Sequence[str]) -> tuple[list[str], list[Any]]:
        """Return the weights to which no output passes a gradient, none if one is of whole numbers, and the outputs."""

    @abstractmethod
    def _moved(self, noise: Mapping[str, Array]) -> AbstractContextManager[None]:
        """Add noise to weights within the block."""

    def unused(self) -> list[str]:
        """Return the trained weights that no output depends on, and their modules' statistics; [] if it cannot tell."""
        left = list(self.weights)
        try:
            for self.training in (False, True):
                left = self._unused(left)
        except (UsageError, BackendError):
            return []
        return left

    def change_nothing(self, names: Sequence[str], outputs: Sequence[Any], limit: float = 0.0) -> bool:
        """Return whether all outputs stay the same, as they are given, when these weights are given other values.

        They do to the part `limit` of the largest value; or else to the last bit, and NaN is tried as well: it passes
        through what rounds.
        """
        before = [np.array(self._array(output)) for output in outputs]
        shapes = {name: tuple(self.weights[name].shape) for name in names}
        noise = {name: random.normal(self.case.seed, f"unused/{name}", shape) for name, shape in shapes.items()}
        for scale in (1.0,) if limit else (1.0, math.nan):
            with self._moved({name: np.asarray(scale * each) for name, each in noise.items()}):  # also of no axes
                after = [self._array(output) for output in self._outputs()]
            if len(before) != len(after) or not all(_same(*pair, limit) for pair in zip(before, after, strict=True)):
                return False
        return True

    def _module(self, name: str) -> str:
        return name.rpartition(self._separator)[0]

    def _unused(self, names: list[str]) -> list[str]:
        """Return those that are unused in one mode, statistics only of modules without a used weight."""
        unreached, outputs = self._without_gradient([name for name in names if name in self.trained])
        alone = set(unreached)
        owners = set(map(self._module, alone)) - set(map(self._module, self.trained - alone))
        left = [name for name in names if name in alone or (name not in self.trained and self._module(name) in owners)]
        if not left or self.change_nothing(left, outputs):
            return left
        return [name for name in left if self.change_nothing([name], outputs)] if len(left) <= MOST_ALONE else []


def _same(before: Array, after: Array, limit: float) -> bool:
    if not limit or before.shape != after.shape or before.dtype.kind != "f":
        return np.array_equal(before, after)
    return bool(np.abs(before - after).max(initial=0.0) <= limit * np.abs(before).max(initial=0.0))

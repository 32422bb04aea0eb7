"""Halves of pairs for tests: small forward passes in numpy that say what they do, as both frameworks' surveys would."""

from typing import Any

import numpy as np

from parity.core.arrays import Array
from parity.pairs.activations.matching import match
from parity.pairs.activations.modules import Surveyed
from parity.runtime.survey import Module, Seen, Survey, Weight
from parity.trace.mapping import Entry, Mapping, Match, Matching


class Half:
    """One side, while it runs."""

    def __init__(self, side: str) -> None:
        self.side = side
        self.kinds: dict[str, str] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self.weights: dict[str, Weight] = {}
        self.outputs: list[Seen] = []
        self.values: dict[str, Array] = {}
        self.arguments: dict[str, list[tuple[int, ...]]] = {}
        self.tied: dict[str, str] = {}

    def owns(self, path: str, **shapes: tuple[int, ...]) -> None:
        """A module's weights."""
        separator = "." if self.side == "torch" else "/"
        for role, shape in shapes.items():
            name = f"{path}{separator}{role}"
            self.weights[name] = Weight(name=name, shape=shape, dtype="float32", module=path, role=role, trainable=True)

    def returns(self, path: str, kind: str, *arrays: Array, given: tuple[Array, ...] | None = None) -> Array:
        """A module returned these."""
        self.kinds[path] = kind
        if given is not None:
            self.arguments.setdefault(path, [array.shape for array in given])
        for array in arrays:
            count = sum(seen.module == path for seen in self.outputs)
            self._see(f"{path}#{count}" if count else path, path, np.ascontiguousarray(array).reshape(array.shape))
        return arrays[0]

    def ends(self, *arrays: Array) -> None:
        """What the whole model returned."""
        for number, array in enumerate(arrays):
            self._see(f"(model)#{number}" if number else "(model)", "", np.ascontiguousarray(array))

    def _see(self, key: str, path: str, array: Array) -> None:
        self.outputs.append(Seen(key=key, module=path, shape=array.shape))
        self.values[key] = array

    def survey(self) -> Survey:
        """What it tells."""
        return Survey(
            side=self.side,
            modules=[Module(path=path, kind=kind, facts=self.facts.get(path, {})) for path, kind in self.kinds.items()],
            weights=list(self.weights.values()),
            called=list(self.kinds),
            tied=self.tied,
            outputs=self.outputs,
            arguments=self.arguments,
        )

    def returned(self) -> Surveyed:
        """What it tells, and what it has returned."""
        return Surveyed(self.survey(), self.values)


def mapped(**pairs: str) -> Mapping:
    """Weights of one name each; `__` stands for the separators."""
    return Mapping(
        entries=[
            Entry(torch=[ours.replace("__", ".")], keras=[theirs.replace("__", "/")]) for ours, theirs in pairs.items()
        ]
    )


def normal(seed: int, *shape: int) -> Array:
    """The same numbers for the same seed."""
    return np.random.default_rng(seed).standard_normal(shape)


def relu(x: Array) -> Array:
    """Of an array."""
    return np.maximum(x, 0)


def matching(torch: Half, keras: Half, mapping: Mapping) -> Matching:
    """What corresponds in two halves."""
    return match(torch.returned(), keras.returned(), mapping)


def pairs(found: Matching) -> dict[str, str]:
    """torch's keys, with Keras's."""
    return {one.torch: one.keras for one in found.matches}


def of(found: Matching, key: str) -> Match:
    """That of a tensor of torch's."""
    return next(one for one in found.matches if one.torch == key)

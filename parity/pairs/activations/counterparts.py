"""Hold both sides' tensors in the order of execution, and which of them have been found to correspond."""

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from parity.core.groups import grouped
from parity.pairs.activations.layouts import Channels, channels, order_by_channels
from parity.pairs.activations.modules import SEPARATORS, Surveyed, ancestors, drops, left_out, owned
from parity.pairs.activations.values import SAME, Fit, Order, Tensor, fit, tensor
from parity.pairs.weights.patterns import Shape
from parity.runtime.survey import Survey
from parity.trace.keys import MODEL
from parity.trace.mapping import Mapping

By = Literal["weights", "value", "order"]
NOTHING: frozenset[int] = frozenset()
# Kinds that count as fused if they have an activation; that of a recurrent layer is a part of its step.
PLAIN = ("linear", "linear_io", "einsum_dense")
# A difference has died out if RECOVERED of the next AHEAD tensors are the same on both sides.
AHEAD, RECOVERED = 8, 6


class ModuleOutput(NamedTuple):
    """A tensor that a module returned.

    `number` counts them in the order of execution. `owns` are the numbers of the mapping's entries whose weights the
    module holds; if it has weights that the mapping leaves out, a negative number that no other module has. `fused`
    says that the module has an activation built in, as Keras's Dense may have. `masks_before` is the number of dropout
    masks that training has drawn for tensors of this size when the tensor is returned; None where this is not known of
    both sides alike. `channels` says where the module's tensors have their channels.
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
    masks_before: int | None = None
    channels: Channels = ""


def masks_may_agree(torch: ModuleOutput, keras: ModuleOutput, otherwise: bool = True) -> bool:
    """Return whether as many masks may have been drawn before both tensors, or `otherwise` where that is not known."""
    if torch.masks_before is None or keras.masks_before is None:
        return otherwise
    return torch.masks_before == keras.masks_before


class Correspondence(NamedTuple):
    """Two tensors that correspond, or may do so."""

    torch: ModuleOutput
    keras: ModuleOutput
    fit: Fit
    by: By

    @property
    def rank(self) -> tuple[float, bool, bool, int]:
        """Return the sort key of candidates: near ones first, then those of equal kinds, then in order of execution."""
        alike = self.torch.kind == self.keras.kind, self.torch.leaf == self.keras.leaf
        return float(f"{self.fit.distance:.2e}"), not alike[0], not alike[1], self.torch.number + self.keras.number


@dataclass
class Counterparts:
    """What corresponds of the models' inner tensors; `given`: orders of inputs' axes, from Keras's to torch's."""

    torch: Sequence[ModuleOutput]
    keras: Sequence[ModuleOutput]
    outputs_apart: float
    given: Sequence[Order] = ()
    matched: dict[int, Correspondence] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    fits: dict[tuple[bytes, Shape, bytes, Shape], Fit | None] = field(default_factory=dict)
    _orders: dict[tuple[int, int], list[tuple[int, Order]]] = field(default_factory=dict)

    def add(self, pair: Correspondence) -> None:
        """Record that two tensors correspond; neither can get another counterpart."""
        self.matched[pair.torch.number] = pair
        self.taken.add(pair.keras.number)
        if pair.fit.distance <= SAME:  # the order of other tensors is itself only likely
            ranks = len(pair.keras.tensor.shape), len(pair.torch.tensor.shape)
            insort(self._orders.setdefault(ranks, []), (pair.keras.number, pair.fit.order))

    def is_free(self, torch: ModuleOutput, keras: ModuleOutput) -> bool:
        """Return whether neither tensor has a counterpart yet."""
        return torch.number not in self.matched and keras.number not in self.taken

    def fit(self, torch: ModuleOutput, keras: ModuleOutput) -> Fit | None:
        """Return the order of axes: by values, else by what the layers tell, else that of equal tensors nearby."""
        shapes = torch.tensor.shape, keras.tensor.shape
        known = order_by_channels(torch.channels, keras.channels, shapes)
        given = [order for order in self.given if len(order) == len(shapes[1])]
        likely = [*self.usual(keras, torch.tensor.shape), *given]
        return fit(torch.tensor, keras.tensor, known, likely)

    def fit_once(self, torch: ModuleOutput, keras: ModuleOutput) -> Fit | None:
        """Return the same as `fit`, computed once for equal tensors, of which a model may have hundreds."""
        key = torch.tensor.digest, torch.tensor.shape, keras.tensor.digest, keras.tensor.shape
        if key not in self.fits:
            self.fits[key] = self.fit(torch, keras)
        return self.fits[key]

    def usual(self, keras: ModuleOutput, shape: Shape) -> list[Order]:
        """Return the order of axes of the nearest tensor that is the same and has these ranks, if there is one."""
        near = self._orders.get((len(keras.tensor.shape), len(shape)), [])
        position = bisect_left(near, (keras.number, ()))
        around = sorted(near[max(position - 1, 0) : position + 1], key=lambda numbered: abs(numbered[0] - keras.number))
        return [order for _, order in around[:1]]

    def anchors(self) -> list[Correspondence]:
        """Return the longest run of pairs that do not cross, in order."""
        pairs = sorted(self.matched.values(), key=lambda pair: pair.torch.number)
        ends: list[int] = []  # Keras's numbers at which the best runs of each length end
        lengths: list[tuple[int, Correspondence]] = []
        for pair in pairs:
            length = bisect_left(ends, pair.keras.number)
            ends[length : length + 1] = [pair.keras.number]
            lengths.append((length, pair))
        chosen: list[Correspondence] = []
        remaining, next_keras = len(ends) - 1, math.inf
        for length, pair in reversed(lengths):
            if length == remaining and pair.keras.number < next_keras:
                chosen.append(pair)
                remaining, next_keras = remaining - 1, pair.keras.number
        return chosen[::-1]

    def gaps(self) -> tuple[list[int], list[int]]:
        """Return, for each tensor of torch and of Keras, the number of the gap between two anchors that it is in."""
        anchors = self.anchors()
        torch, keras = [pair.torch.number for pair in anchors], [pair.keras.number for pair in anchors]
        return (
            [bisect_left(torch, output.number) for output in self.torch],
            [bisect_left(keras, output.number) for output in self.keras],
        )

    def died_out(self, torch: ModuleOutput, apart: float) -> bool:
        """Return whether a difference is no longer seen after a tensor.

        Then a tensor that differs by `apart` cannot be the faulty counterpart. A difference has died out if the whole
        model, a module around the tensor, or most of the tensors that follow have the same values on both sides.
        """
        limit = SAME * min(apart, 1.0)
        around = (self._of_module.get(path, ()) for path in ancestors(torch.module, SEPARATORS["torch"]))
        telling = ([each.number for each in outputs if not each.tensor.is_constant] for outputs in around)
        is_same = any(numbers and all(self._apart(number) <= limit for number in numbers) for numbers in telling)
        ahead = self._comparable[bisect_left(self._comparable, torch.number + 1) :][:AHEAD]
        has_recovered = sum(self._apart(number) <= limit for number in ahead) >= RECOVERED
        return self.outputs_apart <= limit or is_same or has_recovered

    def _apart(self, number: int) -> float:
        return self.matched[number].fit.distance if number in self.matched else math.inf

    @cached_property
    def _comparable(self) -> list[int]:
        """Return the numbers of torch's tensors from modules whose weights some module of Keras owns too."""
        keras_owned = {output.owns for output in self.keras if output.owns}
        return [output.number for output in self.torch if output.owns in keras_owned and not output.tensor.is_constant]

    @cached_property
    def _of_module(self) -> dict[str, list[ModuleOutput]]:
        return grouped(self.torch, lambda output: output.module)


def drawn_alike(torch: Survey, keras: Survey) -> bool:
    """Return whether both sides draw masks for tensors of the same sizes."""
    masks = torch.rehearsal.masks, keras.rehearsal.masks
    return all(side.rehearsal.drawn for side in (torch, keras)) and sorted(masks[0]) == sorted(masks[1])


def module_outputs(side: Surveyed, mapping: Mapping, alike: bool) -> list[ModuleOutput]:
    """Return a side's tensors but those of the whole model; `alike` says that both sides draw masks alike."""
    survey, values = side
    random = {module.path for module in survey.modules if drops(module)}
    modules = {module.path: module for module in survey.modules}
    plain = [module for module in survey.modules if module.kind in PLAIN or "conv" in module.kind]
    fused = {module.path for module in plain if "activation" in module.facts}
    separator = SEPARATORS[survey.side]
    parents = {ancestor for path in modules for ancestor in ancestors(path, separator)}
    owners = left_out(survey, mapping) | owned(survey, mapping)
    # What is around one such layer alone returns, at the end, what comes after the activation too.
    own = {owners.get(path, NOTHING) for path in fused} - {NOTHING}
    fused |= {path for path in parents if owners.get(path) in own}
    seen = [returned for returned in survey.outputs if not is_output(returned.key) and returned.key in values]
    return [
        ModuleOutput(
            number,
            returned.key,
            returned.module,
            modules[returned.module].kind if returned.module in modules else "",
            returned.module not in parents,
            returned.module in fused,
            owners.get(returned.module, NOTHING),
            tensor(values[returned.key]),
            returned.module not in parents and returned.module in random,
            survey.rehearsal.behind(returned.key, math.prod(returned.shape)) if alike else None,
            channels(survey.side, modules.get(returned.module), len(returned.shape)),
        )
        for number, returned in enumerate(seen)
    ]


def is_output(key: str) -> bool:
    """Return whether a key is that of an output of the whole model: (model), (model)#1 or (model).name."""
    return key == MODEL or key.startswith((f"{MODEL}#", f"{MODEL}."))


def outputs(survey: Survey) -> list[str]:
    """Return the keys of the outputs of the whole model."""
    return [seen.key for seen in survey.outputs if is_output(seen.key)]

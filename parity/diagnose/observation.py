"""Observations: what one side recorded of a computation, inputs and result, as the evidence to find causes in.

All arrays are float64 (integers for token ids and class ids) in canonical form: PyTorch's names, axes and
orientations. Every observation has `seen`: by name, the values that a formula has to reproduce.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from parity.config import schema
from parity.core.arrays import Array
from parity.core.precision import ROUNDOFF

GRAIN = 8  # float64 roundoffs of the largest value by which a recomputed value may differ


class Seen(NamedTuple):
    """A recorded value, and how precisely it is known.

    Attributes:
        value: the value in the high run.
        noise: how far the side's low run was from it, at least a float32 roundoff of its largest value.
        grain: a few float64 roundoffs of it: a formula that comes this near has reproduced the value.
    """

    value: Array
    noise: float
    grain: float


class Observation(Protocol):
    """What all observations have in common."""

    @property
    def name(self) -> str:
        """The module, parameter or tensor that was observed."""

    @property
    def seen(self) -> Mapping[str, Seen]:
        """The values that a formula has to reproduce, by name."""


class Call(NamedTuple):
    """The calls of one module in one step on one replica.

    Attributes:
        name: the module's path.
        kind: the kind of module, a key of layers.FORMULAS.
        calls: the tensor arguments of each call, one call for each micro-batch.
        parameters: as they were before the step, by the names within the module (weight, out_proj.weight).
        buffers: likewise (running_mean).
        replicas: the arguments of the first call on every replica, this one's among them at `replica`.
        seen: `output` of the first call and, of a batch norm, `running_mean` and `running_var` after the last.
        number: the number of the first of the calls within the step, which dropout masks depend on.
        held: the buffers of every replica before the step.
    """

    name: str
    kind: str
    calls: tuple[tuple[Array, ...], ...]
    parameters: Mapping[str, Array]
    buffers: Mapping[str, Array]
    training: bool
    replicas: tuple[tuple[Array, ...], ...]
    replica: int
    case: schema.Case
    step: int
    seen: Mapping[str, Seen]
    number: int = 0
    held: tuple[Mapping[str, Array], ...] = ()

    @property
    def inputs(self) -> tuple[Array, ...]:
        """The arguments of the first call."""
        return self.calls[0]


class LossValue(NamedTuple):
    """The losses of one step.

    Attributes:
        outputs: the model's outputs for each micro-batch.
        targets: the targets of each micro-batch.
        seen: `loss`, one value for each micro-batch.
    """

    name: str
    outputs: tuple[Array, ...]
    targets: tuple[Array, ...]
    case: schema.Case
    seen: Mapping[str, Seen]


class Updates(NamedTuple):
    """The updates of a parameter during the first steps.

    Attributes:
        initial: the parameter before the first step.
        gradients: what the optimizer applied, one for each step in order.
        seen: `update@0` (the parameter after step 0 minus `initial`), `SLOT@0` for each slot of the optimizer's state
            (momentum_buffer, exp_avg, exp_avg_sq) and `learning_rate@0` (the rate of step 1); then the same `@N` of the
            last step N, where the update is again the parameter minus `initial`.
    """

    name: str
    initial: Array
    gradients: tuple[Array, ...]
    case: schema.Case
    seen: Mapping[str, Seen]


class Reduction(NamedTuple):
    """The gradient that the optimizer applied, and those that backward left on the replicas.

    Attributes:
        local: by parameter, the gradient on each replica before reduction and clipping, scaled so that their sum is the
            gradient of the whole batch.
        samples: the number of samples on each replica.
        seen: `gradient`.
    """

    name: str
    local: Mapping[str, tuple[Array, ...]]
    samples: tuple[int, ...]
    case: schema.Case
    seen: Mapping[str, Seen]


class Gradient(NamedTuple):
    """A gradient and the other side's gradient, where the forward passes agree.

    Attributes:
        other: the reference's gradient; for the reference itself, its own.
        before: the reference's gradient of the step before.
        seen: `gradient` of this side.
    """

    name: str
    other: Array
    before: Array | None
    case: schema.Case
    seen: Mapping[str, Seen]


class InitialParameter(NamedTuple):
    """A parameter before the first step.

    Attributes:
        kind: the kind of the module that owns it.
        drawn: the value that both sides were told to start from.
        seen: `parameter`.
    """

    name: str
    kind: str
    drawn: Array
    case: schema.Case
    seen: Mapping[str, Seen]


class Samples(NamedTuple):
    """The samples that were drawn.

    Attributes:
        size: the number of samples in the data set.
        seen: `indices`: of every step of replica 0, then of every step of replica 1, and so on.
    """

    name: str
    size: int
    case: schema.Case
    seen: Mapping[str, Seen]


class Input(NamedTuple):
    """A tensor that went into the model.

    Attributes:
        other: the reference's tensor.
        seen: `input` of this side.
    """

    name: str
    other: Array
    case: schema.Case
    seen: Mapping[str, Seen]


def seen(high: Array, low: Array | None = None, stored: float = 0.0) -> Seen:
    """Return a value of the high run as evidence.

    Args:
        high: the value in the high run.
        low: the same value in the low run.
        stored: the largest magnitude of what the value was computed from, if larger: the roundoff of a small difference
            of large numbers is that of the large ones.
    """
    high = np.asarray(high)
    if not np.issubdtype(high.dtype, np.floating):
        return Seen(high, 0.0, 0.0)
    scale = largest(high)
    noise = ROUNDOFF["float32"] * scale
    if low is not None and low.shape == high.shape and high.size:
        differences = np.abs(low.astype(np.float64) - high)
        noise = max(noise, float(differences[np.isfinite(differences)].max(initial=0.0)))
    return Seen(high, noise, GRAIN * ROUNDOFF["float64"] * max(scale, stored))


def largest(array: Array) -> float:
    """Return the largest finite magnitude in an array, 0 if it has none."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))

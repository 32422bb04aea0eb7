"""What one side of a comparison came to, and from what: the evidence that causes are looked for in.

All arrays are float64 (integers for ids and class ids), in canonical form: PyTorch's names, axes and
orientations. Every observation has `seen`: the values that a hypothesis has to reproduce, by name.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from parity.config import schema
from parity.core.arrays import Array
from parity.core.precision import ROUNDOFF

GRAIN = 8  # roundoffs of float64, relative to the largest value: what still counts as the same


class Seen(NamedTuple):
    """A value, and how well it is known.

    `noise`: how far the side's low run was from it, at least a float32 roundoff of its largest value.
    `grain`: a few ulp of float64; a hypothesis that comes so near has reproduced the value.
    """

    value: Array
    noise: float
    grain: float


class Observation(Protocol):
    """What the kinds of observations below have in common."""

    @property
    def name(self) -> str:
        """The module, parameter or tensor that it is about."""

    @property
    def seen(self) -> Mapping[str, Seen]:
        """What was recorded, by name."""


class Call(NamedTuple):
    """The calls of one module in one step of one replica.

    `calls`: the tensor arguments of each call, one call for each micro-batch. `seen`: `output` of the
    first call and, of a batch norm, `running_mean` and `running_var` after the last.
    `parameters`, `buffers`: by their names within the module (weight, running_mean, in_proj_weight,
    out_proj.weight), as they were before the step. `replicas`: the arguments of the first call in every
    replica, this one's among them at `replica`. `number`: of the first of the calls within the step, which
    dropout masks are drawn from. `held`: the buffers of every replica before the step.
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
    """The losses of one step: outputs and targets of each micro-batch. `seen`: `loss`, one value for each."""

    name: str
    outputs: tuple[Array, ...]
    targets: tuple[Array, ...]
    case: schema.Case
    seen: Mapping[str, Seen]


class Updates(NamedTuple):
    """A parameter's way through the first steps.

    `initial`: before them. `gradients`: what the optimizer applied, one for each step in order.
    `seen`: `update@0` (the parameter after step 0 minus `initial`), `SLOT@0` for each slot of the
    optimizer's state (momentum_buffer, exp_avg, exp_avg_sq), `learning_rate@0` (that of step 1), and the
    same `@N` of the last step N, where the update is the parameter minus `initial` again.
    """

    name: str
    initial: Array
    gradients: tuple[Array, ...]
    case: schema.Case
    seen: Mapping[str, Seen]


class Reduction(NamedTuple):
    """The gradient that the optimizer applied, from those that backward left on the replicas.

    `local`: by parameter, one for each replica, before reduction and clipping; each is the replica's share
    of the whole, so that their sum is right. `samples`: of each replica. `seen`: `gradient`.
    """

    name: str
    local: Mapping[str, tuple[Array, ...]]
    samples: tuple[int, ...]
    case: schema.Case
    seen: Mapping[str, Seen]


class Gradient(NamedTuple):
    """A gradient beside the other side's, where forward agreed. `seen`: `gradient` of this side.

    `other`: the reference's, for the reference itself its own. `before`: the reference's of the step before.
    """

    name: str
    other: Array
    before: Array | None
    case: schema.Case
    seen: Mapping[str, Seen]


class Start(NamedTuple):
    """A parameter before the first step. `drawn`: what both sides were told to start from. `seen`: `parameter`."""

    name: str
    kind: str
    drawn: Array
    case: schema.Case
    seen: Mapping[str, Seen]


class Samples(NamedTuple):
    """The indices of the samples of every step of every replica. `seen`: `indices`, all of them in that order.

    `size`: of the data set.
    """

    name: str
    size: int
    case: schema.Case
    seen: Mapping[str, Seen]


class Input(NamedTuple):
    """What went into the model. `other`: the reference's tensor. `seen`: `input` of this side."""

    name: str
    other: Array
    case: schema.Case
    seen: Mapping[str, Seen]


def seen(high: Array, low: Array | None = None, stored: float = 0.0) -> Seen:
    """A recorded value. `low`: the same in the low run; `stored`: the scale that it was derived from, if larger."""
    high = np.asarray(high)
    if not np.issubdtype(high.dtype, np.floating):
        return Seen(high, 0.0, 0.0)
    scale = largest(high)
    noise = ROUNDOFF["float32"] * scale
    if low is not None and low.shape == high.shape and high.size:
        apart = np.abs(low.astype(np.float64) - high)
        noise = max(noise, float(apart[np.isfinite(apart)].max(initial=0.0)))
    return Seen(high, noise, GRAIN * ROUNDOFF["float64"] * max(scale, stored))


def largest(array: Array) -> float:
    """The largest finite magnitude."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))

"""Evidence from training, made by plain numpy: optimizers written down as their papers and manuals have them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from parity.config import cases, schema
from parity.core.arrays import Array
from parity.core.precision import ROUNDOFF
from parity.diagnose.formula import Seen, seen
from parity.diagnose.initial_parameters import InitialParameter
from parity.diagnose.losses import LossValue
from parity.diagnose.reductions import Reduction
from parity.diagnose.samples import Samples
from parity.diagnose.topic import Compared
from parity.diagnose.updates import Updates

FAINT = 2.0**-30  # relative: below what 20 bits of evidence at float32 take
Slots = dict[str, Array]
Rule = Callable[[int, Array, Array, Slots], Array]  # step, parameter, gradient, slots -> parameter


def normal(*shape: int, seed: int = 0) -> Array:
    """Standard normal numbers."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def case(name: str = "simple_block/single", **changes: Any) -> schema.Case:
    """A built-in case with changes."""
    return cases.resolve(name, changes)


def sgd(
    rate: float | Callable[[int], float] = 0.05,
    momentum: float = 0.0,
    decay: float = 0.0,
    nesterov: bool = False,
    dampening: float = 0.0,
) -> Rule:
    """torch.optim.SGD's manual. Its rate may depend on the step."""

    def step(t: int, p: Array, g: Array, slots: Slots) -> Array:
        g = g + decay * p
        if "momentum_buffer" in slots:
            slots["momentum_buffer"] = momentum * slots["momentum_buffer"] + (1 - dampening) * g
        else:
            slots["momentum_buffer"] = g
        direction = g + momentum * slots["momentum_buffer"] if nesterov else slots["momentum_buffer"]
        return p - (rate(t) if callable(rate) else rate) * direction

    return step


def adam(
    rate: float = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    decay: float = 0.0,
    decoupled: bool = False,
    power: Callable[[float, int], float] = lambda beta, t: beta**t,
    direction: Callable[[Array, Array, float, float], Array] | None = None,
) -> Rule:
    """Kingma and Ba, algorithm 1. `direction` may make another one of m, v and their corrections."""

    def step(t: int, p: Array, g: Array, slots: Slots) -> Array:
        if decoupled:
            p = p * (1 - rate * decay)
        else:
            g = g + decay * p
        m = beta1 * slots.get("exp_avg", np.zeros_like(p)) + (1 - beta1) * g
        v = beta2 * slots.get("exp_avg_sq", np.zeros_like(p)) + (1 - beta2) * g * g
        slots |= {"exp_avg": m, "exp_avg_sq": v}
        correction1, correction2 = 1 - power(beta1, t + 1), 1 - power(beta2, t + 1)
        if direction:
            return p - rate * direction(m, v, correction1, correction2)
        return p - rate * (m / correction1) / (np.sqrt(v / correction2) + epsilon)

    return step


def updates(
    case: schema.Case,
    rule: Rule,
    rate: Callable[[int], float] | float,
    shape: tuple[int, ...] = (6, 5),
    steps: int = 5,
    size: float = 1e-2,
    seed: int = 0,
) -> Updates:
    """A parameter trained by a rule; a third of each gradient is zero. `rate`: as it is recorded."""
    initial = 0.1 * normal(*shape, seed=seed)
    gradients = [size * normal(*shape, seed=seed + 1 + t) for t in range(steps)]
    for gradient in gradients:
        gradient.flat[::3] = 0.0
    high, low = (_trained(rule, initial, gradients, dtype) for dtype in (np.float64, np.float32))
    found: dict[str, Seen] = {}
    for t in (0, steps - 1):
        found[f"learning_rate@{t}"] = seen(np.asarray(rate(t + 1) if callable(rate) else rate))
        for name, value in high[t].items():
            found[f"{name}@{t}"] = seen(value, low[t][name].astype(np.float64), float(np.abs(initial).max()) * (t + 1))
    return Updates(initial, tuple(gradients), case, found)


def _trained(rule: Rule, initial: Array, gradients: list[Array], dtype: type) -> list[dict[str, Array]]:
    parameter, slots, found = initial.astype(dtype), {}, []
    for t, gradient in enumerate(gradients):
        parameter = rule(t, parameter, gradient.astype(dtype), slots).astype(dtype)
        found.append({"update": parameter.astype(np.float64) - initial.astype(dtype), **slots})
    return found


def loss(case: schema.Case, outputs: Array, target: Array, *values: float) -> LossValue:
    """The loss of one batch, or of as many micro-batches as there are values."""
    count = len(values)
    parts = (tuple(np.array_split(array, count)) for array in (outputs, target))
    return LossValue(*parts, case, {"loss": seen(np.asarray(values))})


def reduction(
    case: schema.Case, local: Mapping[str, tuple[Array, ...]], samples: tuple[int, ...], gradient: Array
) -> Reduction:
    """What became of the first parameter's gradients."""
    return Reduction(next(iter(local)), local, samples, case, {"gradient": seen(gradient)})


def gradient(
    case: schema.Case, other: Array, value: Array, name: str = "linear1.weight", before: Array | None = None
) -> Compared:
    """A gradient beside the other side's."""
    return Compared(name, other, before, case, {"gradient": seen(value)})


def start(case: schema.Case, name: str, drawn: Array, value: Array, kind: str = "linear") -> InitialParameter:
    """A parameter before training."""
    return InitialParameter(name, kind, drawn, case, {"parameter": seen(value)})


def samples(case: schema.Case, size: int, plan: list[list[Any]]) -> Samples:
    """The samples of each step and replica."""
    joined = np.concatenate([np.asarray(step[replica]) for replica in range(case.replicas) for step in plan])
    return Samples(size, case, {"indices": seen(joined)})


def tensor(other: Array, value: Array) -> Compared:
    """What went in beside what went in elsewhere."""
    return Compared("input", other, None, case(), {"input": seen(value)})


def blurred(observation: Any, like: Any) -> Any:
    """The same with errors that are small beside the values, also those of `like`, but far from float64's."""
    found: dict[str, Seen] = {}
    for name, value in observation.seen.items():
        scale = max(float(np.abs(each.value).max(initial=0.0)) for each in (value, like.seen.get(name, value)))
        blur = FAINT * scale * normal(*value.value.shape, seed=len(name))
        found[name] = value._replace(value=value.value + blur, noise=max(value.noise, ROUNDOFF["float32"] * scale))
    return observation._replace(seen=found)

"""Causes between backward and optimizer: how the replicas' gradients are reduced, and how they are clipped."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from parity.config import schema
from parity.config.pair import ADDED_TO_NORM
from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import Formula, Seen, Settings, Trait, choices_if, require
from parity.diagnose.topic import Question, Side, Sides, most_informative
from parity.trace import keys


class Reduction(NamedTuple):
    """The gradient that the optimizer applied, and those that backward left on the replicas."""

    name: str
    # By parameter, the gradient on each replica before reduction and clipping, scaled so that their sum is the gradient
    # of the whole batch.
    local: Mapping[str, tuple[Array, ...]]
    samples: tuple[int, ...]  # the number of samples on each replica
    case: schema.Case
    seen: Mapping[str, Seen]  # `gradient`


def questions(sides: Sides) -> Iterator[Question]:
    """Ask how the replicas' gradients were reduced, where both the local and the reduced ones were recorded."""
    reduced = [tensor for tensor in sides.of("gradient") if not tensor.name.endswith(keys.LOCAL)]
    for tensor in most_informative(sides, reduced):
        both = [observe(side, tensor.name, tensor.step or 0, tensor.replica) for side in sides.both]
        yield Question("gradient", tensor.name, FORMULA, both)


def observe(side: Side, name: str, step: int, replica: int) -> Reduction | None:
    """Return a reduced gradient and the replicas' gradients; None where either was not recorded."""
    gradient = side.value(f"gradient/{name}", step, replica)
    files = [side.tensors(step, holder) for holder in side.replicas]
    local = {
        key.removeprefix("gradient/").removesuffix(keys.LOCAL): tuple(file[key] for file in files)
        for key in files[replica]
        if key.endswith(keys.LOCAL) and all(key in file for file in files)
    }
    samples = tuple(np.size(file.get("sample/indices", ())) for file in files)
    if gradient is None or name not in local:
        return None
    return Reduction(name, local, samples, side.case, {"gradient": gradient})


def _check(reduction: Reduction) -> None:
    for parts in reduction.local.values():
        require(len({part.shape for part in parts}) == 1, "gradients of one shape on all replicas")


def _clipped(
    name: str, gradients: Mapping[str, Array], max_norm: float, scope: str, epsilon: float, elementwise: bool
) -> Array:
    """Return the named gradient, clipped with the others as torch.nn.utils.clip_grad_norm_ does it, or a variant."""
    own = gradients[name]
    if elementwise:
        return np.clip(own, -max_norm, max_norm)
    if scope == "none":
        return own
    norm = solve.norm(gradients.values() if scope == "all parameters" else (own,)) + epsilon
    require(norm > 0 or math.isnan(norm), "a gradient that is not zero")
    return own * min(1.0, max_norm / norm)


def _reduced(
    reduction: Reduction,
    weighed: str,
    taken: str,
    summed: float,
    scaled: float,
    repeated: float,
    order: str,
    **clip: Any,
) -> dict[str, Array]:
    """Return the gradient that the settings make of the replicas' gradients."""
    local = {name: _weighed(reduction.samples, weighed, parts) for name, parts in reduction.local.items()}
    replicas = len(reduction.samples)
    factor = summed * scaled * repeated
    if order == "after the reduction":
        whole = {name: _taken(taken, parts) * factor for name, parts in local.items()}
        return {"gradient": _clipped(reduction.name, whole, **clip)}
    times = replicas if order == "before the reduction, on means" else 1
    by_replica = ({name: parts[i] * times for name, parts in local.items()} for i in range(replicas))
    return {"gradient": _taken(taken, [_clipped(reduction.name, own, **clip) / times for own in by_replica]) * factor}


def _weighed(samples: tuple[int, ...], weighed: str, parts: tuple[Array, ...]) -> list[Array]:
    """Return the replicas' gradients weighted by their numbers of samples, as recorded, or equally."""
    if weighed == "by number of samples":
        return list(parts)
    mean = sum(samples) / len(samples)
    return [part * (mean / count) if count else part for part, count in zip(parts, samples, strict=True)]


def _taken(taken: str, parts: list[Array]) -> Array:
    """Return the sum of the replicas' gradients, or that of one replica, scaled to a mean or not."""
    if taken == "all":
        return np.asarray(np.sum(parts, axis=0))
    kind, _, number = taken.rpartition(" ")
    require(int(number) < len(parts), "that replica")
    return parts[int(number)] * (len(parts) if kind == "mean of replica" else 1)


def _takes(reduction: Reduction, settings: Settings) -> list[str]:
    replicas = range(len(reduction.samples)) if len(reduction.samples) > 1 else ()
    return ["all", *(f"{kind} {number}" for number in replicas for kind in ("mean of replica", "share of replica"))]


def _is_clipped(reduction: Reduction) -> bool:
    return bool(reduction.case.clip_norm)


def _max_norms(reduction: Reduction, settings: Settings) -> Iterator[float]:
    """Yield the configured norm to clip to, then the one that the recorded gradient implies."""
    yield reduction.case.clip_norm or math.inf
    if reduction.case.clip_norm:
        whole = {**settings, "scope": "none", "elementwise": False}
        for factor in solve.scale(_reduced(reduction, **whole)["gradient"], reduction.seen["gradient"].value):
            if 0 < factor < 1:
                norm = solve.norm(np.sum(parts, axis=0) for parts in reduction.local.values())
                yield factor * (norm + settings["epsilon"])


def times(*factors: Callable[[schema.Case], float]) -> Callable[[Any, Settings], Iterable[Any]]:
    """Return the `values` of a trait that multiplies by 1 or by one of some factors that depend on the case."""
    return lambda observation, settings: dict.fromkeys((1.0, *(float(factor(observation.case)) for factor in factors)))


FACTORS: Final = (
    Trait("summed", "gradient.reduction", times(lambda case: case.replicas)),
    Trait("scaled", "gradient.double_scaling", times(lambda case: 1 / case.replicas)),
    Trait("repeated", "gradient.double_reduction", times(lambda case: case.replicas**2)),
)
FORMULA: Final[Formula[Reduction]] = Formula(
    _reduced,
    (
        *FACTORS,
        Trait(
            "weighed",
            "batch.uneven",
            choices_if(lambda reduction: len(set(reduction.samples)) > 1, "by number of samples", "equally"),
        ),
        Trait("taken", "gradient.unreduced", _takes),
        Trait(
            "order",
            "clip.before_reduction",
            choices_if(
                lambda reduction: _is_clipped(reduction) and len(reduction.samples) > 1,
                "after the reduction",
                "before the reduction",
                "before the reduction, on means",
            ),
        ),
        Trait("scope", "clip.scope", choices_if(_is_clipped, "all parameters", "each parameter", "none")),
        Trait("elementwise", "clip.value", choices_if(_is_clipped, False, True)),
        Trait("epsilon", "clip.epsilon", choices_if(_is_clipped, ADDED_TO_NORM, 0.0)),
        Trait("max_norm", "clip.norm", _max_norms),
    ),
    _check,
)

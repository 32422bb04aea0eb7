"""Causes in layer norm and group norm (batch_norm.py shares the formula): epsilon, variance, left-out parts, axes."""

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import Formula, Settings, Trait, choices, choices_if, require
from parity.diagnose.layers.call import Call, broadcasts

USUAL: Final = (1e-5, 1e-3, 1e-6, 0.0)  # the default epsilon of PyTorch, of Keras, and others in use
LEFT_OUT: Final = "left out"
Axes = tuple[int, ...]


class Moments(NamedTuple):
    """Mean and variance of an input, and the input without its mean."""

    mean: Array
    centred: Array
    variance: Array
    size: int  # the number of elements that each mean was taken over


def moments(x: Array, axes: Axes) -> Moments:
    """Return the moments over the given axes."""
    mean = x.mean(axes, keepdims=True)
    variance = np.square(x - mean).mean(axes, keepdims=True)
    return Moments(mean, x - mean, variance, math.prod(x.shape[axis] for axis in axes))


def normalised(call: Call, statistics: Moments, shape: Axes, settings: Settings) -> Array:
    """Return the input normalised: the formula that all norms share. `shape`: that of its weight and bias."""
    variance, epsilon = statistics.variance, settings["epsilon"]
    if settings["variance"] != "biased":
        variance = variance * (statistics.size / max(statistics.size - 1, 1))
    inside = settings["epsilon_placement"] == "inside the root"
    root = np.sqrt(variance + epsilon) if inside else np.sqrt(variance) + epsilon
    weight = np.reshape(call.parameters["weight"], shape) if "weight" in call.parameters else np.ones(1)
    bias = np.reshape(call.parameters["bias"], shape) if "bias" in call.parameters else np.zeros(1)
    if settings["weight"] != "applied":
        weight = 1.0 + weight if settings["weight"] == "1 + weight" else np.ones(1)
    if settings["bias"] != "added":
        bias = np.zeros(1)
    return np.asarray(statistics.centred / root * weight + bias)


def traits(kind: str, predict: Callable[..., dict[str, Array]]) -> tuple[Trait[Call], ...]:
    """Return the traits that all norms have in common; `predict` computes such a norm."""

    def epsilons(call: Call, settings: Settings) -> Iterator[float]:
        """Yield the usual epsilons, and the one that the output implies."""
        yield from USUAL
        yield from solve.constant(predict, call, settings, "epsilon", USUAL, "output")

    return (
        Trait("variance", f"{kind}.variance", choices("biased", "unbiased")),
        Trait("epsilon_placement", f"{kind}.epsilon_placement", choices("inside the root", "outside the root")),
        Trait("weight", f"{kind}.weight", choices("applied", LEFT_OUT, "1 + weight")),
        Trait("bias", f"{kind}.bias", choices("added", LEFT_OUT)),
        Trait("epsilon", f"{kind}.epsilon", epsilons),
    )


def _check_layer(call: Call) -> None:
    shape = call.inputs[0].shape
    weight = call.parameters.get("weight", np.ones(shape[-1:]))
    require(broadcasts(weight.shape, shape), "a weight of the last axes' size")
    bias = call.parameters.get("bias", weight)
    require(bias.size == weight.size, "a bias of the weight's size")


def _layer_norm(call: Call, **settings: Any) -> dict[str, Array]:
    if settings["final_norm"] == LEFT_OUT or settings["skipped"]:
        return {"output": call.inputs[0]}
    x, axes = call.inputs[0], settings["axes"]
    require(max(axes, default=0) < x.ndim, "the axes that are normalised over")
    statistics = moments(x, axes)
    if settings["mean"] != "subtracted":  # the root mean square norm
        statistics = statistics._replace(centred=x, variance=np.square(x).mean(axes, keepdims=True))
    shape = call.parameters["weight"].shape if "weight" in call.parameters else (-1,)
    return {"output": normalised(call, statistics, shape, settings)}


def _axes(call: Call, settings: Settings) -> Iterator[Axes]:
    """Yield axes to normalise over: the last, as many as the weight has; then each single one; then all but one."""
    all_axes = tuple(range(call.inputs[0].ndim))
    count = call.parameters["weight"].ndim if "weight" in call.parameters else 1
    others = [(axis,) for axis in all_axes] + [tuple(axis for axis in all_axes if axis != kept) for kept in all_axes]
    yield from dict.fromkeys([all_axes[-count:], *(axes for axes in others if axes)])


def _is_final(call: Call) -> bool:
    return call.name.endswith(("encoder.norm", "decoder.norm"))


def _check_group(call: Call) -> None:
    x = call.inputs[0]
    require(x.ndim > 1 and min(x.shape[:2]) > 0 and call.output.shape == x.shape, "samples with channels")
    for name in ("weight", "bias"):
        require(name not in call.parameters or call.parameters[name].size == x.shape[1], f"{name} of the channels")


def _group_norm(call: Call, **settings: Any) -> dict[str, Array]:
    x, count = call.inputs[0], settings["groups"]
    if settings["skipped"]:
        return {"output": x}
    # The axes: samples, groups, channels of a group, pixels.
    statistics = moments(x.reshape(len(x), count, x.shape[1] // count, -1), (2, 3))
    return {"output": normalised(call, statistics, (1, count, -1, 1), settings).reshape(x.shape)}


def _counts(call: Call, settings: Settings) -> list[int]:
    """Return all numbers of groups that divide the channels, since the number is not recorded."""
    channels = call.inputs[0].shape[1]
    return [count for count in range(1, channels + 1) if channels % count == 0]


LAYER_NORM = Formula(
    _layer_norm,
    (
        Trait("final_norm", "transformer.final_norm", choices_if(_is_final, "applied", LEFT_OUT)),
        Trait("skipped", "module.skipped", choices_if(lambda call: not _is_final(call), False, True)),
        Trait("mean", "layer_norm.rms", choices("subtracted", "kept")),
        Trait("axes", "layer_norm.axes", _axes),
        *traits("layer_norm", _layer_norm),
    ),
    _check_layer,
)
GROUP_NORM = Formula(
    _group_norm,
    (
        Trait("skipped", "module.skipped", choices(False, True)),
        Trait("groups", "group_norm.groups", _counts),
        *traits("group_norm", _group_norm),
    ),
    _check_group,
)

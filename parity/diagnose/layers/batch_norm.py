"""Causes in batch norm: the statistics that it normalises by, and the update of its running statistics.

A replica's micro-batches update the running statistics one after another. Settings follow PyTorch's conventions: the
momentum is the weight of the new statistics, and the running variance is unbiased.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import UNUSED, Formula, Settings, Trait, choices, choices_if, require, usually
from parity.diagnose.layers import norms
from parity.diagnose.layers.call import Call, numbers, per_channel
from parity.diagnose.layers.norms import Axes, Moments

# PyTorch's default, Keras's default (0.99 as the weight of the old statistics), both with the weights exchanged, and
# one more in use.
MOMENTA: Final = (0.1, 0.01, 0.9, 0.99, 0.001)
MOST_PARTS: Final = 16  # of a batch, of which each has statistics of its own
EQUAL: Final = 1e-9  # of the standard deviation: how far means are apart that are equal
STATISTICS: Final = ("running_mean", "running_var")
BATCH, RUNNING = "batch statistics", "running statistics"
OWN, ALL, FIRST = "this replica's", "all replicas'", "replica 0's"
# Statistics of all replicas, but with the correction n / (n - 1) of the running variance for the n of one replica.
ALL_AS_OWN: Final = "all replicas', corrected as this one's"


def _check(call: Call) -> None:
    numbers(call)
    shape = call.inputs[0].shape
    require(len(shape) > 1, "samples with channels")
    for arguments in (*call.calls, *call.replicas):
        own = arguments[0].shape if arguments else ()
        require(len(own) == len(shape) and own[1] == shape[1], "the same channels in all calls")
    for name in ("weight", "bias"):
        per_channel(call, name, shape[1])
    for buffers in (call.buffers, *call.held):
        for name in STATISTICS:
            require(name not in buffers or buffers[name].shape == shape[1:2], f"{name} of the channels")


def _predict(call: Call, **settings: Any) -> dict[str, Array]:
    if settings["skipped"]:
        return {"output": call.inputs[0]}
    normalised = norms.normalised(call, _moments(call, settings), _broadcast_shape(call.inputs[0]), settings)
    return {"output": normalised} | _running(call, **settings)


def _channel_moments(x: Array) -> Moments:
    """Return the moments of each channel, over all other axes."""
    return norms.moments(x, tuple(axis for axis in range(x.ndim) if axis != 1))


def _broadcast_shape(x: Array) -> Axes:
    """Return the shape in which a vector of channels broadcasts."""
    return tuple(-1 if axis == 1 else 1 for axis in range(x.ndim))


def _moments(call: Call, settings: Settings) -> Moments:
    """Return the statistics that the first call normalises by."""
    x = call.inputs[0]
    if settings["mode"] == RUNNING:
        old = _before(call, settings)
        require(set(STATISTICS) <= set(old), "running statistics")
        mean, variance = (np.reshape(old[name], _broadcast_shape(x)) for name in STATISTICS)
        return Moments(mean, x - mean, variance, 0)
    if settings["scope"] != OWN:
        statistics = _over_all_replicas(call)
        return statistics._replace(centred=x - statistics.mean)
    parts = _of_parts(x, settings)
    mean, variance = (
        np.repeat(np.concatenate(each), len(x) // len(parts), axis=0)
        for each in zip(*[part[::2] for part in parts], strict=True)
    )
    return Moments(mean, x - mean, variance, parts[0].size)


def _of_parts(x: Array, settings: Settings) -> list[Moments]:
    """Return the moments of each of the parts in which the batch was given to the layer."""
    require(len(x) % settings["parts"] == 0, "parts of one size")
    return [_channel_moments(part) for part in np.split(x, settings["parts"])]


def _over_all_replicas(call: Call) -> Moments:
    """Return the statistics over all replicas."""
    require(len({inputs[0].shape[1:] for inputs in call.replicas}) == 1, "inputs of one shape on all replicas")
    return _channel_moments(np.concatenate([inputs[0] for inputs in call.replicas]))


def _running(call: Call, **settings: Any) -> dict[str, Array]:
    """Return the running statistics after the step."""
    old = _before(call, settings)
    if not set(STATISTICS) <= set(old) or settings["mode"] == RUNNING or settings["frozen"]:
        return {name: old[name] for name in STATISTICS if name in old}
    require(settings["momentum"] != UNUSED, "a momentum")
    mean, variance = (old[name] for name in STATISTICS)
    for batch in _update_statistics(call, settings) * settings["updates"]:
        unbiased = batch.size / max(batch.size - 1, 1) if settings["running_variance"] == "unbiased" else 1.0
        mean = mean + settings["momentum"] * (batch.mean.ravel() - mean)
        variance = variance + settings["momentum"] * (batch.variance.ravel() * unbiased - variance)
    return {"running_mean": mean, "running_var": variance}


def _before(call: Call, settings: Settings) -> Mapping[str, Array]:
    """Return the running statistics before the step."""
    by_setting = {_replicas_own(replica): buffers for replica, buffers in enumerate(call.held)}
    return by_setting.get(settings["before"], call.buffers)


def _update_statistics(call: Call, settings: Settings) -> list[Moments]:
    """Return the statistics that update the running ones, one for each call."""
    if settings["scope"] != OWN:
        batch, samples = _over_all_replicas(call), sum(len(inputs[0]) for inputs in call.replicas)
        require(samples > 0, "samples")
        own = batch.size * len(call.inputs[0]) // samples
        return [batch if settings["scope"] == ALL else batch._replace(size=own)]
    if settings["buffers"] == OWN:
        return [part for inputs in call.calls for part in _of_parts(inputs[0], settings)]
    by_replica = [_channel_moments(inputs[0]) for inputs in call.replicas]
    if settings["buffers"] == FIRST:
        return by_replica[:1]
    mean, variance = (np.mean(values, axis=0) for values in zip(*(batch[:3:2] for batch in by_replica), strict=True))
    return [by_replica[0]._replace(mean=mean, variance=variance)]


def _modes(call: Call, settings: Settings) -> tuple[str, ...]:
    modes = (BATCH, RUNNING) if call.training else (RUNNING, BATCH)
    return modes if set(STATISTICS) <= set(call.buffers) else (BATCH,)


def _has_replicas(call: Call) -> bool:
    return len(call.replicas) > 1


def _parts(call: Call, settings: Settings) -> tuple[int, ...]:
    """Return in how many parts the layer was given its batch, as the means of what it returns for them tell.

    Each is the bias, whatever the layer's other settings are.
    """
    x, least = call.output, EQUAL * call.output.std()
    if settings["mode"] != BATCH or _has_replicas(call) or not least > 0:
        return (1,)

    def are_parts(number: int) -> bool:
        means = [part.mean for part in _of_parts(x, {"parts": number})] if len(x) % number == 0 else []
        return bool(means) and bool(np.ptp(means, axis=0).max() <= least)

    return max(filter(are_parts, range(2, MOST_PARTS + 1)), default=1), 1


def _befores(call: Call, settings: Settings) -> tuple[str, ...]:
    """Return whose running statistics a replica may start the step from, the expected first.

    nn.parallel.DistributedDataParallel sends those of replica 0 to the others unless broadcast_buffers is off.
    """
    others = [_replicas_own(replica) for replica in range(len(call.held)) if replica != call.replica]
    sent = call.case.distribution.broadcasts_buffers and call.replica > 0
    return (FIRST, OWN, *others[1:]) if sent and others else (OWN, *others)


def _replicas_own(replica: int) -> str:
    return f"replica {replica}'s"


def _momenta(call: Call, settings: Settings) -> Iterator[float | str]:
    if settings["mode"] == RUNNING:
        yield UNUSED
    yield from MOMENTA
    if "running_mean" in call.seen and settings["mode"] == BATCH:
        yield from solve.constant(_running, call, settings, "momentum", MOMENTA, among="running_mean")


BATCH_NORM = Formula(
    _predict,
    (
        Trait("mode", "batch_norm.mode", _modes),
        Trait("scope", "batch_norm.scope", choices_if(_has_replicas, OWN, ALL, ALL_AS_OWN)),
        Trait("parts", "batch_norm.parts", _parts),
        Trait("frozen", "batch_norm.frozen", usually(lambda call: not call.training, False, True)),
        Trait("running_variance", "batch_norm.running_variance", choices("unbiased", "biased")),
        Trait("before", "batch_norm.buffers", _befores),
        Trait("buffers", "batch_norm.buffers", choices_if(_has_replicas, OWN, FIRST, "the replicas' mean")),
        Trait("updates", "batch_norm.updates", choices(1, 2, 3)),
        Trait("momentum", "batch_norm.momentum", _momenta),
        Trait("skipped", "module.skipped", choices(False, True)),
        *norms.traits("batch_norm", _predict),
    ),
    _check,
)

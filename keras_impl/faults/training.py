"""Faults of training: samples, losses, optimizers, gradients combined wrongly, wrong devices, processes that fail."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from keras_impl import losses, optimizers
from keras_impl.instruments import devices
from keras_impl.optimizers import SGD, Adam, AdamW, PyTorchClipping, StepLR, on_device_of_variable
from keras_impl.record import data
from keras_impl.strategies import (
    all_reduce,
    branch_parallel,
    data_parallel,
    ddp,
    hybrid,
    send_recv,
    single,
    tensor_parallel,
)
from parity.data import batches
from parity.data.batches import Dataset
from parity.selftest.mutate import Patches, constant, misbehaving, replaced, together, wrapped

Batch = tuple[tuple[tf.Tensor, ...], tf.Tensor]
Sampler = Callable[[int, int, int, int], list[list[int]]]
Update = Callable[[Any, tf.Tensor, tf.Variable, tf.Tensor], None]
Reduce = Callable[..., list]
_mse = partial(replaced, losses, "mse")


def _contiguous(sampler: Sampler, size: int, replicas: int, seed: int, epoch: int) -> list[list[int]]:
    """Cut the shuffled order into contiguous shards, instead of dealing it out in turn."""
    dealt = sampler(size, replicas, seed, epoch)
    order = list(chain.from_iterable(zip(*dealt, strict=True)))
    size_of_shard = len(dealt[0])
    return [order[i * size_of_shard : (i + 1) * size_of_shard] for i in range(replicas)]


def _inputs(change: Callable[[tf.Tensor], tf.Tensor]) -> Patches:
    def changed(tensors: Callable[..., Batch], *args: Any) -> Batch:
        inputs, target = tensors(*args)
        return tuple(change(tensor) for tensor in inputs), target

    return wrapped(data, "tensors", changed)


def _shifted_target(tensors: Callable[..., Batch], *args: Any) -> Batch:
    """Compare each word of (N, T) with the one after the right one."""
    inputs, target = tensors(*args)
    return inputs, tf.roll(target, -1, axis=1)


def _logits_as_probabilities(outputs: tf.Tensor, target: tf.Tensor, reduction: str = "mean") -> tf.Tensor:
    """Compute Keras's cross entropy with from_logits=False."""
    probabilities = tf.clip_by_value(outputs, 1e-7, 1 - 1e-7)
    ids = tf.cast(target, tf.int64)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(ids, tf.math.log(probabilities)))


def _masked_by_hand(outputs: tf.Tensor, target: tf.Tensor, reduction: str = "mean") -> tf.Tensor:
    """Set the losses of class 0 to zero, but still divide by the number of all samples."""
    losses_ = tf.nn.sparse_softmax_cross_entropy_with_logits(target, outputs)
    return tf.reduce_mean(tf.where(tf.equal(target, 0), tf.zeros_like(losses_), losses_))


def _epsilon_hat(update: Update, adam: Adam, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> None:
    """Add epsilon before the bias correction of the second moment, as Keras's Adam does."""
    root = tf.cast(tf.sqrt(adam._correction(adam.beta_2)), variable.dtype)
    with mock.patch.object(adam, "epsilon", adam.epsilon / root):
        update(adam, gradient, variable, rate)


@on_device_of_variable
def _rate_in_velocity(sgd: SGD, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> None:
    """Multiply the rate into the velocity: v = momentum v - rate g; p = p + v."""
    velocity = sgd.momentums[sgd._get_variable_index(variable)]
    velocity.assign(velocity.value * sgd.momentum - gradient * tf.cast(rate, variable.dtype))
    variable.assign_add(velocity.value)


def _biases_do_not_decay(update: Update, sgd: SGD, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> None:
    with mock.patch.object(sgd, "decay", sgd.decay if len(variable.shape) > 1 else 0.0):
        update(sgd, gradient, variable, rate)


def _first_is_frozen(update: Update, sgd: SGD, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor) -> None:
    if sgd._get_variable_index(variable):
        update(sgd, gradient, variable, rate)


def _powers_in_float32(adam: Adam, beta: float) -> tf.Tensor:
    power = tf.pow(tf.constant(beta, tf.float32), tf.cast(adam.iterations.value + 1, tf.float32))
    return tf.cast(1 - power, tf.float64)


def _rate_in_float32(make: Callable, sgd: SGD, rate: float, *args: Any, **kwargs: Any) -> None:
    make(sgd, float(np.float32(rate)), *args, **kwargs)


def _norm_of_each(clip: Callable, gradients: list[tf.Tensor], norm: float) -> list[tf.Tensor]:
    """Clip each gradient by its own norm, as Keras's clipnorm does."""
    return [clipped for gradient in gradients for clipped in clip([gradient], norm)]


def _each_replicas_own(optimizer: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """Clip the gradients of each replica separately, before they are summed."""
    norm = optimizer.global_clipnorm
    return optimizers.clip_by_global_norm(gradients, norm) if norm else gradients


def _replicas() -> int:
    return tf.distribute.get_strategy().num_replicas_in_sync


def _scaled(factor: Callable[[], float], reduce: Reduce, optimizer: Any, pairs: list) -> list:
    """Multiply what an optimizer has summed over the replicas by a factor."""
    times = 1 if optimizer.gradients_are_reduced else factor()
    return [(gradient * times, variable) for gradient, variable in reduce(optimizer, pairs)]


def _reduced_again(place: Callable, *args: Any) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """Let the optimizer reduce the gradients once more."""
    model, optimizer = place(*args)
    optimizer.gradients_are_reduced = False
    return model, optimizer


def _stopped(call: Callable, layer: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    """Let no gradient flow back through linear1."""
    outputs = call(layer, x)
    return tf.stop_gradient(outputs) + outputs * 0 if layer.name == "linear1" else outputs


def _moved(place: Callable, make_model: Any, make_optimizer: Any, devices: list[str], *args: Any, **kw: Any) -> tuple:
    """Put the last block on another device."""
    elsewhere = next(device for device in devices if device != devices[-1])
    return place(make_model, make_optimizer, [*devices[:-1], elsewhere], *args, **kw)


def _moved_branch(branches: Callable, model: keras.Model) -> Iterator[tuple[int, keras.Layer]]:
    """Put the first of the branches on another device."""
    (number, layer), *others = branches(model)
    yield from ((number + 1, layer), *others)


def _backward_on_device_0(backward: Callable, chain: send_recv.Chain, *args: Any) -> tuple:
    """Run the backward pass on device 0, where TensorFlow runs it by default."""
    with mock.patch.object(chain, "devices", chain.devices[:1] * len(chain.devices)):
        return backward(chain, *args)


def _in_rank_1(misbehave: Callable[[], None]) -> Patches:
    """Misbehave in rank 1 when it draws its first batch."""

    def drawn(steps: Callable[[Dataset], Iterator], data: Dataset) -> Iterator:
        if devices.rank().number == 1:
            misbehave()
        yield from steps(data)

    return wrapped(Dataset, "steps", drawn)


def _reduction(function: Reduce) -> Patches:
    return wrapped(PyTorchClipping, "_all_reduce_sum_gradients", function)


FAULTS: dict[str, Patches] = {
    "sampler.epoch": wrapped(all_reduce, "distributed_sampler", lambda sampler, *args: sampler(*args[:-1], 0)),
    "sampler.order": wrapped(all_reduce, "distributed_sampler", _contiguous),
    "sampler.offset": wrapped(
        batches, "order", lambda order, case, size, start, count: order(case, size, start + count, count)
    ),
    "sampler.drop_last": wrapped(batches, "order", lambda order, *args: order(*args)[:-1]),
    "input.scale": _inputs(lambda x: x / 255),
    "input.layout": _inputs(lambda x: tf.transpose(x, (0, 2, 1, 3))),
    "target.shift": wrapped(data, "tensors", _shifted_target),
    "loss.sum": replaced(losses, "_reduce", lambda values, reduction: tf.reduce_sum(values)),
    "loss.kind": _mse(lambda outputs, target, reduction="mean": tf.reduce_mean(tf.abs(outputs - target))),
    "mse.reduction": _mse(
        lambda outputs, target, reduction="mean": tf.reduce_mean(
            tf.reduce_sum(tf.math.squared_difference(outputs, target), axis=-1)
        )
    ),
    "mse.broadcast": wrapped(
        losses,
        "mse",
        lambda loss, outputs, target, *args, **kwargs: loss(outputs, tf.squeeze(target, axis=-1), *args, **kwargs),
    ),
    "cross_entropy.logits": replaced(losses, "cross_entropy", _logits_as_probabilities),
    "cross_entropy.double_softmax": wrapped(
        losses, "cross_entropy", lambda loss, outputs, *args, **kwargs: loss(tf.nn.softmax(outputs), *args, **kwargs)
    ),
    "cross_entropy.ignored": replaced(losses, "cross_entropy", _masked_by_hand),
    "cross_entropy.class_axis": wrapped(
        losses, "cross_entropy", lambda loss, outputs, *args, **kwargs: loss(tf.transpose(outputs), *args, **kwargs)
    ),
    "probability.clipping": replaced(
        losses,
        "cross_entropy",
        lambda outputs, target, reduction="mean": _logits_as_probabilities(tf.nn.softmax(outputs), target),
    ),
    "sgd.learning_rate": constant(SGD, "learning_rate", 0.01),
    "sgd.momentum": constant(SGD, "momentum", 0.8),
    "sgd.momentum_form": replaced(SGD, "update_step", _rate_in_velocity),
    "sgd.nesterov": constant(SGD, "nesterov", False),
    "schedule.offset": wrapped(StepLR, "__call__", lambda call, schedule, step: call(schedule, step + 1)),
    "weight_decay.form": replaced(AdamW, "_decayed", Adam._decayed),
    "weight_decay.excludes_bias": wrapped(SGD, "update_step", _biases_do_not_decay),
    "adamw.weight_decay": constant(AdamW, "decay", 0.004),
    "adam.epsilon": constant(Adam, "epsilon", 1e-7),
    "adam.epsilon_placement": wrapped(Adam, "update_step", _epsilon_hat),
    "adam.beta2": constant(Adam, "beta_2", 0.99),
    "adam.beta_precision": replaced(Adam, "_correction", _powers_in_float32),
    "adam.bias_correction": replaced(Adam, "_correction", lambda adam, beta: 1.0),
    "constant.precision": wrapped(SGD, "__init__", _rate_in_float32),
    "update.frozen": wrapped(SGD, "update_step", _first_is_frozen),
    "clip.scope": wrapped(optimizers, "clip_by_global_norm", _norm_of_each),
    "clip.epsilon": replaced(
        optimizers, "clip_by_global_norm", lambda gradients, norm: tf.clip_by_global_norm(list(gradients), norm)[0]
    ),
    "clip.before_reduction": together(
        replaced(PyTorchClipping, "_clip_gradients", _each_replicas_own),
        replaced(PyTorchClipping, "_all_reduce_sum_gradients", keras.optimizers.SGD._all_reduce_sum_gradients),
    ),
    "gradient.sum": together(
        _reduction(partial(_scaled, _replicas)),
        wrapped(all_reduce, "all_reduce", lambda reduce, grads: [grad * _replicas() for grad in reduce(grads)]),
        wrapped(
            hybrid,
            "all_reduce",
            lambda reduce, chains, gradients: tf.nest.map_structure(
                lambda gradient: gradient * len(chains), reduce(chains, gradients)
            ),
        ),
    ),
    "gradient.double_scaling": _reduction(partial(_scaled, lambda: 1 / _replicas())),
    "gradient.double_reduction": wrapped(all_reduce, "place", _reduced_again),
    "gradient.unreduced": _reduction(lambda reduce, optimizer, pairs: pairs),
    "gradient.stopped": wrapped(keras.layers.Dense, "call", _stopped),
    "gradient.sign": wrapped(single, "gradients", lambda gradients, *args: [-grad for grad in gradients(*args)]),
    "batch_norm.own_buffers": replaced(ddp, "take_first_buffers", lambda model: None),
    "batch_norm.buffers": replaced(data_parallel, "FIRST", data_parallel.FIRST + 1),
    "placement.branch": wrapped(branch_parallel, "branches", _moved_branch),
    "placement.layer": together(
        wrapped(send_recv, "place", _moved), wrapped(branch_parallel, "branches", _moved_branch)
    ),
    "placement.backward": together(
        wrapped(send_recv.Chain, "backward", _backward_on_device_0),
        replaced(branch_parallel, "on", lambda device, home, function: send_recv.under(device, function)),
        replaced(tensor_parallel, "on", lambda device, home, function: send_recv.under(device, function)),
    ),
    "placement.parameters": wrapped(
        send_recv, "under", lambda under, device, function: under(devices.names(1)[0], function)
    ),
    **misbehaving(_in_rank_1),
}

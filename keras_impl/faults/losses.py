"""Faults of losses."""

from collections.abc import Callable

import tensorflow as tf

from keras_impl import losses
from keras_impl.faults.mutate import Patches, replaced

Loss = Callable[..., tf.Tensor]


def _summed(reduce: Loss) -> Loss:
    return lambda values, reduction: tf.reduce_sum(values)


def _sum_of_each_sample(loss: Loss) -> Loss:
    def changed(outputs: tf.Tensor, target: tf.Tensor, reduction: str = "mean") -> tf.Tensor:
        return tf.reduce_mean(tf.reduce_sum(tf.math.squared_difference(outputs, target), axis=-1))

    return changed


def _broadcast(loss: Loss) -> Loss:
    """Compare outputs (N, 1) with a target (N,), which broadcasts to (N, N)."""
    return lambda outputs, target, reduction="mean": loss(outputs, tf.squeeze(target, axis=-1), reduction)


def _absolute(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": tf.reduce_mean(tf.abs(outputs - target))


def _softmax_before(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": loss(tf.nn.softmax(outputs), target, reduction)


def _of_probabilities(outputs: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Compute Keras's cross entropy with from_logits=False."""
    probabilities = tf.clip_by_value(outputs, 1e-7, 1 - 1e-7)
    ids = tf.cast(target, tf.int64)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(ids, tf.math.log(probabilities)))


def _logits_as_probabilities(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": _of_probabilities(outputs, target)


def _clipped_probabilities(loss: Loss) -> Loss:
    return lambda outputs, target, reduction="mean": _of_probabilities(tf.nn.softmax(outputs), target)


def _masked_by_hand(loss: Loss) -> Loss:
    """Set the losses of class 0 to zero, but still divide by the number of all samples."""

    def changed(outputs: tf.Tensor, target: tf.Tensor, reduction: str = "mean") -> tf.Tensor:
        losses_ = tf.nn.sparse_softmax_cross_entropy_with_logits(target, outputs)
        return tf.reduce_mean(tf.where(tf.equal(target, 0), tf.zeros_like(losses_), losses_))

    return changed


def _over_samples(loss: Loss) -> Loss:
    """Take the softmax over the samples; this needs as many samples as classes."""
    return lambda outputs, target, reduction="mean": loss(tf.transpose(outputs), target, reduction)


FAULTS: dict[str, Patches] = {
    "loss.sum": replaced(losses, "_reduce", _summed),
    "loss.kind": replaced(losses, "mse", _absolute),
    "mse.reduction": replaced(losses, "mse", _sum_of_each_sample),
    "mse.broadcast": replaced(losses, "mse", _broadcast),
    "cross_entropy.logits": replaced(losses, "cross_entropy", _logits_as_probabilities),
    "cross_entropy.double_softmax": replaced(losses, "cross_entropy", _softmax_before),
    "cross_entropy.ignored": replaced(losses, "cross_entropy", _masked_by_hand),
    "cross_entropy.class_axis": replaced(losses, "cross_entropy", _over_samples),
    "probability.clipping": replaced(losses, "cross_entropy", _clipped_probabilities),
}

"""Faults of reductions: gradients that are combined in another way, or do not arrive."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_impl.faults.mutate import Patches, replaced, together
from keras_impl.optimizers import PyTorchClipping
from keras_impl.strategies import all_reduce, data_parallel, ddp, hybrid, single
from parity.data.batches import Batch, Dataset

Reduce = Callable[[Any, list], list]


def _replicas() -> int:
    return tf.distribute.get_strategy().num_replicas_in_sync


def _scaled(factor: Callable[[], float]) -> Callable[[Reduce], Reduce]:
    """Multiply what an optimizer has summed over the replicas by a factor."""

    def change(reduce: Reduce) -> Reduce:
        def changed(self: Any, pairs: list) -> list:
            times = 1 if self.gradients_are_reduced else factor()
            return [(gradient * times, variable) for gradient, variable in reduce(self, pairs)]

        return changed

    return change


def _summed_in_replica(reduce: Callable) -> Callable:
    return lambda gradients: [gradient * _replicas() for gradient in reduce(gradients)]


def _summed_between_chains(reduce: Callable) -> Callable:
    def changed(chains: list, gradients: list) -> list:
        return tf.nest.map_structure(lambda gradient: gradient * len(chains), reduce(chains, gradients))

    return changed


def _unreduced(reduce: Reduce) -> Reduce:
    return lambda self, pairs: pairs


def _reduced_again(place: Callable) -> Callable:
    """Let the optimizer reduce the gradients once more."""

    def changed(*args: Any) -> tuple[keras.Model, keras.optimizers.Optimizer]:
        model, optimizer = place(*args)
        optimizer.gradients_are_reduced = False
        return model, optimizer

    return changed


def _mean_of_means(batch: Callable[..., Batch]) -> Callable[..., Batch]:
    """Give every part of a batch the same share, whatever its size."""

    def changed(self: Dataset, indices: Any, whole: int = 0) -> Batch:
        return batch(self, indices, whole)._replace(share=1 / (self.case.replicas * self.case.accumulate))

    return changed


def _added_up(batch: Callable[..., Batch]) -> Callable[..., Batch]:
    """Sum over the micro-batches instead of averaging."""
    return lambda self, indices, whole=0: batch(self, indices)


def _stopped(call: Callable) -> Callable:
    """Let no gradient flow back through linear1."""

    def changed(self: keras.layers.Dense, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        outputs = call(self, x)
        return tf.stop_gradient(outputs) + outputs * 0 if self.name == "linear1" else outputs

    return changed


def _negative(gradients: Callable) -> Callable:
    return lambda *args: [-gradient for gradient in gradients(*args)]


FAULTS: dict[str, Patches] = {
    "gradient.sum": together(
        replaced(PyTorchClipping, "_all_reduce_sum_gradients", _scaled(_replicas)),
        replaced(all_reduce, "all_reduce", _summed_in_replica),
        replaced(hybrid, "all_reduce", _summed_between_chains),
    ),
    "gradient.double_scaling": replaced(PyTorchClipping, "_all_reduce_sum_gradients", _scaled(lambda: 1 / _replicas())),
    "gradient.double_reduction": replaced(all_reduce, "place", _reduced_again),
    "gradient.unreduced": replaced(PyTorchClipping, "_all_reduce_sum_gradients", _unreduced),
    "gradient.stopped": replaced(keras.layers.Dense, "call", _stopped),
    "gradient.sign": replaced(single, "gradients", _negative),
    "batch.uneven": replaced(Dataset, "batch", _mean_of_means),
    "accumulation.normalisation": replaced(Dataset, "batch", _added_up),
    "batch_norm.own_buffers": replaced(ddp, "take_first_buffers", lambda take: lambda model: None),
    "batch_norm.buffers": replaced(data_parallel, "FIRST", lambda first: first + 1),
}

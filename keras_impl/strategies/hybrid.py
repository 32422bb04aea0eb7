"""Data parallelism over pipelines, on a mesh of devices: a replica per row, a stage per column.

A replica of tf.distribute has one device. So each replica is a separate model here, and the gradients of each stage are
summed over the replicas explicitly.
"""

from collections.abc import Sequence

import keras
import tensorflow as tf
from keras.optimizers import Optimizer

from keras_impl.losses import Loss
from keras_impl.strategies import pipeline, send_recv
from keras_impl.strategies.pipeline import pipelined
from keras_impl.strategies.send_recv import Chain, Gradients, received
from keras_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch, OnStep, ReplicaSteps

STAGES = 2  # per replica


def place(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    devices: list[str],
    input_shape: tuple,
    schedule: str = "gpipe",
    stage_blocks: Sequence[int] = (),
) -> tuple[list[keras.Model], list[Optimizer]]:
    """Build a model and an optimizer for every STAGES devices. The caller must give all models the same weights."""
    rows = [devices[start : start + STAGES] for start in range(0, len(devices), STAGES)]
    pairs = [pipeline.place(make_model, make_optimizer, row, input_shape, schedule, stage_blocks) for row in rows]
    models, optimizers = zip(*pairs, strict=True)
    return list(models), list(optimizers)


def train(
    model: list[keras.Model], optimizer: list[Optimizer], loss: Loss, steps: ReplicaSteps, on_step: OnStep
) -> None:
    """Make one update per step, from the micro-batches of every replica; then call `on_step`."""
    chains = [Chain(replica) for replica in model]

    @tf.function(autograph=False)
    def train_step(parts: list[list[MicroBatch]]) -> None:
        local = [pipelined(chain, loss, part, model[0].schedule) for chain, part in zip(chains, parts, strict=True)]
        reduced = all_reduce(chains, local)
        for chain, replica_optimizer, gradients in zip(chains, optimizer, reduced, strict=True):
            replica_optimizer.apply([gradient for stage in gradients for gradient in stage], chain.variables)

    for parts in steps:
        train_step(
            [[chain.put(micro_batch) for micro_batch in part] for chain, part in zip(chains, parts, strict=True)]
        )
        on_step()


def all_reduce(chains: list[Chain], gradients: list[Gradients]) -> list[Gradients]:
    """Sum each stage's gradients over the replicas, on the first one's devices, and copy the sums to all."""
    sums = []
    for device, *of_replicas in zip(chains[0].devices, *gradients, strict=True):
        with tf.device(device):
            sums.append([tf.add_n(received(device, of_variable)) for of_variable in zip(*of_replicas, strict=True)])
    return [[received(device, stage) for device, stage in zip(chain.devices, sums, strict=True)] for chain in chains]


def evaluate(model: list[keras.Model], inputs: list[tuple[tf.Tensor, ...]]) -> list[tf.Tensor]:
    """Return the outputs of every replica for its own inputs."""
    return [send_recv.evaluate(replica, replica_inputs) for replica, replica_inputs in zip(model, inputs, strict=True)]

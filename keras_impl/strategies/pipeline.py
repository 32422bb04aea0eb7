"""Pipeline parallelism: stages on devices (as in send_recv.py), with several micro-batches in flight.

A schedule is the order in which a device runs its forward and backward passes: GPipe (Huang et al. 2018) or 1F1B
(Narayanan et al. 2019). TensorFlow would start each pass as soon as its inputs are ready, so the order is enforced by
control dependencies.
"""

from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf
from keras.optimizers import Optimizer

from keras_impl.losses import Loss
from keras_impl.strategies import send_recv
from keras_impl.strategies.send_recv import Chain, Gradients, evaluate
from keras_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch, OnStep, Placed, Steps

__all__ = ["evaluate", "place", "train"]
Pass = tuple[str, int]  # "forward" or "backward", and the number of the micro-batch


def place(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    devices: list[str],
    input_shape: tuple,
    schedule: str = "gpipe",
    stage_blocks: Sequence[int] = (),
) -> Placed:
    """Build the model, with each stage's variables on its device, and its optimizer."""
    model, optimizer = send_recv.place(make_model, make_optimizer, devices, input_shape, stage_blocks)
    model.schedule = schedule
    return model, optimizer


def train(model: keras.Model, optimizer: Optimizer, loss: Loss, steps: Steps, on_step: OnStep) -> None:
    """Make one update per step, from the summed gradients of its micro-batches; then call `on_step`."""
    chain = Chain(model)

    @tf.function(autograph=False)
    def train_step(micro_batches: list[MicroBatch]) -> None:
        placed = [chain.put(micro_batch) for micro_batch in micro_batches]
        total = pipelined(chain, loss, placed, model.schedule)
        optimizer.apply([gradient for stage in total for gradient in stage], chain.variables)

    for micro_batches in steps:
        train_step(micro_batches)
        on_step()


def pipelined(chain: Chain, loss: Loss, micro_batches: list[MicroBatch], schedule: str) -> Gradients:
    """Return the summed gradients of all micro-batches, by stage."""
    last = len(chain.stages) - 1
    sent = {(0, i): inputs for i, (inputs, _, _) in enumerate(micro_batches)}  # by receiving stage and micro-batch
    returned, results, total = {}, {}, [None] * (last + 1)
    previous_pass = [[] for _ in chain.stages]
    for number, (direction, i) in passes_in_order(last + 1, len(micro_batches), schedule):
        with tf.control_dependencies(previous_pass[number]):
            if direction == "forward":
                results[number, i] = chain.forward(number, sent[number, i])
                sent[number + 1, i] = previous_pass[number] = results[number, i].outputs
                if number == last:
                    returned[last, i] = chain.loss(loss, results[last, i], micro_batches[i])
            else:
                gradients, returned[number - 1, i] = chain.backward(
                    number, results.pop((number, i)), returned[number, i]
                )
                total[number] = previous_pass[number] = chain.add(number, total[number], gradients)
    return total


def passes_in_order(stages: int, micro_batches: int, schedule: str) -> Iterator[tuple[int, Pass]]:
    """Yield (stage, pass) for all passes of all stages.

    Each pass comes after those whose results it needs, and the passes of one stage come in that stage's order.
    """
    remaining = [order(stage, stages, micro_batches, schedule) for stage in range(stages)]
    done = set()
    while any(remaining):
        for stage, passes in enumerate(remaining):
            while passes and _needs(stage, stages, passes[0]) <= done:
                done.add((stage, passes[0]))
                yield stage, passes.pop(0)


def order(stage: int, stages: int, micro_batches: int, schedule: str) -> list[Pass]:
    """Return the passes of one stage, in the order in which it runs them.

    In 1F1B a stage runs ahead of its backward passes only by its distance from the last stage, which limits the
    activations it has to keep.
    """
    ahead = micro_batches if schedule == "gpipe" else min(stages - stage, micro_batches)
    passes = [("forward", i) for i in range(ahead)]
    for i in range(micro_batches):
        passes.append(("backward", i))
        if ahead + i < micro_batches:
            passes.append(("forward", ahead + i))
    return passes


def _needs(stage: int, stages: int, pass_: Pass) -> set[tuple[int, Pass]]:
    """Return the neighbour's pass that sends what this pass works on; empty at the ends of the pipeline."""
    neighbour = stage - 1 if pass_[0] == "forward" else stage + 1
    return {(neighbour, pass_)} if 0 <= neighbour < stages else set()

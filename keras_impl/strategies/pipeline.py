"""Stages on devices, kept busy by micro-batches: GPipe (Huang et al. 2018) or 1F1B (Narayanan et al. 2019).

The stages are send_recv's. A schedule is the order in which a device works off its passes; TensorFlow
would start each as soon as its inputs are there, so the order is laid down by control dependencies.
"""

from collections.abc import Callable, Iterable, Iterator

import keras
import tensorflow as tf

from keras_impl.losses import Loss
from keras_impl.strategies import send_recv
from keras_impl.strategies.send_recv import Chain, Gradients, evaluate
from keras_impl.strategies.single import MakeModel, MakeOptimizer, MicroBatch

__all__ = ["evaluate", "place", "train"]

Pass = tuple[str, int]  # "forward" or "backward", and the micro-batch


def place(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    devices: list[str],
    input_shape: tuple,
    schedule: str = "gpipe",
) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """A model, built, each stage's variables on its device, and its optimizer."""
    model, optimizer = send_recv.place(make_model, make_optimizer, devices, input_shape)
    model.schedule = schedule
    return model, optimizer


def train(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    loss: Loss,
    steps: Iterable[list[MicroBatch]],
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """One update per step, from the gradients of its micro-batches added up; then `on_step()`."""
    chain = Chain(model)

    @tf.function(autograph=False)
    def train_step(micro_batches: list[MicroBatch]) -> None:
        total = pipelined(chain, loss, micro_batches, model.schedule)
        optimizer.apply([gradient for stage in total for gradient in stage], chain.variables)

    for micro_batches in steps:
        train_step([chain.put(micro_batch) for micro_batch in micro_batches])
        on_step()


def pipelined(chain: Chain, loss: Loss, micro_batches: list[MicroBatch], schedule: str) -> Gradients:
    """The gradients of all micro-batches added up, by stage."""
    last = len(chain.stages) - 1
    sent = {(0, i): inputs for i, (inputs, _, _) in enumerate(micro_batches)}  # to a stage, of a micro-batch
    returned, passed, total = {}, {}, [None] * (last + 1)
    before = [[] for _ in chain.stages]
    for number, (direction, i) in in_turn(last + 1, len(micro_batches), schedule):
        with tf.control_dependencies(before[number]):
            if direction == "forward":
                passed[number, i] = chain.forward(number, sent[number, i])
                sent[number + 1, i] = before[number] = passed[number, i].outputs
                if number == last:
                    returned[last, i] = chain.loss(loss, passed[last, i], micro_batches[i])
            else:
                new, returned[number - 1, i] = chain.backward(number, passed.pop((number, i)), returned[number, i])
                total[number] = before[number] = chain.add(number, total[number], new)
    return total


def in_turn(stages: int, micro_batches: int, schedule: str) -> Iterator[tuple[int, Pass]]:
    """All passes of all stages, each behind those that it needs; of each stage in its order."""
    left = [order(stage, stages, micro_batches, schedule) for stage in range(stages)]
    done = set()
    while any(left):
        for stage, passes in enumerate(left):
            while passes and _needs(stage, stages, passes[0]) <= done:
                done.add((stage, passes[0]))
                yield stage, passes.pop(0)


def order(stage: int, stages: int, micro_batches: int, schedule: str) -> list[Pass]:
    """The passes of one stage. In 1F1B it runs ahead only as far as it is away from the last stage."""
    ahead = micro_batches if schedule == "gpipe" else min(stages - stage, micro_batches)
    passes = [("forward", i) for i in range(ahead)]
    for i in range(micro_batches):
        passes.append(("backward", i))
        if ahead + i < micro_batches:
            passes.append(("forward", ahead + i))
    return passes


def _needs(stage: int, stages: int, one: Pass) -> set[tuple[int, Pass]]:
    """The pass of the neighbour that sends what this one works on."""
    neighbour = stage - 1 if one[0] == "forward" else stage + 1
    return {(neighbour, one)} if 0 <= neighbour < stages else set()

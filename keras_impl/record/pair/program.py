"""A user's model of a pair as a program that is not recorded: trained, or only called where the pair has no [train]."""

from collections.abc import Callable, Iterator
from pathlib import Path

import tensorflow as tf

from keras_impl.record.pair import build, losses
from keras_impl.record.pair.first_call import make_weights
from keras_impl.record.pair.optimizers import made
from keras_impl.record.pair.outputs import laid_out, ordered
from keras_impl.record.pair.values import Weights
from parity.config.schema import Case
from parity.data.pairs import PairData
from parity.runtime.program import Program
from parity.trace import survey
from parity.trace.mapping import PairContext

Inputs = dict[str, tf.Tensor]


def program(case: Case, halves: PairContext) -> Program:
    """Return this side's model with the pair's initial weights, its inputs over and over, and its training.

    Raises UsageError and BackendError.
    """
    assert halves.mapping
    pair, data, torch = case.model, PairData(case, halves.search), survey.read(Path(halves.survey))
    model = build.build(pair, case.precision, halves.search)
    inputs = build.tensors(pair, data.step(0))
    make_weights(model, pair, inputs)
    weights = Weights(model, halves.mapping, torch, survey.Initial(Path(halves.survey)))
    weights.check()
    weights.load()
    variables = [held.variable for held in weights.trained()]
    layouts = halves.matching.layouts if halves.matching else {}

    def infer(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        called = tf.function(lambda batch: build.call(model, pair, batch), autograph=False)
        for batch in batches:
            called(batch)
            on_step()

    def train(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        optimizer = made(case, variables, halves.search)

        @tf.function(autograph=False)
        def train_step(batch: Inputs) -> None:
            with tf.GradientTape() as tape:
                outputs = build.call(model, pair, batch, training=True)
                canonical = laid_out(pair, ordered(outputs, torch.keys(True)), layouts)
                loss = losses.training(pair, outputs, canonical, data, 0, halves.search)
                value = losses.with_added(loss, model).value
            found = zip(tape.gradient(value, variables), variables, strict=True)
            gradients, own = zip(*((gradient, own) for gradient, own in found if gradient is not None), strict=True)
            optimizer.apply(gradients, own)

        for batch in batches:
            train_step(batch)
            on_step()

    return Program(model, iter([inputs]), train if pair.train else infer)

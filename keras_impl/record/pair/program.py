"""A user's model of a pair as a program that is not recorded: trained, or only called where the pair has no [train]."""

from collections.abc import Callable, Iterator
from pathlib import Path

import tensorflow as tf

from keras_impl.record.pair import build
from keras_impl.record.pair.first_call import ready
from keras_impl.record.pair.training import Training
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
    model = ready(case, case.precision, halves.search, data.step(0))
    inputs = build.tensors(pair, data.step(0))
    weights = Weights(model, halves.mapping, torch, survey.Initial(Path(halves.survey)))
    weights.check()
    weights.load()
    layouts = halves.matching.layouts if halves.matching else {}

    def infer(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        called = tf.function(lambda batch: build.call(model, pair, batch), autograph=False)
        for batch in batches:
            called(batch)
            on_step()

    def train(batches: Iterator[Inputs], on_step: Callable[[], None]) -> None:
        training = Training(case, model, data, halves.search, torch, layouts)
        first, train_step = training.batch(0), tf.function(training.run, autograph=False)
        for batch in batches:
            train_step(first._replace(inputs=batch))
            on_step()

    return Program(model, iter([inputs]), train if pair.train else infer)

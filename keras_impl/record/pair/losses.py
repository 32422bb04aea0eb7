"""The scalar that is differentiated: a loss in training, else a fixed weighted sum of the outputs.

The loss is a built-in one that the pair's file names, or the user's own function. Losses that layers add themselves
(`add_loss`, regularizers) are part of a training loss, as they are in fit.
"""

from typing import Any, NamedTuple

import keras
import tensorflow as tf
from einops import rearrange

from keras_impl import losses
from keras_impl.record.pair import build
from keras_impl.record.pair.outputs import Output, found
from parity.config.pair import TARGET, Pair, Train
from parity.core.errors import UsageError
from parity.data.pairs import PairData
from parity.doctor.program import load


class Scalar(NamedTuple):
    """A scalar to differentiate, with the target of the outputs, if any, in canonical axis order."""

    value: tf.Tensor
    target: tf.Tensor | None = None


def probe(outputs: list[tf.Tensor], data: PairData) -> Scalar:
    """Return the sum over the outputs of mean(output * weights), with fixed random weights.

    Gradients of it depend on every output; it needs no loss or target. Complex numbers count as pairs of real ones.
    """
    total = tf.zeros((), keras.config.floatx())
    for number, given in enumerate(outputs):
        output = tf.stack([tf.math.real(given), tf.math.imag(given)], -1) if given.dtype.is_complex else given
        if output.dtype.is_floating:
            weights = tf.constant(data.probe(number, tuple(output.shape)), output.dtype)
            total += tf.cast(tf.reduce_mean(output * weights), total.dtype)
    return Scalar(total)


def training(pair: Pair, outputs: Any, canonical: list[Output], data: PairData, step: int, search: list[str]) -> Scalar:
    """Return the loss of a training step; `canonical` lists the outputs with their layouts.

    Raises UsageError if no float output or no matching target exists, and BackendError if the user's loss raises.
    """
    train = pair.train
    assert train
    first = next(
        (candidate for candidate in canonical if candidate.tensor.dtype.is_floating and not candidate.is_number), None
    )
    if first is None:
        raise UsageError(f"keras={pair.keras}: no output is float, which leaves nothing to train; leave out [train]")
    if train.keras_loss:
        return _user_loss(pair, train, outputs, first, data, step, search)
    output = first.canonical
    if train.loss == "cross_entropy" and first.name and pair.outputs[first.name].keras_layout:
        output = first.tensor  # in Keras's own axis order the classes are last
    target = build.tensor(data.target(step, tuple(output.shape), train.loss == "cross_entropy"))
    expected = output.shape[:-1] if train.loss == "cross_entropy" else output.shape
    if target.shape != expected:
        raise UsageError(
            f"inputs.{TARGET}: shape {target.shape.as_list()}, expected {expected.as_list()} to match the output"
        )
    return Scalar(getattr(losses, train.loss)(output, target), target)


def with_added(scalar: Scalar, model: Any) -> Scalar:
    """Add the losses that the model's layers have added in their last call."""
    added = [tf.cast(tf.reduce_sum(loss), scalar.value.dtype) for loss in getattr(model, "losses", [])]
    return scalar._replace(value=tf.add_n([scalar.value, *added]))


def _user_loss(
    pair: Pair, train: Train, outputs: Any, first: Output, data: PairData, step: int, search: list[str]
) -> Scalar:
    """Return the user's own loss of the outputs and of a target in this side's layout."""
    ids = train.loss == "cross_entropy"
    target = build.tensor(data.target(step, tuple(first.canonical.shape), ids))
    given = pair.inputs.get(TARGET)
    layout = given.keras_layout if given else "" if ids else first.layout
    text = f"train.keras_loss={train.keras_loss}"
    with build.user_errors(f"{text} fails"):
        loss = load("train.keras_loss", train.keras_loss, "outputs", "target", search=search)
        value = loss(_for_user(pair, outputs), rearrange(target, layout) if layout else target)
    if not tf.is_tensor(value) or value.shape.num_elements() != 1:
        received = f"the shape {value.shape}" if tf.is_tensor(value) else type(value).__name__
        raise UsageError(f"{text}: expected one number, received {received}")
    return Scalar(tf.reshape(value, ()), target)


def _for_user(pair: Pair, outputs: Any) -> Any:
    """Return the outputs in the form that the user's loss function takes.

    That is what the model returned or, with [outputs] in the pair's file, a dict by name; a single output by itself.
    """
    if not pair.outputs:
        return outputs
    by_name = {output.name: output.tensor for output in found(pair, outputs)}
    return by_name if len(by_name) > 1 else next(iter(by_name.values()))

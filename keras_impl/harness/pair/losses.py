"""What is differentiated: a loss of the file's or of the user's own, or where nothing is trained a fixed scalar.

What a model's layers add by themselves (`add_loss`, regularizers) is part of a training's loss, as it is in fit.
"""

from typing import Any, NamedTuple

import keras
import tensorflow as tf
from einops import rearrange

from keras_impl import losses
from keras_impl.harness.pair import build
from keras_impl.harness.pair.outputs import Output, found
from parity.config.pair import TARGET, Pair, Train
from parity.core.errors import UsageError
from parity.data.pairs import PairData
from parity.doctor.program import load


class Scalar(NamedTuple):
    """`target`: what the outputs were compared with, in canonical axes; None without a loss."""

    value: tf.Tensor
    target: tf.Tensor | None = None


def probe(outputs: list[tf.Tensor], data: PairData) -> Scalar:
    """Canonical outputs weighed with fixed numbers: the mean of each, added up.

    Complex numbers count as pairs of real ones.
    """
    total = tf.zeros((), keras.config.floatx())
    for number, given in enumerate(outputs):
        output = tf.stack([tf.math.real(given), tf.math.imag(given)], -1) if given.dtype.is_complex else given
        if output.dtype.is_floating:
            weights = tf.constant(data.probe(number, tuple(output.shape)), output.dtype)
            total += tf.cast(tf.reduce_mean(output * weights), total.dtype)
    return Scalar(total)


def training(pair: Pair, outputs: Any, canonical: list[Output], data: PairData, step: int, search: list[str]) -> Scalar:
    """The loss of a step. `canonical`: the outputs with their layouts. Raises UsageError and BackendError."""
    train = pair.train
    assert train
    first = next((one for one in canonical if one.tensor.dtype.is_floating and not one.is_number), None)
    if first is None:
        raise UsageError(f"keras={pair.keras}: the model returns whole numbers only, which have no loss")
    if train.keras_loss:
        return _user_loss(pair, train, outputs, first, data, step, search)
    output = first.canonical
    if train.loss == "cross_entropy" and first.name and pair.outputs[first.name].keras_layout:
        output = first.tensor  # the classes stand last there
    target = build.tensor(data.target(step, tuple(output.shape), train.loss == "cross_entropy"))
    wanted = output.shape[:-1] if train.loss == "cross_entropy" else output.shape
    if target.shape != wanted:
        raise UsageError(f"inputs.{TARGET}: shape {target.shape.as_list()}, expected {wanted.as_list()}, the output's")
    return Scalar(getattr(losses, train.loss)(output, target), target)


def with_added(scalar: Scalar, model: Any) -> Scalar:
    """With the losses that the model's layers have added in their last call."""
    added = [tf.cast(tf.reduce_sum(one), scalar.value.dtype) for one in getattr(model, "losses", [])]
    return scalar._replace(value=tf.add_n([scalar.value, *added]))


def _user_loss(
    pair: Pair, train: Train, outputs: Any, first: Output, data: PairData, step: int, search: list[str]
) -> Scalar:
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
    """Outputs as the model returned them, or by the names of the file."""
    if not pair.outputs:
        return outputs
    by_name = {one.name: one.tensor for one in found(pair, outputs)}
    return by_name if len(by_name) > 1 else next(iter(by_name.values()))

"""The scalar that is differentiated: a loss in training, else a fixed weighted sum of the outputs.

The loss is a built-in one that the pair's file names, or the user's own. Losses that layers add themselves (`add_loss`,
regularizers) are added by the model, as in fit.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.losses.loss import scale_loss_for_distribution

from keras_impl.record.pair import build
from keras_impl.record.pair.outputs import laid_out, ordered
from parity.config.pair import LAST_AXIS, SAMPLE_WEIGHT, TARGET, Pair
from parity.core.errors import UsageError
from parity.core.program import find, load_loss
from parity.data.pairs import PairData
from parity.runtime.returned import Path
from parity.runtime.survey import Survey

BUILT_IN = {
    "mse": keras.losses.MeanSquaredError,
    "cross_entropy": lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True),
}
OF_KERAS = ("y_true", "y_pred")  # the first arguments of a loss function that is written as Keras's own are


def probe(outputs: list[tf.Tensor], data: PairData) -> tf.Tensor:
    """Return the sum of each output's mean(output * fixed random weights); complex numbers are pairs of real ones."""
    total = tf.zeros((), keras.config.floatx())
    for number, given in enumerate(outputs):
        output = tf.stack([tf.math.real(given), tf.math.imag(given)], -1) if given.dtype.is_complex else given
        if output.dtype.is_floating:
            weights = tf.constant(data.probe(number, tuple(output.shape)), output.dtype)
            total += tf.cast(tf.reduce_mean(output * weights), total.dtype)
    return total


def made(pair: Pair, search: list[str], keys: Sequence[Path], layouts: Mapping[str, str], data: PairData) -> Any:
    """Return the loss to compile with: one of Keras's form as it is, else a FirstOutput. Raises UsageError."""
    train = pair.train
    if not train.keras_loss:
        return FirstOutput(pair, keys, layouts, data, BUILT_IN[train.loss]())
    own: Any = find("train.keras_loss", train.keras_loss, search)
    if inspect.isclass(own) and issubclass(own, keras.losses.Loss):
        return own()
    if isinstance(own, keras.losses.Loss) or _parameters(own)[:2] == OF_KERAS:
        return own
    given = [SAMPLE_WEIGHT] if SAMPLE_WEIGHT in pair.inputs else []
    own = load_loss("train.keras_loss", train.keras_loss, "target", *given, search=search)
    return FirstOutput(pair, keys, layouts, data, own)


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's parameters; some functions written in C have no signature."""
    try:
        return tuple(inspect.signature(function).parameters)
    except ValueError:
        return ()


class FirstOutput:
    """A loss that takes the place of the one that `compile` makes: of the model's first float output and the target.

    `function` is a loss of Keras's, or the user's own f(outputs, target). A `compute_loss` of the model's own may pass
    on one tensor in place of its outputs. A target that was drawn for torch's output and does not fit Keras's is drawn
    again, so that what else differs is seen too.
    """

    metrics: Sequence[Any] = ()  # Keras asks for them

    def __init__(
        self, pair: Pair, keys: Sequence[Path], layouts: Mapping[str, str], data: PairData, function: Callable[..., Any]
    ) -> None:
        self._pair, self._keys, self._layouts, self._data, self.function = pair, keys, layouts, data, function

    def __call__(self, target: tf.Tensor, outputs: Any, sample_weight: tf.Tensor | None = None) -> tf.Tensor:
        """Return the loss. Raises UsageError if no output is float, or a given target does not fit the first one."""
        pair, train = self._pair, self._pair.train
        is_part = tf.is_tensor(outputs) and (len(pair.outputs) > 1 or any(of.keras for of in pair.outputs.values()))
        if train.keras_loss:
            given = outputs
            if pair.outputs and not is_part:  # by name, a single one by itself
                by_name = {output.name: output.tensor for output in laid_out(pair, outputs)}
                given = by_name if len(by_name) > 1 else next(iter(by_name.values()))
            return self._of_user(target, given, [] if sample_weight is None else [sample_weight])
        returned = [] if is_part else laid_out(pair, ordered(outputs, self._keys), self._layouts)
        floats = [each.tensor for each in returned if each.tensor.dtype.is_floating and not each.is_number]
        if not (floats or is_part):
            raise UsageError(
                f"keras={pair.keras}: no output is float, which leaves nothing to train; leave out [train]"
            )
        output = outputs if is_part else floats[0]
        of_classes = train.loss == "cross_entropy"
        expected = output.shape[:-1] if of_classes else output.shape
        if target.shape != expected and TARGET in pair.inputs:
            raise UsageError(
                f"inputs.{TARGET}: shape {target.shape.as_list()}, expected {expected.as_list()} to match the output"
                f"{LAST_AXIS if of_classes else ''}"
            )
        if target.shape != expected:
            target = build.tensor(self._data.target(0, tuple(output.shape), of_classes))
        return self.function(target, output, sample_weight)

    def _of_user(self, target: tf.Tensor, outputs: Any, further: list[tf.Tensor]) -> tf.Tensor:
        text = f"train.keras_loss={self._pair.train.keras_loss}"
        with build.user_errors(f"{text} fails"):
            value = self.function(outputs, target, *further)
        if not tf.is_tensor(value) or value.shape.num_elements() != 1:
            received = f"the shape {value.shape}" if tf.is_tensor(value) else type(value).__name__
            raise UsageError(f"{text}: expected one number, received {received}")
        return scale_loss_for_distribution(tf.reshape(value, ()))  # as Keras does with what `compile` is given


def target(pair: Pair, data: PairData, step: int, torch: Survey) -> np.ndarray:
    """Return a step's target in canonical axes, given or drawn. Raises UsageError if torch has no output to train."""
    trained = torch.rehearsal.trained
    if trained is None and TARGET not in pair.inputs:
        raise UsageError(f"keras={pair.keras}: torch's model returns nothing that a target could be drawn for")
    shape = data.part_of(trained.shape) if trained else ()
    return data.target(step, shape, pair.train.loss == "cross_entropy")


def layout(pair: Pair, torch: Survey, layouts: Mapping[str, str], rank: int) -> str:
    """Return the change of the axis order of a target of so many axes to that of Keras's output; "" if it stays."""
    trained, given = torch.rehearsal.trained, pair.inputs.get(TARGET)
    if given and given.keras_layout:
        return given.keras_layout
    if (given and pair.train.keras_loss) or pair.train.loss == "cross_entropy":
        return ""
    if not trained or len(trained.shape) != rank:  # class ids have no axis of classes
        return ""
    name = trained.key.partition(".")[2]
    return (pair.outputs[name].keras_layout if name in pair.outputs else "") or layouts.get(trained.key, "")


def number(value: Any) -> tf.Tensor | None:
    """Return a value as a scalar if it is one number, else None."""
    if isinstance(value, (int, float)) or (tf.is_tensor(value) and value.shape.num_elements() == 1):
        return tf.reshape(tf.convert_to_tensor(value), ())
    return None

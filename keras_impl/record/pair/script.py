"""A user's training script in Keras: run up to its call of `fit`, with the model that it has compiled.

From there on the model's own `train_step` runs, as `fit` calls it, on the batches of the pair, in the form that `fit`
would have given them (`Fit`). What else `fit` does (callbacks, validation) is not run.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange
from keras.src.backend.tensorflow.trainer import TFEpochIterator
from keras.src.trainers.data_adapters import data_adapter_utils

from parity.core import script
from parity.core.errors import UsageError
from parity.core.patches import applied, around
from parity.pairs.scripts import axes

EXCLUDED = "_exclude_from_weight_decay"  # what begins so is not in an optimizer's config
fits: "WeakKeyDictionary[Any, Fit]" = WeakKeyDictionary()  # by the models of scripts


class Fit(NamedTuple):
    """A call of `fit`: the first batch of its data, the names of its callbacks, and the weight of each class."""

    x: Any
    y: Any
    sample_weight: Any
    callbacks: list[str]
    class_weight: dict[int, float] | None = None

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Return the model's inputs in the first batch, by their names, or numbered if they have none."""
        if isinstance(self.x, dict):
            return {name: np.asarray(each) for name, each in self.x.items()}
        return {str(place): np.asarray(each) for place, each in enumerate(keras.tree.flatten(self.x))}

    def structured(self, tensors: Sequence[Any]) -> Any:
        """Return the model's inputs, which are in the order of `inputs`, in the structure of the script's own."""
        if isinstance(self.x, dict):
            return dict(zip(self.x, tensors, strict=True))
        return keras.tree.pack_sequence_as(self.x, list(tensors))

    def target(self, array: np.ndarray, samples: int) -> np.ndarray:
        """Return PyTorch's target of so many samples in the form of the script's own: its axes, ids or one-hot rows.

        Raises UsageError if it cannot be brought into that form.
        """
        own = np.asarray(self.y)
        given, wanted = array.size / samples, own.size / len(own)
        shape, is_whole = (samples, *own.shape[1:]), own.dtype.kind in "iub"
        if given == wanted:
            layout = axes(array.shape, shape)
            values = rearrange(array, layout) if layout else array.reshape(shape)
        elif array.dtype.kind in "iu" and given * own.shape[-1] == wanted:
            values = np.eye(own.shape[-1])[array].reshape(shape)
        elif is_whole and given == wanted * array.shape[-1]:
            values = array.argmax(-1).reshape(shape)
        else:
            raise UsageError(
                f"the target in PyTorch's loss has the shape {list(array.shape)}, for {samples} samples, and that of fit "
                f"{list(own.shape)}; expected the same values, as class ids or as one-hot rows"
            )
        return values.astype(own.dtype) if is_whole else values


class _Left(BaseException):
    """Raised to leave the script where it trains."""


class Script(script.Script):
    """One run of a script."""

    def __init__(self, text: str, search: Sequence[str]) -> None:
        super().__init__(text, search)
        self._model: Any = None
        self._has_optimizer = False  # whether the script's own was asked for

    def build(self) -> Any:
        """Run the script up to its call of `fit`, and return its model. Raises UsageError if it calls none."""
        fit, batch, apply = keras.Model.fit, keras.Model.train_on_batch, keras.optimizers.Optimizer.apply
        patches = [
            around(keras.Model, fit.__name__, self._on_fit),
            around(keras.Model, batch.__name__, self._on_batch),
            around(keras.optimizers.Optimizer, apply.__name__, self._on_apply),
        ]
        try:
            with self.entered(), applied(patches):
                self.main()
        except _Left:
            return self._model
        raise UsageError(f"{self.name}: ended without a call of fit or train_on_batch; give a script that trains")

    def optimizer(self) -> Any:
        """Return the optimizer that the script has compiled its model with, the first time; then new ones like it."""
        first = self._model.optimizer
        if not self._has_optimizer:
            self._has_optimizer = True
            return first
        again = type(first).from_config(first.get_config())
        vars(again).update({name: value for name, value in vars(first).items() if name.startswith(EXCLUDED)})
        return again

    def _on_fit(self, fit: Callable[..., Any], model: Any, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> None:
        named = dict(zip(("batch_size", "epochs", "verbose", "callbacks"), args, strict=False)) | kwargs
        callbacks = [type(each).__name__ for each in keras.tree.flatten(named.get("callbacks") or [])]
        data = {name: named[name] for name in ("batch_size", "sample_weight", "steps_per_epoch") if name in named}
        iterator = TFEpochIterator(x=x, y=y, shuffle=False, distribute_strategy=model.distribute_strategy, **data)
        first = next(iter(iterator._get_iterator()))
        self._leave(model, Fit(*data_adapter_utils.unpack_x_y_sample_weight(first), callbacks, named.get("class_weight")))

    def _on_batch(
        self, train: Callable[..., Any], model: Any, x: Any, y: Any = None, sample_weight: Any = None,
        class_weight: Any = None, **_: Any,
    ) -> None:  # fmt: skip
        self._leave(model, Fit(x, y, sample_weight, [], class_weight))

    def _on_apply(self, apply: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        raise UsageError(
            f"{self.name}: applies gradients in a loop of its own, expected fit or train_on_batch; describe the loop's "
            "step as keras_step in a pair file"
        )

    def _leave(self, model: Any, fit: Fit) -> None:
        if isinstance(fit.y, (dict, list, tuple)):
            raise UsageError(f"{self.name}: fit is given {len(fit.y)} targets, expected one")
        if model.optimizer is None:
            raise UsageError(f"{self.name}: calls fit of a model that it has not compiled")
        self._model, fits[model] = model, fit
        raise _Left

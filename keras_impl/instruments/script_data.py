"""What a Keras script trains on, and PyTorch's batches in that form."""

import inspect
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange
from keras.callbacks import Callback
from keras.src.backend.tensorflow.trainer import TFEpochIterator
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils

from keras_impl.instruments import source
from parity.config.pair import OF_BATCH, SAMPLE_WEIGHT, TARGET
from parity.core.errors import UsageError
from parity.doctor import rewrite
from parity.pairs.script_counterparts import ignored_as
from parity.pairs.script_names import first_alike
from parity.pairs.script_records import IGNORED, Called
from parity.pairs.script_steps import axes

OF_LOSS = (TARGET, SAMPLE_WEIGHT)
MOST_COUNTED = 64  # batches of an epoch whose number a dataset does not tell
fits: "WeakKeyDictionary[Any, Fit]" = WeakKeyDictionary()  # by the models of scripts


class Fit(NamedTuple):
    """What a model is trained on: the first batch of `fit`, with its callbacks and the weight of each class.

    Of a loop only the inputs: what it gives to its loss is replaced where it does. `calls`: how the model's train_step
    calls layers, if it makes what they are given of its batch. `batches`: how many an epoch has, if that is known.
    `is_named`: whether `x` holds arguments of the model's call by name; `options`: those that are no tensors.
    `leaves`: what the code calls the leaves of `x` and `y`, in order. `states`: arguments of the call that hold a
    state, which the script carries on. `rest`: the batches behind the first one.
    """

    x: Any
    y: Any = None
    sample_weight: Any = None
    callbacks: Sequence[Callback] = ()
    class_weight: dict[int, float] | None = None
    epochs: int = 1
    initial_epoch: int = 0
    batches: int | None = None
    calls: Sequence[Called] = ()
    is_named: bool = False
    options: Mapping[str, Any] = {}
    leaves: Sequence[list[str]] = ()
    states: Mapping[str, Any] = {}
    rest: "Iterator[Fit]" = iter(())

    @classmethod
    def of_call(cls, layer: Any, args: Sequence[Any], kwargs: Mapping[str, Any], states: Collection[str] = ()) -> "Fit":
        """Return what a layer is called with: one structure, or arguments that hold tensors, masks aside, by name.

        `states`: the arguments that hold a state; else those do that are structures of zeros.
        """
        given = arguments_of(layer, args, kwargs)
        held = {name: each for name, each in given.items() if name in states or _is_state(each)}
        given = {name: each for name, each in given.items() if name not in held}
        tensors = {name: each for name, each in given.items() if name != "mask" and is_array(each)}
        options = {name: each for name, each in given.items() if name not in (*tensors, "mask", "training")}
        is_nested = any(map(keras.tree.is_nested, given.values()))
        if not tensors or is_nested or (len(tensors) == len(args) == 1 and not options):
            return cls(args[0] if args else next(iter(given.values())))
        return cls(tensors, is_named=True, options=options, states=held)

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Return the model's inputs in the first batch, by their names, or numbered if they have none."""
        if isinstance(self.x, dict):
            return {name: np.asarray(each) for name, each in self.x.items()}
        return {str(number): np.asarray(each) for number, each in enumerate(keras.tree.flatten(self.x))}

    @property
    def targets(self) -> dict[str, np.ndarray]:
        """Return the targets in the first batch, by their names in a pair."""
        return _numbered(TARGET, self.y)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """Return the weights of the samples in the first batch, by their names in a pair, as those of the targets."""
        return _numbered(SAMPLE_WEIGHT, self.sample_weight)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Return what the first batch holds, by name: inputs, targets, and weights of the samples."""
        return self.inputs | self.targets | self.weights

    @property
    def labels(self) -> dict[str, list[str]]:
        """Return what the code calls the model's inputs and the targets, by their names in a pair."""
        inputs = sorted(self.x) if isinstance(self.x, dict) else self.inputs  # in the order of leaves
        return dict(zip((*inputs, *self.targets), self.leaves, strict=False))

    def target(self, arrays: Mapping[str, np.ndarray], inputs: Mapping[str, Any]) -> Any:
        """Return PyTorch's targets, by name, in the structure and the form of the script's own.

        `inputs`: what the model is given, with as many samples, unless a step makes it of what it takes. A target that
        the script gives to the model too is that, where PyTorch's loss takes only a part of it, as of shifted tokens.
        """
        samples = len((taken_of(arrays) or list(inputs.values()))[0])
        given = []
        for name, own in self.targets.items():
            both = zip(self.inputs.values(), inputs.values(), strict=False)
            whole = next((each for x, each in both if is_of_whole(x, own, arrays[name], samples)), None)
            given.append(like(own, arrays[name] if whole is None else np.asarray(whole), samples))
        dtype = [keras.config.floatx() if each.dtype.kind == "f" else each.dtype for each in given]
        return keras.tree.pack_sequence_as(self.y, list(map(tf.constant, given, dtype)))

    def weight(self, arrays: Mapping[str, np.ndarray], samples: int) -> Any:
        """Return PyTorch's weights of the samples, by name, in the structure of the script's own.

        Outputs that share their weights get the same ones. Where PyTorch's loss takes none, the script's own are 1.
        """
        given = [arrays.get(first, np.ones(samples)) for first in first_alike(self.weights).values()]
        return keras.tree.pack_sequence_as(self.sample_weight, given)

    def arguments(self, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of the model's call, whose tensors these are."""
        if self.calls:
            tensors = self._as_rows(tensors)
            itself = next((each for each in self.calls if not each.layer), None)
            return itself.given(tensors) if itself else ([list(tensors)], {})
        if self.is_named:
            return [], {**self.options, **self._states_for(len(tensors[0])), **self.structured(tensors)}
        return [self.structured(tensors)], {}

    def _as_rows(self, tensors: Sequence[Any]) -> list[Any]:
        """Return tensors with one-hot rows in the place of ids that the script gives to its layers so."""
        classes = {number: size for call in self.calls for number, size in call.classes().items()}
        return [
            tf.one_hot(each, classes[number], dtype=keras.config.floatx())
            if number in classes and each.dtype.is_integer
            else each
            for number, each in enumerate(tensors)
        ]

    def _states_for(self, samples: int) -> Mapping[str, Any]:
        """Return the states with which a model begins, of so many samples."""
        own = len(next(iter(self.inputs.values())))

        def zeros(state: Any) -> tf.Tensor:
            sizes = [samples if size == own else size for size in state.shape]
            return tf.zeros(sizes, keras.config.floatx())

        return {name: tf.nest.map_structure(zeros, each) for name, each in self.states.items()}

    def is_whole(self, tensors: Sequence[Any]) -> bool:
        """Return whether a step takes all that `fit` is given, as a train_step does for which no part is a target."""
        return len(tensors) > len(keras.tree.flatten(self.x))

    def structured(self, tensors: Sequence[Any]) -> Any:
        """Return inputs, which are in the order of `inputs`, or the whole, in the structure of the script's own."""
        if self.is_whole(tensors):
            own = data_adapter_utils.pack_x_y_sample_weight(self.x, self.y, self.sample_weight)
            return keras.tree.pack_sequence_as(own, list(tensors))
        if isinstance(self.x, dict):
            return dict(zip(self.x, tensors, strict=True))
        return keras.tree.pack_sequence_as(self.x, list(tensors))


def _numbered(name: str, structure: Any) -> dict[str, np.ndarray]:
    """Return the leaves of what a loss is given, by a name that is numbered from the second one on."""
    leaves = [] if structure is None else keras.tree.flatten(structure)
    return {f"{name}.{number}" if number else name: np.asarray(leaf) for number, leaf in enumerate(leaves)}


def _is_state(value: Any) -> bool:
    """Return whether an argument is a structure of zeros: a state with which a model begins."""
    leaves = tf.nest.flatten(value) if isinstance(value, (list, tuple)) else []
    are_arrays = bool(leaves) and all(map(is_array, leaves))
    return are_arrays and all(each.dtype.kind == "f" and not each.any() for each in map(np.asarray, leaves))


def arguments_of(layer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a layer's call by name, without those that Keras does not pass on to it."""
    signature = inspect.signature(layer.call)
    takes_all = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    known = {name: each for name, each in kwargs.items() if takes_all or name in signature.parameters}
    return signature.bind_partial(*args, **known).arguments


def labels_of(data: Any) -> list[list[str]]:
    """Return what the running code calls each leaf of some data: its variable, "" if it has none, and its keys."""
    frame, leaves = source.frame(), keras.tree.flatten_with_path(data)
    return [[rewrite.name(frame, leaf), *(key for key in path if isinstance(key, str))] for path, leaf in leaves]


class Begin(NamedTuple):
    """Where a script begins to train: before which call of a tf.function or of `train_on_batch`, by number.

    `layer` is the number of the model among the layers that the script makes, `fit` what it is trained on; `updates`
    are those that it has made, after which a run that begins there is over.
    """

    call: int
    layer: int
    fit: Fit
    in_graphs: bool = False
    updates: int = 0


def first_batch(model: Any, x: Any, y: Any, arguments: Mapping[str, Any]) -> Fit:
    """Return what `fit` would train a model on, given its data and further arguments by name."""
    callbacks = keras.tree.flatten(arguments.get("callbacks") or [])
    data = {name: arguments[name] for name in ("batch_size", "steps_per_epoch") if name in arguments}
    sample_weight = arguments.get("sample_weight")
    if split := arguments.get("validation_split"):
        (x, y, sample_weight), _ = array_slicing.train_validation_split((x, y, sample_weight), split)
    own = {"x": x, "y": y, "sample_weight": sample_weight, "distribute_strategy": model.distribute_strategy}
    iterator = TFEpochIterator(**own, shuffle=False, **data)
    batches = map(data_adapter_utils.unpack_x_y_sample_weight, iterator._get_iterator())
    number = iterator.num_batches
    if number is None and isinstance(x, tf.data.Dataset):  # as of a generator
        number = sum(1 for _ in x.take(MOST_COUNTED)) % MOST_COUNTED or None
    epochs = {name: arguments[name] for name in ("epochs", "initial_epoch") if name in arguments}
    rest = itertools.starmap(Fit, batches)
    return Fit(*next(batches), callbacks, arguments.get("class_weight"), batches=number, rest=rest, **epochs)


def taken_of(further: Mapping[str, Any]) -> list[Any]:
    """Return what a step takes that makes its model's inputs, in order, of all that it is given beside the model's."""
    return [each for name, each in further.items() if name.startswith(OF_BATCH)]


def inputs_of(batch: Mapping[str, Any], call: int) -> list[Any]:
    """Return what a call of the model takes of a batch, by the number of the call in its step."""
    further = f"{TARGET}."
    if call > 1:
        return [each for name, each in batch.items() if name.startswith(f"{further}{call}.")]
    return [each for name, each in batch.items() if name.partition(".")[0] not in OF_LOSS]


def like(own: Any, array: np.ndarray, samples: int) -> np.ndarray:
    """Return PyTorch's target of so many samples in the form of the script's own: its axes, ids or one-hot rows.

    Raises UsageError if it cannot be brought into that form.
    """
    own = np.asarray(own)
    if (ignored := ignored_as(array, own)) is not None:
        array = np.where(array == IGNORED, ignored, array)
    if array.ndim and array.size % samples and axes(array.shape, own.shape) == "":
        samples = len(array)  # of another number than the model is given rows, as graphs have nodes
    given, wanted = array.size / samples, own.size / max(len(own) if own.ndim else 1, 1)
    shape, is_whole = (samples, *own.shape[1:]), own.dtype.kind in "iub"
    if given == wanted:
        layout = axes(array.shape, shape)
        values = rearrange(array, layout) if layout else array.reshape(shape)
    elif array.dtype.kind in "iu" and own.ndim and given * own.shape[-1] == wanted:
        values = np.eye(own.shape[-1])[array].reshape(shape)
    elif is_whole and (axis := _of_classes(array, wanted * samples)) is not None:
        values = array.argmax(axis).reshape(shape)
    elif is_sequence(own, rows := array.reshape(samples, -1) if own.ndim == 2 else array):
        values = rows
    else:
        raise UsageError(
            f"the target in PyTorch's loss has the shape {list(array.shape)}, for {samples} samples, and that of "
            f"Keras's script {list(own.shape)}; expected the same values, as class ids or as one-hot rows"
        )
    return values.astype(own.dtype) if is_whole else values


def is_of_whole(x: Any, own: Any, array: np.ndarray | None, samples: int) -> bool:
    """Return whether a script's target is its model's input, of which PyTorch's loss takes a part (`array`)."""
    is_part = array is not None and array.size < samples * np.asarray(own)[0].size
    return is_part and np.array_equal(x, own)


def is_sequence(own: Any, array: np.ndarray) -> bool:
    """Return whether both hold sequences, of ids or of rows, which may be padded to different lengths."""
    own = np.asarray(own)
    are_ids = all(each.dtype.kind in "iu" for each in (own, array))
    return own.ndim == array.ndim > 2 - are_ids and array.shape[2:] == own.shape[2:]


def _of_classes(array: np.ndarray, size: float) -> int | None:
    """Return the axis of an array along which it is one-hot, so that so many ids are left; None if there is none."""
    axes = (axis for axis in range(1, array.ndim) if array.size == size * array.shape[axis])
    return next((axis for axis in axes if (array.sum(axis) == 1).all() and np.isin(array, (0, 1)).all()), None)


def replaced(own: Any, array: np.ndarray, samples: int) -> tf.Tensor:
    """Return PyTorch's target, or weights, as a tensor of the form and the dtype of the script's own."""
    dtype = tf.convert_to_tensor(own).dtype
    return tf.constant(like(own, array, samples), keras.config.floatx() if dtype.is_floating else dtype)


def is_array(value: Any) -> bool:
    """Return whether a value is a tensor or an array."""
    return tf.is_tensor(value) or isinstance(value, np.ndarray)

"""The truth about a mutant, found by Keras alone: whether it computes something else than the port.

Port and mutant are built in float64 and given the same random weights, in the order in which they are made and, should
that differ, by their paths. A weight that the mutant stores with its axes in another order gets the same values in that
order, because weights have to be moved into a port anyway. What they return, their gradients and the state after a pass
of training are compared on several draws of the inputs. Nothing of the comparison that is tested decides here.
"""

import importlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import dtypes

from keras_impl.record import tree
from keras_impl.record.pair import build
from keras_impl.record.pair.outputs import laid_out
from parity.config.pair import FLOATS, TARGET, Pair, PairInput

EQUAL = 1e-12  # of the largest value of a tensor
NOTHING = 1e-14  # of the largest value of all tensors of its kind: what rounding leaves of a true zero
SEED = 2**13 + 1
DRAWS = ("given", "padded", "shorter")

MOST_AXES = 6

Arrays = dict[str, np.ndarray]
Shapes = dict[int | str, tuple[int, ...]]


def prepare_process() -> None:
    """Let Keras compute in float64, also where a model asks for float32."""
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    dtypes.PYTHON_DTYPES_MAP["float32"] = "float64"
    tf.config.run_functions_eagerly(True)


def forget(folder: Path) -> None:
    """Forget the modules of a port, of which another's are imported next, and look in this folder for them."""
    names = {path.stem for path in folder.iterdir()}
    for module in [name for name in sys.modules if name.partition(".")[0] in names]:
        del sys.modules[module]
    sys.path[:] = [str(folder), *(path for path in sys.path if not (Path(path) / "port").is_dir())]
    importlib.invalidate_caches()


def built(pair: Pair, folder: Path) -> Any:
    """Return the model that the port in a folder builds, with its weights, which a first call may make."""
    forget(folder)
    keras.utils.clear_session()
    keras.utils.set_random_seed(SEED)
    module, _, function = pair.keras.partition(":")
    model = getattr(importlib.import_module(module), function)(**pair.kwargs | pair.keras_kwargs)
    build.call(model, pair, drawn(pair, DRAWS[0]))
    return model


def drawn(pair: Pair, draw: str) -> dict[str, tf.Tensor]:
    """Return the inputs of a draw: as given; with masks that end before their rows; of a smaller size."""
    number = DRAWS.index(draw)
    arrays = {}
    for position, (name, given) in enumerate(pair.inputs.items()):
        if name != TARGET:
            arrays[name] = _drawn(given, np.random.default_rng([SEED, number, position]), draw)
    return build.tensors(pair, arrays)


def _drawn(given: PairInput, source: np.random.Generator, draw: str) -> np.ndarray:
    shape = list(given.shape)
    is_sequence = given.dtype not in FLOATS and len(shape) > 1
    if draw == "shorter":
        shape = [shape[0] + 1, shape[1] - 1, *shape[2:]] if is_sequence else [shape[0] + 1, *shape[1:]]
    if given.dtype in FLOATS:
        return np.asarray(source.normal(size=shape) * given.scale)
    if given.dtype == "bool":
        return source.integers(0, 2, shape).astype(bool)
    first, stop = given.range or (0, 2)
    values = source.integers(first, stop, shape).astype(given.dtype)
    if (first, stop) == (1, 2) and draw != "given":
        values[-1, shape[1] // 2 :] = 0
    return values


def shapes(model: Any, by: str) -> Shapes:
    """Return the shapes of a model's weights, by their numbers or their paths."""
    return {(number if by == "order" else each.path): tuple(each.shape) for number, each in enumerate(model.weights)}


def moved(shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Return the order of axes that makes one shape of another; that of the axes as they are if none does."""
    same = tuple(range(len(shape)))
    orders = itertools.permutations(same) if sorted(shape) == sorted(other) and len(shape) < MOST_AXES else iter([same])
    return next((order for order in orders if tuple(shape[axis] for axis in order) == other), same)


def fill(model: Any, by: str, ports: Shapes) -> dict[int, tuple[int, ...]]:
    """Give a model random weights: `by` their order or their paths, and in the port's shapes.

    Returns the order of axes of each weight by its id.
    """
    orders = {}
    for number, weight in enumerate(model.weights):
        own = tuple(weight.shape)
        shape = ports.get(number if by == "order" else weight.path, own)
        order = moved(shape, own)
        if tuple(shape[axis] for axis in order) != own:  # another weight than the port's
            shape, order = own, tuple(range(len(own)))
        orders[id(weight)] = order
        key = [number] if by == "order" else list(weight.path.encode())
        source = np.random.default_rng([SEED, *key])
        values = source.normal(size=shape).transpose(order)
        if weight.trainable:
            fan = np.prod(shape[:-1]) if len(shape) > 1 else 9
            is_scale = weight.path.endswith(("gamma", "scale"))
            weight.assign(values / np.sqrt(max(fan, 1)) + is_scale)
        elif weight.path.endswith("variance"):
            weight.assign(np.abs(values) + 0.5)
        elif weight.path.endswith("mean"):
            weight.assign(values)
    return orders


def observed(model: Any, pair: Pair, draw: str, by: str = "order", ports: Shapes | None = None) -> dict[str, Arrays]:
    """Return what a model does on a draw: what it returns, and on the first draw its gradients and its new state.

    `ports`: the shapes of the port's weights; None for the port itself.
    """
    keras.utils.set_random_seed(SEED)
    _reseed(model)
    orders = fill(model, by, ports or {})
    inputs = drawn(pair, draw)
    seen = {"outputs": dict(_flat(build.call(model, pair, inputs)))}
    if draw == DRAWS[0]:
        seen |= _trained(model, pair, inputs, orders, by)
    return seen


def _differentiated(pair: Pair, outputs: Any) -> list[tf.Tensor]:
    """Return the outputs whose gradients count: all, or in training that which the pair's loss is made of."""
    if pair.train is None or pair.train.keras_loss:
        return [each for _, each in _tensors(outputs) if each.dtype.is_floating]
    return [each.tensor for each in laid_out(pair, outputs) if each.tensor.dtype.is_floating][:1]


def _trained(
    model: Any, pair: Pair, inputs: dict[str, tf.Tensor], orders: dict[int, tuple[int, ...]], by: str
) -> dict[str, Arrays]:
    """Return what training gives, the gradients that there are and the state, by the weights' numbers or paths."""
    floats = [each for each in inputs.values() if each.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(floats)
        outputs = build.call(model, pair, inputs, training=pair.trains)
        flat = _differentiated(pair, outputs)
        weighted = [tf.reduce_sum(each * _factors(each, number)) for number, each in enumerate(flat)]
        total = tf.add_n([*weighted, *(tf.reduce_sum(tf.cast(each, "float64")) for each in model.losses)])
    trainable = model.trainable_weights
    sources = [*(weight.value for weight in trainable), *floats]
    made = tape.gradient(total, sources) if pair.backward else [None] * len(sources)
    back = [np.argsort(orders[id(weight)]) for weight in trainable] + [None] * len(floats)
    names = [*_named(trainable, by), *(f"input {number}" for number in range(len(floats)))]
    gradients = {
        name: tf.convert_to_tensor(each).numpy().transpose(order)
        for name, each, order in zip(names, made, back, strict=True)
        if each is not None
    }
    kept = [weight for weight in model.non_trainable_weights if "seed" not in weight.path]
    state = dict(zip(_named(kept, by), (np.asarray(weight.numpy()) for weight in kept), strict=True))
    return {"training": dict(_flat(outputs)), "gradients": gradients, "state": state}


def _named(weights: list[Any], by: str) -> list[str]:
    """Return names of weights, each another: their numbers, or their paths and how often a path was there before."""
    if by == "order":
        return [str(number) for number in range(len(weights))]
    paths = [weight.path for weight in weights]
    return [f"{path} {paths[:number].count(path)}" for number, path in enumerate(paths)]


def _factors(tensor: tf.Tensor, number: int) -> np.ndarray:
    return np.asarray(np.random.default_rng([SEED, number, 7]).normal(size=tensor.shape))


def _reseed(model: Any) -> None:
    """Let every layer draw what it draws in a new model."""
    for number, weight in enumerate(each for each in model.non_trainable_variables if "seed" in each.path):
        weight.assign(np.asarray([SEED, number], dtype=str(weight.dtype)))


def _flat(outputs: Any) -> Iterator[tuple[str, np.ndarray]]:
    yield from ((name, each.numpy()) for name, each in _tensors(outputs))


def _tensors(outputs: Any) -> Iterator[tuple[str, tf.Tensor]]:
    flat = keras.tree.flatten(outputs)
    yield from ((str(number), each) for number, each in enumerate(flat) if tf.is_tensor(each))


def difference(one: Arrays, other: Arrays) -> float:
    """Return by how much two sets of tensors differ, relative to the largest value; infinity if in their shapes."""
    if one.keys() != other.keys() or any(one[name].shape != other[name].shape for name in one):
        return float("inf")
    numbers = [array for array in one.values() if array.size and array.dtype.kind == "f"]
    largest = max((float(np.nanmax(np.abs(array), initial=0)) for array in numbers), default=0.0)
    return max((_of_tensor(one[name], other[name], largest) for name in one), default=0.0)


def _of_tensor(one: np.ndarray, other: np.ndarray, largest: float) -> float:
    if one.dtype.kind not in "fc":
        return 0.0 if np.array_equal(one, other) else 1.0
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(other)):
        return float("inf")
    apart = float(np.max(np.abs(np.where(finite, one - other, 0)), initial=0))
    own = float(np.max(np.abs(np.where(finite, one, 0)), initial=0))
    return 0.0 if apart <= max(EQUAL * own, NOTHING * largest) else apart / (own or 1.0)


def differences(
    port: dict[str, dict[str, dict[str, Arrays]]], port_shapes: dict[str, Shapes], model: Any, pair: Pair
) -> dict[str, float]:
    """Return by how much a mutant differs from what the port did, by what was observed; {} if it is equivalent."""
    tried: list[dict[str, float]] = []
    for by in ("order", "path"):
        ports = port_shapes[by]
        told: dict[str, float] = {}
        for draw in port[by]:
            for what, arrays in observed(model, pair, draw, by, ports).items():
                if apart := difference(port[by][draw][what], arrays):
                    told[what if draw == DRAWS[0] else draw] = apart
        if not told:
            return {}
        tried.append(told)
    return min(tried, key=lambda told: max(told.values()))


def all_observed(model: Any, pair: Pair) -> dict[str, dict[str, dict[str, Arrays]]]:
    """Return what a port does on each draw that it takes, by how it got its weights."""
    observations: dict[str, dict[str, dict[str, Arrays]]] = {}
    for by in ("order", "path"):
        for draw in DRAWS:
            try:
                observations.setdefault(by, {})[draw] = observed(model, pair, draw, by)
            except Exception:  # of another size than the model is made for
                if draw == DRAWS[0]:
                    raise
    return observations


def paths(model: Any) -> dict[int, str]:
    """Return the path of each layer by its id."""
    return {id(layer): path for path, layer in tree.named(model).items()}

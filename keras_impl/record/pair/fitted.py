"""Whether `fit`, which traces a training step into a graph, computes what the recorded steps did, op by op.

It need not where Python code of the user's takes part: a graph keeps what that code did while it was traced, such as
the value of a counter, and `fit` calls methods that the user may have overridden. So where there is such code, new
instances are trained in both ways, and what they end with is compared. So it is with the tf.functions of a script's
loop, which is run on its own batches, in float32.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers.data_adapters import data_adapter_utils
from msgspec.structs import replace

from keras_impl.instruments.script_data import Begin
from keras_impl.instruments.script_run import ByHand
from keras_impl.record import tree
from keras_impl.record.masks import OrderedMasks
from keras_impl.record.pair import build
from keras_impl.record.pair.first_call import ready
from keras_impl.record.pair.outputs import flat
from keras_impl.record.pair.script import Script
from keras_impl.record.pair.training import Batch, Training
from keras_impl.record.pair.values import Weights, python_state
from keras_impl.record.weights import array
from parity.config.schema import SGD
from parity.core import program, random
from parity.core.errors import BackendError, UsageError
from parity.core.python_state import generators
from parity.core.script import is_script
from parity.runtime.drive import Run
from parity.trace.keys import MODEL
from parity.trace.training import Fitted

Arrays = dict[str, np.ndarray]
ROUNDING = 2.0**-29  # of the largest value: what float32 would not see
MARGIN = 16  # times as far apart as rounding, or a generator that nobody seeds, has moved a weight


def state(training: Training) -> dict[str, str]:
    """Return digests of what a training and the files of its program keep in Python, by the path that leads to it."""
    parts = {"loss": training.loss_function, "optimizer": training.optimizer}
    return python_state(training.model, parts).digests | generators()


def loop(training: Training) -> Script | None:
    """Return the script whose loop trains the model, if there is one."""
    text = training.pair.train.keras_step
    if not is_script(text):
        return None
    return program.find("train.keras_step", text, training.search).__self__


def may_differ(training: Training) -> bool:
    """Return whether Python code of the user's takes part in a training, beside what builds the model."""
    if script := loop(training):
        return script.begin is not None and not isinstance(training.optimizer, ByHand)
    if training.pair.train.keras_step:
        return True
    files = program.modules()
    parts = [*tree.named(training.model).values(), training.loss_function, training.optimizer]
    held = [value for part in parts for value in (part, *getattr(part, "__dict__", {}).values())]
    held += [each.func for each in held if isinstance(each, functools.partial)]
    return any(
        isinstance(each, keras.layers.Lambda) or (callable(each) and getattr(each, "__module__", None) in files)
        for each in held
    )


def compare(run: Run, training: Training, changed: list[str]) -> Fitted | None:
    """Train new instances, op by op and by `fit`, and return how the weights that they end with differ, or the outputs.

    None if they do not, or no more than rounding and unseeded generators make them. `training`: the recorded one;
    `changed`: what it has changed in Python.

    Where the steps read no optimizer of the user's, plain descent takes its place: its graph is made in no time, and
    what the user's code computes otherwise in a graph moves the weights all the same.
    """
    if not training.is_own:
        run = run._replace(case=replace(run.case, optimizer=SGD(learning_rate=run.case.optimizer.learning_rate)))
    script = loop(training)
    begin = script.begin._replace(updates=script.updates) if script and script.begin else None
    trained = functools.partial(_trained, run, begin)
    try:
        by_step, by_fit = trained(), trained(in_graph=True)
        apart = {name: each for name, each in _apart(by_step, by_fit).items() if each > ROUNDING}
        if apart:
            moved = [_apart(by_step, trained(is_nudged=True)), _apart(by_fit, trained(in_graph=True))]
            apart = {name: each for name, each in apart.items() if each > MARGIN * max(of[name] for of in moved)}
    except (UsageError, BackendError) as error:
        return Fitted(state=changed, error=str(error))
    name = max(apart, key=lambda key: apart[key], default="")
    if not name:
        return None
    overridden = [method for method in ("fit", "make_train_function") if build.is_overridden(training.model, method)]
    return Fitted(state=changed, weight=name, apart=apart[name], overridden=", ".join(overridden))


def _fit(training: Training, batches: Sequence[Batch]) -> None:
    """Run all steps as their user does: by `fit`, or by the user's own step, in graphs where these make some."""
    if training.pair.train.keras_step or build.fitted(training.model, training.pair, batches[0].inputs) is None:
        for batch in batches:
            training.run_as_is(batch)
        return
    training.model.jit_compile = False  # it makes kernels of the graph's ops, which takes long, and no other graph
    parts = [training.data_of(batch) for batch in batches]
    with build.user_errors(f"keras={training.pair.keras}: fit fails"):
        shapes = [[tensor.shape for tensor in tf.nest.flatten(part)] for part in parts]
        sizes = {shape[0] if shape.rank else None for shape in itertools.chain(*shapes)}
        is_alike = all(each == shapes[0] for each in shapes)  # batches may be padded to lengths of their own
        if is_alike and len(sizes) == 1 and (size := sizes.pop()):  # arrays, as most users give them
            given = tf.nest.map_structure(lambda *tensors: tf.concat(tensors, 0).numpy(), *parts)
            x, y, weight = data_adapter_utils.unpack_x_y_sample_weight(given)
            further = {"y": y, "batch_size": size, "sample_weight": weight, "shuffle": False}
        else:
            x = functools.reduce(tf.data.Dataset.concatenate, map(tf.data.Dataset.from_tensors, parts))
            further = {}
        training.model.fit(x, verbose=0, callbacks=training.callbacks, **further)


def _trained(run: Run, begin: Begin | None, in_graph: bool = False, is_nudged: bool = False) -> Arrays:
    """Return the variables of a new instance after its training, and under MODEL what it returns in inference then.

    `begin`: where a script's loop begins to train. `is_nudged`: it begins with float variables that are one ulp away.
    """
    halves = run.pair
    with mock.patch.object(Script, "free", begin and begin._replace(in_graphs=in_graph)):
        model = ready(run.case, run.at, halves.search, run.dataset.step(0))
    weights = Weights.loaded(model, halves, run.weights)
    named = {held.description.name: held.variable for held in weights.variables}
    for name, variable in named.items():
        if is_nudged and (before := array(variable)).dtype.kind == "f":
            variable.assign(_one_ulp_away(before, run.case.seed, name))
    training = Training(run.case, model, run.dataset, halves, weights.torch)
    batches = [training.batch(number) for number in range(run.case.steps)]
    with _Expected(run.case.seed, lambda shape: None).drawn(model):
        if begin and (script := loop(training)):
            script.run_freely(begin.updates)
        elif in_graph:
            _fit(training, batches)
        else:
            for batch in batches:
                training.run(batch)
            training.finish(is_whole=True)
        outputs = build.call(model, run.case.model, batches[0].inputs)
    returned = np.concatenate([array(each).reshape(-1) for each in flat(outputs)])
    return {name: array(variable) for name, variable in named.items()} | {MODEL: returned}


def _one_ulp_away(values: Any, seed: int, name: str) -> np.ndarray:
    """Return an array with each number moved to a random neighbour in its own precision; zeros stay."""
    moved = random.one_ulp_away(values, seed, name)  # by an ulp of float64, of which float32 sees the direction alone
    neighbours = np.nextafter(values, np.where(moved > values, np.inf, -np.inf).astype(values.dtype))
    return np.where(moved == values, values, neighbours)


class _Expected(OrderedMasks):
    """Dropout that returns what a mask leaves of each element on average, as a graph cannot share the masks.

    It depends on the rate, and a little on a seed of Python's numbers: the user's code may change both. Other random
    numbers are the same in all draws of a size.
    """

    def _numbers(self, kind: str, x: tf.Tensor, _: Any) -> tf.Tensor:
        self.restart()
        return super()._numbers(kind, x, None)

    def _of_keras(self, x: Any, rate: Any, noise_shape: Any = None, seed: Any = None, *_: Any, **__: Any) -> tf.Tensor:
        x, numbers = tf.convert_to_tensor(x), seed if isinstance(seed, (list, tuple)) else [seed]
        drawn = sum(map(abs, numbers)) % 997 / 2**14 if all(isinstance(each, int) for each in numbers) else 0.0
        return x * tf.cast(1 - rate + drawn, x.dtype)

    _of_tensorflow = _of_keras

    def _stateless(self, x: Any, rate: Any, seed: Any, *_: Any, **__: Any) -> tf.Tensor:
        return self._of_keras(x, rate, None, seed)


def _apart(one: Arrays, two: Arrays) -> dict[str, float]:
    """Return how far apart the arrays are, as a part of the largest value; infinite if one alone is not finite."""
    return {name: _distance(values, two[name]) for name, values in one.items() if name in two}


def _distance(one: np.ndarray, two: np.ndarray) -> float:
    # Integers and truth values too: their differences are those of their numbers.
    one, two = (each.astype(np.result_type(each, np.float64)) for each in (one, two))
    with np.errstate(all="ignore"):
        difference = np.where(one == two, 0.0, np.abs(one - two))
        largest = float(difference.max(initial=0.0) / max(np.abs(one).max(initial=0.0), np.finfo(np.float64).tiny))
    return largest if np.isfinite(largest) else np.inf if np.isfinite(one).all() != np.isfinite(two).all() else 0.0

"""Models of the user's that have their weights and have not been called.

Many Keras layers make their weights in the first call. What such a call leaves behind (counters, caches, variables that
change, globals of the user's files) must not reach what is compared, nor must what an earlier run has left.

Where a builder connects layers, Keras traces each of them to learn the form of what it returns, which takes most of the
time of building a large model. Each run builds the model again: then the forms are those that the first time told, and
the layers' weights are made from the shapes that they had.
"""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import keras
import msgspec
import numpy as np
import tensorflow as tf
from keras.src import backend
from keras.src.utils import naming
from keras.src.utils.python_utils import is_default

from keras_impl.instruments.traced_forms import Form, record_forms, replay_forms
from keras_impl.record import calls, precision, tree
from keras_impl.record.pair import build, layers, values
from keras_impl.record.pair.sources import repeated_draws
from parity.config.schema import Case
from parity.core import program
from parity.core.arrays import digest
from parity.core.errors import BackendError, UsageError
from parity.core.patches import applied
from parity.core.python_state import PythonState
from parity.runtime import survey

Watch = Callable[[], AbstractContextManager[Any]]


class _Plan(NamedTuple):
    """How a model gets the weights that it lacks, as learned from a first call, or from its first construction."""

    depths: dict[str, int]  # how many layers call a layer, by its path, in the order of the first calls
    scopes: dict[str, str]  # the names of Keras's scopes around each layer, of which the names of its variables begin
    shapes: dict[str, dict[str, Any]]  # what each layer was built with
    weights: list[survey.Weight]  # what the model holds after the call
    paths: set[str]  # the model's layers after the call
    suffices: bool = True  # whether building the layers with these shapes makes all weights
    # Of a model that its builder has built: what traced functions returned, and all that it keeps beside its weights.
    forms: list[Form] = []
    state: dict[str, str] = {}


_plans: dict[bytes, _Plan] = {}  # by all on which they depend: each run of a pair builds the same model again
MOST_PLANS = 16
ADDRESS = 12  # digits of a number that may be an address
MANY = 64  # layers of a model that is worth it to be built without tracing it again


def ready(
    case: Case, at: str, search: list[str], inputs: dict[str, np.ndarray], watch: Watch = nullcontext, surveyed=False
) -> Any:
    """Build the model at a precision, with all of its weights, and not called since.

    A model that waits for a first call is called, and built a second time from the shapes that its layers were built
    with. If that does not make all weights (of layers that are created in `call`), a third one is called, and its
    attributes get the values that they had before. What was learned of a model holds until one of its files changes.
    `watch`: a context that is entered anew for each attempt; the last is that of the returned model. Unless its initial
    values are `surveyed`, the model is to be given others. Raises UsageError and BackendError.
    """
    key, forms = _key(case, at, search, inputs), list[Form]()
    plan = _plans.get(key)
    attempt = functools.partial(_attempt, case, at, search, watch, surveyed)
    if plan and plan.forms and not surveyed:
        if model := _rebuilt(attempt, plan):
            return model
        _learn(key, plan._replace(forms=[]))
    with record_forms(forms), attempt() as model:
        key = _key(case, at, search, inputs)  # the builder's files are imported now
        plan = _plans.get(key)
        if not _waits(model):
            if not plan and forms and len(tree.named(model)) >= MANY:
                _learn(key, _plan_of(model, forms))
            return model
        if plan and plan.suffices and _is_built(model, plan):
            return model
        if plan and not plan.suffices:
            with _kept(model):
                _called(model, case, inputs)
            return model
        if not plan:
            plan = _called(model, case, inputs)
    with attempt() as again:
        if _is_built(again, plan):
            _learn(key, plan)
            return again
    with attempt() as model, _kept(model):
        _called(model, case, inputs)
    _learn(key, plan._replace(suffices=False))
    return model


def _rebuilt(attempt: Watch, plan: _Plan) -> Any:
    """Build the model without tracing it; None if it is not the one that it was when it was traced."""
    with suppress(UsageError, BackendError), replay_forms(plan.forms), attempt() as model:
        if _is_built(model, plan) and not _waits(model) and _state(model) == plan.state:
            return model
    return None


def _plan_of(model: Any, forms: list[Form]) -> _Plan:
    """Return how a model that its builder has built is built again."""
    paths = (path for path, layer in tree.named(model).items() if isinstance(layer, keras.Layer))
    depths = {path: path.count("/") + bool(path) for path in paths}
    return _plan(model, depths)._replace(forms=forms, state=_state(model))


def _plan(model: Any, depths: dict[str, int]) -> _Plan:
    """Return how another model is built like one that has its weights, of whose layers are given the depths."""
    named = tree.named(model)
    scopes = {path: named[path]._parent_path or "" for path in depths}
    shapes = {path: _shapes(named[path]) for path in depths if named[path].built}
    return _Plan(depths, scopes, shapes, _weights(model), set(named))


def _shapes(layer: keras.Layer) -> dict[str, Any]:
    """Return what a layer was built with, in containers of its own: Keras's would keep the layer's variables alive."""
    shapes = layer._build_shapes_dict or {}
    return {name: [*each] if isinstance(each, list) else each for name, each in shapes.items()}


def _state(model: Any) -> dict[str, str]:
    """Return digests of what a model keeps beside its trained weights; numbers may be addresses, of other objects."""
    digests = values.python_state(model).digests
    comparable = {path: each for path, each in digests.items() if not (each.isdigit() and len(each) >= ADDRESS)}
    return comparable | {"untrained": digest(values.untrained(model))}


def _key(case: Case, at: str, search: list[str], inputs: dict[str, np.ndarray]) -> bytes:
    """Return what determines how a model is built: its builder, its inputs' shapes, and its files as they are now."""
    files = {module.__file__: os.stat(module.__file__).st_mtime_ns for module in program.modules().values()}
    shapes = {name: array.shape for name, array in inputs.items()}
    return msgspec.json.encode((case.model, case.seed, at, search, shapes, files))


def _learn(key: bytes, plan: _Plan) -> None:
    if len(_plans) == MOST_PLANS:
        del _plans[next(iter(_plans))]
    _plans[key] = plan


@contextmanager
def _attempt(case: Case, at: str, search: list[str], watch: Watch, surveyed: bool) -> Iterator[Any]:
    """Build the model as in a fresh process: the user's modules are imported anew, and Keras counts names from 0."""
    naming.reset_uids()
    keras.utils.set_random_seed(case.seed)
    program.begin_anew(case.seed)
    with precision.policy(at), watch(), nullcontext() if surveyed else repeated_draws():
        yield build.build(case.model, at, search)


def _waits(model: Any) -> bool:
    """Return whether the model may lack weights before its first call; of what is no Keras layer nothing is known."""
    every = [layer for layer in tree.named(model).values() if isinstance(layer, keras.Layer)]
    return not isinstance(model, keras.Layer) or not all(layer.built for layer in every)


def _called(model: Any, case: Case, inputs: dict[str, np.ndarray]) -> _Plan:
    """Call the model, and return how another one is built like it."""
    depths: dict[str, int] = {}

    def note(call: calls.Call) -> None:
        depths.setdefault(call.path, len(calls.running()))

    with calls.observed(tree.called(model), note, lambda *_: None):
        build.call(model, case.model, build.tensors(case.model, inputs))
        if case.model.train and _waits(model):  # for layers that training alone calls; if it fails, a run says why
            with suppress(UsageError, BackendError):
                build.call(model, case.model, build.tensors(case.model, inputs), training=True)
    return _plan(model, depths)


def _is_built(model: Any, plan: _Plan) -> bool:
    """Build the layers of a model as one that was called had them built; return whether it then has all weights.

    A layer with a `build` of its own comes before what it calls, as in a call; any other when all in it are built.
    """
    own = tree.named(model)
    if not own.keys() >= plan.depths.keys():
        return False
    inward = [path for path in plan.depths if not is_default(own[path].build)]
    outward = sorted(set(plan.depths).difference(inward), key=lambda path: -plan.depths[path])
    for path in (*inward, *outward):
        if not own[path].built and (shapes := plan.shapes.get(path)):
            try:
                with applied(map(backend.name_scope, filter(None, plan.scopes[path].split("/")))):
                    own[path].build(**shapes)
            except Exception:  # it needs more than shapes: the first call must make its weights
                return False
    return _weights(model) == plan.weights and tree.named(model).keys() == plan.paths


def _weights(model: Any) -> list[survey.Weight]:
    return [held.description for held in layers.variables(model)]


@contextmanager
def _kept(model: Any) -> Iterator[None]:
    """Give the layers' attributes and untrained variables, after the block, the values before their first calls.

    Layers and variables that the block creates stay; other attributes that it creates go.
    """
    before: dict[str, PythonState] = {}
    numbers: dict[int, tuple[Any, tf.Tensor]] = {}

    def note(call: calls.Call) -> None:
        if call.path in before:
            return
        with tf.init_scope():  # Keras may call a model first to trace it
            before[call.path] = PythonState(values.FRAMEWORK, {"": call.module})
            callers = (each.module for each in calls.running())  # one may make variables just before it calls a layer
            for layer in (*callers, *tree.named(call.module).values()):
                for _, variable in layers.variables_of(layer):
                    if id(variable) not in numbers:
                        numbers[id(variable)] = variable, tf.identity(variable)

    with calls.observed(tree.called(model), note, lambda *_: None):
        yield
    for kept in before.values():
        kept.restore()
    for variable, value in numbers.values():
        variable.assign(value)

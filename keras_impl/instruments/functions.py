"""The program's tf.functions: which are traced again and why, and which parts run in Python; and methods of models.

    functions = Functions()
    for _ in range(2):
        with functions:
            step(model, inputs)

The first step traces. After it, a function of the program, identified by its code, should not be traced again: neither
as the same object, nor as a new one with the same code. Within the first step, different arguments count as well, but
not different devices, since each replica has a trace of its own. Of the methods of Keras's models those are noted that
the program calls in its step and that do more than a step needs.
"""

import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from types import FrameType
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function  # what tf.function returns
from tensorflow.python.ops import script_ops

from keras_impl.instruments import source
from keras_impl.instruments.devices import name
from keras_impl.instruments.origins import tensors
from parity.core.ownership import shown
from parity.core.patches import Original, applied, around
from parity.doctor import rewrite
from parity.doctor.evidence import Code, Eager, Method, Place, Retrace, Step
from parity.trace.keys import MODEL

ON = "tf.device"  # recorded beside the arguments: the device scope of the call


class Argument(NamedTuple):
    """What TensorFlow compares of an argument: a text, and the object `held` if it compares identity."""

    text: str
    held: object = None


def differences(before: dict[str, Argument], now: dict[str, Argument]) -> dict[str, str]:
    """Return what differs between two calls, by argument name, in words."""
    changes = {}
    for argument in dict.fromkeys((*before, *now)):
        earlier, current = before.get(argument, Argument("missing")), now.get(argument, Argument("missing"))
        if earlier.text != current.text:
            changes[argument] = f"{argument}: {earlier.text} -> {current.text}"
        elif earlier.held is not current.held:
            changes[argument] = f"{argument}: another object, {current.text}"
    return changes


def _arguments(function: Function, args: tuple, kwargs: dict) -> Iterator[tuple[str, Argument]]:
    """Yield each tensor and value of a call, by parameter name and position within it, and its device scope."""
    yield ON, Argument(name(context.context().device_name or ""))
    bound = inspect.signature(function.python_function).bind(*args, **kwargs)
    for parameter, value in bound.arguments.items():  # *args gives a tuple, **kwargs a dict
        leaves = tf.nest.flatten(value)
        for position, leaf in enumerate(leaves):
            yield f"{parameter}[{position}]" if len(leaves) > 1 else parameter, _argument(leaf)


def _argument(value: Any) -> Argument:
    if isinstance(value, (tf.Tensor, np.ndarray)):
        return Argument(f"{np.dtype(getattr(value.dtype, 'as_numpy_dtype', value.dtype))}{list(value.shape)}")
    if value is None or isinstance(value, (bool, int, float, str, bytes, tf.DType)):
        return Argument(repr(value))
    return Argument(f"a {type(value).__name__}", value)


TRAINER = "keras/src/backend/tensorflow/trainer.py"
PIPELINE = "tensorflow/python/data/"  # reading data may well run in Python


class Trace(NamedTuple):
    """A call that was traced, with its arguments."""

    function: Function
    step: int
    line: str
    arguments: dict[str, Argument]


class Functions(ExitStack):
    """A context manager around each step.

    Afterwards `retraces` holds the functions that were traced more than once, by their code, and `eager` what ran in
    Python, once per line.
    """

    def __init__(self) -> None:
        super().__init__()
        self.eager: dict[tuple[str, str], Eager] = {}
        self.retraces: dict[Any, Retrace] = {}
        self._counts: Counter[tuple[Any, ...]] = Counter()  # of this step; of parts of a graph, by graph
        self._traces: dict[Any, list[Trace]] = defaultdict(list)  # by code object
        self._step = 0

    def __enter__(self) -> "Functions":
        self.enter_context(around(Function, "__call__", self._call))
        self.enter_context(around(script_ops, "_internal_py_func", self._in_python))
        self.enter_context(around(keras.Model, "fit", self._train))
        self.enter_context(around(keras.Model, "train_on_batch", self._train))
        self._counts.clear()
        self._step += 1
        return self

    def _call(self, call: Callable[..., Any], function: Function, /, *args: Any, **kwargs: Any) -> Any:
        # The user's own, made by the user of Keras's parts, or Keras's train step.
        file = getattr(_code(function), "co_filename", "")
        is_programs = source.kind(file) == source.USER or file.endswith(TRAINER) or source.direct() != ""
        if not tf.executing_eagerly() or not is_programs:
            return call(function, *args, **kwargs)  # an inner function is traced again whenever its outer one is
        if function._run_functions_eagerly:
            self._note_eager("run_eagerly")
            return call(function, *args, **kwargs)
        before = function.experimental_get_tracing_count()
        result = call(function, *args, **kwargs)
        if function.experimental_get_tracing_count() > before:
            self._note(Trace(function, self._step, source.line(), dict(_arguments(function, args, kwargs))))
        return result

    def _note(self, trace: Trace) -> None:
        code = _code(trace.function)
        earlier = self._traces[code]
        if change := _change(earlier, trace):
            described, count = _described(code), len(earlier) + 1
            self.retraces[code] = Retrace(function=described, source=trace.line, count=count, change=change)
        earlier.append(trace)

    def _in_python(self, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a py_function or numpy_function, and note it: it runs in Python within a graph."""
        # The gradient of a py_function is another one, made together with it.
        if not tf.executing_eagerly() and not kwargs.get("is_grad_func") and not source.within(PIPELINE):
            self._note_eager("py_function" if kwargs.get("use_eager_py_func") else "numpy_function")
        return make(*args, **kwargs)

    def _train(self, train: Callable[..., Any], model: keras.Model, *args: Any, **kwargs: Any) -> Any:
        if model.run_eagerly:
            self._note_eager("run_eagerly", MODEL)
        return train(model, *args, **kwargs)

    def _note_eager(self, what: str, module: str = "") -> None:
        line = source.line()
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self._counts[what, line, graph] += 1
        entry = self.eager.setdefault((what, line), Eager(what=what, place=Place(module=module, source=line)))
        entry.count = max(entry.count, self._counts[what, line, graph])


def _code(function: Function) -> Any:
    """Return the code that was decorated, beneath TensorFlow's wrappers of methods."""
    return function._key_for_call_stats


def _described(code: Any) -> str:
    """Return the function's name and place, such as "train (train.py:12)"."""
    if not inspect.iscode(code):
        return getattr(code, "__name__", type(code).__name__)
    file = code.co_filename
    where = "Keras" if source.kind(file) == source.LIBRARY else shown(file, code.co_firstlineno)
    return f"{code.co_name} ({where})"


def _change(earlier: list[Trace], now: Trace) -> str:
    """Return why TensorFlow traced again, compared with earlier traces; "" if it does not matter."""
    same_object = [trace for trace in earlier if trace.function is now.function]
    if not same_object:
        return "a new tf.function" if earlier and now.step > earlier[-1].step else ""
    changes = differences(same_object[-1].arguments, now.arguments)
    if now.step != same_object[-1].step:
        return ", ".join(changes.values()) or "a Python object, or what the function closes over"
    return ", ".join(change for argument, change in changes.items() if argument != ON)


BATCH = 32  # the batch size of `predict` if none is given


class Methods:
    """Records such calls in the step."""

    def __init__(self, step: Step):
        self.step = step
        self._fitted = False  # what follows a `fit`, which is a whole epoch, may well be an evaluation

    def watched(self) -> AbstractContextManager[None]:
        """Return a context in which the methods are observed."""
        methods = {"compile": self._compile, "predict": self._predict, "fit": self._fit}
        return applied(around(keras.Model, *method) for method in methods.items())

    def _compile(self, compile_: Original, model: keras.Model, *args: Any, **kwargs: Any) -> Any:
        was_compiled, optimizer = model.compiled, getattr(model, "optimizer", None)
        result = compile_(model, *args, **kwargs)
        if was_compiled:
            frame = _caller()
            method = self._note("compile", _compiled_once(rewrite.spot(frame)) if frame else None, frame)
            method.resets = model.optimizer is not optimizer
        return result

    def _predict(
        self, predict: Original, model: keras.Model, x: Any, batch_size: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        given = tensors(x)
        is_batch = bool(given) and all(len(tensor.shape) and len(tensor) <= (batch_size or BATCH) for tensor in given)
        if is_batch and not self._fitted and source.direct():
            self._note("predict", rewrite.code(source.spot(), _on_batch), source.frame())
        return predict(model, x, batch_size, *args, **kwargs)

    def _fit(self, fit: Original, *args: Any, **kwargs: Any) -> Any:
        self._fitted = True
        return fit(*args, **kwargs)

    def _note(self, what: Any, mended: Code | None, frame: FrameType | None) -> Method:
        line = rewrite.shown(frame.f_code.co_filename, frame.f_lineno) if frame else ""
        method = Method(what=what, place=Place(source=line), mended=mended)
        self.step.methods.append(method)
        return method


def _caller() -> FrameType | None:
    """Return the frame of the user's line that compiles, outside of a `compile` of the model's own."""
    frame = source.frame()
    while frame and (frame.f_code.co_name == "compile" or source.kind(frame.f_code.co_filename) != source.USER):
        frame = frame.f_back
    return frame


def _compiled_once(spot: rewrite.Spot) -> Code | None:
    """Return the user's line that compiles a model, for a model that is not compiled yet."""
    call, statement = rewrite.expression(spot), rewrite.statement(spot)
    if call is None or statement is None or call.function != "compile" or not statement.text():
        return None
    return statement.with_text(statement.node, f"if not {call.text(call.operand())}.compiled: {statement.text()}")


def _on_batch(call: rewrite.Expression) -> Code | None:
    """Return the line that calls `predict_on_batch`, which takes nothing but the batch."""
    batch = call.argument("x", 0)
    if call.function != "predict" or batch is None or not call.text(batch):
        return None
    return call.with_text(call.node, f"{call.text(call.node.func.value)}.predict_on_batch({call.text(batch)})")

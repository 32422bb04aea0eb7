"""Methods of Keras's models that the program calls in its step and that do more than a step needs."""

from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import keras

from keras_impl.instruments import source
from keras_impl.instruments.origins import tensors
from parity.core.patches import Original, applied, around
from parity.doctor import rewrite
from parity.doctor.evidence import Code, Method, Place, Step
from parity.doctor.rewrite import Expression

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


def _on_batch(call: Expression) -> Code | None:
    """Return the line that calls `predict_on_batch`, which takes nothing but the batch."""
    batch = call.argument("x", 0)
    if call.function != "predict" or batch is None or not call.text(batch):
        return None
    return call.with_text(call.node, f"{call.text(call.node.func.value)}.predict_on_batch({call.text(batch)})")

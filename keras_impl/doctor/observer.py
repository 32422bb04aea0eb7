"""Observe a step of training as the program runs it, without changing any result, and time its parts.

Within a tf.function the parts cannot be told apart.
"""

import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from keras_impl.instruments import draws, source
from keras_impl.instruments.build import Building
from keras_impl.instruments.calls import Calls
from keras_impl.instruments.copies import Copies
from keras_impl.instruments.functions import Methods
from keras_impl.instruments.gradients import Cuts, Finite
from keras_impl.instruments.losses import Losses
from keras_impl.instruments.ops import Ops
from keras_impl.instruments.origins import Origins, tensors
from keras_impl.instruments.training import Training
from keras_impl.record import precision
from parity.core.clock import Clock, covered
from parity.core.patches import applied, around, setting
from parity.doctor.evidence import Failure, Place, Step

OPERATION = re.compile(r"\[Op:(\w+)\]")
NOISE = re.compile(r"\{\{.*?\}\}\s*|\s*\[Op:\w+\]|\s*name:\s*$")
GENERATED = "/tensorflow/python/ops/gen_"  # functions of single ops: their arguments are the op's inputs


class Observer:
    """Observes a model that was built within `building`, and its training.

    `devices` names the devices as the program does ("GPU:0"); `optimizers` collects those that made an update.
    """

    def __init__(self, model: Any, building: Building, devices: list[str]):
        self.model, self.building, self.devices = model, building, devices
        self.optimizers: list[keras.Optimizer] = []
        self._origins = Origins()  # kept between steps: a copy made in one step still exists in the next

    @contextmanager
    def step(self, inputs: Mapping[str, Any]) -> Iterator[Step]:
        """Run a step eagerly within the block and fill in its evidence; an exception becomes its failure there."""
        # tf.distribute may have a copy of each variable on every device.
        replicas = getattr(getattr(self.model, "distribute_strategy", None), "num_replicas_in_sync", 1)
        step = Step(distributed="mirrored" if replicas > 1 else "")
        calls = Calls(self.model, self.building, self._origins)
        copies, finite = Copies(step, calls, self._origins), Finite(step, calls, self._origins)
        losses, cuts = Losses(step, inputs, calls, self._origins), Cuts(step, calls, self._origins)
        training = Training(step, calls, self._origins, finite, cuts)
        self._origins.note_inputs(inputs)
        watches = (
            draws.watched(step),
            precision.eagerly(),
            _full_tracebacks(tf.debugging),
            _full_tracebacks(keras.config),
            calls.watched(step, losses.fed, finite.returned),
            training.watched(),
            Methods(step).watched(),
            copies.watched(),
            Ops(copies, finite, self.devices, losses, cuts).watched(),
        )
        try:
            with applied(watches):
                yield step
        except Exception as error:
            step.failure = self._failure(error, calls)
        training.end()
        self.optimizers += training.stepped
        if calls.half and not step.half:
            step.half = {each.name: each.source for each in self.building.modules(self.model)}.get(calls.half, "")

    def _failure(self, error: Exception, calls: Calls) -> Failure:
        message = str(error)
        operation = OPERATION.search(message)
        place = calls.failing[1] if calls.failing and calls.failing[0] is error else Place(phase=calls.phase)
        place.source = source.line_of(error.__traceback__)
        kind, name = type(error).__name__, operation[1] if operation else ""
        first = NOISE.sub("", next((line for line in message.splitlines() if line.strip()), ""))
        given = [self._origins.describe(tensor) for tensor in _given(error)]
        return Failure(exception=kind, message=first, operation=name, tensors=given, place=place)


def _full_tracebacks(config: Any) -> AbstractContextManager[None]:
    """Return a context in which tracebacks have all frames; `config` is that of TensorFlow or of Keras."""

    def write(are_filtered: bool) -> None:
        (config.enable_traceback_filtering if are_filtered else config.disable_traceback_filtering)()

    return setting(config.is_traceback_filtering_enabled, write, False)


def _given(error: Exception) -> list[tf.Tensor]:
    """Return the inputs of the failing op, or else the tensors of the innermost function that was given any."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    ops = [frame for frame in frames if GENERATED in frame.f_code.co_filename]
    for frame in reversed(ops or frames):
        arguments = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        inputs = tensors([frame.f_locals.get(name) for name in arguments])
        if inputs:
            return inputs
    return []


COLLECTIVES = ("reduce", "batch_reduce", "broadcast")
PARTS = (
    (keras.Layer, "__call__", "forward"),
    (tf.GradientTape, "gradient", "backward"),
    (keras.optimizers.Optimizer, "apply", "update"),
)


def timed(clock: Clock, model: keras.Model) -> AbstractContextManager[None]:
    """Return a context that times one step."""

    def called(part: str, function: Callable[..., Any], owner: Any, /, *args: Any, **kwargs: Any) -> Any:
        is_part = tf.executing_eagerly() and (part != "forward" or owner is model)
        return (clock.timed(part, function) if is_part else function)(owner, *args, **kwargs)

    parts = (around(owner, name, partial(called, part)) for owner, name, part in PARTS)
    return applied([*parts, clock.step()])


@contextmanager
def timed_communication(clock: Clock) -> Iterator[None]:
    """Add the time of one step, which runs within the block, in which something is sent or waited for.

    That is a part of the other parts' time: reductions are made within the update. Within a tf.function nothing can be
    told, and of eager copies only those of tf.identity; an operation that takes inputs from other devices copies them
    by itself.
    """
    spans: list[tuple[float, float]] = []

    def called(is_sent: Callable[..., bool], function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = function(*args, **kwargs)
        if tf.executing_eagerly() and is_sent(result, *args, **kwargs):
            clock.wait()
            spans.append((start, time.perf_counter()))
        return result

    always = partial(called, lambda *_, **__: True)
    collectives = applied(around(tf.distribute.CrossDeviceOps, name, always) for name in COLLECTIVES)
    with collectives, around(tf, "identity", partial(called, _is_moved)):
        yield
    if spans:
        clock.add("communication", covered(spans))


def _is_moved(result: tf.Tensor, *args: Any, **kwargs: Any) -> bool:
    given = args[0] if args else kwargs["input"]
    return tf.is_tensor(given) and given.device != result.device

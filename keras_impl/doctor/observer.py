"""The observer: observes a step of training as the program runs it, without changing any result."""

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import keras
import tensorflow as tf

from keras_impl.instruments import draws, source
from keras_impl.instruments.build import Building
from keras_impl.instruments.calls import Calls
from keras_impl.instruments.copies import Copies, Reads
from keras_impl.instruments.gradients import Cuts, Finite
from keras_impl.instruments.losses import Losses
from keras_impl.instruments.methods import Methods
from keras_impl.instruments.ops import Ops
from keras_impl.instruments.origins import Origins, tensors
from keras_impl.instruments.training import Training
from keras_impl.record import precision
from parity.core.patches import setting
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
        """Run a step eagerly within the block, and fill in its evidence when it is over.

        An exception of the program is recorded as the step's failure, and does not propagate.
        """
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
            Reads(copies).watched(),
            Ops(copies, finite, self.devices, losses, cuts).watched(),
        )
        try:
            with ExitStack() as watching:
                for watch in watches:
                    watching.enter_context(watch)
                yield step
        except Exception as error:
            step.failure = self._failure(error, calls)
        training.end()
        self._take(step, calls, training)

    def _take(self, step: Step, calls: Calls, training: Training) -> None:
        """Add what is known only when the step is over."""
        seen_ids = {id(optimizer) for optimizer in self.optimizers}
        self.optimizers += [optimizer for optimizer in training.stepped if id(optimizer) not in seen_ids]
        if calls.half and not step.half:
            lines = {module.name: module.source for module in self.building.modules(self.model)}
            step.half = lines.get(calls.half, "")

    def _failure(self, error: Exception, calls: Calls) -> Failure:
        message = str(error)
        operation = OPERATION.search(message)
        place = calls.failing[1] if calls.failing and calls.failing[0] is error else Place(phase=calls.phase)
        place.source = source.line_of(error.__traceback__)
        return Failure(
            exception=type(error).__name__,
            message=NOISE.sub("", next((line for line in message.splitlines() if line.strip()), "")),
            operation=operation[1] if operation else "",
            tensors=[self._origins.describe(tensor) for tensor in _given(error)],
            place=place,
        )


def _full_tracebacks(config: Any) -> AbstractContextManager[None]:
    """Return a context in which tracebacks have all frames; `config` is that of TensorFlow or of Keras."""

    def write(are_filtered: bool) -> None:
        (config.enable_traceback_filtering if are_filtered else config.disable_traceback_filtering)()

    return setting(config.is_traceback_filtering_enabled, write, False)


def _given(error: Exception) -> list[tf.Tensor]:
    """Return the inputs of the failing op.

    If no op failed, return the tensors of the innermost function that was given any.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    ops = [frame for frame in frames if GENERATED in frame.f_code.co_filename]
    for frame in reversed(ops or frames):
        arguments = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        inputs = tensors([frame.f_locals.get(name) for name in arguments])
        if inputs:
            return inputs
    return []

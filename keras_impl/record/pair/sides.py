"""What a side of a pair's file does otherwise than the plain run: what is called, and how each batch is cut.

A side that is compiled is traced by tf.function, without the wrappers of the layers' calls. What it computes leaves the
graph as further outputs, so that nothing is added that runs within it.
"""

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from msgspec.structs import replace

from keras_impl.instruments import devices
from keras_impl.record import calls, tree
from keras_impl.record.masks import Order, OrderedMasks
from keras_impl.strategies.data_parallel import mirrored_strategy
from parity.config.schema import Case
from parity.config.sides import KerasSide, outermost
from parity.core.errors import UsageError
from parity.core.patches import wrapping
from parity.data.pairs import PairData, Rows, rows_of
from parity.trace.parts import Parts
from parity.trace.recorder import Recorder
from parity.trace.training import Training

Axes = Callable[[tuple[int, ...]], Order | None]


class Setup:
    """How a run of a side calls its model; without a side, as the plain run does.

    `joined`: in how many parts a batch is given to a script whose optimizer updates once for them.
    """

    def __init__(self, case: Case, side: KerasSide | None = None, joined: int = 1) -> None:
        self.side, self.is_plain = side or KerasSide(accumulate=joined), side is None and joined == 1
        self._seed = case.seed
        self.masks: OrderedMasks | None = None  # until `draw`
        self.batch: list[np.ndarray] = []  # the inputs of a step of the user's own; none for a plain step
        names = devices.names(self.side.devices)
        self._strategy = mirrored_strategy(names) if self.side.devices > 1 else tf.distribute.get_strategy()

    def scope(self) -> AbstractContextManager[Any]:
        """Return the context in which a model and its optimizer are made: their variables are on all devices."""
        return nullcontext() if self.side.devices == 1 else self._strategy.scope()

    def on_replicas(self, run: Callable[[Any], object], given: Sequence[Any]) -> None:
        """Call `run` once on each device, with what is given for its replica."""
        if self.side.devices == 1:
            run(given[0])
            return

        def copied(tensor: tf.Tensor | None) -> tf.Tensor | None:
            return None if tensor is None else tf.identity(tensor)  # on the device of the replica that runs

        def replica() -> None:
            run(tf.nest.map_structure(copied, given[devices.replica()]))

        self._strategy.run(replica)

    def local(self, value: Any) -> Any:
        """Return the first replica's part of what an optimizer has for all."""
        return self._strategy.experimental_local_results(value)[0]

    def recorder(self, recorder: Recorder) -> Recorder:
        """Return the recorder of whole batches, which passes on to `recorder` what is joined of its parts."""
        return Parts(recorder) if self.side.parts > 1 else recorder

    def draw(self, axes: Axes) -> OrderedMasks:
        """Return what draws the masks; `axes` returns a tensor's axes in torch's order."""
        self.masks = OrderedMasks(self._seed, axes, traced=self.side.is_compiled)
        return self.masks

    def wrap(self, model: Any) -> None:
        """Let the model be called as the side does. Raises UsageError if it has no layer to run again."""
        if pattern := self.side.checkpointing:
            named = {path: layer for path, layer in tree.named(model).items() if path and hasattr(layer, "call")}
            for path in outermost(pattern, named, "/"):
                named[path].call = wrapping(self._checkpointed, named[path].call)

    def parts(self, data: PairData) -> list[PairData]:
        """Return the parts of each batch: those of the first replica in their order, then those of the next."""
        switches = (f"accumulate = {self.side.accumulate}", f"devices = {self.side.devices}")
        cutting = " with ".join(each for each in switches if not each.endswith("= 1"))
        return [data.part(index, self.side.parts, cutting) for index in range(self.side.parts)]

    def begin_part(self, number: int) -> None:
        """Let the masks be those of one of the parts."""
        if self.masks and self.side.parts > 1:
            self.masks.begin_part(Rows(number, 1, self.side.parts))

    def begin_call(self, given: list[tf.Tensor]) -> None:
        """Let the masks be those of the rows of the batch with which a step of the user's own calls the model."""
        if self.masks and self.batch and (rows := rows_of((each.numpy() for each in given), self.batch)):
            self.masks.begin_part(rows)

    def end(self) -> None:
        """Draw the masks of whole batches again."""
        self.batch = []
        if self.masks:
            self.masks.begin_part(None)

    def accumulate(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Let an optimizer that is not built yet update once for all parts. Raises UsageError if it does for others."""
        if self.side.accumulate == 1:
            return
        if optimizer.gradient_accumulation_steps not in (None, self.side.accumulate):
            raise UsageError(
                f"accumulate = {self.side.accumulate}: the optimizer has gradient_accumulation_steps = "
                f"{optimizer.gradient_accumulation_steps} already; leave one of them out"
            )
        optimizer.gradient_accumulation_steps = self.side.accumulate

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of tensors as the side runs it: op by op, as a graph, or compiled by XLA."""
        if not self.side.is_compiled:
            return function

        def traced(*tensors: Any) -> Any:
            if self.masks:
                self.masks.restart()
            return function(*tensors)

        return tf.function(traced, autograph=False, jit_compile=self.side.xla or None)

    def told(self, training: Training) -> Training:
        """Return how a side was trained, with by what its model was compiled."""
        return replace(training, compiled="XLA" if self.side.xla else "tf.function" if self.side.graph else "")

    def _checkpointed(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        passes, again = itertools.count(), self.masks.replaying() if self.masks else nullcontext()

        def run(*tensors: Any) -> Any:
            if next(passes) == 0:
                return call(*tensors, **kwargs)
            with again, calls.unobserved():  # in the backward pass
                return call(*tensors, **kwargs)

        return keras.remat(run)(*args)

"""A user's model that is built once and called many times, on varied inputs, in inference or training mode.

An observer is told the values at which it branches: at kinks, in masks, and as ids of embeddings. From them the report
says which branches of the model the inputs have reached.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from parity.config.schema import Case
from parity.core.arrays import Floats
from parity.core.errors import BackendError
from parity.core.patches import applied
from parity.data.masks import Drawing
from parity.pairs.vary.coverage import Draw, Observer
from parity.runtime.job import VaryJob
from torch_impl.instruments import devices, script_calls
from torch_impl.record import calls, precision, tree
from torch_impl.record.masks import Masks
from torch_impl.record.pair import values
from torch_impl.record.pair.build import call, ready, tensors
from torch_impl.record.pair.outputs import named
from torch_impl.record.pair.run import fast_paths, without_fast_paths
from torch_impl.record.weights import array


@contextmanager
def opened(job: VaryJob, at: str, weights: Mapping[str, Floats], given: dict[str, np.ndarray]) -> Iterator["Instance"]:
    """Build the model with these weights, as for a recorded run; only Keras's half needs what is `given`."""
    device = devices.find(job.case).logical[0]
    with precision.policy(at), precision.promoted(at) as promotions:
        model = ready(job.case, at, job.pair.search, device, promotions)
        load = partial(values.load, model, weights, Path(job.pair.survey))
        load()
        with without_fast_paths(model):
            yield Instance(job.case, model, at, device, load, promotions)


class Instance:
    """A built model, with its first buffers; `load` gives it weights, and `promotions` are those made so far."""

    def __init__(
        self,
        case: Case,
        model: nn.Module,
        at: str,
        device: torch.device,
        load: Callable[[], object],
        promotions: Sequence[str] = (),
    ) -> None:
        self.case, self.model, self.at, self.device = case, model, at, device
        self._buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        self._state = values.python_state(model)
        self._load, self._parameters, self._promotions = load, list(model.parameters()), promotions
        self._versions = self._written()
        self.drawing = Drawing()

    def call(
        self, inputs: dict[str, np.ndarray], training: bool | None, observer: Observer
    ) -> list[tuple[str, np.ndarray]]:
        """Return the model's outputs by name; in training mode its dropout draws shared masks.

        Without `training` the model is called as users call it, in inference. Raises UsageError and BackendError for
        inputs that the model does not take.
        """
        script_calls.train(self.model, bool(training))
        if training is None:
            return self._called_plainly(inputs)
        masks = _NotifyingMasks(self.case.seed, observer)
        autocast = precision.autocast(self.at, self.device.type)
        with autocast, self._drawn(masks, training), observed(self.model, observer):
            outputs = call(self.model, self.case.model, tensors(inputs, self.device))
        observer.states |= masks.repeats.states
        return [(name, array(tensor)) for name, tensor in named(self.case.model, outputs)]

    def _called_plainly(self, inputs: dict[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
        """Call the model with PyTorch's fast paths, and without gradients unless it computes some itself.

        A torch function mode, such as that which promotes float32, keeps PyTorch from its fast paths: where nothing was
        promoted it is left.
        """
        with (
            self._drawn(Masks(self.case.seed, 0, ordered=True), training=False),
            fast_paths(),
            precision.autocast(self.at, self.device.type),
            nullcontext() if self._promotions else torch._C.DisableTorchFunction(),
        ):
            try:
                with torch.no_grad():
                    outputs = call(self.model, self.case.model, tensors(inputs, self.device))
            except BackendError:
                outputs = call(self.model, self.case.model, tensors(inputs, self.device))
        return [(name, array(tensor)) for name, tensor in named(self.case.model, outputs)]

    def _drawn(self, masks: Masks, training: bool) -> AbstractContextManager[None]:
        """Return a context in which the model draws shared masks."""
        return self.drawing.by(masks, partial(masks.holding(self.case.model).drawn, self.model, training))

    def reload_written(self) -> None:
        """Load the weights again if a call has written to them, as that of an nn.Embedding with max_norm does."""
        if self._written() != self._versions:
            self._load()
            self._versions = self._written()

    def _written(self) -> list[int]:
        """Return how often each parameter has been written to."""
        return [parameter._version for parameter in self._parameters]

    def reset(self) -> None:
        """Give all that a call may change the value that it had before the first call."""
        self._state.restore()
        self.reload_written()
        self.reset_variables()

    def reset_variables(self) -> None:
        """Give the buffers the values that they had before the first call."""
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                if name in self._buffers and buffer.shape == self._buffers[name].shape:
                    buffer.copy_(self._buffers[name])


class _NotifyingMasks(Masks):
    """Shared masks, with the observer notified of each draw."""

    def __init__(self, seed: int, observer: Observer) -> None:
        super().__init__(seed, 0, ordered=True)
        self.observer = observer

    def dropped(self, x: torch.Tensor, rate: float) -> torch.Tensor:
        """Return x after the dropout of the module that is being called."""
        self.observer.draws.append(Draw(float(rate), x.numel()))
        return super().dropped(x, rate)


# Functions with kinks at fixed values: the lower and the upper one.
KINKS: dict[str, tuple[float | None, float | None]] = {
    **dict.fromkeys(("relu", "relu_", "leaky_relu", "leaky_relu_", "rrelu", "prelu"), (0.0, None)),
    **dict.fromkeys(("elu", "elu_", "selu", "celu"), (0.0, None)),
    "relu6": (0.0, 6.0),
    **dict.fromkeys(("hardswish", "hardsigmoid"), (-3.0, 3.0)),
    "softplus": (None, 20.0),
}
# Functions whose kinks are arguments: name and default of the lower and of the upper one, in this order.
CLAMPS: dict[str, tuple[tuple[str, float | None], tuple[str, float | None]]] = {
    "hardtanh": (("min_val", -1.0), ("max_val", 1.0)),
    **dict.fromkeys(("clamp", "clamp_", "clip"), (("min", None), ("max", None))),
}
ENDS: dict[str, str] = {"clamp_min": "min", "clamp_min_": "min", "clamp_max": "max", "clamp_max_": "max"}
MASKS: dict[str, tuple[int, str]] = {"masked_fill": (1, "mask"), "masked_fill_": (1, "mask"), "where": (0, "condition")}


def observed(model: nn.Module, observer: Observer) -> AbstractContextManager[None]:
    """Return a context in which the arguments of the model's branching functions are reported."""
    return applied([calls.tracked(), _Observing(observer, tree.paths(model))])


class _Observing(TorchFunctionMode):
    """The mode that sees every torch function; `paths` holds those of the model's modules."""

    def __init__(self, observer: Observer, paths: dict[nn.Module, str]) -> None:
        super().__init__()
        self.observer, self.paths = observer, paths

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        with torch._C.DisableTorchFunction():
            self._see(getattr(func, "__name__", ""), args, given)
        return func(*args, **given)

    def _see(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Report the arguments of a function if it masks, looks up embeddings, or has kinks."""
        where = calls.innermost(self.paths) or ""
        x = args[0] if args else kwargs.get("input")
        if name in MASKS:
            mask = _argument(args, kwargs, *MASKS[name], None)
            if isinstance(mask, torch.Tensor) and mask.ndim:
                self.observer.mask(where, array(mask))
        elif name == "embedding" and isinstance(x, torch.Tensor):
            weight, padding = (_argument(args, kwargs, *each, None) for each in ((1, "weight"), (2, "padding_idx")))
            self.observer.ids(where, array(x), len(weight), None if padding in (None, -1) else padding % len(weight))
        elif isinstance(x, torch.Tensor) and not x.is_complex() and (limits := _limits(name, args, kwargs)):
            function = name.rstrip("_")
            self.observer.kinks("clamp" if name in CLAMPS or name in ENDS else function, where, array(x), *limits)


def _limits(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[float | None, float | None] | None:
    """Return a function's lower and upper kink; None if it has none, or if they are not plain numbers."""
    if name in KINKS:
        return KINKS[name]
    if name in CLAMPS:
        limits = [_argument(args, kwargs, position, *argument) for position, argument in enumerate(CLAMPS[name], 1)]
    elif name in ENDS:
        limit = _argument(args, kwargs, 1, ENDS[name], None)
        limits = [limit, None] if ENDS[name] == "min" else [None, limit]
    else:
        return None
    numbers = all(limit is None or isinstance(limit, (int, float)) for limit in limits)
    return (limits[0], limits[1]) if numbers else None


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, default: Any) -> Any:
    return args[position] if len(args) > position else kwargs.get(name, default)

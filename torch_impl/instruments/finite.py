"""What is visible only below autograd: the op that made a NaN or an Inf, in-place changes, and sends.

An op with finite inputs and a result that is not finite is a suspect. It is reported only if its result, or what is
computed from it, reaches a module's output, the loss or a gradient: a mask of -inf, for example, is intended.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from parity.doctor.evidence import InPlace, NotFinite, Place
from torch_impl.instruments import source, values
from torch_impl.instruments.calls import Calls
from torch_impl.instruments.ops import MARK
from torch_impl.instruments.origins import Origins, tensors
from torch_impl.instruments.structure import is_dtensor_class

# Ops that insert values which the program has chosen (fill), or arbitrary ones (empty).
CHOSEN = {
    *("full", "full_like", "new_full", "fill", "fill_", "masked_fill", "masked_fill_", "where"),
    *("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"),
    *("masked_scatter", "index_fill", "index_fill_", "index_put", "index_put_", "constant_pad_nd"),
}
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
CUTS = {"send": "send", "recv_": "receive"}


class Kind(NamedTuple):
    """How an op treats its arguments.

    `written` holds the positions of the arguments that it changes; `view` says that it computes nothing new.
    """

    name: str
    written: tuple[int, ...]
    view: bool


class AtenObserver(TorchDispatchMode):
    """The mode that sees every ATen op of a step, except those of an optimizer."""

    def __init__(self, calls: Calls, origins: Origins):
        super().__init__()
        self.calls, self.origins = calls, origins
        # By storage: a result that is not finite, and its cause, if known. Holding the tensor keeps its storage from
        # being used again for another.
        self._suspects: dict[int, tuple[torch.Tensor, NotFinite | None]] = {}

    def finish(self) -> None:
        """Release all tensors."""
        self._suspects.clear()

    def reached(self, value: Any) -> None:
        """Report a value that matters (a module's output, a loss, a gradient), which may be a suspect's."""
        step = self.calls.step
        for tensor in tensors(value) if self._suspects and step.not_finite is None else ():
            made = self._made(tensor)
            # A GradScaler tries large scales on purpose.
            if made and not (step.loss_scaled and made.place.phase == "backward"):
                step.not_finite = made
                return

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if any(map(is_dtensor_class, types)):
            return NotImplemented  # DTensor then turns the op into local ops and collectives
        if self.calls.phase == "update":
            return func(*args, **kwargs)
        if func.namespace == "c10d":
            self._note_cut(func, args)
            return func(*args, **kwargs)
        kind = _kind(func)
        changed = [args[i] for i in kind.written if i < len(args) and _is_float(args[i])]
        self._note_in_place(kind, changed)
        extent_before = values.extent(changed)
        try:
            results = func(*args, **kwargs)
        except Exception as error:
            # In the forward pass, the function that the program called is recorded instead, which says more.
            if torch._C._current_autograd_node() is not None:
                given = [self.origins.describe(tensor) for tensor in tensors(args)]
                self.calls.failed(error, kind.name, given, self._place())
            raise
        if not kind.view:
            self._look(kind, args, kwargs, changed, extent_before, results)
        return results

    def _note_cut(self, func: Any, args: tuple) -> None:
        what = CUTS.get(func.overloadpacket.__name__)
        for tensor in tensors(args[0]) if what else ():
            if tensor.requires_grad or (what == "receive" and tensor.is_floating_point()):
                self.calls.note_cut(what, tensor, self.calls.place(source.line()))

    def _note_in_place(self, kind: Kind, changed: list[torch.Tensor]) -> None:
        for tensor in changed if torch.is_grad_enabled() else ():
            if tensor.grad_fn is not None and (line := source.line()):
                made_by, shape, place = _operation(tensor.grad_fn), list(tensor.shape), self.calls.place(line)
                change = InPlace(operation=kind.name, made_by=made_by, shape=shape, place=place)
                self.calls.step.in_places.append(change)

    def _look(self, kind: Kind, args: Any, kwargs: Any, changed: list, extent_before: Any, results: Any) -> None:
        for result in filter(_is_float, results if isinstance(results, (list, tuple)) else (results,)):
            if not values.is_finite(result):
                inputs = [tensor for tensor in tensors((args, kwargs)) if _is_float(tensor) and tensor is not result]
                own_extent = extent_before if any(tensor is result for tensor in changed) else None
                self._suspects[values.storage(result)] = result, self._cause(kind, inputs, own_extent, result)
            elif self._suspects and kind.written:
                self._suspects.pop(values.storage(result), None)

    def _cause(self, kind: Kind, inputs: list, extent_before: Any, result: torch.Tensor) -> NotFinite | None:
        """Return the cause of a result that is not finite: the op itself, or the cause of its inputs."""
        extents = [extent for extent in (values.extent(inputs), extent_before) if extent]
        if not extents:
            return None
        smallest, largest = min(low for low, _ in extents), max(high for _, high in extents)
        was_nan = any(math.isnan(low) for low, _ in extents)
        was_inf = math.isinf(smallest) or math.isinf(largest)
        is_nan = math.isnan(values.extent([result])[0])
        if was_nan or was_inf:
            cause = self._made(*inputs, result)
            if cause or was_nan or not is_nan:
                return cause
        if kind.name in CHOSEN:
            return None
        became, node = "nan" if is_nan else "inf", torch._C._current_autograd_node()
        # In a backward pass name the forward op: the ATen op says little (a division may be the backward of a root).
        operation = kind.name if node is None else _operation(node)
        return NotFinite(operation=operation, became=became, smallest=smallest, largest=largest, place=self._place())

    def _made(self, *given: torch.Tensor) -> NotFinite | None:
        """Return the cause of the first of these tensors that is a suspect."""
        suspects = (self._suspects.get(values.storage(tensor), (tensor, None)) for tensor in given)
        return next((made for _, made in suspects if made), None)

    def _place(self) -> Place:
        """Return the current place; in the backward pass, the place that created the running node."""
        node = torch._C._current_autograd_node()
        if node is None:
            return self.calls.place(source.line())
        created = node.metadata.get(MARK) or Place()
        return Place(module=created.module, source=created.source, phase="backward")


@cache
def _kind(func: Any) -> Kind:
    arguments = enumerate(func._schema.arguments)
    written = tuple(i for i, argument in arguments if argument.alias_info and argument.alias_info.is_write)
    view = any(result.alias_info and not result.alias_info.is_write for result in func._schema.returns)
    return Kind(func.overloadpacket.__name__, written, view)


def _is_float(value: Any) -> bool:
    """Return whether the value is a float tensor whose numbers can be read."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_meta or value.is_nested:
        return False
    return value.dtype in FLOATS and value.numel() > 0 and values.are_there(value)


def _operation(node: Any) -> str:
    """Return the op's name from its node's: native_batch_norm for NativeBatchNormBackward0."""
    name = node.name().rstrip("0123456789").removesuffix("Backward")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")

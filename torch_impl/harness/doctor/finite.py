"""What is seen below autograd, forward and backward: the op that made a NaN or an Inf, changes in place, sends.

Every op whose inputs are finite and whose result is not is under suspicion, and so is what is made of its result;
it is guilty if that reaches a module's output, the loss or a gradient. A mask of -inf is put in on purpose.
"""

import math
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from parity.doctor.evidence import Cut, InPlace, NotFinite, Place, Step
from torch_impl.harness.doctor import source, values
from torch_impl.harness.doctor.calls import Calls
from torch_impl.harness.doctor.ops import MARK
from torch_impl.harness.doctor.origins import Origins, tensors

# What puts in numbers that the program has chosen, or none in particular.
CHOSEN = frozenset(
    (
        *("full", "full_like", "new_full", "fill", "fill_", "masked_fill", "masked_fill_", "where"),
        *("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"),
        *("masked_scatter", "index_fill", "index_fill_", "index_put", "index_put_", "constant_pad_nd"),
    )
)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
CUTS = {"send": "send", "recv_": "receive"}


class Kind(NamedTuple):
    """What an op does to its arguments: `written` are the places of those that it changes. `view`: it makes nothing."""

    name: str
    written: tuple[int, ...]
    view: bool


class Suspect(NamedTuple):
    """A result that is not finite, kept so that no other takes its storage, and what made it so, if that is known."""

    tensor: torch.Tensor
    made: NotFinite | None


class AtenObserver(TorchDispatchMode):
    """Sees every op, from `begin` on, but those of an optimizer."""

    def __init__(self, calls: Calls, origins: Origins):
        super().__init__()
        self.calls, self.origins = calls, origins
        self.step = Step()
        self._suspects: dict[int, Suspect] = {}  # by storage
        self._kinds: dict[Any, Kind] = {}

    def begin(self, step: Step) -> None:
        """What is seen from now on is of this step."""
        self.step = step

    def finish(self) -> None:
        """Hold nothing any more."""
        self._suspects.clear()

    def reached(self, value: Any) -> None:
        """This is what counts: a module's output, a loss, a gradient."""
        for tensor in tensors(value) if self._suspects and self.step.not_finite is None else ():
            suspect = self._suspects.get(values.storage(tensor))
            if suspect and suspect.made and not self._is_scaled(suspect.made):
                self.step.not_finite = suspect.made
                return

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # first DTensor turns it into ops on local tensors and collectives
        if self.calls.phase == "update":
            return func(*args, **kwargs)
        if func.namespace == "c10d":
            self._note_cut(func, args)
            return func(*args, **kwargs)
        kind = self._kind(func)
        changed = [args[i] for i in kind.written if i < len(args) and _is_float(args[i])]
        self._note_in_place(kind, changed)
        before = values.extent(changed)
        try:
            results = func(*args, **kwargs)
        except Exception as error:
            self._note_failure(error, kind.name, args)
            raise
        if not kind.view:
            self._look(kind, args, kwargs, changed, before, results)
        return results

    def _kind(self, func: Any) -> Kind:
        if func not in self._kinds:
            schema = func._schema
            written = [i for i, each in enumerate(schema.arguments) if each.alias_info and each.alias_info.is_write]
            view = any(each.alias_info and not each.alias_info.is_write for each in schema.returns)
            self._kinds[func] = Kind(func.overloadpacket.__name__, tuple(written), view)
        return self._kinds[func]

    def _note_cut(self, func: Any, args: tuple) -> None:
        what = CUTS.get(func.overloadpacket.__name__)
        for tensor in tensors(args[0]) if what else ():
            if tensor.requires_grad or (what == "receive" and tensor.is_floating_point()):
                place = self.calls.place(source.line())
                self.step.cuts.append(Cut(what=what, tensor=self.origins.describe(tensor), place=place))

    def _note_in_place(self, kind: Kind, changed: list[torch.Tensor]) -> None:
        for tensor in changed if torch.is_grad_enabled() else ():
            if tensor.grad_fn is not None and (line := source.line()):
                self.step.in_places.append(
                    InPlace(
                        operation=kind.name,
                        made_by=_operation(tensor.grad_fn),
                        shape=list(tensor.shape),
                        place=self.calls.place(line),
                    )
                )

    def _note_failure(self, error: Exception, name: str, args: tuple) -> None:
        """In the backward pass; in the forward pass the function that the program called says more."""
        if torch._C._current_autograd_node() is not None:
            given = [self.origins.describe(tensor) for tensor in tensors(args)]
            self.calls.failed(error, name, given, self._place())

    def _look(self, kind: Kind, args: Any, kwargs: Any, changed: list, before: Any, results: Any) -> None:
        """Whether the results are finite."""
        for result in filter(_is_float, results if isinstance(results, (list, tuple)) else (results,)):
            if not values.is_finite(result):
                others = [each for each in tensors((args, kwargs)) if _is_float(each) and each is not result]
                was = before if any(each is result for each in changed) else None
                self._suspects[values.storage(result)] = Suspect(result, self._cause(kind, others, was, result))
            elif self._suspects and kind.written:
                self._suspects.pop(values.storage(result), None)

    def _cause(self, kind: Kind, others: list, before: Any, result: torch.Tensor) -> NotFinite | None:
        """The op itself, or what had made its inputs so."""
        found = [each for each in (values.extent(others), before) if each]
        if not found:
            return None
        smallest, largest = min(low for low, _ in found), max(high for _, high in found)
        was_nan = any(math.isnan(low) for low, _ in found)
        was_inf = math.isinf(smallest) or math.isinf(largest)
        is_nan = math.isnan(values.extent([result])[0])
        if was_nan or was_inf:
            known = self._made(*others, result)
            if known or was_nan or not is_nan:
                return known
        if kind.name in CHOSEN:
            return None
        became, node = "nan" if is_nan else "inf", torch._C._current_autograd_node()
        operation = kind.name if node is None else _operation(node)  # what a backward pass divides, say, was a root
        return NotFinite(operation=operation, became=became, smallest=smallest, largest=largest, place=self._place())

    def _made(self, *given: torch.Tensor) -> NotFinite | None:
        """What made one of them not finite."""
        known = (self._suspects.get(values.storage(each)) for each in given)
        return next((suspect.made for suspect in known if suspect and suspect.made), None)

    def _place(self) -> Place:
        """In the backward pass that which made the node of the graph."""
        node = torch._C._current_autograd_node()
        if node is None:
            return self.calls.place(source.line())
        made = node.metadata.get(MARK) or Place()
        return Place(module=made.module, source=made.source, phase="backward")

    def _is_scaled(self, made: NotFinite) -> bool:
        """A GradScaler tries how far it can go."""
        return self.step.loss_scaled and made.place.phase == "backward"


def _is_float(value: Any) -> bool:
    """Whether it is a tensor with numbers that can be looked at."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_meta or value.is_nested:
        return False
    return value.dtype in FLOATS and value.numel() > 0 and values.are_there(value)


def _operation(node: Any) -> str:
    """NativeBatchNormBackward0 is of native_batch_norm."""
    name = node.name().rstrip("0123456789").removesuffix("Backward")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")

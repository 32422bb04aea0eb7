"""States that a program carries from one step to the next with their graph, such as those of a recurrent network."""

import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from parity.doctor import rewrite
from parity.doctor.evidence import Step
from parity.doctor.evidence.common import Code
from parity.doctor.evidence.training import Carried
from torch_impl.instruments import source
from torch_impl.instruments.calls import Calls
from torch_impl.instruments.origins import Origins

MARK = "doctor step"  # metadata key of an autograd node: the number of the step that created it


class CarriedStates:
    """Records the first tensor in a step whose graph an earlier step has built."""

    def __init__(self, calls: Calls, origins: Origins):
        self.calls, self.origins, self._number = calls, origins, 0

    def begin(self, step: Step) -> None:
        """Begin a step."""
        self.step, self._number = step, self._number + 1

    def see(self, given: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        """Note a function that the program called; a sum of losses is none of the states."""
        for tensor in given if self.step.carried is None else ():
            node = tensor.grad_fn
            if node is not None and tensor.dim() and node.metadata.get(MARK, self._number) != self._number:
                place, described = self.calls.place(source.line()), self.origins.describe(tensor)
                self.step.carried = Carried(place=place, tensor=described, mended=_detached(tensor))
                break
        for tensor in results:
            if tensor.grad_fn is not None:
                tensor.grad_fn.metadata.setdefault(MARK, self._number)


def _detached(tensor: torch.Tensor) -> Code | None:
    """Return the statement that detaches a state, for the user's line that reads it from where it is kept."""
    frame = source.frame()
    while frame is not None:
        arguments = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        names = [name for name, value in frame.f_locals.items() if _holds(value, tensor)]
        is_reading = source.is_user(frame) and not set(names) & set(arguments)  # else its caller has read it
        for name, value in _kept(frame) if is_reading else ():
            if _holds(value, tensor):
                parts = f"{name}.detach()" if value is tensor else f"tuple(part.detach() for part in {name})"
                assigned = rewrite.assigned(frame, names[0]) if names else None
                line = assigned.node.lineno if assigned else frame.f_lineno
                shown = rewrite.shown(frame.f_code.co_filename, line)
                return Code(source=shown, fix=f"if {name} is not None: {name} = {parts}")
        frame = frame.f_back
    return None


def _holds(value: Any, tensor: torch.Tensor) -> bool:
    return value is tensor or (isinstance(value, (tuple, list)) and any(part is tensor for part in value))


def _kept(frame: types.FrameType) -> Iterator[tuple[str, Any]]:
    """Yield what outlives a function: global variables, and the attributes and items of what it can refer to."""
    yield from frame.f_globals.items()
    for name, owner in [*frame.f_locals.items(), *frame.f_globals.items()]:
        if isinstance(owner, nn.Module):
            yield from ((f"{name}.{key}", value) for key, value in [*vars(owner).items(), *owner._buffers.items()])
        elif isinstance(owner, dict):
            yield from ((f"{name}[{key!r}]", value) for key, value in list(owner.items()))
        elif hasattr(owner, "__dict__") and not isinstance(owner, (type, types.ModuleType, torch.Tensor)):
            yield from ((f"{name}.{key}", value) for key, value in list(vars(owner).items()))

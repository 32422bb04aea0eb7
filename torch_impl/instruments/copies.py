"""What the program copies between devices, and where it makes the host wait for a GPU."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from parity.core.patches import applied, around
from parity.doctor import rewrite
from parity.doctor.evidence import Copy, Race, Step, What
from torch_impl.instruments import source
from torch_impl.instruments.calls import Calls
from torch_impl.instruments.origins import ATTRIBUTES, CONSTANT, VIEWS, Origins, device
from torch_impl.instruments.pretended.runtime import Nothing

HOST = "cpu"
# Functions that read a tensor on the host.
READS: dict[str, What] = {
    **dict.fromkeys(("item", "tolist", "__float__", "__int__", "__index__", "__complex__"), "item"),
    **dict.fromkeys(("__bool__", "is_nonzero", "equal", "allclose", "__contains__"), "bool"),
    **dict.fromkeys(("__repr__", "__str__", "__format__"), "print"),
    **dict.fromkeys(("numpy", "__array__"), "numpy"),
}
# Functions whose result's size depends on the values, which the host must wait for.
COUNTS = ("masked_select", "nonzero", "argwhere", "unique", "unique_consecutive")
MOVES = ("to", "cuda", "cpu", "type")
LATER = frozenset((*VIEWS, *ATTRIBUTES)) - {"clone", "contiguous"}  # functions that read no numbers
FACTORIES = ("tensor", "as_tensor", "asarray")


class Copies:
    def __init__(self, calls: Calls, origins: Origins, gpus: list[str]):
        self.calls, self.origins, self.gpus = calls, origins, gpus
        # Which part of a tensor was copied to which device, and in which step.
        self._moved: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._number = 0
        self._found: dict[tuple, Copy] = {}
        self._landing: WeakIdKeyDictionary = WeakIdKeyDictionary()  # copies on the host that may not be complete

    def begin(self, step: Step) -> None:
        self.step = step
        self._number += 1
        self._landing.clear()
        self._found.clear()

    def watched(self) -> AbstractContextManager[None]:
        """Return a context that notes when the program waits until all copies are complete."""
        owners = torch.cuda, torch.accelerator, torch.cuda.Stream, torch.cuda.Event, Nothing
        return applied(around(owner, "synchronize", self._wait) for owner in owners)

    def _wait(self, wait: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._landing.clear()
        return wait(*args, **kwargs)

    def note(
        self, function: str, args: tuple, kwargs: dict, given: list[torch.Tensor], results: Any, seconds: float
    ) -> None:
        """Note a function call; `given` holds the tensors among its arguments, `seconds` is its duration."""
        self._note_race(function, given, results)
        if function in ("to", "copy_") and self._note_landing(args, kwargs, results):
            return
        if function in READS and given and device(given[0]) in self.gpus:
            self._landing.clear()  # this waits for the device, and what was sent before has arrived
        if function in FACTORIES and not (given and args and given[0] is args[0]):  # of Python or NumPy values
            if device(results) in self.gpus:
                self._add("constant", results, device(results), seconds)
        elif not given:
            return
        elif function in (*MOVES, *FACTORIES):
            self._note_move(given[0], results, seconds)
        elif function == "copy_":
            self._note_move(given[1], given[0], seconds)
        elif device(given[0]) in self.gpus:
            if function in READS:
                self._add(READS[function], given[0], HOST, seconds)
            elif function in COUNTS or _by_mask(function, args, given):
                self._add("boolean_index", given[0], device(given[0]), seconds)

    def _note_landing(self, args: tuple, kwargs: dict, result: torch.Tensor) -> bool:
        """Note a copy from a GPU to the host for which the host does not wait; return whether this is one."""
        tensor = args[1] if result is args[0] and len(args) > 1 else args[0]
        waits = not kwargs.get("non_blocking") and not any(argument is True for argument in args)
        if waits or device(tensor) not in self.gpus or device(result) != HOST:
            return False
        self._landing[result] = source.spot(), source.line(), self.origins.describe(tensor)
        return True

    def _note_race(self, function: str, given: list[torch.Tensor], results: Any) -> None:
        """Record that the host reads a copy which may not be complete; a view of it is no reading."""
        for tensor in given if self._landing else ():
            copied = self._landing.get(tensor)
            if copied and function in LATER and isinstance(results, torch.Tensor):
                self._landing[results] = copied
            elif copied and function not in ("to", "cuda"):
                spot, line, described = copied
                race = Race(tensor=described, read=source.line(), place=self.calls.place(line))
                if race.read == line:
                    race.mended = rewrite.code(spot, lambda copy: copy.with_keyword("non_blocking", "False"))
                self.step.races.append(race)
                self._landing.clear()
                return

    def _note_move(self, tensor: torch.Tensor, result: Any, seconds: float) -> None:
        # The result is no tensor if it was x.type() without arguments, which returns a string.
        target = device(result) if isinstance(result, torch.Tensor) else device(tensor)
        if device(tensor) == target:
            return
        what: What = "to"
        if target == HOST:
            what = "cpu"
        elif device(tensor) == HOST and self.origins.of(tensor).origin == CONSTANT:
            what = "constant"
        # Whether the tensor was copied there before; each batch of inputs is a new tensor.
        base = tensor if tensor._base is None else tensor._base
        key, moved = (target, tensor.storage_offset(), tensor.shape), self._moved.setdefault(base, {})
        last_step, moved[key] = moved.get(key, -1), self._number
        is_input = self.origins.of(tensor).origin.startswith("input ")
        is_repeated = last_step == self._number or (last_step == self._number - 1 and not is_input)
        self._add(what, tensor, target, seconds, is_repeated)

    def _add(self, what: What, tensor: torch.Tensor, target: str, seconds: float, is_repeated: bool = False) -> None:
        """Add a copy to that of the same kind, line and devices, if it is in a line of the user's."""
        line = source.direct(modules=True)
        if not line:
            return  # a library's own copy, such as an optimizer's or a GradScaler's
        described = self.origins.describe(tensor)
        if what == "constant":
            described.device = HOST
        uploaded = described.device == HOST and isinstance(tensor, torch.Tensor) and device(tensor) == HOST
        place, home = self.calls.place(line), described.device
        copy = Copy(what=what, source=home, target=target, tensor=described, place=place, count=0)
        if what in ("item", "cpu", "numpy"):
            spot = source.spot()
            copy.mended = rewrite.code(spot, lambda read: read.wrapped(read.operand(), "{}.detach()", read.node))
        copy = self._found.setdefault((what, line, home, target, described.origin), copy)
        self.step.copies += [] if copy.count else [copy]
        copy.count += 1
        copy.bytes += described.bytes
        copy.seconds += seconds
        copy.again += is_repeated
        copy.pinned &= not uploaded or tensor.is_pinned()
        copy.contiguous &= tensor.is_contiguous()


def _by_mask(function: str, args: tuple, given: list[torch.Tensor]) -> bool:
    """Return whether elements are selected by a mask, x[mask], or located, torch.where(mask)."""
    if function == "where":
        return len(args) == len(given) == 1
    if function not in ("__getitem__", "__setitem__"):
        return False
    if function == "__setitem__" and not (isinstance(args[2], torch.Tensor) and args[2].dim()):
        return False  # a scalar is filled in where the mask is true, without counting
    parts = args[1] if isinstance(args[1], tuple) else (args[1],)
    return any(isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8) for part in parts)

"""Graphs that outlive their step: of a loss that is summed up or kept, and of a state that is carried on.

States are those of a recurrent network, for example, which a program carries from one step to the next.
"""

import gc
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from parity.doctor import rewrite
from parity.doctor.evidence import Carried, Code, Held, Place, Step
from parity.doctor.rewrite import Expression, Spot
from torch_impl.instruments import source
from torch_impl.instruments.calls import Calls
from torch_impl.instruments.origins import Origins

ADDS = frozenset(("add", "__add__", "__radd__", "__iadd__", "add_", "sum", "stack"))
MADE = "doctor made"  # metadata key of the same kind, for every tensor that the program computes
MARK = "doctor graph"  # metadata key of an autograd node, whose value lives as long as the node
STEP = "doctor step"  # metadata key of an autograd node: the number of the step that created it


class _Alive:
    """A marker that lives as long as the autograd node that holds it."""


class Graphs:
    """Follows the losses of each step until the next step is over."""

    def __init__(self) -> None:
        self._roots: list[tuple[weakref.ref, weakref.ref, Place, Code | None]] = []  # of the previous step
        self._new: list[tuple[weakref.ref, weakref.ref, Place, Code | None]] = []
        self._made: list[list[tuple[weakref.ref, Place, list[Spot]]]] = [[]]  # by step
        self._sums: list[tuple[weakref.ref, Place, Spot | None]] = []  # what the program summed up, the latest last

    def note_sum(self, function: str, result: Any, place: Place) -> None:
        """Note a scalar that the program summed up of others, with a graph."""
        if function in ADDS and isinstance(result, torch.Tensor) and result.dim() == 0 and result.grad_fn is not None:
            place.source = source.line()
            self._sums.append((weakref.ref(result), place, source.spot()))

    def note_made(self, results: list[torch.Tensor], place: Place) -> None:
        """Note tensors with a graph, and the user's frames that are computing them."""
        for tensor in results:
            if tensor.grad_fn is not None and tensor.dim() and MADE not in tensor.grad_fn.metadata:
                alive = tensor.grad_fn.metadata.setdefault(MADE, _Alive())
                self._made[-1].append((weakref.ref(alive), place, [*map(rewrite.spot, source.frames())]))

    def kept(self) -> Held | None:
        """Return what of the graphs of each observed step is still alive when all steps are over."""
        gc.collect()
        alive = [[made for made in step if made[0]()] for step in self._made[:-1]]
        if len(alive) < 2 or not all(alive):
            return None
        _, place, spots = alive[0][-1]  # the last one that is alive: it holds those before it
        mended = next(filter(None, map(rewrite.detached, spots)), None)
        return Held(place=place, mended=mended)

    def note_root(self, root: torch.Tensor, place: Place) -> None:
        """Note a tensor from which a backward pass begins."""
        if root.grad_fn is None:
            return
        alive = root.grad_fn.metadata.setdefault(MARK, _Alive())
        self._new.append((weakref.ref(alive), weakref.ref(root), place, rewrite.appended(source.frame(), root)))

    def finish(self, step: Step) -> None:
        """End the step; graphs of the previous step that are alive after garbage collection are recorded as held."""
        if any(alive() for alive, *_ in self._roots):
            gc.collect()
        held = next((known for known in self._roots if known[0]()), None)
        if held:
            step.held = self._held(*held[1:])
        self._roots, self._new = self._new, []
        self._made.append([])

    def _held(self, root: weakref.ref, place: Place, appended: Code | None) -> Held:
        """Return where the graph is held: in a sum of the program's, or in a list the loss is appended to."""
        for total, added, spot in reversed(self._sums):
            if total() is not None:
                return Held(place=added, mended=rewrite.code(spot, _detached))
        if root() is not None and appended:
            place.source = appended.source
        return Held(place=place, mended=appended)


def feeds(roots: list[Any], owners: dict[int, str]) -> set[tuple[str, str]]:
    """Return the pairs (a, b) such that an op combines a parameter of a with what parameters of b have made.

    `roots`: the nodes at which a backward pass begins. `owners`: by the id of a parameter, its owner.
    """
    below: dict[Any, frozenset[str]] = {}  # by node, the owners of the parameters that it depends on
    pairs, waiting = set(), list(filter(None, roots))
    while waiting:
        node = waiting[-1]
        parents = [parent for parent, _ in node.next_functions if parent is not None]
        if missing := [parent for parent in parents if parent not in below]:
            waiting += missing
            continue
        waiting.pop()
        own = owners.get(id(getattr(node, "variable", None)))
        below[node] = frozenset([] if own is None else [own]).union(*(below[parent] for parent in parents))
        alone = {owner for parent in parents if _is_parameter(parent) for owner in below[parent]}
        mixed = {owner for parent in parents for owner in below[parent]}
        pairs |= {(a, b) for a in alone for b in mixed if a != b}
    return pairs


def _is_parameter(node: Any) -> bool:
    """Return whether a node stands for a parameter, at most transposed."""
    parents = [parent for parent, _ in node.next_functions]
    return hasattr(node, "variable") or (len(parents) == 1 and hasattr(parents[0], "variable"))


def _detached(sum_: Expression) -> Code | None:
    """Return the line (total += loss, total + loss) with the added loss detached."""
    return sum_.wrapped(getattr(sum_.node, "value", getattr(sum_.node, "right", None)), "{}.detach()")


class CarriedStates:
    """Records the first tensor in a step whose graph an earlier step has built."""

    def __init__(self, calls: Calls, origins: Origins):
        self.calls, self.origins, self._number = calls, origins, 0

    def begin(self, step: Step) -> None:
        self.step, self._number = step, self._number + 1

    def see(self, given: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        """Note a function that the program called; a sum of losses is none of the states."""
        for tensor in given if self.step.carried is None else ():
            node = tensor.grad_fn
            if node is not None and tensor.dim() and node.metadata.get(STEP, self._number) != self._number:
                place, described = self.calls.place(source.line()), self.origins.describe(tensor)
                self.step.carried = Carried(place=place, tensor=described, mended=_detached_state(tensor))
                break
        for tensor in results:
            if tensor.grad_fn is not None:
                tensor.grad_fn.metadata.setdefault(STEP, self._number)


def _detached_state(tensor: torch.Tensor) -> Code | None:
    """Return the statement that detaches a state, for the user's line that reads it from where it is kept."""
    for frame in source.frames():
        arguments = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        names = [name for name, value in frame.f_locals.items() if _holds(value, tensor)]
        is_reading = not set(names) & set(arguments)  # else its caller has read it
        for name, value in _kept(frame) if is_reading else ():
            if _holds(value, tensor):
                parts = f"{name}.detach()" if value is tensor else f"tuple(part.detach() for part in {name})"
                assigned = rewrite.assigned(frame, names[0]) if names else None
                line = assigned.node.lineno if assigned else frame.f_lineno
                shown = rewrite.shown(frame.f_code.co_filename, line)
                return Code(source=shown, fix=f"if {name} is not None: {name} = {parts}")
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

"""What the program's own lines do with tensors: copies, losses, broadcasts, gradient cuts, and failing ops.

A TorchFunctionMode sees the functions as the program calls them, before they are decomposed into the ATen ops that
finite.py sees. What libraries do internally is not the program's doing, and is left out.
"""

import time
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from parity.doctor.evidence import Step
from parity.doctor.evidence.ops import Broadcast
from torch_impl.instruments import source
from torch_impl.instruments.calls import Calls
from torch_impl.instruments.carried import CarriedStates
from torch_impl.instruments.copies import Copies
from torch_impl.instruments.cuts import Cuts
from torch_impl.instruments.dropouts import Dropouts
from torch_impl.instruments.graphs import Graphs
from torch_impl.instruments.losses import Losses, squeezed
from torch_impl.instruments.origins import ATTRIBUTES, Origins, tensors
from torch_impl.instruments.replicas import Replicas

ELEMENTWISE = frozenset(
    (
        *("add", "sub", "subtract", "rsub", "__rsub__", "mul", "multiply", "div", "divide", "true_divide", "__rdiv__"),
        *("pow", "__pow__", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "__eq__", "__ne__"),
        *("__rtruediv__", "floor_divide", "remainder", "logical_and", "logical_or"),
    )
)
BACKWARDS = ("backward", "grad")
# Functions that only inspect a tensor.
LOOKS = frozenset(("__set__", "dim", "size", "stride", "__len__", "numel", "is_floating_point", "is_pinned"))
MARK = "doctor"  # metadata key of an autograd node: the place that created it


class Ops(TorchFunctionMode):
    """The mode that sees the program's own ops, from `begin` on."""

    def __init__(self, calls: Calls, origins: Origins, gpus: list[str], cuts: Cuts, graphs: Graphs, replicas: Replicas):
        super().__init__()
        self.calls, self.origins, self.cuts, self.graphs = calls, origins, cuts, graphs
        self.replicas = replicas
        self.copies = Copies(calls, origins, gpus)
        self.carried = CarriedStates(calls, origins)
        self.step = Step()

    def begin(self, step: Step, inputs: dict[str, torch.Tensor]) -> None:
        """Attribute what follows to this step, which has these inputs."""
        self.step, self.losses = step, Losses(step, inputs, self.calls, self.origins)
        self.dropouts = Dropouts(step, self.calls)
        self.cuts.begin(step)
        self.carried.begin(step)
        self.copies.begin(step)

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in LOOKS:
            return func(*args, **kwargs)
        if name == "__get__":
            return self._get(func, args)
        given, start = tensors((args, kwargs)), time.perf_counter()
        try:
            with self.replicas.written(name, args):
                results = func(*args, **kwargs)
        except Exception as error:
            self._note_failure(error, name, given)
            raise
        if self.calls.phase in ("backward", "update"):
            return results
        seconds = time.perf_counter() - start
        self.origins.made(name, given, results)
        self.copies.note(name, args, kwargs, given, results, seconds)
        self.carried.see(given, tensors(results))
        self.losses.note(name, args, kwargs, results)
        self.dropouts.note(name, args, kwargs)
        self.cuts.see(name, given, results)
        self.graphs.note_sum(name, results, self.calls.place(""))
        if name in ELEMENTWISE:
            self._note_broadcast(name, args)
        self._mark(results)
        self.graphs.note_made(tensors(results), self.calls.place(source.line()))
        return results

    def _get(self, func: Any, args: tuple) -> Any:
        """Handle an attribute of a tensor, such as x.data."""
        results = func(*args)
        for name in ATTRIBUTES:
            if getattr(torch.Tensor, name) is func.__self__:
                self.origins.made(name, [args[0]], results)
                if name == "data":
                    self.cuts.note(name, args[0])
        return results

    def _note_failure(self, error: Exception, name: str, given: list[torch.Tensor]) -> None:
        place = self.calls.place("")
        if name in BACKWARDS:
            place.phase = "backward"
        self.calls.failed(error, name, [self.origins.describe(tensor) for tensor in given], place)

    def _note_broadcast(self, name: str, args: tuple) -> None:
        """Record a broadcast between tensors of different shapes in the user's line."""
        operands = [operand for operand in args[:2] if isinstance(operand, torch.Tensor) and operand.dim()]
        if len(operands) < 2 or operands[0].shape == operands[1].shape:
            return
        if line := source.direct():
            left, right = map(self.origins.describe, operands)
            place = self.calls.place(line)
            broadcast = Broadcast(operation=name.strip("_"), left=left, right=right, place=place)
            broadcast.squeezed = squeezed(*operands)
            self.step.broadcasts.append(broadcast)

    def _mark(self, results: Any) -> None:
        """Note on the new autograd nodes where they were created, for when they run in the backward pass."""
        nodes = [tensor.grad_fn for tensor in tensors(results)]
        place = self.calls.place(source.line()) if any(nodes) else None
        while nodes:
            node = nodes.pop()
            # An AccumulateGrad node (without next_functions) belongs to the parameter, and outlives the graph.
            if node is not None and node.next_functions and MARK not in node.metadata:
                node.metadata[MARK] = place
                nodes += [parent for parent, _ in node.next_functions]

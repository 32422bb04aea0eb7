"""What the program's own lines do with tensors: copies, losses, broadcasts, gradient cuts, and failing ops.

A TorchFunctionMode sees the functions as the program calls them, before they are decomposed into the ATen ops that
finite.py sees. What libraries do internally is not the program's doing, and is left out.
"""

import re
import time
import weakref
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from parity.doctor import rewrite
from parity.doctor.evidence import Broadcast, Code, Cut, Dropped, Step
from torch_impl.instruments import source
from torch_impl.instruments.calls import Calls
from torch_impl.instruments.copies import Copies
from torch_impl.instruments.graphs import CarriedStates, Graphs
from torch_impl.instruments.losses import Losses, squeezed
from torch_impl.instruments.origins import ATTRIBUTES, Origins, tensors
from torch_impl.instruments.ranks import Replicas
from torch_impl.record.calls import running

ATTENTION = "scaled_dot_product_attention"
RATE = 4  # the position of the attention's rate of dropout
CUTS = ("detach", "detach_", "tensor")  # torch.tensor(x) copies only the numbers
READ = re.compile(r"(\.cpu\(\))?\.(numpy|tolist|item)\(")
ELEMENTWISE = {
    *("add", "sub", "subtract", "rsub", "__rsub__", "mul", "multiply", "div", "divide", "true_divide", "__rdiv__"),
    *("pow", "__pow__", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "__eq__", "__ne__"),
    *("__rtruediv__", "floor_divide", "remainder", "logical_and", "logical_or"),
}
BACKWARDS = ("backward", "grad")
# Functions that only inspect a tensor.
LOOKS = frozenset(("__set__", "dim", "size", "stride", "__len__", "numel", "is_floating_point", "is_pinned"))
MARK = "doctor"  # metadata key of an autograd node: the place that created it


def _rate(function: str, args: tuple, kwargs: dict) -> float:
    if function == ATTENTION:
        return float(kwargs.get("dropout_p", args[RATE] if len(args) > RATE else 0))
    if "dropout" not in function:
        return 0.0
    trains = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    rate: Any = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
    return float(rate) if trains else 0.0


def _in_training(call: rewrite.Expression) -> Code | None:
    if call.function != ATTENTION:
        return call.with_keyword("training", "self.training", 2)
    return call.wrapped(call.argument("dropout_p", RATE), "{} if self.training else 0.0")


class Cuts:
    """Records where a gradient's path ends in the program's own lines, and the line without the cut."""

    def __init__(self, calls: Calls):
        self.calls, self.integers = calls, rewrite.Integers(_is_label, _cross_entropy)

    def begin(self) -> None:
        self.integers.cuts.clear()

    def see(self, function: str, given: list[torch.Tensor], results: Any) -> None:
        if not given or not given[0].requires_grad or not torch.is_grad_enabled():
            return
        if function in CUTS:
            self.note("detach", given[0])
        elif _are_whole(results) and (cut := self.note("integers", given[0])):
            self.integers.cuts.append((cut, weakref.ref(given[0]), tensors(results)[0].shape))

    def note(self, what: str, tensor: torch.Tensor) -> Cut | None:
        """Record a cut of a tensor that carries a gradient, if it is in the user's own line."""
        if not tensor.requires_grad or not torch.is_grad_enabled() or not (line := source.direct()):
            return None
        cut = rewrite.expression(source.spot()) if what != "integers" else None
        # Not if NumPy follows, which takes no tensor with a graph.
        mended = cut.unwrapped() if cut and not READ.match(cut.behind()) else None
        return self.calls.note_cut(what, tensor, self.calls.place(line), mended)


def _are_whole(results: Any) -> bool:
    """Return whether a function made integers, as argmax does, and nothing else."""
    kinds = {tensor.dtype for tensor in tensors(results)}
    return bool(kinds) and not any(kind.is_floating_point or kind.is_complex or kind == torch.bool for kind in kinds)


def _is_label(value: Any, shape: torch.Size) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.shape == shape


def _cross_entropy(line: rewrite.Expression, scores: str, labels: str) -> str:
    return f"{line.called(torch, 'torch')}.nn.functional.cross_entropy({scores}, {labels})"


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
        self.cuts.begin()
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
            place = self.calls.place("")
            place.phase = "backward" if name in BACKWARDS else place.phase
            self.calls.failed(error, name, [self.origins.describe(tensor) for tensor in given], place)
            raise
        if self.calls.phase in ("backward", "update"):
            return results
        seconds = time.perf_counter() - start
        self.origins.made(name, given, results)
        self.copies.note(name, args, kwargs, given, results, seconds)
        self.carried.see(given, tensors(results))
        self.losses.note(name, args, kwargs, results)
        self._note_dropout(name, args, kwargs)
        self.cuts.see(name, given, results)
        self.graphs.note_sum(name, results, self.calls.place(""))
        if name in ELEMENTWISE:
            self._note_broadcast(name, args)
        self._mark(results)
        self.graphs.note_made(tensors(results), self.calls.place(source.line()))
        return results

    def _get(self, func: Any, args: tuple) -> Any:
        results = func(*args)
        for name in ATTRIBUTES:
            if getattr(torch.Tensor, name) is func.__self__:
                self.origins.made(name, [args[0]], results)
                if name == "data":
                    self.cuts.note(name, args[0])
        return results

    def _note_dropout(self, function: str, args: tuple, kwargs: dict) -> None:
        """Record a dropout function that drops values although the module that calls it is in eval mode."""
        rate = _rate(function, args, kwargs)
        if not rate or not running() or running()[-1].training:
            return
        frame = source.frame()
        is_method = frame is not None and frame.f_locals.get("self") is running()[-1]
        mended = rewrite.code(source.spot(), _in_training) if is_method else None
        place = self.calls.place(source.line())
        self.step.dropped.append(Dropped(function=function, rate=rate, place=place, mended=mended))

    def _note_broadcast(self, name: str, args: tuple) -> None:
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

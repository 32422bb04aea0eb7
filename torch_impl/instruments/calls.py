"""Where in the program a step currently is: which modules are being called, and in which phase."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import nn

from parity.core.patches import Original, around
from parity.doctor import rewrite
from parity.doctor.evidence import Call, Code, Cut, Failure, Phase, Place, Step, Tensor
from parity.trace.keys import MODEL
from torch_impl.instruments import source
from torch_impl.instruments.build import Building
from torch_impl.instruments.origins import Origins, tensors
from torch_impl.instruments.structure import distributed, inner
from torch_impl.record import calls


class Calls:
    """Records every call of a module of the model; `place` returns the current place."""

    def __init__(self, model: nn.Module, building: Building, origins: Origins):
        self.model, self.building, self.origins = inner(model), building, origins
        self.names = building.names(model)
        self.phase: Phase = "other"
        self.failing: tuple[BaseException, Failure] | None = None
        self._cut = False  # whether the enclosing call builds no graph
        self._called: WeakSet[nn.Module] = WeakSet()  # in this step, with a graph
        self._graphed: WeakSet[nn.Module] = WeakSet()  # in any step, with a graph

    @contextmanager
    def watched(self, step: Step, given: Callable[[str, Any], None], returned: Callable[[Any], None]) -> Iterator[None]:
        """Record calls within the block; `given` gets each module's name and arguments, `returned` its outputs."""
        self.step, self.phase, self.failing, self._cut = step, "other", None, False
        self._called.clear()
        thread = threading.get_ident()

        def called(call: Original, module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            name = self.names.get(module)
            if name is None and inner(module) is self.model:
                step.distributed = distributed(module)
            if name is None or threading.get_ident() != thread:
                return call(module, *args, **kwargs)
            given(name, (args, kwargs))
            with self._inside(name, module, (args, kwargs)) as record:
                outputs = call(module, *args, **kwargs)
                self.origins.note_output(name, outputs)
                returned(outputs)
                record.outputs = [self.origins.describe(tensor) for tensor in tensors(outputs)]
            return outputs

        with around(nn.Module, "__call__", called), around(nn.DataParallel, "replicate", self._replicate):
            yield

    def place(self, line: str) -> Place:
        """Return the current place, with this line of the user's."""
        return Place(module=calls.innermost(self.names) or "", source=line, phase=self.phase)

    def note_cut(self, what: str, tensor: torch.Tensor, place: Place, mended: Code | None = None) -> Cut:
        """Record where a gradient could not flow on."""
        cut = Cut(what=what, tensor=self.origins.describe(tensor), place=place, mended=mended)
        self.step.cuts.append(cut)
        return cut

    @contextmanager
    def within(self, phase: Phase, afterwards: Phase) -> Iterator[None]:
        """Set the phase within the block, and set it to `afterwards` at its end."""
        self.phase = phase
        try:
            yield
        finally:
            self.phase = afterwards

    def failed(self, error: Exception, operation: str, given: list[Tensor], place: Place) -> None:
        """Record an exception that passes through; of its places the first counts, where it was raised."""
        if self.failing is None or self.failing[0] is not error:
            message = (str(error).splitlines() or [""])[0]
            kind = type(error).__name__
            failure = Failure(exception=kind, message=message, operation=operation, tensors=given, place=place)
            self.failing = error, failure

    @contextmanager
    def _inside(self, name: str, module: nn.Module, given: Any) -> Iterator[Call]:
        self._note_mode(module)
        inputs = [self.origins.describe(tensor) for tensor in tensors(given)]
        record = Call(module=name, source=source.line(), inputs=inputs, backwards=len(self.step.backwards))
        record.detached = _detached(given[0]) if len(self.building.optimizers) > 1 else None
        self.step.calls.append(record)
        outer_phase = self.phase
        is_forward = outer_phase in ("other", "loss")
        self.phase = "forward" if is_forward else outer_phase
        if not torch.is_grad_enabled() and not self._cut and self.phase == "forward":
            self._note_no_grad(module, given)
        outer_cut, self._cut = self._cut, not torch.is_grad_enabled()
        try:
            with calls.entered(module):
                try:
                    yield record
                except Exception as error:
                    self.failed(error, "", [], self.place(""))  # while its module is being called
                    raise
        finally:
            self._cut = outer_cut
            if is_forward and not calls.running():
                self.phase = "loss"

    def _note_mode(self, module: nn.Module) -> None:
        # What counts is a step's first call that builds a graph, or else its first; once in eval mode, it stays so.
        trainings = self.building.trainings
        if not torch.is_grad_enabled():
            trainings.setdefault(module, module.training)
        elif module not in self._called:
            self._called.add(module)
            trainings[module] = module.training and (trainings[module] if module in self._graphed else True)
            self._graphed.add(module)

    def _note_no_grad(self, module: nn.Module, given: Any) -> None:
        """Record that a call builds no graph although something in it is to be trained."""
        # A call within a checkpoint is exempt: the graph is built when it is recomputed.
        trained = [tensor for tensor in (*tensors(given), *module.parameters()) if tensor.requires_grad]
        if trained and not source.within("torch/utils/checkpoint.py"):
            line = rewrite.statement(source.spot())
            enabled = f"with {line.called(torch, 'torch')}.enable_grad(): {line.text()}" if line else ""
            mended = line.with_text(line.node, enabled) if line else None
            self.note_cut("no_grad", trained[0], self.place(source.line()), mended)

    def _replicate(
        self, replicate: Original, parallel: nn.DataParallel, module: nn.Module, *args: Any
    ) -> list[nn.Module]:
        """Make the copies of nn.DataParallel, and register each under the name of its original."""
        replicas = replicate(parallel, module, *args)
        for replica in replicas:
            for original, copy in zip(module.modules(), replica.modules(), strict=True):
                if (name := self.names.get(original)) is not None:
                    self.names[copy] = name
                    for key, tensor in getattr(copy, "_former_parameters", {}).items():
                        self.origins.note(tensor, f"parameter {key if name == MODEL else f'{name}.{key}'}")
        return replicas


def _detached(args: tuple) -> Code | None:
    """Return the user's line that calls a module, with the first argument that has a graph detached."""
    numbers = [i for i, given in enumerate(args) if isinstance(given, torch.Tensor) and given.grad_fn is not None]

    def change(call: rewrite.Expression) -> Code | None:
        node = call.node.args[numbers[0]] if numbers and len(getattr(call.node, "args", ())) == len(args) else None
        return call.wrapped(node, "{}.detach()")

    return rewrite.code(source.spot(), change)

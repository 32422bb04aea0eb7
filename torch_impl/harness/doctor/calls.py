"""Where in the program the step is: the modules that are being called, and the phase."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock
from weakref import WeakSet

import torch
from torch import nn

from parity.core.names import MODEL
from parity.doctor import rewrite
from parity.doctor.evidence import Call, Code, Cut, Failure, Phase, Place, Step, Tensor
from torch_impl.harness.doctor import source
from torch_impl.harness.doctor.build import Building
from torch_impl.harness.doctor.origins import Origins, tensors
from torch_impl.harness.doctor.structure import distributed, inner


class Calls:
    """Notes every call of a module of the model; `place()` is where the program is."""

    def __init__(self, model: nn.Module, building: Building, origins: Origins):
        self.model, self.building, self.origins = inner(model), building, origins
        self.names = building.names(model)
        self.phase: Phase = "other"
        self.modules: list[str] = []  # that are being called, the innermost last
        self.running: list[nn.Module] = []  # themselves
        self.failing: tuple[BaseException, Failure] | None = None
        self._cut = False  # the module that is being called makes no graph
        self._called: WeakSet[nn.Module] = WeakSet()  # in this step, making a graph
        self._graphed: WeakSet[nn.Module] = WeakSet()  # in any step

    @contextmanager
    def watched(self, step: Step, given: Callable[[str, Any], None], returned: Callable[[Any], None]) -> Iterator[None]:
        """Within it, calls are noted in the step; `given` gets what each module takes, `returned` what it returns."""
        self.phase, self.failing, self._cut = "other", None, False
        self.modules.clear()
        self.running.clear()
        self._called.clear()
        thread, call, replicate = threading.get_ident(), nn.Module.__call__, nn.DataParallel.replicate

        def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            name = self.names.get(module)
            if name is None and inner(module) is self.model:
                step.distributed = distributed(module)
            if name is None or threading.get_ident() != thread:
                return call(module, *args, **kwargs)
            given(name, (args, kwargs))
            with self._inside(name, step, module, (args, kwargs)) as noted:
                outputs = call(module, *args, **kwargs)
                self.origins.note_output(name, outputs)
                returned(outputs)
                noted.outputs = [self.origins.describe(tensor) for tensor in tensors(outputs)]
            return outputs

        def replicated(parallel: nn.DataParallel, module: nn.Module, *args: Any) -> list[nn.Module]:
            replicas = replicate(parallel, module, *args)
            for replica in replicas:
                self._note_replica(module, replica)
            return replicas

        with (
            mock.patch.object(nn.Module, "__call__", called),
            mock.patch.object(nn.DataParallel, "replicate", replicated),
        ):
            yield

    def place(self, line: str) -> Place:
        """Here, with this line of the user's."""
        return Place(module=self.modules[-1] if self.modules else "", source=line, phase=self.phase)

    @contextmanager
    def within(self, phase: Phase, behind: Phase) -> Iterator[None]:
        """The block is of this phase, and what comes behind it of another."""
        self.phase = phase
        try:
            yield
        finally:
            self.phase = behind

    def failed(self, error: Exception, operation: str, given: list[Tensor], place: Place) -> None:
        """An exception comes by; where it came by first is where it was raised."""
        if self.failing is None or self.failing[0] is not error:
            message = (str(error).splitlines() or [""])[0]
            kind = type(error).__name__
            failure = Failure(exception=kind, message=message, operation=operation, tensors=given, place=place)
            self.failing = error, failure

    @contextmanager
    def _inside(self, name: str, step: Step, module: nn.Module, given: Any) -> Iterator[Call]:
        """A call of the module; the evidence of it."""
        self._note_mode(module)
        inputs = [self.origins.describe(tensor) for tensor in tensors(given)]
        noted = Call(module=name, source=source.line(), inputs=inputs)
        step.calls.append(noted)
        before = self.phase
        forward = before in ("other", "loss")
        self.phase = "forward" if forward else before
        if not torch.is_grad_enabled() and not self._cut and self.phase == "forward":
            self._note_cut(step, module, given)
        cut, self._cut = self._cut, not torch.is_grad_enabled()
        self.modules.append(name)
        self.running.append(module)
        try:
            yield noted
        except Exception as error:
            self.failed(error, "", [], self.place(""))
            raise
        finally:
            self.modules.pop()
            self.running.pop()
            self._cut = cut
            if forward and not self.modules:
                self.phase = "loss"

    def _note_mode(self, module: nn.Module) -> None:
        """In the first call of a step that makes a graph; one in eval mode counts. Others if there is no such call."""
        trainings = self.building.trainings
        if not torch.is_grad_enabled():
            trainings.setdefault(module, module.training)
        elif module not in self._called:
            self._called.add(module)
            trainings[module] = module.training and (trainings[module] if module in self._graphed else True)
            self._graphed.add(module)

    def _note_cut(self, step: Step, module: nn.Module, given: Any) -> None:
        """The call makes no graph, though there is something to be trained. (A checkpoint makes one later.)"""
        trained = [tensor for tensor in (*tensors(given), *module.parameters()) if tensor.requires_grad]
        if trained and not source.within("torch/utils/checkpoint.py"):
            step.cuts.append(
                Cut(
                    what="no_grad",
                    tensor=self.origins.describe(trained[0]),
                    place=self.place(source.line()),
                    mended=_with_gradients(),
                )
            )

    def _note_replica(self, module: nn.Module, replica: nn.Module) -> None:
        """A copy by nn.DataParallel is called as what it is a copy of."""
        for original, copy in zip(module.modules(), replica.modules(), strict=True):
            name = self.names.get(original)
            if name is not None:
                self.names[copy] = name
                for key, tensor in getattr(copy, "_former_parameters", {}).items():
                    self.origins.note(tensor, f"parameter {key if name == MODEL else f'{name}.{key}'}")


def _with_gradients() -> Code | None:
    """The user's line within enable_grad."""
    found = rewrite.statement(source.spot())
    if found is None:
        return None
    home = next((name for name, value in found.names.items() if value is torch), "torch")
    return found.with_text(found.node, f"with {home}.enable_grad(): {found.text()}")

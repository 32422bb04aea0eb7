"""A user's model that lives, of which one module can be called again as it was called in the first forward pass."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from parity.core.arrays import Array, Floats
from parity.diagnose.experiment.candidates import FUNCTIONS
from parity.diagnose.experiment.knobs import Knob, Owner
from parity.diagnose.experiment.ops import Recording
from parity.diagnose.experiment.probes import Responses
from parity.doctor import ownership
from parity.pairs.coverage import Observer
from parity.pairs.vary.record import reproduced
from parity.runtime.job import ExperimentJob
from parity.trace.experiment import Question
from torch_impl.experiment.behaviour import answered, inputs
from torch_impl.experiment.ops import recorded
from torch_impl.harness import kinds
from torch_impl.harness.pair import values
from torch_impl.harness.pair.probe import observed
from torch_impl.harness.pair.vary import Instance
from torch_impl.harness.pair.vary import opened as instance


class _Made(BaseException):
    """Raised where the tensor has been made, to leave the model: what follows does not matter."""


@contextmanager
def opened(
    job: ExperimentJob, at: str, weights: Mapping[str, Floats], inputs: dict[str, np.ndarray]
) -> Iterator["Live"]:
    """Build the model with these weights, as for a recorded run, and yield it."""
    with instance(job, at, weights, inputs) as built:
        yield Live(built, inputs, job.case.model.train is not None)


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    """Return GELU in the form with tanh."""
    return functional.gelu(x, approximate="tanh")


class Live:
    """A built model; `training`: whether its first pass is one of training."""

    functions: Mapping[str, Callable[..., Any]] = {
        name: getattr(functional, name) for name in sorted(FUNCTIONS) if callable(getattr(functional, name, None))
    } | {"gelu_tanh": gelu_tanh}
    base = nn.Module

    def __init__(self, built: Instance, inputs: dict[str, np.ndarray], training: bool) -> None:
        self._built, self._inputs, self._training = built, inputs, training
        self._modules = dict(built.model.named_modules())
        self._innocent: list[str] = []
        self._paused = 0
        self._arguments: dict[str, Any] = {}
        self._call: Callable[[], Any] = self._whole

    def take(self, question: Question, expected: Array) -> bool:
        """Keep the call of the question's module that makes the question's tensor, and return whether it was seen.

        Calling it again returns `expected`, unless the module is no function of its arguments.
        """
        self._tensor, self._number, self._scope = question.tensor, question.tensor.number, question.module
        self._innocent = question.innocent
        self._called: dict[str, None] = {}
        if question.module and (taken := self._taken(question)):
            self._call, self._number = taken
            if self._is_again(expected):
                return True
        # The module keeps a state, or draws random numbers: only the whole model can be called again as it was.
        self._call, self._number = self._whole, question.tensor.number
        return self._is_again(expected)

    def replay(self) -> Array:
        """Call the module again, and return the question's tensor in torch's axes."""
        self._paused = 0
        made: list[torch.Tensor] = []
        with ExitStack() as stack, torch.no_grad():
            self._watch(stack)
            if self._tensor.kind != "output":
                self._collect(stack, made)
            try:
                returned = self._call()
            except _Made:
                return values.array(made[self._number])
        return dict(returned)[self._tensor.key.partition("/")[2]]

    def owners(self) -> list[Owner]:
        """Return the module and those in it that were called before the tensor was made, without the innocent ones."""
        below = f"{self._scope}." if self._scope else ""
        innocent = tuple(f"{name}." for name in self._innocent)
        names = [name for name in self._called if name == self._scope or (name and name.startswith(below))]
        guilty = [name for name in names if name not in self._innocent and not name.startswith(innocent)]
        return [Owner(name, kinds.kind(self._modules[name]), self._modules[name]) for name in dict.fromkeys(guilty)]

    def arguments(self) -> tuple[dict[str, Any], Owner]:
        """Return the arguments with which the module is called again, which may be changed, and the module."""
        is_whole = self._call == self._whole
        module = self._modules[self._scope]
        return {} if is_whole else self._arguments, Owner(self._scope, kinds.kind(module), module)

    def recorded(self) -> Recording:
        """Return the ops that the module executes when it is called again."""
        return recorded(self.replay)

    def inputs(self) -> list[Array]:
        """Return the tensors that the module is called again with; none if only the whole model can be."""
        return inputs((), self.arguments()[0])

    def answered(self, canonical: Sequence[Array]) -> Responses:
        """Return what the module answers to the probes that are made of these inputs."""
        arguments = self.arguments()[0]
        before = dict(arguments)

        def call(**changed: Any) -> Array:
            arguments.update(changed)
            return self.replay()

        try:
            return answered(call, (), before, canonical)
        finally:
            arguments.update(before)

    def precisions(self) -> list[Knob]:
        """Return the settings of the framework itself that decide at which precision it computes: torch has none."""
        return []

    def is_paused(self) -> bool:
        """Return whether a module that returns the same on both sides is being called."""
        return self._paused > 0

    def is_models(self, file: str) -> bool:
        """Return whether a file belongs to the code of models, rather than to a framework, Python or this project."""
        return ownership.is_models(file)

    def _is_again(self, expected: Array) -> bool:
        try:
            return reproduced(self.replay(), expected)
        except LookupError:
            return False

    def _whole(self) -> Any:
        self._built.reset()
        return self._built.call(self._inputs, self._training, Observer())

    def _taken(self, question: Question) -> tuple[Callable[[], Any], int] | None:
        """Return the call of the module, with copies of its arguments, and the tensor's number within that call."""
        made: list[torch.Tensor] = []
        calls: list[tuple[tuple[Any, ...], dict[str, Any], int]] = []
        module = self._modules[question.module]

        def on_call(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            calls.append((_copied(args), _copied(kwargs), len(made)))

        with ExitStack() as stack, torch.no_grad():
            stack.callback(module.register_forward_pre_hook(on_call, with_kwargs=True).remove)
            self._collect(stack, made)
            try:
                self._whole()
            except _Made:
                args, kwargs, before = calls[-1]
                bound = inspect.signature(module.forward).bind(*args, **kwargs)
                bound.apply_defaults()
                self._arguments = bound.arguments
                return lambda: module(*_copied(bound.args), **_copied(bound.kwargs)), self._number - before
        return None

    def _collect(self, stack: ExitStack, made: list[torch.Tensor]) -> None:
        """Collect what the tensor's module returns or is given, and leave the model where the tensor is made."""

        def add(kind: str, name: str, tensors: list[torch.Tensor]) -> None:
            if (kind, name) == (self._tensor.kind, self._tensor.module):
                made.extend(tensor.detach().clone() for tensor in tensors)
                if len(made) > self._number:
                    raise _Made

        on_call, on_return = functools.partial(add, "given"), functools.partial(add, "returned")
        stack.enter_context(observed(self._built.model, on_call, on_return))

    def _watch(self, stack: ExitStack) -> None:
        """Note which modules are called, and when one that returns the same on both sides is."""
        for name, module in self._modules.items():
            stack.callback(module.register_forward_pre_hook(self._on_call(name)).remove)
            stack.callback(module.register_forward_hook(self._on_return(name), always_call=True).remove)

    def _on_call(self, name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            self._called[name] = None
            self._paused += name in self._innocent

        return hook

    def _on_return(self, name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            self._paused -= name in self._innocent

        return hook


def _copied(value: Any) -> Any:
    """Return arguments with copies of their tensors, which the module may change in place."""
    return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, value)

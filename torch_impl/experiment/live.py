"""A user's model that lives, of which one module can be called again as it was called in the first forward pass."""

import inspect
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from parity.core import ownership
from parity.core.arrays import Array, Floats, reproduced
from parity.diagnose.experiment.candidates import FUNCTIONS
from parity.diagnose.experiment.knobs import Knob, Owner
from parity.diagnose.experiment.ops import Recording
from parity.diagnose.experiment.pieces import Evidence
from parity.pairs.vary.coverage import Observer
from parity.runtime.experiment import LATER, Mask, Question
from parity.runtime.job import ExperimentJob
from torch_impl.experiment.call import copied, exchanged_arguments, like, recorded
from torch_impl.experiment.later import Later
from torch_impl.experiment.operations import operations
from torch_impl.record import calls, tree, weights
from torch_impl.record.calls import Call
from torch_impl.record.pair.outputs import flat
from torch_impl.record.pair.vary import Instance
from torch_impl.record.pair.vary import opened as instance


class _Made(BaseException):
    """Raised where the tensor has been made, to leave the model: what follows does not matter."""


@contextmanager
def opened(
    job: ExperimentJob, at: str, initial: Mapping[str, Floats], inputs: dict[str, np.ndarray]
) -> Iterator["Live"]:
    """Build the model with these weights, as for a recorded run, and yield it."""
    with instance(job, at, initial, inputs) as built, ExitStack() as stack:
        yield Live(built, inputs, job.case.model.train is not None, Later(job, built, stack))


def gelu_tanh(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Return GELU in the form with tanh, whatever the form that is asked for."""
    return functional.gelu(x, approximate="tanh")


def gelu_exact(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Return GELU in the form with erf, whatever the form that is asked for."""
    return functional.gelu(x, approximate="none")


def huber_loss(*args: Any, beta: float = 1.0, **kwargs: Any) -> torch.Tensor:
    """Return what Huber's loss is where a smooth L1 loss is asked for: beta times as much."""
    return functional.huber_loss(*args, delta=beta, **kwargs)


class Live:
    """A built model; `training`: whether its first pass is one of training; `later`: what comes after it."""

    functions: Mapping[str, Callable[..., Any]] = {
        name: getattr(functional, name) for name in FUNCTIONS if callable(getattr(functional, name, None))
    } | {"gelu_tanh": gelu_tanh, "gelu_exact": gelu_exact, "huber_loss": huber_loss}
    base = nn.Module

    def __init__(self, built: Instance, inputs: dict[str, np.ndarray], training: bool, later: Later) -> None:
        self._built, self._inputs, self._training = built, inputs, training
        self._modules = tree.named(built.model)
        self._later, self._is_later = later, False
        self._paths = {module: path for path, module in self._modules.items()}
        self._innocent: list[str] = []
        self._paused = 0
        self._arguments: dict[str, Any] = {}
        self._call: Callable[[], Any] = self._whole
        self._made: list[torch.Tensor] = []
        self._returned: dict[str, Array] = {}
        self._calls: list[tuple[Call, int]] = []
        calls.observed(self._modules, self._on_call, self._on_return)

    def take(self, question: Question, evidence: Evidence) -> bool:
        """Keep the call of the question's module that makes the question's tensor, and return whether it was seen.

        Calling it again returns what was recorded, unless the module is no function of its arguments.
        """
        expected = evidence.own
        assert expected is not None
        self._tensor, self._number, self._scope = question.tensor, question.tensor.number, question.module
        self._innocent = question.innocent
        self._called: dict[str, None] = {}
        if question.tensor.kind in LATER:
            return self._takes_later(question, evidence)
        if question.module and (taken := self._taken(question)):
            self._call, self._number = taken
            with suppress(Exception):  # a module that cannot be called alone
                if self._is_again(expected):
                    return True
        # The module keeps a state, or draws random numbers: only the whole model can be called again as it was.
        self._call, self._number = self._whole, question.tensor.number
        return self._is_again(expected)

    def exchange(self, tensors: Sequence[tuple[Array, Array]]) -> bool:
        """Let the module be called with what the other side's was given, and return whether that is something else.

        `tensors`: pairs of a tensor of this side and the other side's, in torch's axes, among them the inputs.
        """
        arguments = self.arguments()[0]
        if (exchanged := exchanged_arguments(arguments, tensors)) is None:
            return False
        arguments.update(exchanged)
        return True

    def replay(self) -> Array:
        """Call the module again, and return the question's tensor in torch's axes."""
        self._paused = 0
        self._made.clear()
        if not self._is_later:
            self._built.reload_written()
        try:
            with torch.no_grad():
                returned = self._call()
        except _Made:
            return weights.array(self._made[self._number])
        self._returned = dict(returned)
        return self._returned[self._tensor.key.partition("/")[2]]

    def earlier(self) -> list[Array]:
        """Return what the module, when it was called last, returned before the question's tensor."""
        name = self._tensor.key.partition("/")[2]
        outputs = itertools.takewhile(lambda item: item[0] != name, self._returned.items())
        return [array for _, array in outputs] or [weights.array(each) for each in self._made[: self._number]]

    def array(self, tensor: Any) -> Array:
        """Return the numbers of a tensor."""
        return weights.array(tensor)

    def like(self, array: Array, tensor: Any) -> Any:
        """Return a tensor of an array's numbers, of the type of another tensor."""
        return like(array, tensor)

    def owners(self) -> list[Owner]:
        """Return the module and those in it that were called before the tensor was made, without the innocent ones."""
        below = f"{self._scope}." if self._scope else ""
        innocent = tuple(f"{name}." for name in self._innocent)
        names = [name for name in self._called if name == self._scope or (name and name.startswith(below))]
        guilty = [name for name in names if name not in self._innocent and not name.startswith(innocent)]
        own = [self._owner(name) for name in dict.fromkeys(guilty)]
        return [*own, *self._later.owners()] if self._is_later else own

    def arguments(self) -> tuple[dict[str, Any], Owner]:
        """Return the arguments with which the module is called again, which may be changed, and the module."""
        return {} if self._call == self._whole else self._arguments, self._owner(self._scope)

    def recorded(self) -> Recording:
        """Return the ops that the module executes when it is called again, or those of a loss and the forward pass."""
        replay = self._later.loss_alone if self._tensor.kind == "loss" else self.replay
        return recorded(replay)

    def precisions(self) -> list[Knob]:
        """Return the settings of the framework itself: torch has none of its precision."""
        return self._later.settings() if self._is_later else []

    def operations(self) -> list[Knob]:
        """Return the ops of the call that can be done in another way."""
        return operations(self.replay, lambda: calls.innermost(self._paths) or "", self.is_paused)

    def graph_settings(self, read: Collection[str], theirs: Sequence[Mask]) -> list[Knob]:
        """Return the settings of operations whose code runs no more: none, as a module's code runs in each call."""
        return []

    def is_paused(self) -> bool:
        """Return whether a module that returns the same on both sides is being called."""
        return self._paused > 0

    def is_models(self, file: str) -> bool:
        """Return whether a file belongs to the code of models, rather than to a framework, Python or this project."""
        return ownership.is_models(file)

    def _owner(self, path: str) -> Owner:
        module = self._modules[path]
        sizes = {size for parameter in module.parameters(recurse=False) for size in parameter.shape}
        return Owner(path, tree.kind(module), module, sizes)

    def _takes_later(self, question: Question, evidence: Evidence) -> bool:
        """Keep the first way to compute what comes after the forward pass that gives what was recorded."""
        self._is_later = True
        for way in self._later.ways(question, evidence):
            self._call = way.recorded
            with suppress(Exception):  # a module that cannot be called alone
                if evidence.own is not None and self._is_again(evidence.own):
                    self._call = way.asked
                    return True
        return False

    def _is_again(self, expected: Array) -> bool:
        try:
            return reproduced(self.replay(), expected)
        except LookupError:
            return False

    def _whole(self) -> Any:
        self._built.reset_variables()  # not the attributes, which an experiment may have set
        return self._built.call(self._inputs, self._training, Observer())

    def _taken(self, question: Question) -> tuple[Callable[[], Any], int] | None:
        """Return the call of the module, with copies of its arguments, and the tensor's number within that call."""
        self._made.clear()
        self._calls.clear()
        try:
            with torch.no_grad():
                self._whole()
        except _Made:
            call, before = self._calls[-1]
            bound = inspect.signature(call.module.forward).bind(*call.args, **call.kwargs)
            bound.apply_defaults()
            self._arguments = bound.arguments
            return lambda: call.module(*copied(bound.args), **copied(bound.kwargs)), self._number - before
        return None

    def _on_call(self, call: Call) -> None:
        """Note a call, and the tensors that it is given."""
        self._called[call.path] = None
        self._paused += call.path in self._innocent
        if call.path == self._scope:
            self._calls.append((call._replace(args=copied(call.args), kwargs=copied(call.kwargs)), len(self._made)))
        if (call.path, "given") == (self._tensor.module, self._tensor.kind):
            self._add(tree.passed(call.module, call.args, call.kwargs))

    def _on_return(self, call: Call, outputs: Any) -> None:
        """Note the end of a call, and what it returns."""
        self._paused -= call.path in self._innocent
        if (call.path, "returned") == (self._tensor.module, self._tensor.kind):
            self._add(list(flat(outputs)))

    def _add(self, tensors: list[torch.Tensor]) -> None:
        self._made.extend(tensor.detach().clone() for tensor in tensors)
        if len(self._made) > self._number:
            raise _Made

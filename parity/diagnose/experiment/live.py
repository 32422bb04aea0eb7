"""A module of a living model, as one backend calls it again: what both sides do alike."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import numpy as np

from parity.core.arrays import Array, reproduced
from parity.core.patches import around
from parity.data.masks import Context
from parity.diagnose.experiment.knobs import Knob, Owner
from parity.diagnose.experiment.masks import Mapped, exchanged
from parity.diagnose.experiment.moves import moves
from parity.diagnose.experiment.ops import Recording
from parity.diagnose.experiment.pieces import Evidence
from parity.runtime.experiment import LATER, Mask, Question, Tensor

# What does not depend on a tensor is apart by rounding alone; what hardly does may be apart by less than float32 sees.
UNTOUCHED = 2.0**-44


class Made(BaseException):
    """Raised where the tensor has been made, to leave the model: what follows does not matter."""


class Live(ABC):
    """A built model with its weights, of which one module can be called again as in the first forward pass.

    `built`: the model, as its side has built it; it can be brought back to its initial state. `first_pass`: calls it as
    at first, and returns its outputs by name. `own_step`: runs the user's own training step up to its first backward
    pass, which may call parts of the model. `later`: what comes after that.
    """

    functions: Mapping[str, Callable[..., Any]]
    base: type
    called: type  # the class of all modules, whose calls are seen
    separator: str  # between the names of a path
    array: Callable[[Any], Array]  # returns the numbers of a tensor
    like: Callable[[Array, Any], Any]  # returns a tensor of an array's numbers, of the type of another tensor
    line: Callable[[], str]  # returns the user's line that is running
    _innermost: Callable[[], str | None]  # returns the path of the innermost module that is being called
    _mapped: Mapped  # maps the leaves of the arguments of a call
    _tensors: tuple[type, ...]  # the classes of tensors that a module may be given
    _recorded: Callable[[Callable[[], Any]], Recording]  # of what a function executes
    _operations: Callable[..., list[Knob]]  # of what a function executes, by where it is, and whether it is left out
    _precisions: Sequence[Knob] = ()  # settings of the framework itself that decide at which precision it computes

    def __init__(
        self,
        built: Any,
        first_pass: Callable[[], Any],
        own_step: Callable[[], Any] | None,
        later: Any,
        modules: Mapping[str, Any],
    ) -> None:
        self._built, self._modules, self._first_pass = built, modules, first_pass
        self._passes = [each for each in (first_pass, own_step) if each]
        self._later, self._is_later, self.numbers = later, False, later.numbers  # in the code of a step that stay
        self._innocent: list[str] = []
        self._called: dict[str, None] = {}
        self._paused = 0
        self._arguments: dict[str, Any] = {}
        self._call: Callable[[], Any] = self._whole
        self._made: list[Any] = []
        self._returned: dict[str, Array] = {}
        self._calls: list[tuple[Any, int, Context]] = []  # that are running; with those made before, and its draws

    def recorded(self) -> Recording:
        """Return the ops that the module executes when it is called again, or those of a loss and the forward pass."""
        with self._located():
            return self._recorded(self._later.loss_alone if self._tensor.kind == "loss" else self.replay)

    def precisions(self) -> list[Knob]:
        """Return the settings of the framework itself, and of what is asked for after the forward pass."""
        return [*(self._later.settings() if self._is_later else ()), *self._precisions]

    def operations(self) -> list[Knob]:
        """Return the ops of the call that can be done in another way."""
        with self._located():
            return self._operations(self.replay, lambda: self._innermost() or "", self.is_paused)

    def _located(self) -> AbstractContextManager[None]:
        """Return the context in which the line that is running is known."""
        return nullcontext()

    def moves(self) -> list[Knob]:
        """Return the module's own layers, each of which may belong before or behind another one."""
        names = {id(module): path.rpartition(self.separator)[2] for path, module in self._modules.items()}
        return moves(self._modules[self._scope], self.called, self.replay, self.line, names)

    def graph_settings(self, read: Collection[str], theirs: Sequence[Mask]) -> list[Knob]:
        """Return settings of operations in graphs; `read`: names in the run code, `theirs`: the other side's masks."""
        return []  # the code of a module of PyTorch's runs in each call

    @abstractmethod
    def _owner(self, path: str) -> Owner:
        """Return a module with its settings."""

    @abstractmethod
    def _bound(self, call: Any) -> tuple[dict[str, Any], Callable[[], Any]]:
        """Return the arguments of a call by name, and a function that calls its module again with them."""

    def _run(self, call: Callable[[], Any]) -> Any:
        """Call the model, or a module of it, without a backward pass."""
        return call()

    def _whole(self) -> Any:
        """Call the whole model as at first, with its initial state, and return its outputs by name."""
        self._built.reset_variables()  # not the attributes, which an experiment may have set
        return self._first_pass()

    def _arranged(self, array: Array) -> Array:
        return array

    def take(self, question: Question, evidence: Evidence) -> bool:
        """Keep the call of the question's module that makes the question's tensor, and return whether it was seen.

        Calling it again returns what was recorded, unless the module is no function of its arguments.
        """
        assert evidence.own is not None
        self._tensor, self._number, self._scope = question.tensor, question.tensor.number, question.module
        self._innocent, self._called = question.innocent, {}
        if question.tensor.kind in LATER:
            return self._takes_later(question, evidence)
        is_made = question.tensor.kind == "given" and not question.module  # by a step, for the model
        passes = reversed(self._passes) if is_made else self._passes
        return any(self._takes_forward(question, evidence.own, first_pass) for first_pass in passes)

    def _takes_forward(self, question: Question, expected: Array, first_pass: Callable[[], Any]) -> bool:
        """Keep the call of the question's module, or of the whole model where it cannot be called alone."""
        self._first_pass = first_pass
        if question.module and (taken := self._taken()):
            self._call, self._number = taken
            with suppress(Exception):  # a module that cannot be called alone
                if self._is_again(expected):
                    return True
        # The module keeps a state, or draws random numbers: only the whole model can be called again as it was.
        self._call, self._number = self._whole, question.tensor.number
        return self._is_again(expected)

    def harmless(self, tensors: Sequence[tuple[Tensor, Array, Array]]) -> int:
        """Return how many tensors, from the first on, can be the other side's while the model returns the same.

        `tensors`: what a module returns or is given, with this side's numbers and the other side's, in torch's axes.
        """
        self._tensor, self._scope, self._innocent = Tensor(key="", module="", kind="output"), "", []
        expected = dict(self._run(self._whole))
        for number, (tensor, mine, theirs) in enumerate(tensors):
            with suppress(Exception), self._in_place(tensor, mine, theirs) as replaced:
                returned = dict(self._run(self._whole))
                if replaced and all(reproduced(returned[name], array, UNTOUCHED) for name, array in expected.items()):
                    continue
            return number
        return len(tensors)

    @contextmanager
    def _in_place(self, tensor: Tensor, mine: Array, theirs: Array) -> Iterator[list[Any]]:
        """Let a module return, or be given, the other side's tensor; yield the list of those that it replaces."""
        module, replaced = self._modules[tensor.module], list[Any]()

        def with_theirs(value: Any) -> Any:
            if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
                return type(value)(map(with_theirs, value))
            if isinstance(value, dict):
                return {name: with_theirs(each) for name, each in value.items()}
            if tuple(getattr(value, "shape", ())) == mine.shape and reproduced(self.array(value), mine):
                replaced.append(value)
                return self.like(theirs, value)
            return value

        def called(call: Callable[..., Any], layer: Any, *args: Any, **kwargs: Any) -> Any:
            if layer is not module:
                return call(layer, *args, **kwargs)
            if tensor.kind == "given":
                return call(layer, *with_theirs(args), **with_theirs(kwargs))
            return with_theirs(call(layer, *args, **kwargs))

        with around(self.called, "__call__", called):
            yield replaced

    def restore(self) -> None:
        """Forget the call that was kept, and bring the model back to its initial state."""
        self._built.reset()
        self._arguments, self._call, self._returned = {}, self._whole, {}

    def exchange(self, tensors: Sequence[tuple[Array, Array]]) -> bool:
        """Let the module be called with what the other side's was given, and return whether that is something else.

        `tensors`: pairs of a tensor of this side and the other side's, in torch's axes, among them the inputs.
        """
        arguments = self.arguments()[0]
        replaced = exchanged(arguments, tensors, self._mapped, self._floats, self.like)
        arguments.update(replaced or {})
        return replaced is not None

    def _floats(self, value: Any) -> Array | None:
        """Return the numbers of a tensor of floats, None of anything else."""
        is_float = isinstance(value, self._tensors) and "float" in str(getattr(value, "dtype", ""))
        return self.array(value).astype(np.float64) if is_float else None

    def leave_out(self, path: str) -> None:
        """Let nothing be changed in a module from now on."""
        self._innocent = [*self._innocent, path]

    def replay(self) -> Array:
        """Call the module again, and return the question's tensor in torch's axes."""
        self._paused = 0
        self._made.clear()
        try:
            returned = self._run(self._call)
        except Made:
            return self._arranged(self.array(self._made[self._number]))
        self._returned = dict(returned)
        return self._returned[self._tensor.key.partition("/")[2]]

    def earlier(self) -> list[Array]:
        """Return what the module, when it was called last, returned before the question's tensor."""
        name = self._tensor.key.partition("/")[2]
        outputs = itertools.takewhile(lambda item: item[0] != name, self._returned.items())
        return [array for _, array in outputs] or [self.array(each) for each in self._made[: self._number]]

    def owners(self) -> list[Owner]:
        """Return the module and those in it that were called before the tensor was made, without the innocent ones."""
        below = f"{self._scope}{self.separator}" if self._scope else ""
        innocent = tuple(f"{name}{self.separator}" for name in self._innocent)
        names = [name for name in self._reached() if name == self._scope or (name and name.startswith(below))]
        guilty = [name for name in names if name not in self._innocent and not name.startswith(innocent)]
        return [*map(self._owner, guilty), *(self._later.owners() if self._is_later else ())]

    def _reached(self) -> list[str]:
        return list(self._called)

    def arguments(self) -> tuple[dict[str, Any], Owner]:
        """Return the arguments with which the module is called again, which may be changed, and the module."""
        return {} if self._call == self._whole else self._arguments, self._owner(self._scope)

    def is_paused(self) -> bool:
        """Return whether a module that returns the same on both sides is being called."""
        return self._paused > 0

    def _takes_later(self, question: Question, evidence: Evidence) -> bool:
        """Keep the first way to compute what comes after the forward pass that gives what was recorded."""
        self._is_later = True
        for way in self._later.ways(question, evidence):
            self._call, asked = evidence.of(question, way.recorded), evidence.of(question, way.asked)
            with suppress(Exception):  # a module that cannot be called alone
                if evidence.own is not None and self._is_again(evidence.own):
                    self._call = asked
                    return True
        return False

    def _is_again(self, expected: Array) -> bool:
        try:
            return reproduced(self.replay(), expected)
        except LookupError:
            return False

    def _taken(self) -> tuple[Callable[[], Any], int] | None:
        """Return the module's call with its arguments, and the tensor's number in it; None if made outside of one."""
        self._made.clear()
        self._calls.clear()
        try:
            self._run(self._whole)
        except Made:
            if not self._calls:
                return None
            call, before, drawing = self._calls[-1]
            self._arguments, again = self._bound(call)

            def drawn() -> Any:
                with drawing():
                    return again()

            return drawn, self._number - before
        return None

    def _enter(self, call: Any, kept: Callable[[Any], Any], given: Callable[[Any], list[Any]]) -> None:
        """Note a call, as it is `kept`, and the tensors that it is `given`."""
        self._called[call.path] = None
        self._paused += call.path in self._innocent
        if call.path == self._scope:
            self._calls.append((kept(call), len(self._made), self._built.drawing.again()))
        if (call.path, "given") == (self._tensor.module, self._tensor.kind):
            self._add(given(call))

    def _leave(self, call: Any, returned: Callable[[], list[Any]]) -> None:
        """Note the end of a call, and what it returns."""
        self._paused -= call.path in self._innocent
        if (call.path, "returned") == (self._tensor.module, self._tensor.kind):
            self._add(returned())
        if call.path == self._scope:
            self._calls.pop()

    def _add(self, tensors: list[Any]) -> None:
        self._made.extend(tensors)
        if len(self._made) > self._number:
            raise Made

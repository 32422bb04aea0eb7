"""A user's training script in PyTorch as it runs: where it is suspended, and what its calls are given instead."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from greenlet import getcurrent, greenlet
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from parity.core import script
from parity.core.errors import UsageError
from parity.core.patches import applied, around
from parity.pairs.script_records import Shapes, known
from torch_impl.instruments import one_rank, script_calls, source
from torch_impl.instruments.chain import Beside, Chain, Links, Together, parts_of
from torch_impl.instruments.fetches import Fetches
from torch_impl.instruments.script_targets import Given, StepData
from torch_impl.record import calls


class Run(script.Script):
    """A script that is run up to its first training call, and from there in parts."""

    _returned: Callable[[Any], None]  # notes what the model has returned

    def __init__(self, text: str, search: Sequence[str]) -> None:
        super().__init__(text, search)
        self._run = greenlet(self.main)
        self._stands_in: nn.Module | None = None  # what is called in its place: it, or a wrapper
        self._constants: set[int] = set()  # by id(): what modules of the loss hold
        before = self._known = known(search)
        self._fetched = before.fetched if before else None
        self.fetches = Fetches(self._fetched, self._on_fetch, lambda: bool(self._depth))
        self.links = Links()
        self.in_evaluation: list[int] = []  # the calls in evaluation mode that were differentiated, by number
        self._early, self._states = (before.early, before.states) if before else (None, [])
        # Calls of modules that are trained, those before the second step's own, and those in evaluation mode
        self._trained_calls = self._ahead = self._evaluations = 0
        self.copies: list[script_calls.Copy] = []  # models beside the trained one that begin as copies of it
        self.outputs: Shapes = {}  # what the model returns
        self.compared: list[int | None] = []  # the numbers of the outputs that meet what the loss takes
        self.beside = Beside(before.beside if before else {})
        self.labels: dict[str, list[str]] = {}  # what the code calls that which model and loss are given, by its name
        self._begin_step(None)

    def _begin_step(self, batch: Given | None) -> None:
        self._data = StepData(self.name, batch or {}, self._known, self._constants, self.beside)
        if self._fetched:
            self._data.tape.begin([])
        self._passes = self._backwards = 0
        self._is_kept = False  # whether the last backward pass has left its graph to another one
        self._may_evaluate = False  # whether the pass is one in evaluation mode

    def _resume(self, further: Iterable[AbstractContextManager[Any]] = ()) -> None:
        """Run the script until it is suspended, or to its end, under further patches; what it raises is raised here.

        What it draws in a recorded step is shared with Keras; what it draws before is drawn as in a float32 run.
        """
        if self._run.dead:
            raise UsageError(f"{self.name}: has ended; give fewer --steps")
        patches = [
            *one_rank.patches(self._path, lambda: setattr(self, "is_distributed", True)),
            around(nn.Module, "__call__", self._on_call),
            around(Optimizer, "__init__", self._on_optimizer),
            around(torch.autograd, "backward", self._on_backward),
            *self.fetches.patches(),
            self._data.tape,
            *further,
        ]
        self._outside.close()
        is_differentiated = torch.is_grad_enabled()
        with ExitStack() as hooks, self.entered(), applied(patches):
            hooks.callback(register_optimizer_step_pre_hook(script_calls.announce).remove)  # a step may call the model
            self._run.switch()
        self.fetches.are_all = self._run.dead
        if not self._run.dead:
            self._outside.enter_context(torch.inference_mode(False))
            self._outside.enter_context(torch.set_grad_enabled(is_differentiated))
            for device in ("cpu", "cuda"):
                self._outside.enter_context(torch.autocast(device, enabled=False))

    def _on_optimizer(self, init: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> None:
        super()._on_optimizer(init, optimizer, *args, **kwargs)
        if len(self._optimizers) == 1 and (self._known is None or (self._fetched and self._fetched.function)):
            self.fetches.seek_functions()

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the parameters of the model, of one that is called part by part those of all parts, by name."""
        chain = self.links.described(self.fetches.name, self.fetches.number)
        parts = {f"{name}.": self.fetches.made(number) for name, number in chain.modules.items()} if chain else {}
        for prefix, part in (parts or {"": self._model}).items():
            yield from ((f"{prefix}{name}", each) for name, each in part.named_parameters())

    def outside(self) -> int:
        """Return how many parameters are trained that no module holds which is called in a first step."""
        return len(script_calls.others(self._optimizers, self.links.parameters))

    def _suspend(self) -> None:
        assert self._run.parent and getcurrent() is self._run and self._model is not None
        script_calls.keep_modes(self._model, parts_of(self._model))
        self._run.parent.switch()

    def _on_fetch(self) -> Given:
        """Suspend the script where it has taken a batch, if a step begins with it; return the step's own."""
        if is_first := self._model is None:
            modules = self.fetches.modules()
            self._model = Together(modules) if len(modules) > 1 else next(iter(modules.values()))
        if is_first or self._backwards:
            self._suspend()
        return self._data.batch

    def _on_call(self, call: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Run a call of a module; suspend the script before one that ends a step."""
        own = script_calls.unwrapped(module)
        if self._depth or calls.is_backward():
            return self.within(call, module, args, kwargs)
        args, kwargs = script_calls.with_options_named(own, args, kwargs)
        if not script_calls.share(script_calls.held(self._optimizers), own.parameters()):
            self._constants.update(map(id, itertools.chain(module.parameters(), module.buffers())))
            outputs = self.within(call, module, args, kwargs)
            if self._optimizers and next(module.parameters(), None) is not None:
                self.beside.note(own, self.fetches.name(own), outputs)
                self._data.tape.go_on()
            return outputs
        if self._is_part(own):
            return self.within(call, own, args, kwargs)
        self._trained_calls += 1
        may_train = torch.is_grad_enabled()
        if self._fetched and may_train:  # also in evaluation mode, as an attack is made
            return self._in_step(call, own, args, kwargs)
        is_training = may_train and (script_calls.is_training(own) or self._is_differentiated(own))
        is_early = self._early is not None and self._trained_calls == self._early.call
        is_first = self._model is None and (is_training or is_early)
        if not self._fetched and (self._backwards or is_first):
            if self._model is None:
                own.forward = script_calls.with_states(own, self._states, args, kwargs)
                chain = self._known.chain if self._known else None
                parts = {name: self.fetches.made(number) for name, number in chain.modules.items()} if chain else {}
                self._model = Chain(parts, chain) if chain else own
            self._suspend()
        if not is_training:
            self._ahead += not self._passes
            with calls.unobserved():
                return self.within(call, own, args, kwargs)
        self.fetches.name(own)
        if fetch := self.fetches.last:
            fetch.begin()
        outputs = (self._run_pass if own is self._first else self._run_further)(call, own, args, kwargs)
        if fetch:
            fetch.note(own, script_calls.tensors_of_call(self.name, own, args, kwargs), outputs)
        return outputs

    def _is_part(self, module: nn.Module) -> bool:
        """Return whether a module is one within the model, which the loss calls, as a penalty does an embedding."""
        parts = parts_of(self._model) if self._model else []
        return any(each is module for part in parts for each in part.modules() if each is not part)

    @property
    def _first(self) -> nn.Module | None:
        """Return the model, or of one that is called part by part the first of these."""
        return self._model.first if isinstance(self._model, Chain) else self._model

    def _run_further(self, call: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Run a call of another module than the first of those that are trained."""
        if isinstance(self._model, Chain):
            is_link = self._model.is_linked(module)
            outputs = self._model.taken(module, args, kwargs) if is_link else self.within(call, module, args, kwargs)
            if is_link:
                self._data.note(self._model.besides(module, args, kwargs))
        else:
            seen = self._data.seen()
            outputs = self.within(call, module, args, kwargs)
            taken = script_calls.tensors_of_call(self.name, module, args, kwargs)
            is_link = self.links.note(module, args, kwargs, outputs, taken)
            if is_link:
                self._data.forget_since(seen)
                self._data.note(self.links.besides(module, taken))
            if not (self.links.are_one or self.fetches.last):
                raise UsageError(
                    f"{self.name}: trains modules that it calls one by one, {' and '.join(self.links.classes)}; "
                    "expected one, or each to be given what those before it return, or batches of a DataLoader"
                )
        if is_link:
            self._returned(outputs)
        else:
            self._constants.update(map(id, itertools.chain(module.parameters(), module.buffers())))
        return outputs

    def _run_pass(self, call: Callable[..., Any], model: nn.Module, args: Any, kwargs: Any) -> Any:
        """Run a pass of the model, which is given the data of the step."""
        if self._may_evaluate:  # the pass before was an evaluation
            self._passes = 0
            self._data.forget()
        self._may_evaluate = not script_calls.is_training(model)
        self._passes += 1
        called = self._model if isinstance(self._model, Chain) else model
        given = self._data.on_call(model, args, kwargs)
        if isinstance(self._model, Chain):
            given = given[0], given[1] | self._data.further(self._model.further)
        outputs = self.within(call, self._stands_in or called, *given)
        if self._known is None:
            self.links.note(model, *given, outputs, script_calls.tensors_of_call(self.name, model, *given))
        self._returned(outputs)
        return self._model.taken(model, *given) if isinstance(self._model, Chain) else outputs

    def _in_step(self, call: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Run a call of a module in a step that makes its inputs."""
        self._passes += 1
        called = self._stands_in if module is self._model else module
        self._data.tape.call(called, args, kwargs)
        outputs = self.within(call, called, args, kwargs)
        self._data.tape.returned(outputs)
        return outputs

    def _is_differentiated(self, module: nn.Module) -> bool:
        """Return whether a call in evaluation mode is one of a step; before that is known, whether it may be."""
        self._evaluations += module is self._first
        return module is self._first and (self._known is None or self._evaluations in self._known.in_evaluation)

    def _on_backward(self, backward: Callable[..., None], loss: Any, *args: Any, **kwargs: Any) -> None:
        self._data.tape.end(loss, self._model.modules() if self._model else ())
        if not self.labels or self._is_kept:
            self.labels = self._data.labels(source.frame())
            self.compared, self.beside.names = self._data.compared, self._data.of_beside
        backward(loss, *args, **kwargs)
        self.links.end()
        self._is_kept = bool(kwargs.get("retain_graph", len(args) > 1 and args[1]))
        if self._is_kept:  # for a further term of the loss
            self._data.tape.go_on()
        self.beside.made.clear()
        self._backwards += 1
        if self.fetches.last:
            self.fetches.last.backwards += 1
        if self._may_evaluate:
            self.in_evaluation.append(self._evaluations)

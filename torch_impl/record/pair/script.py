"""A user's training script in PyTorch: run up to the first training call of its model, and from there step by step.

It runs in a greenlet, which is left and resumed. The model is the module that is called in training mode and whose
parameters an optimizer of the script's holds. A step begins with such a call, and ends before the next one behind its
backward pass, or before one in evaluation, which is not observed; one in evaluation mode that the script differentiates
is of a step. Where gradients are accumulated, several steps make one update. The steps of a script that makes the
inputs of its modules itself, or trains several, begin where it takes a batch from its DataLoader.

In place of the script's own batches come those that it gave in an earlier run (`batches`): all runs have the same ones.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from parity.core.errors import UsageError
from parity.core.wording import count
from parity.pairs.script_records import Early, Fetched, shapes_of
from torch_impl.instruments import one_rank, script_calls
from torch_impl.instruments.chain import parts_of
from torch_impl.instruments.noise import float32_draws
from torch_impl.instruments.script_run import Run
from torch_impl.instruments.script_targets import Given
from torch_impl.record.pair.outputs import flat

MOST_WITH_UPDATES = 16  # steps that are run to see a second update


class Script(Run):
    """One run of a script."""

    def __init__(self, text: str, search: Sequence[str]) -> None:
        super().__init__(text, search)
        self._accumulates = False  # whether a step has updated nothing
        self._begins: Early | None = None  # the call with which the first step begins, if it is none in training
        self.has_unlike = False  # whether the last of the batches is none of the steps
        self.every = 1  # after how many of the batches the model is updated
        self.carried: set[str] = set()  # what the model is given of what it has returned in the step before

    def build(self) -> nn.Module:
        """Run the script until it is about to train, and return its model. Raises UsageError if it does not train."""
        failure = None
        try:
            self._resume(float32_draws())
        except Exception as error:
            failure = error
        if self._model is None and one_rank.asks_for_gpu(self._path, failure):
            Script.__init__(self, self._text, self._search)
            return self.build()
        if failure:
            raise failure
        if self._model is None:
            raise UsageError(
                f"{self.name}: ended, and no nn.Module was called in training mode that holds the parameters of a "
                "torch.optim.Optimizer made before; give a script that trains one model so, or a file with torch_step"
            )
        one_rank.hold_to(self._path, self._model)
        script_calls.attach(
            self._model, {name: self.fetches.made(each.number) for name, each in self.beside.parts.items()}
        )
        self.copies = script_calls.copies({self._model, *parts_of(self._model)})
        return self._model

    def optimizer(self, parameters: Sequence[Any]) -> Optimizer:
        """Return the optimizer that the script has made, the first time; then new ones of these parameters, like it.

        Of several, the first. Raises UsageError if they train more than the model.
        """
        own, first = {id(each) for each in parameters}, self._of_model()[0]
        if self._known and not self._has_optimizer:
            self._refuse_foreign(self._model.parameters())
        if self._has_optimizer:
            held = ((group, [each for each in group["params"] if id(each) in own]) for group in first.param_groups)
            return type(first)([group | {"params": params} for group, params in held if params])
        self._has_optimizer = True
        return first

    def step(self, model: nn.Module, optimizer: Optimizer, batch: Given) -> Any:
        """Run the script's next training step, on a batch; or again up to its backward pass, if it was left there.

        Returns what it differentiates; where gradients are accumulated, that is only a part of a loss, and it returns
        nothing. Raises UsageError where the script has no such step.
        """
        if not any(each is self._model for each in model.modules()):
            raise UsageError(f"{self.name}: was run anew since this model was built")
        if self._known and self._known.joined > 1 and not script_calls.is_undivided.get():
            return sum(self._part(model, part).detach() for part in _parts(batch, self._known.joined))
        loss = self._part(model, batch)
        return None if self._accumulates or self._backwards > 1 else loss

    def _part(self, model: nn.Module, batch: Given) -> Any:
        """Run the script's next training step, and return what it differentiates at last."""
        self._stands_in = model
        self.copies = script_calls.copy_to(self.copies)
        if not (self._run.dead and self._passes and not self._backwards):
            before = [each._version for each in model.parameters()]
            self._begin_step(batch)
            self._resume()
            self._check()
            self._accumulates |= before == [each._version for each in model.parameters()]
            return self._data.tape.loss
        self._data.batch = batch
        again = (model(*args, **kwargs) for args, kwargs in itertools.starmap(self._data.given, self._data.calls))
        self._data.tape.again([output for outputs in again for output in flat(outputs)]).backward()
        raise UsageError(f"{self.name}: was left in this step")

    def numbers(self) -> list[int | float]:
        """Return the numbers that the script has given to functions in its last step, beside its modules."""
        return self._data.tape.numbers()

    def batches(self, steps: int) -> Iterator[Given]:
        """Run the script on; yield what it gives to its model and its loss in each step, by name.

        There are fewer if it ends before, and more if it accumulates gradients: a second update tells whether they
        begin anew. It is run further, as long as not so many of its `fetches` were trained on. At last comes a batch
        that is unlike these, if it has one (`has_unlike`). Raises UsageError.
        """
        parameters = list((self.build() if self._model is None else self._model).parameters())
        self.optimizer(parameters)
        updates, called, returned = 0, self._trained_calls, list[torch.Tensor]()
        for number in range(max(steps, MOST_WITH_UPDATES)):
            is_over = number >= steps and updates >= min(steps, 2)
            is_left = self.fetches.last and len(self.fetches.trained_on()) < steps
            if is_over and self.fetches.last and self.fetches.last.is_unlike:
                self._begin_step(None)
                with contextlib.suppress(Exception):  # its code may not take it
                    self._resume(float32_draws())
                    self.has_unlike = bool(self._backwards)
                    yield from [self._data.taken] * self.has_unlike
                return
            if (number and self._run.dead) or (is_over and not is_left):
                return
            self.fetches.seeks_unlike = updates == number == steps - 1
            self._begin_step(None)
            self._ahead = 0
            before = [each._version for each in parameters]
            self._resume(float32_draws())
            if before != [each._version for each in parameters]:
                updates += 1
                self.every = (number + 1) // updates
            if number == 1 and 0 < self._ahead < called:
                self._begins = Early(call=called - self._ahead, module=self.fetches.number(self._first))
            if number and not self._backwards:  # an evaluation came last
                return
            self._check()
            if not (number or self.fetches.last):
                self._refuse_foreign(self.links.parameters)
            kept = {name for name, each in self._data.taken.items() if script_calls.is_state(each, returned)}
            self.carried, returned = self.carried & kept if number else kept, self._data.tape.outputs
            if not is_over:
                yield self._data.taken

    def early(self) -> Early | None:
        """Return with which call the first step has begun, of the `batches`, if that is before the one in training."""
        return self._begins

    def chain(self) -> Fetched | None:
        """Return the modules of the first step that are called one by one; None if there is no such thing."""
        return self.links.described(self.fetches.name, self.fetches.number)

    def _refuse_foreign(self, parameters: Iterable[nn.Parameter]) -> None:
        """Raise UsageError if the model's optimizers train others than these."""
        if foreign := script_calls.others(self._of_model(), parameters):
            raise UsageError(
                f"{self.name}: its optimizer trains {count(len(foreign), 'parameter')} outside of the module that is "
                f"called, {type(self._model).__name__}, the first of shape {tuple(foreign[0].shape)}; call one "
                "nn.Module that holds all of them"
            )

    def _of_model(self) -> list[Optimizer]:
        """Return the optimizers that train the model."""
        weights = list(self._model.parameters())
        return [each for each in self._optimizers if script_calls.share(weights, script_calls.held([each]))]

    def _check(self) -> None:
        if not self._backwards:
            raise UsageError(f"{self.name}: ended before its backward pass")

    def _returned(self, outputs: Any) -> None:
        """Note what the model has returned."""
        self._data.on_return(list(flat(outputs)))
        if self._passes == 1:
            self.outputs = shapes_of(outputs, torch.is_tensor)


def _parts(batch: Given, number: int) -> Iterator[Given]:
    """Yield so many parts of a batch; what has not as many rows as the first input is the same in each."""
    samples = len(next(iter(batch.values())))
    cut = {name: each.chunk(number) for name, each in batch.items() if each.dim() and len(each) == samples}
    yield from ({name: cut[name][at] if name in cut else each for name, each in batch.items()} for at in range(number))

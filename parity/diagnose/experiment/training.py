"""A user's model in training, of which a step can be computed again: what both sides do alike.

The model is brought to the state before the step in question by training it from the beginning. A gradient is computed
by the backward pass of one module alone, with the arguments and the gradients of its outputs that it had, where that
gives what was recorded; else by that of the whole model. What the forward pass returns must stay the same.
"""

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from parity.config.pair import Pair
from parity.core.arrays import Array, reproduced
from parity.data.masks import Draws
from parity.data.pairs import PairData
from parity.diagnose.experiment.attempts import ContradictionError
from parity.diagnose.experiment.pieces import Again, Evidence, Way, losses
from parity.runtime.experiment import Question
from parity.runtime.job import ExperimentJob
from parity.trace import keys

State = tuple[Any, dict[Any, Any]]  # the weights of a model, and the states of the optimizers that have been called


class Training:
    """A built model, which can be brought to the state before a step of its training.

    `masks` are those of the training. `stack` is closed when the model is no longer needed.
    """

    # What each side gives: the numbers of a tensor, the state of the model and of an optimizer and back to it, the
    # training before a step, a forward pass with its `outputs` and its `loss`, what of it is asked for, and how the
    # optimizer moves a few parameters or all of them.
    array: Callable[[Any], Array]
    _weights_now: Callable[[], Any]
    _load: Callable[[Any], None]
    _slots_now: Callable[[Any], Any]
    _load_slots: Callable[[Any, Any], None]
    _begin: Callable[[int], None]
    _pass: Callable[[int], Any]
    _loss: Callable[[Evidence], Array]  # with the gradients that are evidence of it
    _buffer: Callable[[str], Array]
    _gradient: Callable[[str], Array]
    _alone: Callable[[str, str], Again | None]  # by a module alone; None if it is not called once, or has no outputs
    _updates: Callable[[Question, Evidence], list[Way]]

    def __init__(self, job: ExperimentJob, built: Any, masks: Draws, stack: ExitStack) -> None:
        self._case, self._pair, self._halves = job.case, job.case.model, job.pair
        self._model, self._masks, self._stack = built.model, masks, stack
        self._data = PairData(job.case, job.pair.search)
        self._training: Any = None
        self._returned: list[Any] = []  # of the calls of the model in this pass
        self._kind, self._step = "", 0
        self._number = 0  # the loss of the step that is computed
        self._keeps_loss = True  # whether it is the same on both sides
        self._slots: dict[Any, Any] = {}  # the first state of each optimizer that has been called
        self._initial: State | None = None
        self._first: dict[tuple[str, int], list[Array]] = {}

    def ways(self, question: Question, evidence: Evidence) -> list[Way]:
        """Return the ways to compute a question's tensor again, the fastest first; the last one is always right."""
        self._kind, name = question.tensor.kind, question.tensor.key.partition("/")[2]
        number_of_losses, self._keeps_loss = losses(question)
        self._begin_again(question.tensor.step)
        if self._kind == "update":
            return self._updates(question, evidence)
        compute: Callable[[], Array] = {
            "loss": lambda: self._loss(evidence),
            "buffer": lambda: self._buffer(name),
            "gradient": lambda: self._gradient(name),
        }[self._kind]
        self._number, is_gradient = keys.number(name) if self._kind == "loss" else 0, self._kind == "gradient"
        alone = self._alone(question.module, name) if is_gradient else None

        def of_loss(number: int) -> list[tuple[str, Array]]:
            self._number = number
            return [(name, compute())]

        several = range(number_of_losses if is_gradient else 1)
        ways = [alone, *(partial(of_loss, self._number + each) for each in several)]
        return [Way(each, each) for each in ways if each]

    def loss_alone(self) -> Array:
        """Return the loss of the step."""
        return self.array(self._again().loss)

    def numbers(self) -> list[int | float]:
        """Return the numbers in code of the step that is not run again: none where all of it is."""
        return []

    def own_step(self) -> dict[str, Array]:
        """Run the user's own first step up to its backward pass, and return what the model returns, by name."""
        if self._training is None:
            self._begin_again(0)
        self._restore()
        assert isinstance(self._pair, Pair)
        outputs, names = self._pass(0).outputs, [f"{keys.MODEL}.{name}" for name in self._pair.outputs] or [keys.MODEL]
        calls = (keys.numbered(name, call) for call in itertools.count() for name in names)
        return {name: self.array(output) for name, output in zip(calls, outputs, strict=False)}

    def _begin_again(self, step: int) -> None:
        """Train the model from its beginning up to a step."""
        self._state = self._initial = self._initial or self._state_now()
        self._restore()
        self._masks.step, self._step = 0, step
        self._begin(step)
        self._state = self._state_now()

    def _state_now(self) -> State:
        return self._weights_now(), {optimizer: self._slots_now(optimizer) for optimizer in self._slots}

    def _restore(self) -> None:
        """Bring the model, and what the step has called, to the state before the step."""
        weights, slots = self._state
        self._load(weights)
        for optimizer, first in self._slots.items():
            self._load_slots(optimizer, slots.get(optimizer, first))
        self._masks.restart()

    def _keep_slots(self, optimizer: Any) -> None:
        """Keep the state of an optimizer that is called for the first time."""
        if optimizer not in self._slots:
            self._slots[optimizer] = self._slots_now(optimizer)

    def _again(self) -> Any:
        """Run the question's step again, in which the outputs must stay the same."""
        self._restore()
        done = self._pass(self._step)
        self._keep("outputs", done.outputs)
        return done

    def _keep(self, what: str, returned: Sequence[Any]) -> None:
        """Raise ContradictionError if these tensors are not what they were at first, unless it is a loss that parts."""
        if what == "loss" and not self._keeps_loss:
            return
        arrays = [self.array(tensor).copy() for tensor in returned]
        first = self._first.setdefault((what, self._number), arrays)
        if len(arrays) != len(first) or not all(map(reproduced, arrays, first)):
            raise ContradictionError(f"a change of the backward pass alone leaves the {what} as they are")


def read_by(function: Any) -> list[Any]:
    """Return a loss function, and what it reads from its file, such as a loss object."""
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    return [function, *(getattr(function, "__globals__", {}).get(name) for name in names)]

"""A user's model in training, of which a step can be computed again: what both sides do alike.

The model is brought to the state before the step in question by training it from the beginning. A gradient is computed
by the backward pass of one module alone, with the arguments and the gradients of its outputs that it had, where that
gives what was recorded; else by that of the whole model. What the forward pass returns must stay the same.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from parity.core.arrays import Array, reproduced
from parity.data.masks import Draws
from parity.data.pairs import PairData
from parity.diagnose.experiment.attempts import ContradictionError
from parity.diagnose.experiment.pieces import Again, Evidence, Way
from parity.runtime.experiment import Question
from parity.runtime.job import ExperimentJob


class Training:
    """A built model, which can be brought to the state before a step of its training.

    `masks` are those of the training. `stack` is closed when the model is no longer needed.
    """

    # What each side gives: the numbers of a tensor, the state before a step and back to it, a forward pass with its
    # `outputs` and its `loss`, what of it is asked for, and how the optimizer moves a few parameters or all of them.
    array: Callable[[Any], Array]
    _begin: Callable[[int], None]
    _restore: Callable[[], None]
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
        self._first: dict[str, list[Array]] = {}

    def ways(self, question: Question, evidence: Evidence) -> list[Way]:
        """Return the ways to compute a question's tensor again, the fastest first; the last one is always right."""
        self._kind, name = question.tensor.kind, question.tensor.key.partition("/")[2]
        self._begin(question.tensor.step)
        if self._kind == "update":
            return self._updates(question, evidence)
        compute: Callable[[], Array] = {
            "loss": lambda: self._loss(evidence),
            "buffer": lambda: self._buffer(name),
            "gradient": lambda: self._gradient(name),
        }[self._kind]
        alone = self._alone(question.module, name) if self._kind == "gradient" else None
        return [Way(each, each) for each in (alone, lambda: [(name, compute())]) if each]

    def loss_alone(self) -> Array:
        """Return the loss of the step."""
        return self.array(self._again().loss)

    def own_step(self) -> dict[str, Array]:
        """Run the user's own first step up to its backward pass; what the model returns has no names."""
        if self._training is None:
            self._begin(0)
        self._restore()
        self._pass(0)
        return {}

    def _again(self) -> Any:
        """Run the question's step again, in which the outputs must stay the same."""
        self._restore()
        done = self._pass(self._step)
        self._keep("outputs", done.outputs)
        return done

    def _keep(self, what: str, returned: Sequence[Any]) -> None:
        """Raise ContradictionError if these tensors are not what they were at first."""
        arrays = [self.array(tensor).copy() for tensor in returned]
        first = self._first.setdefault(what, arrays)
        if len(arrays) != len(first) or not all(map(reproduced, arrays, first)):
            raise ContradictionError(f"a change of the backward pass alone leaves the {what} as they are")


def read_by(function: Any) -> list[Any]:
    """Return a loss function, and what it reads from its file, such as a loss object."""
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    return [function, *(getattr(function, "__globals__", {}).get(name) for name in names)]

"""How a side of a pair was trained, as its manifest tells it."""

import math

import msgspec

from parity.trace import keys

Settings = dict[str, bool | int | float | str]


class Fitted(msgspec.Struct, frozen=True):
    """How a Keras model that `fit` trains in a graph ends otherwise than one that is trained op by op."""

    state: list[str]  # what the user's code keeps in Python and changes in training
    weight: str = ""  # the weight that is furthest apart, by `apart` of its largest value
    apart: float = 0.0
    error: str = ""  # why one of the trainings failed
    overridden: str = ""  # a method of the user's that `fit` is, or calls, and that a step knows nothing of


class ParameterGroup(msgspec.Struct, frozen=True):
    """Parameters with one set of an optimizer's settings (as in optimizer_steps.Rule); the rate is the first step's."""

    parameters: list[str]
    settings: Settings

    @property
    def is_finite(self) -> bool:
        """Return whether all settings can be written as JSON, and be computed with."""
        return all(isinstance(value, str) or math.isfinite(value) for value in self.settings.values())


class Turn(msgspec.Struct, frozen=True):
    """An optimizer's turn in a step of several, whose losses depend on what others have updated before in the step.

    `names`: the parameters that it updates, and the modules whose buffers have changed since the turn before. `losses`:
    the numbers of those that were differentiated for it. `calls`: the keys of what modules were given and returned.
    """

    names: list[str]
    losses: list[int]
    calls: list[str] = []


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """How a side of a pair was trained."""

    own_step: bool = False  # by a step of the user's own, or with a train_step or compute_loss that overrides Keras's
    # Whether a step of the user's own returns its loss; else what it differentiates was recorded.
    returns_loss: bool = True
    # The steps of a training with a step of the user's own in which no optimizer updated anything.
    waiting: list[int] = []
    repeated: list[str] = []  # the modules whose dropout masks repeat earlier ones, because of a seed of the user's
    fitted: Fitted | None = None  # how `fit` trains the model otherwise
    turns: list[Turn] = []  # in their order
    groups: list[ParameterGroup] = []  # those of the user's optimizer, if its formula is known
    # The learning rate of the first of them when it makes each step, or before, and after the last; and when the
    # groups were noted. None where it is no number.
    rates: list[float | None] = []
    rate: float | None = None
    is_scheduled: bool = False  # whether a schedule sets it
    unreached: str = ""  # the clipping that an optimizer does, if no gradient was so large in these steps
    compiled: str = ""  # by what
    breaks: list[str] = []  # where torch.compile broke the graph
    # The batch norms whose running variance was updated as Keras does, since the pair accepts that.
    held: list[str] = []
    causes_held: list[str] = []  # to what this run was held (config.pair.HELD), for the same reason

    def turn(self, kind: str, name: str) -> int:
        """Return the turn of a tensor, from 1 on; 0 where no update comes before."""
        if kind in ("input", "activation"):
            own = keys.key(kind, name)
            return next((number for number, turn in enumerate(self.turns, 1) if own in turn.calls), 0)
        owner = name.rpartition(".")[0] if kind == "buffer" else keys.parameter(kind, name)
        loss = keys.number(name) if kind == "loss" else None
        turns = (number for number, turn in enumerate(self.turns, 1) if owner in turn.names or loss in turn.losses)
        return max(turns, default=0)

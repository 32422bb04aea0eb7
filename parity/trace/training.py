"""How a side of a pair was trained, as its manifest tells it."""

import math

import msgspec

Settings = dict[str, bool | int | float | str]


class Fitted(msgspec.Struct, frozen=True):
    """How a Keras model that `fit` trains in a graph ends otherwise than one that is trained op by op.

    `state`: what the user's code keeps in Python and changes in training. `weight`: the weight that is furthest apart,
    by `apart` of its largest value. `error`: why one of the trainings failed. `overridden`: a method of the user's that
    `fit` is, or calls, and that a step knows nothing of.
    """

    state: list[str]
    weight: str = ""
    apart: float = 0.0
    error: str = ""
    overridden: str = ""


class ParameterGroup(msgspec.Struct, frozen=True):
    """Parameters that an optimizer of a framework's own updates by the same settings.

    The settings are named as in parity.diagnose.optimizer_steps.Rule; the learning rate is that of the first step.
    """

    parameters: list[str]
    settings: Settings

    @property
    def is_finite(self) -> bool:
        """Return whether all settings can be written as JSON, and be computed with."""
        return all(isinstance(value, str) or math.isfinite(value) for value in self.settings.values())


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """How a side of a pair was trained.

    `own_step`: by a step of the user's own, or with a train_step or compute_loss that overrides Keras's.
    `returns_loss`: whether a step of the user's own returns its loss; else what it differentiates was recorded.
    `waiting`: the steps of a training with a step of the user's own in which no optimizer updated anything. `repeated`:
    the modules whose dropout masks repeat earlier ones, because of a seed of the user's. `fitted`: how `fit` trains the
    model otherwise. `groups`: those of the user's optimizer, if its formula is known. `rates`: the learning rate of the
    first of them before each step and after the last, None where it is no number. `is_scheduled`: whether a schedule
    sets it. `unreached`: the clipping that an optimizer does, if no gradient was so large in these steps. `compiled`:
    by what; `breaks`: where torch.compile broke the graph. `held`: the batch norms whose running variance was updated
    as Keras does, since the pair accepts that.
    """

    own_step: bool = False
    returns_loss: bool = True
    waiting: list[int] = []
    repeated: list[str] = []
    fitted: Fitted | None = None
    groups: list[ParameterGroup] = []
    rates: list[float | None] = []
    is_scheduled: bool = False
    unreached: str = ""
    compiled: str = ""
    breaks: list[str] = []
    held: list[str] = []

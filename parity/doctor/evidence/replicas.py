"""What ranks can compare of their parameters and gradients without sending them to each other."""

from typing import Literal

from parity.doctor.evidence.common import Fact


class Numbers(Fact):
    """A tensor in a few numbers, which are the same on two ranks if the tensor is.

    Attributes:
        size: the number of its elements.
        norm: its L2 norm.
        mark: its scalar product with fixed weights, which differ from element to element.
        constant: whether all elements are the same.
    """

    size: int
    norm: float
    mark: float
    constant: bool = False


class Change(Fact):
    """A change that the step made to a parameter or its gradient, after the backward pass.

    Attributes:
        what: "gradient" (the program's own op wrote into the gradient) or "update" (by an optimizer, perhaps of other
            parameters alone).
        source: the user's line.
        gradient: the gradient before the change.
        result: the gradient after it; for an update, the parameter after it.
    """

    parameter: str
    what: Literal["gradient", "update"]
    source: str
    gradient: Numbers
    result: Numbers


class Comparable(Fact):
    """What one step did to the parameters that are to be trained. Only recorded if there are several ranks.

    Attributes:
        used: the parameters when the step's first backward pass began, by name.
        changes: in the order in which they happened.
    """

    used: dict[str, Numbers] = {}
    changes: list[Change] = []

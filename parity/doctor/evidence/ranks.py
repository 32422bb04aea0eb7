"""What a rank did with other ranks, and where it was when the time was over.

And what ranks can compare of their parameters and gradients without sending them to each other.
"""

from typing import Literal

from parity.core.ownership import Homes
from parity.doctor.evidence.common import Fact

PEERS = ("send", "recv")  # operations between two ranks


class Collective(Fact):
    """A call that waits for other ranks. They are kept in the order in which this rank made them.

    Attributes:
        peer: the other rank of a send or a receive.
        group: the ranks that the call waits for, if these are not all ranks.
    """

    operation: str
    shape: list[int]
    dtype: str
    source: str
    peer: int | None = None
    group: list[int] = []


class Waiting(Fact):
    """Where a rank was when the time was over.

    Attributes:
        ended: whether its step was already over.
        stack: the lines of its Python stack, the innermost call first.
        homes: where the code of its process lives; None if it had not built its program yet.
    """

    rank: int
    ended: bool
    stack: list[str]
    homes: Homes | None = None


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

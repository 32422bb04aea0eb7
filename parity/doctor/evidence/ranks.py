"""What a rank did with other ranks, and where it was when the time was over."""

from parity.doctor.evidence.common import Fact
from parity.doctor.ownership import Homes


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

"""What a program asked of its GPUs that virtual GPUs do not imitate."""

from parity.doctor.evidence.common import Fact


class NotPretended(Fact):
    """A call that virtual GPUs do not imitate, made at a line of the program.

    Attributes:
        call: what was called ("torch.cuda.Stream").
        source: the user's line.
        instead: what happens instead, and what the findings therefore do not cover.
    """

    call: str
    source: str
    instead: str

"""A public pair: its truth, and whether an answer is that."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
UNKNOWN = "unknown"  # the id of a cause that has no name

FORWARD, GRADIENTS, TRAINING = "forward", "gradients", "training"
BEGINS = {"sample": FORWARD, "input": FORWARD, "activation": FORWARD, "gradient": GRADIENTS}


class PublicPair(NamedTuple):
    """A pair of tests/public/ and its truth.

    `verdict`: the right one. `begins`: where the two first differ by that much. `causes`: globs of the ids that are to
    be named ("*": any but unknown). `difference`, `source`: what truly differs, and where it stands. `truth`: how that
    was established. `wrong`: what is said instead of verdict or place today. `unnamed`: why the causes are not named
    today, which is no failure of the test, but counts as unnamed in the table.
    """

    name: str
    verdict: str = "match"
    begins: str = ""
    causes: tuple[str, ...] = ()
    difference: str = ""
    source: str = ""
    truth: str = "source"
    wrong: str = ""
    unnamed: str = ""

    def is_right(self, verdict: str, kind: str) -> bool:
        """Return whether a verdict, and the kind of tensor that it was first seen in, are the truth."""
        return verdict == self.verdict and (verdict == "match" or BEGINS.get(kind, TRAINING) == self.begins)

    def is_named(self, ids: set[str]) -> bool:
        """Return whether each true cause is among the ids that were reported."""
        known = ids - {UNKNOWN}
        return all(any(fnmatchcase(cause, glob) for cause in known) for glob in self.causes)

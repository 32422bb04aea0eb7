"""A public pair: its truth, and whether an answer is that."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
UNKNOWN = "unknown"  # the id of a cause that has no name

FORWARD, GRADIENTS, TRAINING = "forward", "gradients", "training"
BEGINS = {"sample": FORWARD, "input": FORWARD, "activation": FORWARD, "gradient": GRADIENTS}


class Elsewhere(NamedTuple):
    """What truly differs on other inputs than the file's alone, such as padding: as in `PublicPair`."""

    begins: str
    causes: tuple[str, ...]
    difference: str
    source: str
    unnamed: str = ""


class PublicPair(NamedTuple):
    """A pair of tests/public/ and its truth.

    `verdict`: the right one. `begins`: where the two first differ by that much. `causes`: globs of the ids that are to
    be named ("*": any but unknown). `difference`, `source`: what truly differs, and where it stands. `truth`: how that
    was established. `wrong`: what is said instead of verdict or place today. `unnamed`: why the causes are not named
    today, which is no failure of the test, but counts as unnamed in the table. `elsewhere`: what differs on inputs that
    the file does not give, which only a run with variations sees.
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
    elsewhere: Elsewhere | None = None

    def varied(self) -> "PublicPair":
        """Return the truth of a run with variations."""
        if not self.elsewhere:
            return self
        own = f"{self.difference}; on other inputs: " if self.difference else "on other inputs: "
        begins, causes, difference, source, unnamed = self.elsewhere
        source = f"{self.source}; {source}" if self.source else source
        changed = {"difference": own + difference, "source": source, "unnamed": unnamed}
        return self._replace(verdict="diverged", begins=begins, causes=causes, **changed)

    def is_right(self, verdict: str, kind: str) -> bool:
        """Return whether a verdict, and the kind of tensor that it was first seen in, are the truth."""
        return verdict == self.verdict and (verdict == "match" or BEGINS.get(kind, TRAINING) == self.begins)

    def is_named(self, ids: set[str]) -> bool:
        """Return whether each true cause is among the ids that were reported."""
        known = ids - {UNKNOWN}
        return all(any(fnmatchcase(cause, glob) for cause in known) for glob in self.causes)

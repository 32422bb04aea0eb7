"""What a topic of the diagnosis is: it asks about tensors that differ, each with the evidence of both sides.

A topic is a function `questions(sides)` in the file of its formula. `topics.py` lists all of them in order.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from parity.diagnose.explain import Explained
from parity.diagnose.formula import Formula
from parity.diagnose.sides import Sides
from parity.trace import keys
from parity.verdict.traces import Unequal

OF_EACH = 2  # parameters to ask about for each number of axes (matrices and more, vectors, scalars)
LARGEST = 1 << 16  # elements; larger parameters are asked about only if there are too few others


class Question(NamedTuple):
    """What a formula has to explain: one tensor or module that differs, as both sides recorded it.

    Attributes:
        kind: the kind of the tensor that differs (keys.py lists the kinds).
        where: the module or tensor at which a cause would be reported.
        formula: recomputes the observation under each setting.
        reference: the reference's observation, for which the formula is made; None if it has not recorded what the
            formula needs. Then the question is not asked.
        candidate: the same observation of the candidate.
        own_key: the key of what is explained, where it is not that of `where`.
        answer: what explains the difference, where it is known without a search.
        is_later: whether functions between modules make the tensor, and made it alike in the first step: then it may
            differ only because weights do by then.
    """

    kind: str
    where: str
    formula: Formula[Any]
    reference: Any
    candidate: Any
    own_key: str = ""
    is_later: bool = False
    answer: Explained | None = None

    @classmethod
    def of(cls, kind: str, where: str, formula: Formula[Any], both: Iterable[Any], own_key: str = "") -> "Question":
        """Return the question with the observations of both sides, the reference's first."""
        reference, candidate = both
        return cls(kind, where, formula, reference, candidate, own_key)

    @property
    def tensor(self) -> str:
        """Return the key of what is explained, without the call number."""
        return self.own_key or keys.key(self.kind, self.where)


Topic = Callable[[Sides], Iterator[Question]]


def most_informative(sides: Sides, candidates: list[Unequal]) -> list[Unequal]:
    """Return a few parameters' tensors to ask about: some matrices, some vectors and some scalars, each once.

    Large ones come first, since every element is evidence, unless they are so large that they take too long.
    """
    sizes = {name: array.size for name, array in sides.reference.parameters.items()}
    once = {tensor.name: tensor for tensor in reversed(candidates) if tensor.name.removesuffix(keys.LOCAL) in sizes}
    ordered = sorted(once.values(), key=lambda tensor: _by_information(sizes[tensor.name.removesuffix(keys.LOCAL)]))
    axes = {name: min(array.ndim, 2) for name, array in sides.reference.parameters.items()}
    groups = (
        [tensor for tensor in ordered if axes[tensor.name.removesuffix(keys.LOCAL)] == count] for count in (2, 1, 0)
    )
    return [tensor for group in groups for tensor in group[:OF_EACH]]


def _by_information(size: int) -> tuple[bool, int]:
    """Return a sort key: the largest first, then those above LARGEST elements, the smallest of them first."""
    return size > LARGEST, size if size > LARGEST else -size

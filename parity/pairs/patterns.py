"""einops patterns as far as the mapping of weights needs them: their axes, their inverses, the sizes of their axes."""

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

Shape = tuple[int, ...]
Group = tuple[str, ...]  # the named axes that one axis of an array is made of; () for an axis of one
IDENTITY = "... -> ..."  # said where nothing may move, and "" would leave it open
TOKEN = re.compile(r"\(([^()]*)\)|(\S+)")


class Equation(NamedTuple):
    """The product of the sizes of `one` is `factor` times that of `other`."""

    one: Group
    factor: int
    other: Group = ()


def halves(pattern: str) -> tuple[list[Group], list[Group]]:
    """The axes of both sides. Raises ValueError."""
    left, arrow, right = pattern.partition("->")
    if not arrow or "->" in right:
        raise ValueError(f"received the pattern {pattern!r}, expected 'axes -> axes'")
    sides = _groups(left), _groups(right)
    names = [sorted(name for group in side for name in group) for side in sides]
    if names[0] != names[1]:
        raise ValueError(f"the pattern {pattern!r} has other axes on its left than on its right")
    if len(set(names[0])) != len(names[0]):
        raise ValueError(f"the pattern {pattern!r} names an axis twice")
    return sides


def reorders(pattern: str) -> bool:
    """Whether the numbers of one axis on the left stand in another order on the right: more than whole axes move."""
    left, right = halves(pattern)
    place = {name: number for number, name in enumerate(name for group in right for name in group)}
    orders = ([place[name] for name in group] for group in left)
    return any(order != sorted(order) for order in orders)


def reverse(pattern: str) -> str:
    """The way back."""
    left, _, right = pattern.partition("->")
    return f"{right.strip()} -> {left.strip()}"


def numbered(pattern: str) -> str:
    """With axes named by their places on the left: two patterns that do the same become one."""
    found = {name: f"axis{number}" for number, name in enumerate(dict.fromkeys(re.findall(r"[A-Za-z_]\w*", pattern)))}
    return tidy(re.sub(r"[A-Za-z_]\w*", lambda name: found[name[0]], pattern))


def expanded(pattern: str, rank: int) -> str:
    """With names in place of an ellipsis; `rank`: of the array on the left."""
    if "..." not in pattern:
        return pattern
    count = rank - len(TOKEN.findall(pattern.partition("->")[0])) + 1
    return pattern.replace("...", " ".join(f"axis{number}" for number in range(count)))


def equations(groups: list[Group], shape: Shape) -> list[Equation]:
    """What a shape says of the axes. Raises ValueError."""
    if len(groups) != len(shape):
        raise ValueError(f"{len(groups)} axes stand for the shape {shape}")
    return [Equation(group, size) for group, size in zip(groups, shape, strict=True)]


def solve(known: dict[str, int], given: Iterable[Equation]) -> dict[str, int]:
    """The sizes of all axes. Raises ValueError where they contradict each other or do not follow."""
    sizes, left = dict(known), list(given)
    while left:
        rest = [equation for equation in left if not _solved(equation, sizes)]
        if len(rest) == len(left):
            unknown = sorted({name for one in rest for name in one.one + one.other if name not in sizes})
            raise ValueError(f"the size of {' and '.join(unknown)} does not follow: give it in sizes")
        left = rest
    return sizes


def _groups(side: str) -> list[Group]:
    if side.count("(") != side.count(")"):
        raise ValueError(f"brackets do not close in {side.strip()!r}")
    found = []
    for inside, alone in TOKEN.findall(side):
        names = [alone] if alone else inside.split()
        wrong = next((name for name in names if name != "1" and not name.isidentifier()), "")
        if wrong:
            raise ValueError(f"{wrong!r} is no name of an axis")
        found.append(tuple(name for name in names if name != "1"))
    return found


def _solved(equation: Equation, sizes: dict[str, int]) -> bool:
    """Whether nothing of it is unknown any more; a single unknown is found. Raises ValueError."""
    unknown = [name for name in equation.one + equation.other if name not in sizes]
    if len(unknown) > 1:
        return False
    one, other = (math.prod(sizes[name] for name in names if name in sizes) for names in (equation.one, equation.other))
    other *= equation.factor
    if not unknown:
        if one != other:
            raise ValueError(f"{' '.join(equation.one) or 1} is {one}, expected {other}")
        return True
    above, below = (other, one) if unknown[0] in equation.one else (one, other)
    if not below or above % below:
        raise ValueError(f"{unknown[0]} would be {above}/{below}")
    sizes[unknown[0]] = above // below
    return True


def tidy(pattern: str) -> str:
    """Without brackets around one axis; "" if nothing moves."""
    left, _, right = re.sub(r"\((\w+)\)", r"\1", pattern).partition("->")
    return "" if left.split() == right.split() else f"{left.strip()} -> {right.strip()}"

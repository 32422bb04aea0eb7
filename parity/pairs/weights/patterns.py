"""Parse, invert and find einops patterns, and solve for the sizes of their axes, as far as the weight mapping needs."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from parity.core.wording import count

Shape = tuple[int, ...]
Group = tuple[str, ...]  # the named axes that one axis of an array is made of; () for an axis of size one
IDENTITY = "... -> ..."  # an explicit "nothing moves": in a rule, "" leaves it to the program how axes move
MOST = 6  # patterns that are tried for one weight
LARGEST = 5  # axes of a weight whose permutations are still tried
TOKEN = re.compile(r"\(([^()]*)\)|(\S+)")


class Equation(NamedTuple):
    """The product of the sizes of the axes `left` is `factor` times that of the axes `right`."""

    left: Group
    factor: int
    right: Group = ()


def split_sides(pattern: str) -> tuple[list[Group], list[Group]]:
    """Split a pattern into the axes of its two sides. Raises ValueError unless both have the same."""
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
    """Return whether a pattern does more than move whole axes: the numbers along one of them change their order."""
    left, right = split_sides(pattern)
    position = {name: number for number, name in enumerate(name for group in right for name in group)}
    orders = ([position[name] for name in group] for group in left)
    return any(order != sorted(order) for order in orders)


def reverse(pattern: str) -> str:
    """Return the pattern of the inverse operation."""
    left, _, right = pattern.partition("->")
    return f"{right.strip()} -> {left.strip()}"


def numbered(pattern: str) -> str:
    """Rename the axes by their positions on the left, so that two patterns that do the same become equal."""
    names = {name: f"axis{number}" for number, name in enumerate(dict.fromkeys(re.findall(r"[A-Za-z_]\w*", pattern)))}
    return tidy(re.sub(r"[A-Za-z_]\w*", lambda name: names[name[0]], pattern))


def expanded(pattern: str, rank: int) -> str:
    """Replace an ellipsis by named axes; `rank` is that of the array on the left."""
    if "..." not in pattern:
        return pattern
    count = rank - len(TOKEN.findall(pattern.partition("->")[0])) + 1
    return pattern.replace("...", " ".join(f"axis{number}" for number in range(count)))


def equations(groups: list[Group], shape: Shape) -> list[Equation]:
    """Return what an array's shape says of the named axes. Raises ValueError if their numbers differ."""
    if len(groups) != len(shape):
        raise ValueError(f"the pattern names {count(len(groups), 'axis')}, but the array has the shape {shape}")
    return [Equation(group, size) for group, size in zip(groups, shape, strict=True)]


def solve(known: dict[str, int], given: Iterable[Equation]) -> dict[str, int]:
    """Return the sizes of all axes by the `known` ones. Raises ValueError if they contradict or do not follow."""
    sizes, unsolved = dict(known), list(given)
    while unsolved:
        rest = [equation for equation in unsolved if not _solved(equation, sizes)]
        if len(rest) == len(unsolved):
            unknown = sorted(
                {name for equation in rest for name in equation.left + equation.right if name not in sizes}
            )
            raise ValueError(f"the size of {' and '.join(unknown)} does not follow: give it in sizes")
        unsolved = rest
    return sizes


def _groups(side: str) -> list[Group]:
    if side.count("(") != side.count(")"):
        raise ValueError(f"brackets do not close in {side.strip()!r}")
    groups = []
    for bracketed, single in TOKEN.findall(side):
        names = [single] if single else bracketed.split()
        wrong = next((name for name in names if name != "1" and not name.isidentifier()), "")
        if wrong:
            raise ValueError(f"{wrong!r} is not a valid name of an axis")
        groups.append(tuple(name for name in names if name != "1"))
    return groups


def _solved(equation: Equation, sizes: dict[str, int]) -> bool:
    """Return whether an equation's axes are known, once a single unknown one is solved for. Raises ValueError."""
    unknown = [name for name in equation.left + equation.right if name not in sizes]
    if len(unknown) > 1:
        return False
    left, right = (
        math.prod(sizes[name] for name in names if name in sizes) for names in (equation.left, equation.right)
    )
    right *= equation.factor
    if not unknown:
        if left != right:
            axes = f"the size of {' '.join(equation.left)}" if equation.left else "the size of a dropped axis"
            raise ValueError(f"{axes} is {left}, expected {right}")
        return True
    numerator, denominator = (right, left) if unknown[0] in equation.left else (left, right)
    if not denominator or numerator % denominator:
        raise ValueError(f"the size of {unknown[0]} would be {numerator}/{denominator}, which is no whole number")
    sizes[unknown[0]] = numerator // denominator
    return True


def tidy(pattern: str) -> str:
    """Remove brackets around single axes; return "" if nothing moves."""
    left, _, right = re.sub(r"\((\w+)\)", r"\1", pattern).partition("->")
    return "" if left.split() == right.split() else f"{left.strip()} -> {right.strip()}"


def reshapes(torch: Shape, keras: Shape) -> list[str]:
    """Return at most MOST patterns that make one shape of the other by moving, merging or splitting axes."""
    long_axes = [number for number, size in enumerate(torch) if size != 1]
    if torch == keras and len(long_axes) < 2:
        return [""]
    if math.prod(torch) != math.prod(keras) or len(long_axes) > LARGEST:
        return []
    orders = sorted(
        itertools.permutations(long_axes), key=lambda order: (list(order) != long_axes, list(order) != long_axes[::-1])
    )
    candidates = (_regrouped(torch, keras, order) for order in orders)
    patterns = dict.fromkeys(pattern for pattern in candidates if pattern is not None)
    return list(itertools.islice(patterns, MOST))


def _regrouped(torch: Shape, keras: Shape, order: tuple[int, ...]) -> str | None:
    """Return the pattern that puts torch's axes in `order` and then only merges or splits neighbours, or None."""
    torch_axes, keras_axes = [f"a{number}" for number in order], [f"b{n}" for n, size in enumerate(keras) if size != 1]
    left, right = {}, {}
    for ours, theirs in portions([torch[number] for number in order], [size for size in keras if size != 1]):
        torch_run, keras_run = torch_axes[ours], keras_axes[theirs]
        if len(torch_run) > 1 and len(keras_run) > 1:
            return None
        names = torch_run if len(keras_run) == 1 else keras_run
        left.update({name: names if len(torch_run) == 1 else [name] for name in torch_run})
        right.update({name: names if len(keras_run) == 1 else [name] for name in keras_run})
    if len(left) != len(torch_axes) or len(right) != len(keras_axes):
        return None
    pattern = f"{_text('a', torch, left)} -> {_text('b', keras, right)}"
    return "" if torch == keras and list(order) == sorted(order) else pattern


def portions(given: Sequence[int], wanted: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """Yield the shortest runs of axes of these sizes, on both sides, that have the same number of elements."""
    first = second = 0
    while first < len(given) and second < len(wanted):
        ends = [first + 1, second + 1]
        sizes = [given[first], wanted[second]]
        while sizes[0] != sizes[1]:
            side = 0 if sizes[0] < sizes[1] else 1
            rest = (given, wanted)[side]
            if ends[side] >= len(rest):
                return
            sizes[side] *= rest[ends[side]]
            ends[side] += 1
        yield slice(first, ends[0]), slice(second, ends[1])
        first, second = ends


def _text(letter: str, shape: Shape, names: dict[str, list[str]]) -> str:
    groups = [names.get(f"{letter}{number}", ["1"]) for number in range(len(shape))]
    return " ".join(group[0] if len(group) == 1 else f"({' '.join(group)})" for group in groups)

"""The rows of a case's list of tensors: which are shown, and how they are grouped."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from parity.core.groups import grouped
from parity.details import Compared, Details

AROUND = 2  # tensors before and after one that is no match
MOST = 300  # tensors of one case that are shown because they are no match
FEW = 40  # rows that stand in one list
MOST_GROUPS = 24  # groups into which more rows are folded, by as many parts of the modules' paths as give no more
State = Literal["diverged", "matched", "alone"]


class Row(NamedTuple):
    """A row: a tensor under its name on each side ("" if it has none), and how these were matched."""

    state: State
    torch: str
    keras: str
    by: str
    tensor: Compared | None


class Group(NamedTuple):
    """The rows of one module, folded together; of several groups the first with a row that is no match is open."""

    name: str
    rows: list[Row]
    is_open: bool = True

    @property
    def unequal(self) -> int:
        """Return how many rows are no match."""
        return sum(row.state == "diverged" for row in self.rows)


def listed(tensors: Sequence[Compared]) -> list[int]:
    """Return the numbers of the tensors to show.

    They are those that are no match, with their neighbours, and of each module the one with the fewest bits.
    """
    unequal = [number for number, each in enumerate(tensors) if each.verdict != "match"][:MOST]
    near = {place for number in unequal for place in range(number - AROUND, number + AROUND + 1)}
    worst: dict[str, int] = {}
    for number, each in enumerate(tensors):
        owner = module(each)
        if owner not in worst or _bits(each) < _bits(tensors[worst[owner]]):
            worst[owner] = number
    return sorted({*worst.values(), *(place for place in near if 0 <= place < len(tensors))})


def left_out(tensors: Sequence[Compared]) -> int:
    """Return how many tensors are no match and yet may not be shown, because they are too many."""
    return max(sum(each.verdict != "match" for each in tensors) - MOST, 0)


def groups(details: Details, numbers: Iterable[int]) -> list[Group]:
    """Return the tensors of these numbers and those that stand alone on a side, by module, in execution order."""
    alone = (each for each in details.counterparts if not (each.torch and each.keras))
    rows = [*_rows(details, numbers), *(Row("alone", each.torch, each.keras, "", None) for each in alone)]
    if len(rows) <= FEW:
        return [Group("all modules", rows)] if rows else []
    deepest = max(map(len, map(_path, rows)))
    depths = (_folded(rows, parts) for parts in range(deepest, 0, -1))
    found = next((each for each in depths if len(each) <= MOST_GROUPS), _folded(rows, 1))
    first = next((group for group in found if group.unequal), None)
    return [group._replace(is_open=group is first) for group in found]


def module(tensor: Compared) -> str:
    """Return the path of the module that a tensor belongs to."""
    name = tensor.name.partition("#")[0].partition("@")[0]
    if tensor.kind in ("activation", "input", "sample", "loss"):
        return name
    weight = name.rpartition(".")[0] if tensor.kind == "optimizer_state" else name
    return weight.rpartition(".")[0] or weight or name


def _rows(details: Details, numbers: Iterable[int]) -> Iterator[Row]:
    by_torch = {name: each for each in details.counterparts for name in each.torch.split(", ") if each.torch}
    for number in numbers:
        tensor = details.tensors[number]
        state: State = "alone" if tensor.alone else "matched" if tensor.verdict == "match" else "diverged"
        pair = by_torch.get(_plain(tensor))
        keras, by = (pair.keras, pair.by) if pair else (tensor.name, "name")
        names = ("" if tensor.alone in ("keras", "candidate") else tensor.name, keras)
        yield Row(state, names[0], "" if tensor.alone in ("torch", "reference") else names[1], by, tensor)


def _plain(tensor: Compared) -> str:
    """Return the name that a tensor's counterpart is found by: a weight's, or that of a module's output."""
    if tensor.kind == "optimizer_state":
        return tensor.name.rpartition(".")[0]
    return tensor.name.partition("@")[0]


def _folded(rows: Sequence[Row], parts: int) -> list[Group]:
    """Return the rows by the first parts of their modules' paths."""
    by_module = grouped(rows, lambda row: ".".join(_path(row)[:parts]))
    return [Group(name, each) for name, each in by_module.items()]


def _path(row: Row) -> list[str]:
    """Return the parts of the path of a row's module; Keras's are separated by slashes."""
    name = module(row.tensor) if row.tensor else (row.torch or row.keras).partition("#")[0]
    return name.replace("/", ".").split(".")


def _bits(tensor: Compared) -> float:
    return float("inf") if tensor.bits is None else tensor.bits

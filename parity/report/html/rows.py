"""The rows of a case's list of tensors, in groups; and the drawing of a device layout: boxes of modules, and arrows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from markupsafe import Markup

from parity.core.groups import by_key, grouped
from parity.core.wording import count, fitted
from parity.details import Compared, Details
from parity.report.html import svg
from parity.trace import keys
from parity.trace.layout import Layout

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
    """Return the numbers of the tensors to show: what is no match, its neighbours, and each module's fewest bits."""
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
    depth = _depth(list(map(_path, rows)), MOST_GROUPS)
    by_module = grouped(rows, lambda row: ".".join(_path(row)[:depth]))
    folded = [Group(name, each) for name, each in by_module.items()]
    first = next((group for group in folded if group.unequal), None)
    return [group._replace(is_open=group is first) for group in folded]


def module(tensor: Compared) -> str:
    name = keys.plain(tensor.name)
    if tensor.kind in ("activation", "input", "sample", "loss"):
        return name
    weight = keys.parameter(tensor.kind, name)
    return weight.rpartition(".")[0] or weight or name


def _rows(details: Details, numbers: Iterable[int]) -> Iterator[Row]:
    by_torch = {name: each for each in details.counterparts for name in each.torch.split(", ") if each.torch}
    for number in numbers:
        tensor = details.tensors[number]
        state: State = "alone" if tensor.alone else "matched" if tensor.verdict == "match" else "diverged"
        # A weight's counterpart is found by its name, that of a module's output by the module's.
        is_slot, of_weight = tensor.kind == "optimizer_state", tensor.name.rpartition(".")[0]
        pair = by_torch.get(of_weight if is_slot else tensor.name.partition("@")[0])
        keras, by = (pair.keras, pair.by) if pair else (tensor.name, "name")
        names = ("" if tensor.alone in ("keras", "candidate") else tensor.name, keras)
        yield Row(state, names[0], "" if tensor.alone in ("torch", "reference") else names[1], by, tensor)


def _depth(paths: Sequence[list[str]], most: int) -> int:
    """Return by how many of their first parts the paths make at most so many groups; 1 if there are always more."""
    depths = range(max(map(len, paths), default=1), 0, -1)
    return next((depth for depth in depths if len({tuple(path[:depth]) for path in paths}) <= most), 1)


def _path(row: Row) -> list[str]:
    """Return the parts of the path of a row's module; Keras's are separated by slashes."""
    name = module(row.tensor) if row.tensor else (row.torch or row.keras).partition("#")[0]
    return name.replace("/", ".").split(".")


def _bits(tensor: Compared) -> float:
    return float("inf") if tensor.bits is None else tensor.bits


BOX, GAP, EDGE = 200.0, 24.0, 8.0
LINE, LANE = 17.0, 34.0  # heights of a line of text in a box, and of an arrow with its text
CHARACTER = 6.4  # width of a character of an arrow's text
MOST_MODULES, MOST_ARROWS = 8, 10
LONGEST = 25  # characters that fit into a box
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def drawing(side: str, layout: Layout) -> Markup:
    boxes = [_lines(number, layout) for number in range(len(layout.devices))]
    lanes = _arrows(layout)
    bottom = EDGE + LINE * (max(map(len, boxes), default=0) + 1)
    longest = max((len(lane.words) for lane in lanes), default=0)
    width = max(2 * EDGE + len(boxes) * BOX + (len(boxes) - 1) * GAP, 2 * EDGE + CHARACTER * longest)
    height = bottom + LANE * len(lanes) + EDGE
    drawn = [part for number, lines in enumerate(boxes) for part in _box(number, lines, bottom)]
    label = f"Devices of {side}: {', '.join(layout.devices)}"
    return svg.figure(width, height, label, [*drawn, *_lanes(lanes, bottom, width)], "layout")


def size(count: int) -> str:
    """Return a number of bytes in the largest unit of which there is one."""
    for unit, name in UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def folded(names: Sequence[str], most: int) -> list[str]:
    """Return at most `most` lines for the names of modules: those with a common beginning are counted together."""
    paths = [name.split(".") for name in names]
    depth = _depth(paths, most)
    counts = Counter(".".join(path[:depth]) for path in paths)
    lines = [name if count == 1 else f"{name} ({count})" for name, count in counts.items()]
    return lines if len(lines) <= most else [*lines[: most - 1], f"and {len(lines) - most + 1} more"]


class _Arrow(NamedTuple):
    """What moves from one device to another; `both`: the arrow has a head at each end."""

    source: int
    target: int
    words: str
    both: bool


def _lines(number: int, layout: Layout) -> list[str]:
    """Return what stands in a device's box; the first line is its title."""
    held = sum(number in devices for devices in layout.parameters.values())
    slots = sum(number in devices for devices in layout.optimizer_state.values())
    computed = [name for name, devices in layout.compute.items() if number in devices]
    leaves = [name for name in computed if not any(other.startswith(f"{name}.") for other in computed)]
    title = f"{number}: {layout.devices[number]}"
    holds = count(held, "parameter") + (f", {count(slots, 'slot')}" if slots else "")
    return [title, holds, *folded(leaves, MOST_MODULES)]


def _arrows(layout: Layout) -> list[_Arrow]:
    """Return the copies, then the collectives; those that are too many are counted in a last one."""
    copies = by_key(((each.source, each.target), f"{each.what} {size(each.bytes)}") for each in layout.transfers)
    arrows = [_Arrow(*route, ", ".join(texts), both=False) for route, texts in copies.items()]
    last = len(layout.devices) - 1
    arrows += [_Arrow(0, last, f"{name} {size(count)}", both=True) for name, count in layout.collectives.items()]
    if len(arrows) > MOST_ARROWS:
        more = f"and {len(arrows) - MOST_ARROWS + 1} more"
        return [*arrows[: MOST_ARROWS - 1], _Arrow(0, last, more, both=True)]
    return arrows


def _box(number: int, lines: Sequence[str], bottom: float) -> Iterator[Markup]:
    x = EDGE + number * (BOX + GAP)
    yield svg.rectangle(x, EDGE, BOX, bottom - EDGE, "device", radius=6)
    for place, words in enumerate(lines):
        style = "title" if place == 0 else "tick" if place == 1 else "module"
        yield svg.text(x + 10, EDGE + LINE * (place + 1), fitted(words, LONGEST), style)


def _lanes(arrows: Sequence[_Arrow], top: float, width: float) -> Iterator[Markup]:
    for number, (source, target, words, both) in enumerate(arrows):
        y = top + LANE * (number + 1) - 8
        start, end = (EDGE + device * (BOX + GAP) + BOX / 2 for device in (source, target))
        if source == target:
            start, end = start - BOX / 3, end + BOX / 3
        yield svg.arrow((start, y), (end, y), "collective" if both else "arrow", both)
        half = EDGE + CHARACTER * len(words) / 2
        yield svg.text(min(max((start + end) / 2, half), width - half), y - 6, words, "tick", "middle")

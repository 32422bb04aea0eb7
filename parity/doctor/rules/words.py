"""Plain words and lines of code for findings: sizes, counts, tensors, names as a program writes them."""

import re
from collections.abc import Sequence

from parity.core.names import MODEL
from parity.doctor.evidence import Tensor

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def size(count: int) -> str:
    """96 bytes, 1.5 KiB, 12 MiB."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    number = f"{value:.1f}" if unit and value < 10 else f"{value:.0f}"
    return "1 byte" if count == 1 else f"{number} {UNITS[unit]}"


def count(number: int, noun: str) -> str:
    """1 parameter, 2 parameters, 3 copies."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}{'es' if noun.endswith('s') else 's'}"


def times(number: int) -> str:
    """Once, twice, 3 times."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def listed(names: Sequence[str]) -> str:
    """One name, two, or the first and how many more."""
    if len(names) <= 2:
        return " and ".join(names)
    return f"{names[0]} and {len(names) - 1} more"


def subject(names: Sequence[str], one: str, several: str) -> str:
    """Names and the verb that goes with as many."""
    return f"{listed(names)} {one if len(names) == 1 else several}"


def tensor(seen: Tensor) -> str:
    """What it is, its type and shape, and its device: "input src (float32[8, 16] on cpu)"."""
    facts = f"{typed(seen)} on {seen.device}"
    return f"{seen.origin} ({facts})" if seen.origin else facts


def typed(seen: Tensor) -> str:
    """Type and shape: float32[8, 16]."""
    return f"{seen.dtype}{seen.shape}"


def made(seen: Tensor) -> str:
    """Where it was made, as an addition to a sentence."""
    return f", made at {seen.made}" if seen.made else ""


def variable(seen: Tensor, other: str = "x") -> str:
    """What a program may call it: the name of an input, else `other`."""
    kind, _, name = seen.origin.partition(" ")
    return name if kind == "input" and name.isidentifier() else other


def owner(seen: Tensor) -> str:
    """The module that a tensor belongs to or came from; "" if that is not known."""
    if seen.origin.startswith("output of "):
        return seen.origin.removeprefix("output of ")
    kind, _, name = seen.origin.partition(" ")
    return (name.rpartition(".")[0] or MODEL) if kind in ("parameter", "buffer") else ""


def code(path: str) -> str:
    """A module or parameter as a program writes it: layers.0.fc is model.layers[0].fc."""
    if path in ("", MODEL):
        return "model"
    return "model" + re.sub(r"\.(\d+)(?=\.|$|\[)", r"[\1]", path if path.startswith("[") else f".{path}")


def leaf(path: str) -> str:
    """The last name in a path: that of a list for one of its items."""
    names = [name for name in re.split(r"[.\[\]'\"]", path) if name.isidentifier()]
    return names[-1] if names else "model"


def moved(side: str, name: str, device: str) -> str:
    """The line that moves a tensor."""
    if side == "torch":
        return f'{name} = {name}.to("{device}")'
    return f'with tf.device("{device}"): {name} = tf.identity({name})'


def cast(side: str, name: str) -> str:
    """The line that makes a tensor float32."""
    return f"{name} = {name}.float()" if side == "torch" else f"{name} = tf.cast({name}, tf.float32)"

"""Wording for findings: sizes, counts, tensors, and names as a program writes them."""

import re
from collections.abc import Sequence

from parity.core.wording import agree as agree
from parity.core.wording import count as count
from parity.core.wording import size as size
from parity.doctor.evidence import Copy, Tensor
from parity.trace.keys import MODEL


def times(number: int) -> str:
    """Return how often something happened: "once", "twice", "3 times"."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def repeated(number: int) -> str:
    """Return the sentence that says how often a step does something, to be appended; "" if it does it once."""
    return f" This happens {times(number)} a step." if number > 1 else ""


def listed(names: Sequence[str]) -> str:
    """Return one or two names, or the first one and the number of the others."""
    return " and ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more"


def subject(names: Sequence[str], singular: str, plural: str) -> str:
    """Return names as a subject with its verb: `singular` for one name, `plural` for several."""
    return f"{listed(names)} {singular if len(names) == 1 else plural}"


def tensor(value: Tensor) -> str:
    """Return a description of a tensor: "input src (float32[8, 16] on cpu)"."""
    facts = f"{typed(value)} on {value.device}"
    return f"{value.origin} ({facts})" if value.origin else facts


def copied(copies: Sequence[Copy]) -> str:
    """Return copied tensors as a subject with its verb: the first one, and the number of others of another origin."""
    first, others = tensor(copies[0].tensor), len({copy.tensor.origin for copy in copies}) - 1
    return f"{first} and {others} more are" if others else f"{first} is"


def size_of(copies: Sequence[Copy]) -> str:
    """Return the bytes of all copies together in words."""
    return size(sum(copy.bytes for copy in copies))


def amount(copies: Sequence[Copy]) -> str:
    """Return how often something is copied in a step, and its bytes: "twice a step (96 bytes)"."""
    return f"{times(sum(copy.count for copy in copies))} a step ({size_of(copies)})"


def typed(value: Tensor) -> str:
    """Return dtype and shape: "float32[8, 16]"."""
    return f"{value.dtype}{value.shape}"


def made(value: Tensor) -> str:
    """Return where a tensor was created, to be appended to its description; "" if that is not known."""
    return f", made at {value.made}" if value.made else ""


def variable(value: Tensor, default: str = "x") -> str:
    """Return what a program may call a tensor: the name of an input, else `default`."""
    kind, _, name = value.origin.partition(" ")
    return name if kind == "input" and name.isidentifier() else default


def owner(value: Tensor) -> str:
    """Return the module that a tensor belongs to or was returned by; "" if that is not known."""
    if value.origin.startswith("output of "):
        return value.origin.removeprefix("output of ")
    kind, _, name = value.origin.partition(" ")
    return (name.rpartition(".")[0] or MODEL) if kind in ("parameter", "buffer") else ""


def code(path: str) -> str:
    """Return a module or parameter as code: "layers.0.fc" is "model.layers[0].fc"."""
    if path in ("", MODEL):
        return "model"
    return "model" + re.sub(r"\.(\d+)(?=\.|$|\[)", r"[\1]", path if path.startswith("[") else f".{path}")


def leaf(path: str) -> str:
    """Return the last name in a path; for an item of a list, that of the list: "layers" of "model.layers[0]"."""
    names = [name for name in re.split(r"[.\[\]'\"]", path) if name.isidentifier()]
    return names[-1] if names else "model"


def moved(side: str, name: str, device: str) -> str:
    """Return the line of code that moves a tensor to a device."""
    if side == "torch":
        return f'{name} = {name}.to("{device}")'
    return f'with tf.device("{device}"): {name} = tf.identity({name})'


def placed(side: str, layer: str, device: str) -> str:
    """Return the line of code that puts a layer on a device."""
    return f'{layer}.to("{device}")' if side == "torch" else f'with tf.device("{device}"): {layer}.build(input_shape)'


def cast(side: str, name: str, to_ids: bool = False) -> str:
    """Return the line of code that converts a tensor to float32, or to integers, as which an embedding takes ids."""
    method, dtype = ("long", "int32") if to_ids else ("float", "float32")
    return f"{name} = {name}.{method}()" if side == "torch" else f"{name} = tf.cast({name}, tf.{dtype})"

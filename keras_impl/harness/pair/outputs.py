"""What a model returned, as tensors under canonical names: those that [outputs] names, or all in their order."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
from einops import rearrange

from parity.errors import UsageError, nearest
from parity.pairs.schema import Pair
from parity.pairs.survey import OUTPUT


class Output(NamedTuple):
    """A tensor in this side's axes; `layout`: from canonical axes to these. `name`: by which [outputs] has it."""

    key: str
    name: str
    tensor: tf.Tensor
    layout: str = ""

    @property
    def canonical(self) -> tf.Tensor:
        """In canonical axes."""
        if not self.layout:
            return self.tensor
        return rearrange(self.tensor, " -> ".join(reversed([side.strip() for side in self.layout.split("->")])))


def named(pair: Pair, outputs: Any) -> list[tuple[str, tf.Tensor]]:
    """By [outputs], or every tensor in order: "(model)", "(model)#1"... Raises UsageError."""
    return [(one.key, one.canonical) for one in found(pair, outputs)]


def found(pair: Pair, outputs: Any) -> list[Output]:
    """The tensors of what the model returned. Raises UsageError where there are none."""
    if pair.outputs:
        what = f"keras={pair.keras}"
        return [
            Output(f"{OUTPUT}.{name}", name, _dug(what, name, outputs, one.keras), one.keras_layout)
            for name, one in pair.outputs.items()
        ]
    leaves = list(flat(outputs))
    if not leaves:
        raise UsageError(f"keras={pair.keras}: the model returned {type(outputs).__name__}, expected tensors")
    return [Output(f"{OUTPUT}#{number}" if number else OUTPUT, "", leaf) for number, leaf in enumerate(leaves)]


def laid_out(pair: Pair, outputs: Any, layouts: Mapping[str, str]) -> list[Output]:
    """The same, also with the layouts that the file does not say, by key. Raises UsageError where there are none."""
    return [one._replace(layout=one.layout or layouts.get(one.key, "")) for one in found(pair, outputs)]


def flat(value: Any) -> Iterator[tf.Tensor]:
    """Every tensor of a structure in its own order; what is None is passed over."""
    if isinstance(value, (tf.Variable, tf.IndexedSlices)) or (tf.is_tensor(value) and not isinstance(value, tf.Tensor)):
        yield tf.convert_to_tensor(value)
    elif isinstance(value, tf.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from flat(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from flat(each)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from flat(getattr(value, field.name))


def _dug(what: str, name: str, outputs: Any, path: str | int) -> tf.Tensor:
    """The tensor at a key, attribute or index, or at a path of them with dots."""
    value = outputs
    if path != "":
        for part in str(path).split("."):
            value = _item(f"{what}: [outputs.{name}]", value, part)
    tensors = list(flat(value))
    if len(tensors) != 1:
        kind = type(value).__name__
        raise UsageError(f"{what}: [outputs.{name}] keras = {path!r} is {kind}, expected one tensor{_keys(value)}")
    return tensors[0]


def _item(what: str, value: Any, part: str) -> Any:
    if isinstance(value, Mapping):
        if part in value:
            return value[part]
    elif hasattr(value, part) and not tf.is_tensor(value):
        return getattr(value, part)
    elif isinstance(value, (list, tuple)) and part.lstrip("-").isdecimal() and -len(value) <= int(part) < len(value):
        return value[int(part)]
    known = [str(key) for key in value] if isinstance(value, Mapping) else []
    raise UsageError(f"{what}: the output has no {part!r}{nearest(part, known)}{_keys(value)}")


def _keys(value: Any) -> str:
    """What there is instead."""
    if isinstance(value, Mapping):
        return f"; it has {', '.join(map(str, value))}"
    return f"; it has {len(value)} parts" if isinstance(value, (list, tuple)) else f"; it is {type(value).__name__}"

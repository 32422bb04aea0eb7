"""What a model returned, as tensors under canonical names: those that [outputs] names, or all in their order."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from einops import rearrange

from parity.config.pair import Pair
from parity.core.errors import UsageError, nearest
from parity.core.names import MODEL
from parity.trace import returned
from parity.trace.returned import Leaf, Path, Returned


class Output(NamedTuple):
    """A tensor in this side's axes; `layout`: from canonical axes to these. `name`: by which [outputs] has it.

    `is_number`: it was a number or an array of them, which has no gradient.
    """

    key: str
    name: str
    tensor: tf.Tensor
    layout: str = ""
    is_number: bool = False

    @property
    def canonical(self) -> tf.Tensor:
        """In canonical axes."""
        if not self.layout:
            return self.tensor
        return rearrange(self.tensor, " -> ".join(reversed([side.strip() for side in self.layout.split("->")])))


def ordered(outputs: Any, keys: Sequence[Path]) -> Any:
    """In torch's order, one by one, if there are `keys`: those of its survey. Raises UsageError for other keys."""
    return [leaf.value for leaf in returned.in_order(keys, _compared(outputs))] if keys else outputs


def named(pair: Pair, outputs: Any) -> list[tuple[str, tf.Tensor]]:
    """By [outputs], or every tensor and number in order: "(model)", "(model)#1"... Raises UsageError."""
    return [(one.key, one.canonical) for one in found(pair, outputs)]


def told(pair: Pair, outputs: Any) -> Returned:
    """What the report has to know of them; nothing where [outputs] names those to compare."""
    return Returned() if pair.outputs else returned.returned(outputs, _is_tensor)


def found(pair: Pair, outputs: Any) -> list[Output]:
    """The tensors and numbers of what the model returned. Raises UsageError where there are none."""
    if pair.outputs:
        what = f"keras={pair.keras}"
        return [
            _output(f"{MODEL}.{name}", _dug(what, name, outputs, one.keras), name, one.keras_layout)
            for name, one in pair.outputs.items()
        ]
    leaves = _compared(outputs)
    if not leaves:
        raise UsageError(f"keras={pair.keras}: the model returned {type(outputs).__name__}, expected tensors")
    return [_output(f"{MODEL}#{number}" if number else MODEL, leaf.value) for number, leaf in enumerate(leaves)]


def laid_out(pair: Pair, outputs: Any, layouts: Mapping[str, str]) -> list[Output]:
    """The same, also with the layouts that the file does not say, by key. Raises UsageError where there are none."""
    return [one._replace(layout=one.layout or layouts.get(one.key, "")) for one in found(pair, outputs)]


def flat(value: Any) -> Iterator[tf.Tensor]:
    """Every tensor of a structure in its own order; what is None is passed over."""
    return (_tensor(leaf.value) for leaf in returned.leaves(value, _is_tensor) if _is_tensor(leaf.value))


def _compared(value: Any) -> list[Leaf]:
    return returned.compared(value, _is_tensor)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (tf.Variable, tf.IndexedSlices)) or tf.is_tensor(value)


def _tensor(value: Any) -> tf.Tensor:
    """Numbers have the precision of the run."""
    if _is_tensor(value):
        return value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)
    array = returned.numbers(value)
    return tf.constant(array, keras.config.floatx() if array.dtype.kind == "f" else None)


def _output(key: str, value: Any, name: str = "", layout: str = "") -> Output:
    return Output(key, name, _tensor(value), layout, not _is_tensor(value))


def _dug(what: str, name: str, outputs: Any, path: str | int) -> Any:
    """The tensor or number at a key, attribute or index, or at a path of them with dots."""
    value = outputs
    if path != "":
        for part in str(path).split("."):
            value = _item(f"{what}: [outputs.{name}]", value, part)
    tensors = list(flat(value)) or [leaf.value for leaf in _compared(value)]
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

"""Make plain numbers, texts and lists of what people put into a layer's configuration.

A rate may be a NumPy scalar, a size a tensor of one element, a mode an enum, a table an array. Files and comparisons of
both sides need Python's own types, so every setting goes through here where it is read.
"""

import enum
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MOST = 64  # elements of an array that are still told as a list


def plain(value: Any) -> Any:
    """Return a value as bool, int, float, str, None, or a list or dict of these.

    NumPy's scalars, arrays of one element and tensors of one element become numbers, enums their values, paths and
    dtypes their texts. What is none of these (a function, a layer, a large array) becomes the name of its type.
    """
    if value is None or isinstance(value, enum.Enum):
        return None if value is None else plain(value.value)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)  # a subclass, such as numpy.float64, is no plain number to a JSON encoder
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): plain(member) for key, member in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(member) for member in value]
    return _of_array(value)


def setting(owner: Any, names: Iterable[str]) -> Any:
    """Return the first of these attributes that an object has, as `plain` has it; None if it has none of them.

    An attribute that cannot be read (a property that raises) counts as absent, as does one that is no setting.
    """
    for name in names:
        try:
            value = getattr(owner, name)
        except Exception:  # a property is the user's code, which may raise anything
            continue
        found = plain(value)
        return None if found == type(value).__name__ else found
    return None


def settings(owner: Any, names: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Return what `setting` finds by each name, as far as it is a number, a text or a list of whole numbers."""
    read = {name: setting(owner, attributes) for name, attributes in names.items()}
    return {
        name: value
        for name, value in read.items()
        if isinstance(value, (bool, int, float, str))
        or (isinstance(value, list) and all(isinstance(entry, int) for entry in value))
    }


def subclasses(kind: type) -> Iterator[type]:
    """Yield a class and all that are derived from it."""
    yield kind
    derived: list[type] = kind.__subclasses__()
    for each in derived:
        yield from subclasses(each)


def _of_array(value: Any) -> Any:
    """Return what an array or tensor holds, or the name of a dtype, or else of the value's type."""
    try:
        array = value.numpy() if hasattr(value, "numpy") and not isinstance(value, type) else value
    except (RuntimeError, TypeError):  # a tensor with a gradient, or on another device, is no setting
        return type(value).__name__
    if hasattr(array, "tolist") and hasattr(array, "dtype"):
        size = int(getattr(array, "size", 1))
        if size == 1:
            return plain(array.reshape(-1).tolist()[0])
        return array.tolist() if size <= MOST else type(value).__name__
    if "dtype" in type(value).__name__.lower():
        return str(getattr(value, "name", value)).removeprefix("torch.")
    return type(value).__name__

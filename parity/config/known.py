"""The fields and values that a config allows at the path named in a validation error of msgspec."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import inspect

STEP = re.compile(r"\.([^.\[`]+)|\[(?:\d+|\.\.\.)\]")  # one step of a path such as `$.inputs[...].dtype`


def fields(kind: type, table: Any, path: str) -> set[str]:
    """Return the names of the fields that the config at a path, e.g. `$.model`, may have.

    If the table does not say which config of a union stands there, the fields of all of them are returned.
    """
    types, _ = _at(kind, table, path)
    return {field.encode_name for struct in types if isinstance(struct, inspect.StructType) for field in struct.fields}


def choices(kind: type, table: Any, path: str) -> list[Any]:
    """Return the values that the field at a path may have; an empty list if it is no enumeration."""
    types, _ = _at(kind, table, path)
    parent, _, name = path.rpartition(".")
    _, holders = _at(kind, table, parent)
    tags = [holder.tag for holder in holders if isinstance(holder, inspect.StructType) and holder.tag_field == name]
    return tags + [value for literal in types if isinstance(literal, inspect.LiteralType) for value in literal.values]


def _at(kind: type, table: Any, path: str) -> tuple[list[inspect.Type], list[inspect.Type]]:
    """Return the types at a path that agree with the tags in the table, and all types that the schema allows there."""
    possible = list(_flat(inspect.type_info(kind)))
    for step in STEP.finditer(path):
        within = [inner for outer in _tagged(possible, table) for inner in _within(outer, step[1])]
        possible = [member for inner in within for member in _flat(inner)]
        table = table.get(step[1]) if isinstance(table, dict) else None
    return _tagged(possible, table), possible


def _flat(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the members of a union, or the type itself."""
    if isinstance(kind, inspect.UnionType):
        for member in kind.types:
            yield from _flat(member)
    elif isinstance(kind, inspect.Metadata):
        yield from _flat(kind.type)
    else:
        yield kind


def _tagged(possible: Iterable[inspect.Type], table: Any) -> list[inspect.Type]:
    """Return the types that the table can be: leave out structs with another tag than the table's."""
    given = table if isinstance(table, dict) else {}
    return [
        kind
        for kind in possible
        if not (isinstance(kind, inspect.StructType) and kind.tag_field in given and given[kind.tag_field] != kind.tag)
    ]


def _within(kind: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    """Yield the type of a struct's field, or of the items of a list or a dict."""
    if isinstance(kind, inspect.StructType):
        yield from (field.type for field in kind.fields if field.encode_name == name)
    elif isinstance(kind, inspect.DictType):
        yield kind.value_type
    elif isinstance(kind, inspect.ListType):
        yield kind.item_type

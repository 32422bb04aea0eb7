"""What a table of a config may say at the place that a message of msgspec's names: its fields, or the values of one."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import inspect

STEP = re.compile(r"\.([^.\[`]+)|\[(?:\d+|\.\.\.)\]")  # of a path: a field, or what is within a list or a dict


def fields(kind: type, table: Any, path: str) -> set[str]:
    """Return the fields of the config at a path, e.g. `$.model`; of all that could stand there."""
    found, _ = _at(kind, table, path)
    return {field.encode_name for one in found if isinstance(one, inspect.StructType) for field in one.fields}


def choices(kind: type, table: Any, path: str) -> list[Any]:
    """Return the values that the field at a path may have; none if it is no enumeration."""
    found, _ = _at(kind, table, path)
    parent, _, name = path.rpartition(".")
    _, holders = _at(kind, table, parent)
    tags = [one.tag for one in holders if isinstance(one, inspect.StructType) and one.tag_field == name]
    return tags + [value for one in found if isinstance(one, inspect.LiteralType) for value in one.values]


def _at(kind: type, table: Any, path: str) -> tuple[list[inspect.Type], list[inspect.Type]]:
    """Return the types at a path as far as the table's tags tell which, and all types that could stand there."""
    possible = list(_flat(inspect.type_info(kind)))
    for step in STEP.finditer(path):
        within = [inner for one in _tagged(possible, table) for inner in _within(one, step[1])]
        possible = [each for inner in within for each in _flat(inner)]
        table = table.get(step[1]) if isinstance(table, dict) else None
    return _tagged(possible, table), possible


def _flat(one: inspect.Type) -> Iterator[inspect.Type]:
    """Return the members of a union, or the type itself."""
    if isinstance(one, inspect.UnionType):
        for member in one.types:
            yield from _flat(member)
    elif isinstance(one, inspect.Metadata):
        yield from _flat(one.type)
    else:
        yield one


def _tagged(possible: Iterable[inspect.Type], table: Any) -> list[inspect.Type]:
    """Return those that the table can be: of tagged structs the one that it names."""
    said = table if isinstance(table, dict) else {}
    return [
        one
        for one in possible
        if not (isinstance(one, inspect.StructType) and one.tag_field in said and said[one.tag_field] != one.tag)
    ]


def _within(one: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    """Return the type of a field, or else of what a list or a dict holds."""
    if isinstance(one, inspect.StructType):
        yield from (field.type for field in one.fields if field.encode_name == name)
    elif isinstance(one, inspect.DictType):
        yield one.value_type
    elif isinstance(one, inspect.ListType):
        yield one.item_type

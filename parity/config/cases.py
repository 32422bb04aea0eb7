"""The built-in cases: read from cases/*.toml, chosen by glob, changed by `--set`, and checked against the schema.

Each file is for one model: fields common to its cases, and two tables with one entry per case, merged over the common
fields: [cases], which are run unless others are asked for, and [further]. The key of an entry is `strategy` or
`strategy@variant`; the case is named FILE/KEY.
"""

import fnmatch
import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from parity.config import schema
from parity.config.base import Frozen
from parity.config.weights import specify
from parity.core.errors import UsageError, nearest

Table = dict[str, Any]
Config = TypeVar("Config", bound=Frozen)
STEP = re.compile(r"\.([^.\[`]+)|\[(?:\d+|\.\.\.)\]")  # one step of a path such as `$.inputs[...].dtype`


def names() -> list[str]:
    """Return the names of all built-in cases, in the order of the files."""
    return list(_tables())


def default() -> list[str]:
    """Return the names of the cases that are run where none is asked for: each model and each strategy among them."""
    return [name for name, (_, is_default) in _tables().items() if is_default]


def select(patterns: Sequence[str], overrides: Sequence[str] = (), **fields: Any) -> list[schema.Case]:
    """Return the built-in cases that match any of the globs (the default ones without a glob), with changes applied.

    `overrides` are strings `a.b=value`, the value in TOML or a bare string. `fields` are top-level fields to set;
    None leaves a field as it is. Raises UsageError for a glob that matches nothing, an unknown field or a wrong type.
    """
    changes = [override(text) for text in overrides]
    chosen = {name for pattern in patterns for name in _matching(pattern)} if patterns else set(default())
    given = {key: value for key, value in fields.items() if value is not None}
    return [resolve(name, *changes, given) for name in names() if name in chosen]


def resolve(name: str, *changes: Table) -> schema.Case:
    """Return a built-in case with the changes merged over it. Raises UsageError."""
    change: Table = functools.reduce(merge, changes, {})
    if "name" in change:
        raise UsageError(f"case {name!r}: the name of a case cannot be changed, received {change['name']!r}")
    return convert({**merge(_tables()[name][0], change), "name": name})


def convert(table: Table, where: str = "") -> schema.Case:
    """Return a table as a Case. Raises UsageError, which begins with `where`, the origin of the table."""
    where = where or f"case {table.get('name')!r}"
    case = checked(table, schema.Case, where)
    if not _finite(case):
        raise UsageError(
            f"{where}: received a number that is not finite, or a value such as a date that JSON cannot hold; "
            "expected finite numbers, text and booleans"
        )
    weights = [weight.name for weight in specify(case.model)]
    for name in case.weight_scale:
        if name not in weights:
            raise UsageError(
                f"case {case.name!r}: weight_scale names {name!r}, which is no weight of the model"
                f"{nearest(name, weights)}"
            )
    return case


def checked(table: Any, kind: type[Config], where: str) -> Config:
    """Return a table as a config of the given type. Raises UsageError, which begins with `where`."""
    try:
        return msgspec.convert(table, kind, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {_explain(str(error), table, kind)}") from None


def _finite(case: schema.Case) -> bool:
    """Return whether a case survives JSON, in which it reaches the backends: JSON has no NaN, infinity or dates."""
    try:
        return msgspec.json.decode(msgspec.json.encode(case), type=schema.Case) == case
    except (TypeError, msgspec.ValidationError):  # a pair's kwargs may hold any TOML value
        return False


@functools.cache
def _tables() -> dict[str, tuple[Table, bool]]:
    """Return each case's fields, and whether it is run by default, by its name."""
    tables = {}
    for file in sorted(resources.files("parity.config").joinpath("cases").iterdir(), key=lambda f: f.name):
        base = tomllib.loads(file.read_text(encoding="utf-8"))
        default, further = base.pop("cases"), base.pop("further")
        for key, change in (default | further).items():
            table = merge(base, change) | {"strategy": key.partition("@")[0]}
            tables[f"{file.name.removesuffix('.toml')}/{key}"] = table, key in default
    return tables


def merge(base: Table, change: Table) -> Table:
    """Return `base` with `change` merged over it, table by table.

    A model or an optimizer of another kind replaces the whole table, since its fields are others.
    """
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            kinds = [table["kind"] for table in (old, value) if "kind" in table]
            merged[key] = merge(old, value) if kinds[:1] == kinds[-1:] else value
        else:
            merged[key] = value
    return merged


def _matching(pattern: str) -> list[str]:
    matches = fnmatch.filter(names(), pattern)
    if not matches:
        raise UsageError(
            f"no case matches {pattern!r}{nearest(pattern, names())}; --list prints the {len(names())} cases"
        )
    return matches


def override(text: str) -> Table:
    """Parse 'a.b=1' to {'a': {'b': 1}}; a value that is not TOML is taken as a string. Raises UsageError."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise UsageError(f"--set {text!r}: expected name=value, e.g. --set optimizer.learning_rate=0.1")
    try:
        parsed: Any = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    for key in reversed(path.strip().split(".")):
        parsed = {key: parsed}
    changed: Table = parsed
    return changed


def _explain(message: str, table: Any, kind: type[Frozen]) -> str:
    """Return msgspec's message, completed by the nearest known field or the values that are allowed."""
    path = message.rpartition(" - at `")[2].rstrip("`") if " - at `" in message else "$"
    if "unknown field" in message:
        names = allowed_fields(kind, table, path)
        return message + (nearest(message.split("`")[1], names) or f"; expected one of {', '.join(sorted(names))}")
    if message.startswith(("Invalid enum value", "Invalid value")) and (values := allowed_values(kind, table, path)):
        return f"{message}; expected one of {', '.join(map(repr, values))}"
    return message


def allowed_fields(kind: type, table: Any, path: str) -> set[str]:
    """Return the names of the fields that the config at a path, e.g. `$.model`, may have.

    If the table does not say which config of a union stands there, the fields of all of them are returned.
    """
    structs = (struct for struct in _at(kind, table, path) if isinstance(struct, inspect.StructType))
    return {field.encode_name for struct in structs for field in struct.fields}


def allowed_values(kind: type, table: Any, path: str) -> list[Any]:
    """Return the values that the field at a path may have; an empty list if it is no enumeration."""
    literals = (literal for literal in _at(kind, table, path) if isinstance(literal, inspect.LiteralType))
    return [value for literal in literals for value in literal.values]


def _at(kind: type, table: Any, path: str) -> list[inspect.Type]:
    """Return the types at a path that agree with the tags in the table, or all where the tag is none of theirs."""
    types = _tagged(_flat(inspect.type_info(kind)), table)
    for step in STEP.finditer(path):
        table = table.get(step[1]) if isinstance(table, dict) else None
        types = _tagged((member for outer in types for member in _within(outer, step[1])), table)
    return types


def _flat(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the members of a union, or the type itself."""
    match kind:
        case inspect.UnionType(types=members):
            yield from (inner for member in members for inner in _flat(member))
        case inspect.Metadata(type=inner):
            yield from _flat(inner)
        case _:
            yield kind


def _tagged(possible: Iterable[inspect.Type], table: Any) -> list[inspect.Type]:
    """Return the types that the table can be: leave out structs with another tag, unless all have another one."""
    given, types = table if isinstance(table, dict) else {}, list(possible)
    structs = [kind for kind in types if isinstance(kind, inspect.StructType)]
    others = [kind for kind in structs if given.get(kind.tag_field, kind.tag) != kind.tag]
    return [kind for kind in types if kind not in others] or types


def _within(kind: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    """Yield the type of a struct's field or tag, or of the items of a list or a dict; of a union its members."""
    match kind:
        case inspect.StructType(tag_field=tag_field, tag=tag) if name and name == tag_field:
            yield inspect.LiteralType((tag,))
        case inspect.StructType(fields=fields):
            yield from (inner for field in fields if field.encode_name == name for inner in _flat(field.type))
        case inspect.DictType(value_type=inner) | inspect.ListType(item_type=inner):
            yield from _flat(inner)

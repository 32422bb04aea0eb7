"""The built-in cases: found in cases/*.toml, chosen by glob, changed by `--set`.

A file holds one model: a base, and under [cases] one entry per case, merged over the base. The key
of an entry is `strategy` or `strategy@variant`; with the file's name it makes the name of the case.
"""

import fnmatch
import functools
import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Any, TypeVar

import msgspec

from parity.config import known, schema
from parity.config.frozen import Frozen
from parity.config.weights import specify
from parity.core.errors import UsageError, nearest

Table = dict[str, Any]
Config = TypeVar("Config", bound=Frozen)


def names() -> list[str]:
    """Every built-in case, in the order of the files."""
    return list(_tables())


def select(patterns: Sequence[str], overrides: Sequence[str] = (), **fields: Any) -> list[schema.Case]:
    """The cases that any of the globs matches (all without a glob), resolved.

    `overrides` are `a.b=value` strings, the value in TOML or bare; `fields` replaces top-level
    fields that are not None. Raises UsageError for a pattern that matches nothing, an unknown field
    or a wrong type.
    """
    changes = [override(text) for text in overrides]
    chosen = {name for pattern in patterns or ["*"] for name in _matching(pattern)}
    given = {key: value for key, value in fields.items() if value is not None}
    return [resolve(name, *changes, given) for name in names() if name in chosen]


def resolve(name: str, *changes: Table) -> schema.Case:
    """One built-in case with changes merged over it."""
    change: Table = functools.reduce(merge, changes, {})
    if "name" in change:
        raise UsageError(f"case {name!r}: the name of a case cannot be changed, received {change['name']!r}")
    return convert({**merge(_tables()[name], change), "name": name})


def convert(table: Table, where: str = "") -> schema.Case:
    """A table as a Case; what is wrong with it is said with its place and the nearest field. `where`: it comes from."""
    where = where or f"case {table.get('name')!r}"
    case = checked(table, schema.Case, where)
    if not _finite(case):
        raise UsageError(f"{where}: holds a number that is not finite, or what JSON cannot hold; expected finite ones")
    weights = [weight.name for weight in specify(case.model)]
    for name in case.weight_scale:
        if name not in weights:
            raise UsageError(
                f"case {case.name!r}: weight_scale names no weight of the model: {name!r}{nearest(name, weights)}"
            )
    return case


def checked(table: Any, kind: type[Config], where: str) -> Config:
    """A table as a config of a kind. Raises UsageError, which begins with `where`."""
    try:
        return msgspec.convert(table, kind, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {_explain(str(error), table, kind)}") from None


def _finite(case: schema.Case) -> bool:
    try:
        return msgspec.json.decode(msgspec.json.encode(case), type=schema.Case) == case
    except (TypeError, msgspec.ValidationError):  # of a pair's kwargs, which hold whatever TOML does
        return False


@functools.cache
def _tables() -> dict[str, Table]:
    tables = {}
    for file in sorted(resources.files("parity.config").joinpath("cases").iterdir(), key=lambda f: f.name):
        base = tomllib.loads(file.read_text(encoding="utf-8"))
        for key, change in base.pop("cases").items():
            table = merge(base, change)
            tables[f"{file.name.removesuffix('.toml')}/{key}"] = table | {"strategy": key.partition("@")[0]}
    return tables


def merge(base: Table, change: Table) -> Table:
    """`change` over `base`, table by table; a model or an optimizer of another kind replaces the whole."""
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and _same_kind(old, value):
            merged[key] = merge(old, value)
        else:
            merged[key] = value
    return merged


def _same_kind(old: Table, new: Table) -> bool:
    return "kind" not in old or new.get("kind", old["kind"]) == old["kind"]


def _matching(pattern: str) -> list[str]:
    found = fnmatch.filter(names(), pattern)
    if not found:
        raise UsageError(
            f"no case matches {pattern!r}{nearest(pattern, names())}; --list prints the {len(names())} cases"
        )
    return found


def override(text: str) -> Table:
    """'a.b=1' as {'a': {'b': 1}}; a value that is not TOML is a string."""
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
    """Return msgspec's message with what was expected: the nearest field of the same table, or all values."""
    path = message.rpartition(" - at `")[2].rstrip("`") if " - at `" in message else "$"
    if "unknown field" in message:
        names = known.fields(kind, table, path)
        return message + (nearest(message.split("`")[1], names) or f"; known are {', '.join(sorted(names))}")
    if message.startswith(("Invalid enum value", "Invalid value")) and (values := known.choices(kind, table, path)):
        return f"{message}; expected one of {', '.join(map(repr, values))}"
    return message

"""The sides that a pair's file declares, ways to run one model that must agree, and those of them that are compared."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from parity.config import cases
from parity.config.pair import UNUSED, Pair
from parity.config.schema import Case
from parity.config.sides import KINDS, PLAIN, Side, unknown
from parity.core.errors import UsageError, nearest
from parity.core.script import is_script
from parity.pairs.weights.show import toml_value

Table = dict[str, Any]


class NoSideError(UsageError):
    """A name of --sides that no side of the file has."""


def chosen(path: Path, tables: Any, names: Sequence[str]) -> tuple[Side, ...]:
    """Return the sides that are compared. Raises UsageError if a side's table or a name cannot be used."""
    if not isinstance(tables, dict):
        raise UsageError(f"{path}: sides is {tables!r}, expected sections such as [sides.accumulated]")
    declared = {**PLAIN, **{name: _side(f"{path}: [sides.{name}]", name, table) for name, table in tables.items()}}
    if not names:
        return ()
    if missing := [name for name in names if name not in declared]:
        raise NoSideError(
            f"{path}: there is no side {missing[0]!r}{nearest(missing[0], declared)}; it has the sides "
            f"{', '.join(declared)}; declare another one as [sides.{missing[0] or 'NAME'}]"
        )
    if len(set(names)) < max(len(names), 2):
        raise NoSideError(f"{path}: received --sides={','.join(names)}, expected two or more different sides")
    return tuple(declared[name] for name in names)


def _side(where: str, name: str, table: Any) -> Side:
    if not isinstance(table, dict):
        raise UsageError(f"{where}: received {table!r}, expected a section")
    if problem := unknown(name, table):
        raise UsageError(f"{where}: {problem}")
    kind = KINDS[table.get("framework", "torch")]
    side = replace(cases.checked({"framework": kind.__struct_config__.tag, **table}, kind, where), name=name)
    if side.python and shutil.which(side.python) is None:
        raise UsageError(
            f"{where}: python = {side.python!r}: there is no such program; expected a Python interpreter with "
            f"{side.framework} and this package's requirements"
        )
    return side


def completed(table: Table, sides: Sequence[Side]) -> Table:
    """Return the table of a pair with what it lacks of a framework that none of the sides runs in."""
    others = KINDS.keys() - {side.framework for side in sides} if sides else set()
    for absent in others:
        pair, train = table.get("pair"), table.get("train")
        if isinstance(pair, dict):
            table = {**table, "pair": {absent: UNUSED, **pair}}
        if isinstance(train, dict):
            given = [key.partition("_")[2] for key in train if key in ("torch_loss", "keras_loss")]
            given += [key.partition("_")[2] for key in train if key in ("torch_optimizer", "keras_optimizer")]
            table = {**table, "train": {**{f"{absent}_{what}": UNUSED for what in given}, **train}}
    return table


def check(path: Path, sides: Sequence[Side], case: Case) -> None:
    """Raise UsageError for a side with a switch that this pair has no use for."""
    assert isinstance(case.model, Pair)
    for side in sides:
        if problem := next(_problems(side, case.model), None):
            raise UsageError(f"{path}: [sides.{side.name}]: {problem}")


def _problems(side: Side, pair: Pair) -> Iterator[str]:
    """Yield which switches of a side this pair has no use for, and why."""
    own = getattr(pair, side.framework)
    if not pair.train and side.needs_training:
        yield f"{side.needs_training[0]} changes a training, and this pair has none; add a section [train]"
    if side.script and not (is_script(side.script) and is_script(own)):
        yield (
            f"script = {side.script!r} is to take the place of {side.framework} = {own!r} in [pair]; expected two "
            'training scripts, such as "train.py"'
        )
    if side.is_sharded and is_script(own):
        yield "fsdp shards a model before its optimizer is made, and a script makes both; expected a builder"
    if side.accumulate > 1 and is_script(own):
        yield (
            "accumulate cuts the batches of a plain step, and a script's steps are its own; give the side a script "
            'that accumulates, as script = "train.py --accumulate=2"'
        )
    if side.accumulate > 1 and pair.train and getattr(pair.train, f"{side.framework}_step"):
        yield (
            f"accumulate cuts the batches of a plain step, and {side.framework}_step is one of your own; give the side "
            'a step that accumulates, as step = "module:function"'
        )


def described(side: Side) -> str:
    """Return a side's switches in words, as they are written in the file."""
    return ", ".join(f"{key} = {toml_value(value)}" for key, value in side.changes.items()) or "plain run"

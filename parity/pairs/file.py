"""Turn a pair's TOML file, or the flags that stand for one, into a case."""

import functools
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from parity.config import cases, schema
from parity.config.pair import UNUSED, Pair, PairInput, PairOutput
from parity.config.sides import KINDS, Side
from parity.core import inputs
from parity.core.errors import PairError, UsageError
from parity.core.script import is_script, name_of
from parity.core.wording import count
from parity.pairs import equivalence
from parity.pairs.weights.patterns import split_sides

Table = dict[str, Any]
OPTIMIZERS = {"sgd": schema.SGD, "adam": schema.Adam, "adamw": schema.AdamW}
NO_STEPS = 1  # a pair without [train] still runs one forward and one backward pass, without an update


class PairFile(NamedTuple):
    """A pair as a case, and where its modules and data files are looked for.

    `search` lists the folders to look in, `flags` the command-line flags that name this pair again. `path` is the
    TOML file; None for a pair given by flags. `sides` are those that are compared in the place of the two frameworks'.
    """

    case: schema.Case
    search: list[str]
    flags: list[str]
    path: Path | None = None
    sides: tuple[Side, ...] = ()

    @property
    def pair(self) -> Pair:
        """Return the pair's settings."""
        assert isinstance(self.case.model, Pair)
        return self.case.model

    @property
    def has_scripts(self) -> bool:
        """Return whether the pair is of training scripts."""
        return is_script(self.pair.torch) or is_script(self.pair.keras)

    def without_scripts(self) -> "PairFile":
        """Return the pair, or raise PairError if it is of training scripts."""
        if self.has_scripts:
            raise PairError(self.case.name, f"{self.case.name}: two training scripts are run by parity.compare alone")
        return self

    def without_training(self, **changed: Any) -> "PairFile":
        """Return the pair without [train] and the inputs of its loss, and with other values of these fields."""
        pair = self.pair
        inputs = {name: given for name, given in pair.inputs.items() if not (pair.train and name in pair.loss_inputs)}
        model = replace(pair, **{"train": None, "inputs": inputs} | changed)
        return self._replace(case=replace(self.case, model=model, steps=NO_STEPS))


def load(path: Path, overrides: Sequence[str] = (), sides: Sequence[str] = (), **fields: Any) -> PairFile:
    """Read a pair from its TOML file.

    `overrides` are "a.b=value" texts, applied to the table before it is checked. `sides` name those of the file's sides
    that are compared, the reference first. `fields` are fields of the case (steps, seed, precision, ...); None keeps
    what the file says.

    Raises UsageError, one line that names the file, if it cannot be read or is not TOML; and PairError, which also
    names the pair, if it is TOML but not a valid pair.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Windows editors write a byte order mark
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is not TOML: {error}") from None
    table = functools.reduce(cases.merge, map(cases.override, overrides), table)
    try:
        declared = table.pop("sides", {})
        chosen = equivalence.chosen(path, declared, sides)
        case = _file_case(path, equivalence.completed(table, chosen), fields)
        equivalence.check(path, chosen, case)
    except equivalence.NoSideError:
        raise
    except UsageError as error:
        is_half = declared and not sides and "missing required field" in str(error)
        hint = "; to compare sides of this file, add --sides=A,B" if is_half else ""
        raise PairError(f"pair/{_pair_name(path, table)}", f"{error}{hint}") from None
    search = [str(path.parent.absolute()), str(Path.cwd())]
    flags = [f"--pair={path}", *([f"--sides={','.join(sides)}"] if sides else [])]
    return PairFile(case, search, flags, path, chosen)


def from_flags(torch: str, keras: str, given: Sequence[str], **fields: Any) -> PairFile:
    """Build a pair from the values of --torch, --keras and --input.

    `given` are the texts of the --input flags. `fields` may be those of a case or of a pair. Unless they have a name,
    the pair is called by both functions, with their modules: many are called `build`, and two pairs of one name would
    share a folder of traces, and a process with the global settings that the first one changed.

    Raises UsageError.
    """
    tables: Table = {}
    for text in given:
        parsed = inputs.parse(text)
        if parsed.name in tables:
            raise UsageError(f"--input: there are two of the name {parsed.name!r}; give each input a name of its own")
        tables[parsed.name] = described(parsed)
    table: Table = {"torch": torch, "keras": keras, "inputs": tables}
    own = {key: fields.pop(key) for key in list(fields) if key in Pair.__struct_fields__}
    flags = [f"--torch={torch}", f"--keras={keras}", *(f"--input={text}" for text in given)]
    called = (name_of(text).removesuffix(".py") if is_script(text) else text for text in (torch, keras))
    name = fields.pop("name", None) or re.sub(r"[:/\\]", ".", "-".join(called))
    return PairFile(_case("--torch and --keras", name, table | own, fields), [str(Path.cwd())], flags)


def of_script(text: str, framework: str, **fields: Any) -> PairFile:
    """Return the half of a pair that a script is, with the side that runs it. Raises UsageError."""
    side = KINDS[framework](name=text, script=text)
    halves = {"torch": UNUSED, "keras": UNUSED, framework: text}
    fields |= {"name": name_of(text).removesuffix(".py"), "keeps_weights": True}
    return from_flags(**halves, given=[], **fields)._replace(sides=(side,))


def described(parsed: inputs.Input) -> Table:
    """Return the [inputs.NAME] table of a pair's file that stands for one --input flag."""
    integer_range = {"range": [0, parsed.limit]} if parsed.dtype in inputs.INTEGERS else {}
    return {"shape": parsed.shape, "dtype": parsed.dtype, **integer_range}


def _file_case(path: Path, table: Table, fields: Table) -> schema.Case:
    pair = table.get("pair")
    if not isinstance(pair, dict):
        raise UsageError(f'{path}: expected a section [pair] with name, torch = "module:function" and keras')
    if nested := sorted(pair.keys() & {"inputs", "outputs", "ignore", "expect", "train"}):
        raise UsageError(
            f"{path}: [pair.{nested[0]}] stands inside [pair], expected [{nested[0]}] as a section of its own"
        )
    name = pair.get("name", _stem(path))
    sections = {key: value for key, value in (pair | table).items() if key not in ("pair", "name")}
    if (weights := pair.get("weights")) is not None:
        if weights != "torch":
            raise UsageError(f'{path}: [pair] weights is {weights!r}, expected "torch", or a section [[weights]]')
        sections = {key: value for key, value in sections.items() if key != "weights" or "weights" in table}
        sections["keeps_weights"] = True
    return _case(str(path), name, sections, fields)


def _pair_name(path: Path, table: Table) -> str:
    """Return the name that the file gives its pair, or else the name of the file."""
    pair = table.get("pair")
    name = pair.get("name") if isinstance(pair, dict) else None
    return name if isinstance(name, str) and name else _stem(path)


def _stem(path: Path) -> str:
    return path.name.removesuffix(".toml").removesuffix(".parity")


def _case(where: str, name: Any, table: Table, fields: Table) -> schema.Case:
    """Build the case of a pair; what it says of training (steps, loss, optimizer) comes from the [train] section."""
    if not isinstance(name, str) or not name or {"/", "\\", "\0"} & set(name) or name in (".", ".."):
        raise UsageError(f"{where}: name is {name!r}, expected a text without slashes or NUL, and not '.' or '..'")
    given = {key: value for key, value in fields.items() if value is not None}
    table = _with_scripts(where, table)
    steps = given.pop("steps", None)
    if steps is not None and "train" in table:
        table = cases.merge(table, {"train": {"steps": steps}})
    elif steps is not None and steps != NO_STEPS:
        raise UsageError(f"{where}: steps is {steps}, but without [train] nothing is trained; add [train]")
    _check_sections(where, table)
    model = {"kind": "pair", "inputs": {}, **table}
    base = {"model": model, "name": f"pair/{name}", "strategy": "single", "steps": NO_STEPS}
    try:
        case = cases.convert(base | given, where)
    except UsageError as error:  # the path that msgspec reports starts at "model", which the user's file does not have
        raise UsageError(str(error).replace("`$.model", "`$")) from None
    train = case.model.train if isinstance(case.model, Pair) else None
    if not train:
        return case
    optimizer = OPTIMIZERS[train.optimizer](learning_rate=train.learning_rate)
    return replace(case, steps=train.steps, loss=schema.Loss(kind=train.loss), optimizer=optimizer)


def _with_scripts(where: str, table: Table) -> Table:
    """Return a pair's table, of two training scripts with their own [train]. Raises UsageError for another one."""
    torch, keras = (str(table.get(side, "")) for side in ("torch", "keras"))
    if not all(is_script(text) or text == UNUSED for text in (torch, keras)):
        return table
    train = table.get("train", {})
    if further := sorted(train.keys() - {"steps"}):
        raise UsageError(f"{where}: [train] has {further[0]}, but scripts train by what they say; expected steps alone")
    if table.get("inputs"):
        raise UsageError(f"{where}: inputs are given, but scripts train on what they read; leave them out")
    own = {"torch_step": torch, "torch_optimizer": torch, "keras_optimizer": keras}
    return table | {"train": own | train}


def _check_sections(where: str, table: Table) -> None:
    """Check inputs and outputs one by one, so that an error names the section that is wrong."""
    kinds: dict[str, type[PairInput | PairOutput]] = {"inputs": PairInput, "outputs": PairOutput}
    for section, kind in kinds.items():
        named = table.get(section)
        for key, value in named.items() if isinstance(named, dict) else ():
            given = cases.checked(value, kind, f"{where}: [{section}.{key}]")
            layout, shape = given.keras_layout, given.shape if isinstance(given, PairInput) else []
            try:
                axes = split_sides(layout)[0] if layout else []
            except ValueError as error:
                raise UsageError(f"{where}: [{section}.{key}] keras_layout: {error}") from None
            if layout and shape and len(axes) != len(shape):
                what = f"{layout!r} has {count(len(axes), 'axis')}, but shape = {shape}"
                raise UsageError(f"{where}: [{section}.{key}] keras_layout: {what}")

"""`assert_match` and `assert_pair`: two models are the same computation, or an AssertionError says where they are not.

The first call starts a process for each framework; they are kept for those that follow, and end with the interpreter.
"""

import atexit
import functools
import shlex
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parity.core import inputs as flags
from parity.core.arrays import Array
from parity.core.errors import UsageError
from parity.pairs import file as files
from parity.pairs.compare import compared
from parity.pairs.file import PairFile
from parity.report import terminal
from parity.results import CaseResult, Check
from parity.runtime.backend import PACKAGES, Backend
from parity.runtime.hardware import available

Described = str | Array | dict[str, Any]  # "float32[8,16]", the values themselves, or the fields of a PairInput
Inputs = Sequence[str] | Mapping[str, Described]  # the former: "x=float32[8,16]"
PASSED = ("match", "subprecision")


class Session:
    """A process for each framework, for as many pairs as are asked for. `close` ends them."""

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="parity-")
        self.folder = Path(self._scratch.name)
        kind = available(dict.fromkeys(PACKAGES, "")).kind
        self._backends = [Backend(name, "", self.folder, kind) for name in PACKAGES]

    def compared(self, file: PairFile, vary: bool = True) -> CaseResult:
        """The verdict on a pair; `vary`: also on variations of its inputs. Raises UsageError, MissingError."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            return compared(file, self._backends, Path(folder), vary)

    def close(self) -> None:
        """End the processes, and delete what they wrote."""
        for backend in self._backends:
            backend.close()
        self._scratch.cleanup()


def assert_match(*, torch: str, keras: str, inputs: Inputs, vary: bool = True, **fields: Any) -> CaseResult:
    """Both builders ("module:function") make the same computation; `vary`: also on variations of the inputs.

    `inputs`: "x=float32[8,16]", "ids=int64[2,8]<100", or a table by name of such descriptions, arrays, or the fields
    of [inputs.NAME] in a pair's file. `fields`: what else such a file has (docs/pairs.md, "Reference"). Raises
    AssertionError, UsageError for what cannot be used, and MissingError where a framework is not installed.
    """
    session = _session()
    file = described(torch, keras, inputs, session.folder, **fields)
    return _asserted(session, file, command(file, inputs, fields), vary)


def assert_pair(path: str | Path, vary: bool = True) -> CaseResult:
    """The two models of a pair's file are the same computation; `vary`: also on variations of the inputs.

    Raises AssertionError, UsageError and MissingError.
    """
    file = files.load(Path(path))
    return _asserted(_session(), file, command(file), vary)


def _asserted(session: Session, file: PairFile, again: str, vary: bool) -> CaseResult:
    result = session.compared(file, vary)
    if result.verdict not in PASSED:
        raise AssertionError(told(result, again))
    return result


@functools.cache
def _session() -> Session:
    session = Session()
    atexit.register(session.close)
    return session


def described(torch: str, keras: str, inputs: Inputs, folder: Path, **fields: Any) -> PairFile:
    """What `assert_match` is given, as a pair. Arrays are written below `folder`. Raises UsageError."""
    if unknown := [each for each in inputs if not isinstance(each, str)]:
        raise UsageError(f"inputs: received {unknown[0]!r}, expected e.g. ['x=float32[8,16]'] or a table by name")
    if isinstance(inputs, str):
        raise UsageError(f"inputs: received the text {inputs!r}, expected a list, e.g. [{inputs!r}]")
    if not isinstance(inputs, Mapping):
        return files.from_flags(torch, keras, inputs, **fields)
    tables = {name: _table(name, one, folder) for name, one in inputs.items()}
    return files.from_flags(torch, keras, [], inputs=tables, **fields)


def _table(name: str, one: Described, folder: Path) -> dict[str, Any]:
    """[inputs.NAME] of a pair's file."""
    if isinstance(one, str):
        return files.described(flags.parse(f"x={one}"))
    if isinstance(one, np.ndarray):
        return {"shape": list(one.shape), "dtype": str(one.dtype), "npz": str(_kept(name, one, folder))}
    if not isinstance(one, dict):
        raise UsageError(
            f"inputs: {name} is a {type(one).__name__}, expected a text such as 'float32[8,16]', a numpy array, or "
            "a dict of the fields of [inputs.NAME]"
        )
    return one


def _kept(name: str, array: Array, folder: Path) -> Path:
    """A file of this array alone. (numpy.savez takes no array of the name "file".)"""
    place = Path(tempfile.mkdtemp(dir=folder)) / "input.npz"
    if array.dtype.hasobject:
        raise UsageError(f"inputs: {name} is an array of objects, expected one of numbers")
    with zipfile.ZipFile(place, "w") as archive, archive.open(f"{name}.npy", "w") as file:
        np.save(file, array)
    return place


def command(file: PairFile, inputs: Inputs = (), fields: Iterable[str] = ()) -> str:
    """What compares this pair again; "" where flags cannot say all that a call did."""
    if set(fields) - {"name"} or isinstance(inputs, Mapping):
        return ""
    return f"python -m parity.compare {' '.join(map(shlex.quote, file.flags))}"


def told(result: CaseResult, again: str = "") -> str:
    """Why a pair failed: where, which cause, how many bits."""
    text = terminal.text(result)
    return text if not again or again in text else f"{text}\n  again: {again}"


def worst_bits(result: CaseResult) -> float | None:
    """The fewest bits of any kind of tensor; None if nothing was judged by bits."""
    bits = [check.worst_bits for check in result.checks.values() if isinstance(check, Check)]
    return min((each for each in bits if each is not None), default=None)

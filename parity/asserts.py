"""`assert_match`, `assert_pair`, `assert_certified`, `assert_equivalent`: assert that models are the same computation.

The AssertionError says where the models differ and, if known, why. The first call starts one process for each
framework; later calls use the same processes, which end with the interpreter.
"""

import atexit
import functools
import shlex
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from parity.core import inputs as flags
from parity.core.arrays import Array
from parity.core.errors import MissingError, UsageError
from parity.pairs import file as files
from parity.pairs.compare import compared
from parity.pairs.file import PairFile
from parity.report import terminal
from parity.results import CaseResult, Check
from parity.runtime.backend import PACKAGES, Backend
from parity.runtime.resources import available
from parity.runtime.runner import Runner
from parity.subjects.certified import judged_by
from parity.subjects.sides import SidesOfPair

# An input of a pair: a description such as "float32[8,16]", an array of its values, or the fields of a PairInput.
Described = str | Array | dict[str, Any]
Inputs = Sequence[str] | Mapping[str, Described]  # ["x=float32[8,16]"], or {"x": "float32[8,16]"}
PASSED = ("match", "subprecision")


class Session:
    """One process for each framework, in which any number of pairs is run. `close` ends the processes."""

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="parity-")
        self.folder = Path(self._scratch.name)
        kind = available(dict.fromkeys(PACKAGES, "")).kind
        self._backends = [Backend(name, "", self.folder, kind) for name in PACKAGES]
        self._runner: Runner | None = None

    def compared(self, file: PairFile, vary: bool = True) -> CaseResult:
        """Return the result of comparing a pair, with `vary` also on variations of its inputs.

        Raises UsageError, and MissingError where a framework is not installed.
        """
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            return compared(file, self._backends, Path(folder), vary)

    def certified(self, builder: str, file: Path, framework: str, search: Sequence[str] = ()) -> CaseResult:
        """Return the verdict on one framework's model by a certificate.

        Raises UsageError, and MissingError where the framework is not installed.
        """
        sides = {backend.name: backend for backend in self._backends}
        if framework not in sides:
            raise UsageError(f"framework is {framework!r}, expected one of {', '.join(sides)}")
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            return judged_by(file, sides[framework], Path(folder), builder, search=search)

    def equivalent(self, file: PairFile) -> list[CaseResult]:
        """Return the results of comparing each of the file's sides with its first one. Raises MissingError."""
        self._runner = self._runner or Runner(self._backends)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            sides = SidesOfPair(file, self._runner.worker, Path(folder))
            return [sides.compared(candidate) for candidate in file.sides[1:]]

    def close(self) -> None:
        """End the processes, and delete the files that they wrote."""
        if self._runner:
            self._runner.close()
        for backend in self._backends:
            backend.close()
        self._scratch.cleanup()


class Assertions:
    """The assertions, about models that run in the processes of a session.

    Each raises AssertionError if the models differ, UsageError if an argument cannot be used, and MissingError where a
    framework is not installed. `search`: further folders in which modules are searched for. `again`: the command that
    repeats a comparison which no flags describe. `note` is called with the name of what was compared, and with its
    result, or None where it could not be compared.
    """

    def __init__(
        self,
        session: Session,
        search: Sequence[str] = (),
        again: str = "",
        note: Callable[[str, CaseResult | None], None] = lambda name, result: None,
    ) -> None:
        self._session, self._search, self._again, self._note = session, search, again, note

    def assert_match(self, *, torch: str, keras: str, inputs: Inputs, vary: bool = True, **fields: Any) -> CaseResult:
        """Assert that two builders ("module:function") return models that are the same computation.

        `inputs` is a list such as ["x=float32[8,16]", "ids=int64[2,8]<100"], or a dict by name of such descriptions
        ("float32[8,16]"), of arrays, or of the fields of [inputs.NAME] in a pair file. `vary` compares the models also
        on variations of these inputs. `fields` are further entries of a pair file (docs/pairs.md, "Reference"). Returns
        the result.
        """
        file = described(torch, keras, inputs, self._session.folder, **fields)
        return self._compared(file, command(file, inputs, fields), vary)

    def assert_pair(self, path: str | Path, vary: bool = True) -> CaseResult:
        """Assert that the two models of a pair file are the same computation, with `vary` also on varied inputs.

        Returns the result.
        """
        file = files.load(Path(path))
        return self._compared(file, command(file), vary)

    def assert_certified(self, builder: str, certificate: str | Path, framework: str = "keras") -> CaseResult:
        """Assert that the model that a builder ("module:function") returns is the one that a certificate records.

        `framework`: the builder's, "keras" or "torch"; only that one needs to be installed. Returns the result.
        """
        flags = [f"--certificate={certificate}", f"--{framework}={builder}"]
        again = f"python -m parity.compare {' '.join(map(shlex.quote, flags))}"
        judge = partial(self._session.certified, builder, Path(certificate), framework, self._search)
        return self._asserted(Path(certificate).stem, again, judge)

    def assert_equivalent(self, path: str | Path, sides: Sequence[str]) -> list[CaseResult]:
        """Assert that the sides of a pair file are the same computation as the first of them.

        `sides` are names as in `--sides`, e.g. ["plain", "accumulated"]. Returns a result for each side but the first.
        Raises AssertionError also if a side cannot be run.
        """
        file = self._searched(files.load(Path(path), sides=sides))
        results = self._session.equivalent(file)
        for result in results:
            self._note(result.case, result)
        if failures := [terminal.text(result) for result in results if result.verdict not in PASSED]:
            raise AssertionError("\n".join([terminal.table(results), *failures, f"  again: {command(file)}"]))
        return results

    def _searched(self, file: PairFile) -> PairFile:
        return file._replace(search=[*file.search, *self._search])

    def _compared(self, file: PairFile, again: str, vary: bool) -> CaseResult:
        return self._asserted(file.case.name, again, partial(self._session.compared, self._searched(file), vary))

    def _asserted(self, name: str, again: str, judge: Callable[[], CaseResult]) -> CaseResult:
        try:
            result = judge()
        except (UsageError, MissingError):
            self._note(name, None)
            raise
        self._note(name, result)
        if result.verdict not in PASSED:  # say where, which cause, how many bits, and the command that runs it again
            text, again = terminal.text(result), again or self._again
            raise AssertionError(text if not again or again in text else f"{text}\n  again: {again}")
        return result


def default() -> Assertions:
    """Return the assertions that `parity` itself has, whose processes end with the interpreter."""
    return Assertions(_session())


@functools.cache
def _session() -> Session:
    session = Session()
    atexit.register(session.close)
    return session


def described(torch: str, keras: str, inputs: Inputs, folder: Path, **fields: Any) -> PairFile:
    """Return the arguments of `assert_match` as a pair file, with arrays written below `folder`. Raises UsageError."""
    if unknown := [key for key in inputs if not isinstance(key, str)]:
        raise UsageError(
            f"inputs: received {unknown[0]!r}, expected a list such as ['x=float32[8,16]'] or a dict by input name"
        )
    if isinstance(inputs, str):
        raise UsageError(f"inputs: received the text {inputs!r}, expected a list, e.g. [{inputs!r}]")
    if not isinstance(inputs, Mapping):
        return files.from_flags(torch, keras, inputs, **fields)
    tables = {name: _table(name, value, folder) for name, value in inputs.items()}
    return files.from_flags(torch, keras, [], inputs=tables, **fields)


def _table(name: str, value: Described, folder: Path) -> dict[str, Any]:
    """Return one input as the table [inputs.NAME] of a pair file. Raises UsageError."""
    if isinstance(value, str):
        return files.described(flags.parse(f"x={value}"))
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "dtype": str(value.dtype), "npz": str(_saved(name, value, folder))}
    if not isinstance(value, dict):
        raise UsageError(
            f"inputs: {name} is a {type(value).__name__}, expected a text such as 'float32[8,16]', a numpy array, or "
            "a dict of the fields of [inputs.NAME]"
        )
    return value


def _saved(name: str, array: Array, folder: Path) -> Path:
    """Write an array to an .npz file of its own, and return the file's path. Raises UsageError."""
    path = Path(tempfile.mkdtemp(dir=folder)) / "input.npz"
    if array.dtype.hasobject:
        raise UsageError(f"inputs: {name} is an array of objects, expected an array of numbers")
    # Not numpy.savez: it takes names as keyword arguments, and its own parameter is named "file".
    with zipfile.ZipFile(path, "w") as archive, archive.open(f"{name}.npy", "w") as file:
        np.save(file, array)
    return path


def command(file: PairFile, inputs: Inputs = (), fields: Iterable[str] = ()) -> str:
    """Return the command that compares this pair again, or "" if flags cannot express the call's arguments."""
    if set(fields) - {"name"} or isinstance(inputs, Mapping):
        return ""
    return f"python -m parity.compare {' '.join(map(shlex.quote, file.flags))}"


def worst_bits(result: CaseResult) -> float | None:
    """Return the fewest bits of any kind of tensor; None if all tensors agree without needing bits to say so."""
    worst = [check.worst_bits for check in result.checks.values() if isinstance(check, Check)]
    return min((bits for bits in worst if bits is not None), default=None)

"""Describe a planted fault, and decide what came of it, or of one clean run, here and by other checks of the outputs.

The other checks are the comparisons of numpy, PyTorch and Polygraphy.
"""

import fnmatch
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from parity.config.schema import Case
from parity.core.arrays import Array
from parity.core.errors import BackendError
from parity.results import CaseResult
from parity.runtime.environment import environment
from parity.trace import keys
from parity.trace.keys import MODEL, plain
from parity.trace.manifest import Trace


class At(NamedTuple):
    """A built-in case, or that of the specimen, with changes that make it small or let a fault show."""

    case: str
    changes: dict[str, Any] = {}


Side = Literal["torch", "keras"]
SIDES: tuple[Side, ...] = ("torch", "keras")


class Fault(NamedTuple):
    """A mutation by name (in faults/ of its side), the case that it is planted on, where it shows, and its cause.

    `kind`, `place`, `step`: of its first effect in execution order; `place` is a glob over names, `step` is None for an
    effect before the first step. `cause` is the id of the cause, "" if the catalogue of causes has none for it. `also`
    is the id of a cause that may be named as well, since it is true too. `mistake` says in words what is wrong.
    """

    name: str
    side: str  # torch or keras
    at: At
    kind: str
    place: str
    cause: str
    step: int | None = 0
    also: str = ""
    mistake: str = ""


def row(
    sides: tuple[Side, ...],
    name: str,
    mistake: str,
    at: At,
    kind: str,
    place: str,
    cause: str | None = None,
    step: int = 0,
    also: str = "",
) -> list[Fault]:
    """Return a fault for each side that has it, which shows at the same place on all of them.

    One that shows in a parameter is a fault of the initial parameters, which are recorded before the first step. The
    cause is the name of the fault itself unless one is given.
    """
    first, cause = None if kind == "parameter" else step, name if cause is None else cause
    return [Fault(name, side, at, kind, place, cause, first, also, mistake) for side in sides]


Pairs = Sequence[tuple[Array, Array]]


class Outcome(NamedTuple):
    """A comparison, of a clean run without `fault`; `outputs`: pairs that other checks compare, with `objections`."""

    case: Case
    fault: Fault | None
    result: CaseResult
    outputs: list[tuple[Array, Array]]
    objections: dict[str, bool] = {}

    @property
    def caught(self) -> bool:
        """Return whether anything was found, as --strict counts it; in a clean run that is a false alarm."""
        return self.result.verdict in ("diverged", "inconclusive", "subprecision") or bool(self.result.findings)

    @property
    def placed(self) -> bool:
        """Return whether the first divergence is where the fault was planted, by step, kind and name."""
        assert self.fault
        names = [name for step, kind, name in self.places if (step, kind) == (self.fault.step, self.fault.kind)]
        return any(fnmatch.fnmatchcase(name, self.fault.place) for name in names)

    @property
    def places(self) -> list[tuple[int | None, str, str]]:
        """Step, kind and name of the first divergence; if only the low runs differ, those of the noisy tensors."""
        first = self.result.first_divergence
        if first:
            return [(first.step, first.kind, plain(first.name))]
        return [(0, *keys.split(finding.where)) for finding in self.result.findings]

    @property
    def named(self) -> bool:
        """Return whether the right cause is named, and no cause that is not true."""
        assert self.fault
        return self.fault.cause in self.causes <= {self.fault.cause, self.fault.also}

    @property
    def causes(self) -> set[str]:
        return {cause.id for cause in self.result.causes}


def outputs(torch: Trace, keras: Trace) -> list[tuple[Array, Array]]:
    """Return what both whole models returned in the low runs: in the first step, and in the evaluation at the end."""
    stems = [keys.step_file(0), keys.step_file(torch.case.steps)]
    return [pair for stem in stems if (pair := _results(torch, keras, stem))]


def _results(torch: Trace, keras: Trace, stem: str) -> tuple[Array, Array] | None:
    """Return what both models returned in a step, or else, where that was not recorded, what their last module did."""
    torch_tensors, keras_tensors = torch.open("low", stem), keras.open("low", stem)
    recorded = [key for key in torch_tensors if key in keras_tensors and key.startswith("activation/")]
    whole = keys.key("activation", MODEL)
    key = whole if whole in recorded else recorded[-1] if recorded else None
    return (torch_tensors[key].copy(), keras_tensors[key].copy()) if key else None


def ask_other_checks(outputs: Sequence[Pairs], python: str) -> list[dict[str, bool]]:
    """Return, for each run, whether each check by name objects to any pair of its outputs. Raises BackendError.

    `python` is an interpreter that has torch. torch.testing.assert_close uses tolerances of its own, 1e-5 absolute
    and 1.3e-6 relative for float32. Polygraphy is left out if it is not installed.
    """
    arrays = {
        f"{run}/{number}/{side}": array
        for run, pairs in enumerate(outputs)
        for number, pair in enumerate(pairs)
        for side, array in enumerate(pair)
    }
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        file = Path(scratch) / "outputs.npz"
        np.savez(file, **arrays)  # type: ignore[arg-type]  # numpy's stub takes these names for options of savez
        command = [python or sys.executable, "-m", "torch_impl.instruments.other_checks", str(file)]
        variables = environment(Path(scratch), python=command[0])
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
    refused = msgspec.json.decode(done.stdout.splitlines()[-1], type=dict[str, list[int]])
    return [{name: run in runs for name, runs in refused.items()} for run in range(len(outputs))]

"""What came of one planted fault, or of one clean run."""

import fnmatch
from typing import NamedTuple

from parity.config.schema import Case
from parity.core.arrays import Array
from parity.core.names import MODEL
from parity.diagnose.place import plain
from parity.results import CaseResult
from parity.selftest.fault import Fault
from parity.trace import keys
from parity.trace.manifest import Trace

UNKNOWN = "unknown"


class Outcome(NamedTuple):
    """A comparison. `fault`: None for a clean run; `outputs`: pairs that other checks would compare."""

    case: Case
    fault: Fault | None
    result: CaseResult
    outputs: list[tuple[Array, Array]]

    @property
    def caught(self) -> bool:
        """Whether anything was found, as with --strict. In a clean run that is a false alarm."""
        return self.result.verdict in ("diverged", "inconclusive", "subprecision") or bool(self.result.findings)

    @property
    def placed(self) -> bool:
        """Whether the first divergence is where the fault was planted: step, kind and name."""
        assert self.fault
        return any(
            step == self.fault.step and kind == self.fault.kind and fnmatch.fnmatchcase(name, self.fault.place)
            for step, kind, name in self.places
        )

    @property
    def places(self) -> list[tuple[int | None, str, str]]:
        """Step, kind and name of the first divergence; or of the noisier tensors, where only the low runs part."""
        first = self.result.first_divergence
        if first:
            return [(first.step, first.kind, plain(first.name))]
        return [(0, *keys.split(finding.where)) for finding in self.result.findings]

    @property
    def named(self) -> bool:
        """Whether the right cause is named, and none that is not true."""
        assert self.fault
        return self.fault.cause in self.causes <= {self.fault.cause, self.fault.also}

    @property
    def causes(self) -> set[str]:
        """All ids that are named."""
        return {cause["id"] for cause in self.result.causes}


def outputs(torch: Trace, keras: Trace) -> list[tuple[Array, Array]]:
    """The whole model's results at the run precision: of the first step and of the evaluation after training."""
    stems = [keys.step_file(0), keys.step_file(torch.case.steps)]
    return [pair for stem in stems if (pair := _results(torch, keras, stem))]


def _results(torch: Trace, keras: Trace, stem: str) -> tuple[Array, Array] | None:
    """What the model returned, or where that was not recorded its last module."""
    one, other = torch.open("low", stem), keras.open("low", stem)
    both = [key for key in one if key in other and key.startswith("activation/")]
    whole = keys.key("activation", MODEL)
    key = whole if whole in both else both[-1] if both else None
    return (one[key].copy(), other[key].copy()) if key else None

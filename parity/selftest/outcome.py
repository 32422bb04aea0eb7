"""Decide what came of one planted fault, or of one clean run."""

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
    """A comparison.

    `fault` is None for a clean run. `outputs` are the pairs of outputs that other checks compare.
    """

    case: Case
    fault: Fault | None
    result: CaseResult
    outputs: list[tuple[Array, Array]]

    @property
    def caught(self) -> bool:
        """Return whether anything was found, as --strict counts it; in a clean run that is a false alarm."""
        return self.result.verdict in ("diverged", "inconclusive", "subprecision") or bool(self.result.findings)

    @property
    def placed(self) -> bool:
        """Return whether the first divergence is where the fault was planted, by step, kind and name."""
        assert self.fault
        return any(
            step == self.fault.step and kind == self.fault.kind and fnmatch.fnmatchcase(name, self.fault.place)
            for step, kind, name in self.places
        )

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
        """Return the ids of all causes that are named."""
        return {cause.id for cause in self.result.causes}


def outputs(torch: Trace, keras: Trace) -> list[tuple[Array, Array]]:
    """Return pairs of what the whole models returned in the low runs.

    There is one pair for the first step, and one for the evaluation after the training.
    """
    stems = [keys.step_file(0), keys.step_file(torch.case.steps)]
    return [pair for stem in stems if (pair := _results(torch, keras, stem))]


def _results(torch: Trace, keras: Trace, stem: str) -> tuple[Array, Array] | None:
    """Return what both models returned in a step, or else, where that was not recorded, what their last module did."""
    torch_tensors, keras_tensors = torch.open("low", stem), keras.open("low", stem)
    recorded = [key for key in torch_tensors if key in keras_tensors and key.startswith("activation/")]
    whole = keys.key("activation", MODEL)
    key = whole if whole in recorded else recorded[-1] if recorded else None
    return (torch_tensors[key].copy(), keras_tensors[key].copy()) if key else None

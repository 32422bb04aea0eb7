"""Collect, tensor by tensor, what the HTML report draws of a comparison, and how much was compared."""

import math

import numpy as np

from parity.config.pair import Pair
from parity.config.schema import Case
from parity.core.precision import ROUNDOFF
from parity.details import BATCHES, EVALUATION, TRAINING, Compared, Details, Extent, Share, share
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.verdict.kernel import Spread
from parity.verdict.promotion import not_promoted
from parity.verdict.rule import Rule, TensorVerdict
from parity.verdict.steps import Step

LOSS = keys.key("loss", "loss")
ONE_BATCH = "a built-in case has one batch size"


class Collector:
    """Collects the compared tensors, the losses, and the tensors of the high runs that are not float64."""

    def __init__(self, names: tuple[str, str], rule: Rule) -> None:
        self.names, self._roundoff = names, ROUNDOFF[rule.low]
        self.details = Details(needed=rule.needed, losses={name: [] for name in names})
        self._not_promoted: dict[str, dict[str, None]] = {}

    def tensor(
        self, step: int | None, replica: int, key: str, verdict: TensorVerdict, spread: Spread | None, files: Step
    ) -> None:
        """Add one tensor with its verdict; `spread` is None if it was not compared element by element."""
        kind, name = keys.split(key)
        row = Compared(step=step, replica=replica, kind=kind, name=name, verdict=verdict.verdict, bits=verdict.bits)
        if spread:
            noise = max(spread.noise, self._roundoff * spread.scale)
            row.scale, row.difference, row.noise = map(_finite, (spread.scale, spread.difference, noise))
        elif kind != keys.UPDATE:
            has = [side for side, file in zip(self.names, files.highs, strict=True) if key in file]
            row.alone = has[0] if len(has) == 1 else ""
        self.details.tensors.append(row)
        if kind == "activation" and step == 0:
            self._note_promotion(name, files)

    def _note_promotion(self, name: str, files: Step) -> None:
        for side, is_narrow in zip(self.names, not_promoted(name, files), strict=True):
            if is_narrow:
                self._not_promoted.setdefault(side, {})[name] = None

    def losses(self, replicas: list[Step]) -> None:
        """Add each side's loss in a step, if both have it: the mean over replicas and elements."""
        for number, side in enumerate(self.names):
            arrays = [replica.highs[number][LOSS] for replica in replicas if _has_loss(replica)]
            if any(array.size for array in arrays):
                mean = np.mean([np.mean(array, dtype=np.float64) for array in arrays])
                self.details.losses[side].append(_finite(float(mean)))

    def extent(self, reference: Trace) -> Extent:
        """Return how much of the reference's trace was compared."""
        rows = [row for row in self.details.tensors if not row.alone]
        alone: dict[str, dict[str, None]] = {side: {} for side in self.names}
        for row in self.details.tensors:
            if row.alone:
                alone[row.alone][row.name] = None
        return Extent(
            parameters=_parameters({row.name for row in rows if row.kind == "parameter"}, reference),
            activations=_activations(
                {row.name for row in rows if (row.kind, row.step) == ("activation", 0)}, reference
            ),
            alone={side: list(names) for side, names in alone.items() if names},
            not_promoted={side: list(names) for side, names in self._not_promoted.items()},
            not_run=_not_run(reference.case, reference),
        )


def _parameters(compared: set[str], reference: Trace) -> Share:
    """Return the share of the numbers in the reference's parameters."""
    sizes: dict[str, int] = {}
    for stem in reference.stems("high")[:1]:
        for key, array in reference.open("high", stem).items():
            kind, name = keys.split(key)
            if kind == "parameter":
                sizes[name] = array.size
    return share(sum(size for name, size in sizes.items() if name in compared), sum(sizes.values()))


def _activations(compared: set[str], reference: Trace) -> Share:
    """Return the share of the tensors that the reference's modules return in the first step."""
    names = set(compared)
    for file, listed in reference.manifest.files.items():
        if file.startswith("high/") and file.endswith(keys.step_file(0)):
            aliases = reference.manifest.aliases.get(file, {})  # compared under another key
            kinds = (keys.split(key) for key in listed if key not in aliases)
            names.update(name for kind, name in kinds if kind == "activation")
    return share(len(compared), len(names))


def _not_run(case: Case, reference: Trace) -> dict[str, str]:
    """Return the modes that a recording did not run, with the reasons."""
    reasons = {}
    if not case.model.trains:
        reasons[TRAINING] = "the pair file has no [train]"
    elif not any(file.endswith(keys.step_file(case.steps)) for file in reference.manifest.files):
        reasons[EVALUATION] = "only training steps were recorded"
    if not isinstance(case.model, Pair):
        reasons[BATCHES] = ONE_BATCH
    return reasons


def _has_loss(replica: Step) -> bool:
    return all(LOSS in file for file in replica.highs)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None

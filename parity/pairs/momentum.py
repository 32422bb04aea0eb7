"""Momentum that one framework's optimizers multiply by the learning rate before they keep it, and the other's after.

Where the rate is the same in all steps, both are the same computation. Keras's slots are then compared in torch's form.
"""

import msgspec

from parity.trace import keys
from parity.trace.manifest import Tensors, Trace
from parity.trace.training import ParameterGroup

OUTSIDE = "rate outside"  # torch's form, as parity.diagnose.optimizer_steps names them
SIGNS = {"rate inside": 1, "rate inside, negative": -1}
SLOT = "momentum_buffer"


def in_torchs_form(trace: Trace) -> Trace:
    """Return Keras's trace with the momentum of its optimizers in torch's form, where the learning rates stay."""
    training = trace.manifest.training
    is_constant = len(set(training.rates)) == 1 and None not in training.rates
    scales = {name: scale for group in training.groups if (scale := _scale(group)) for name in group.parameters}
    return _InTorchsForm(trace, scales) if scales and is_constant and not trace.manifest.summarised else trace


def _scale(group: ParameterGroup) -> float:
    """Return by what a slot of momentum is multiplied; 0 where it is in torch's form, or has none."""
    rate, sign = float(group.settings["learning_rate"]), SIGNS.get(str(group.settings.get("momentum_form")), 0)
    return sign / rate if rate else 0.0


class _InTorchsForm(Trace):
    """A trace whose slots of momentum are multiplied by these numbers, by the names of the parameters."""

    def __init__(self, trace: Trace, scales: dict[str, float]) -> None:
        training = trace.manifest.training
        groups = [
            msgspec.structs.replace(group, settings={**group.settings, "momentum_form": OUTSIDE})
            if _scale(group)
            else group
            for group in training.groups
        ]
        vars(self).update(vars(trace.replaced(training=msgspec.structs.replace(training, groups=groups))))
        self._trace, self._scales = trace, scales

    def open(self, run: str, stem: str, replica: int = 0) -> Tensors:
        """Return the tensors of one step. Raises TraceError."""
        tensors = self._trace.open(run, stem, replica)
        for name, scale in self._scales.items():
            if (key := keys.key("optimizer_state", f"{name}.{SLOT}")) in tensors:
                tensors[key] = tensors[key] * tensors[key].dtype.type(scale)
        return tensors

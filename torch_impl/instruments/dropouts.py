"""Dropout functions that drop values although the module that calls them is in eval mode."""

from typing import Any

from parity.doctor import rewrite
from parity.doctor.evidence import Step
from parity.doctor.evidence.common import Code
from parity.doctor.evidence.ops import Dropped
from parity.doctor.rewrite import Expression
from torch_impl.instruments import source
from torch_impl.instruments.calls import Calls
from torch_impl.record.calls import running

ATTENTION = "scaled_dot_product_attention"
RATE = 4  # the position of the attention's rate of dropout


class Dropouts:
    """Records them in a step."""

    def __init__(self, step: Step, calls: Calls):
        self.step, self.calls = step, calls

    def note(self, function: str, args: tuple, kwargs: dict) -> None:
        """Note a function that the program called."""
        rate = _rate(function, args, kwargs)
        if not rate or not running() or running()[-1].training:
            return
        frame = source.frame()
        is_method = frame is not None and frame.f_locals.get("self") is running()[-1]
        mended = rewrite.code(source.spot(), _in_training) if is_method else None
        place = self.calls.place(source.line())
        self.step.dropped.append(Dropped(function=function, rate=rate, place=place, mended=mended))


def _rate(function: str, args: tuple, kwargs: dict) -> float:
    """Return the rate at which a function drops values; 0 for other functions."""
    if function == ATTENTION:
        return float(kwargs.get("dropout_p", args[RATE] if len(args) > RATE else 0))
    if "dropout" not in function:
        return 0.0
    trains = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    rate: Any = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
    return float(rate) if trains else 0.0


def _in_training(call: Expression) -> Code | None:
    """Return the line in which the module's mode decides."""
    if call.function != ATTENTION:
        return call.with_keyword("training", "self.training", 2)
    given = call.keyword("dropout_p") or (call.node.args[RATE] if len(call.node.args) > RATE else None)
    return call.with_text(given, f"{call.atom(given)} if self.training else 0.0") if given is not None else None

"""The optimizer of a pair's training: a built-in one that the pair's file names, or the user's own."""

from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer

from parity.config.schema import Case
from parity.core.errors import UsageError
from parity.doctor.program import load
from torch_impl import optimizers
from torch_impl.record.pair.build import user_errors


def made(case: Case, parameters: Sequence[Any], search: list[str]) -> Optimizer:
    """Return a new optimizer of these parameters: the built-in one, or the one that the user's function makes.

    Raises UsageError if that function returns something else.
    """
    text = case.model.train.torch_optimizer
    if not text:
        return optimizers.build(case, parameters)
    with user_errors(f"train.torch_optimizer={text} fails"):
        optimizer = load("train.torch_optimizer", text, "parameters", search=search)(parameters)
    if not isinstance(optimizer, Optimizer):
        received = type(optimizer).__name__
        raise UsageError(f"train.torch_optimizer={text}: expected a torch.optim.Optimizer, received {received}")
    return optimizer

"""DTensors, told without importing their module: that takes nearly as long as importing PyTorch, and few need it."""

import sys
from typing import Any


def is_dtensor(value: Any) -> bool:
    """Return whether a value is a DTensor."""
    return is_dtensor_class(type(value))


def is_dtensor_class(kind: type) -> bool:
    """Return whether a class is DTensor or derived from it; there is none before somebody has imported its module."""
    return issubclass(kind, getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", ()))

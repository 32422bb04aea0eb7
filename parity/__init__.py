"""Whether a model in PyTorch and its port in Keras are the same computation.

This package imports no framework. It hands each case to two processes (`torch_impl`, `keras_impl`),
reads the traces that they record, and judges them without a tolerance.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

__all__ = ["assert_certified", "assert_equivalent", "assert_match", "assert_pair"]


def __getattr__(name: str) -> Any:
    """Import the assert functions only when they are used: most who import this package do not need them."""
    if name in __all__:
        return getattr(importlib.import_module("parity.asserts").default(), name)
    raise AttributeError(f"module 'parity' has no attribute {name!r}")

"""Whether a model in PyTorch and its port in Keras are the same computation.

This package imports no framework. It hands each case to two processes (`torch_impl`, `keras_impl`),
reads the traces that they record, and judges them without a tolerance.
"""

__version__ = "0.1.0"

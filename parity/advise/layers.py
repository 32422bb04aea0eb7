"""What single layers cost for one sample: the bytes that they keep for the backward pass, and their operations.

What a layer keeps is what its derivative is made of (tools/autograd/derivatives.yaml in PyTorch): a matrix product its
input, a ReLU its output, a norm its input, a dropout its mask, an attention its queries, keys and values. A
multiplication with an addition counts as two operations.
"""

from parity.advise.model import FLOAT, Cost


def linear(inputs: int, outputs: int, rows: int = 1) -> Cost:
    """Return the cost of a linear layer on `rows` rows."""
    return Cost(FLOAT * rows * inputs, 2.0 * rows * inputs * outputs)


def relu(elements: int, copied: bool = False) -> Cost:
    """Return the cost of a ReLU. It keeps its output, which is the next layer's input unless a dropout copies it."""
    return Cost(FLOAT * elements * copied, elements)


def convolution(inputs: int, outputs: int, kernel: int, pixels: int) -> Cost:
    """Return the cost of a convolution with a square kernel that keeps the size of the image."""
    return Cost(FLOAT * pixels * inputs, 2.0 * pixels * inputs * outputs * kernel * kernel)


def norm(elements: int) -> Cost:
    """Return the cost of a batch or layer norm: mean, variance, scale and shift."""
    return Cost(FLOAT * elements, 8.0 * elements)


def dropout(elements: int, rate: float) -> Cost:
    """Return the cost of a dropout; one of rate 0 does nothing."""
    return Cost(FLOAT * elements, 2.0 * elements) if rate else Cost(0, 0)


def attention(queries: int, keys: int, width: int, heads: int, rate: float) -> Cost:
    """Return the cost of scaled dot-product attention between projected queries, keys and values.

    Without dropout PyTorch's fused kernels keep no probabilities. With dropout, on CPUs, it is computed step by step:
    kept are the scaled queries and keys, and the probabilities before and after their dropout, with its mask. GPUs have
    fused kernels for that too, so that this is an upper bound there (torch.nn.functional.scaled_dot_product_attention).
    """
    scores = heads * queries * keys
    kept = (queries + 2 * keys) * width
    if rate:
        kept += (queries + keys) * width + 3 * scores
    return Cost(FLOAT * kept, 4.0 * queries * keys * width + 5.0 * scores)

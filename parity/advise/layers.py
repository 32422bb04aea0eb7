"""What single layers cost for one sample: the bytes that they keep for the backward pass, and their operations.

What a layer keeps is what its derivative is made of (tools/autograd/derivatives.yaml in PyTorch): a matrix product its
input, a ReLU its output, a norm its input, a dropout its mask, an attention its queries, keys, values and
probabilities. A multiplication with an addition counts as two operations.
"""

from parity.advise.model import FLOAT, Cost


def linear(inputs: int, outputs: int, rows: int = 1) -> Cost:
    """Return the cost of a linear layer on `rows` rows."""
    return Cost(FLOAT * rows * inputs, 2.0 * rows * inputs * outputs)


def relu(elements: int) -> Cost:
    """Return the cost of a ReLU, of which the next layer's input is what it keeps."""
    return Cost(0, elements)


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
    """Return the cost of scaled dot-product attention between projected queries, keys and values."""
    scores = heads * queries * keys
    kept = (queries + 2 * keys) * width + scores
    return Cost(FLOAT * kept, 4.0 * queries * keys * width + 5.0 * scores) + dropout(scores, rate)

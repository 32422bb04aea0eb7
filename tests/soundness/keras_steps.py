"""The steps of chains in Keras: functions, and how branches are combined. torch_steps.py has the same names."""

import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import ops

Tensor = tf.Tensor


def places(x: Tensor) -> Tensor:
    """0, 1, 2... in the order of the elements."""
    return tf.reshape(tf.range(tf.size(x)), tf.shape(x))


def floats(x: Tensor, value: Any) -> Tensor:
    return tf.constant(value, x.dtype)


def every(x, step, value):
    """Every step-th element replaced; by the dtype's lowest number where value is "lowest"."""
    filled = x.dtype.min if value == "lowest" else float(value)
    return tf.where(places(x) % step == 0, floats(x, filled), x)


def tie(x, value):
    """The first columns masked, by a comparison that falls out otherwise in float32: 0.1 x 3 is more than 0.3 above."""
    return tf.where(tf.cast(tf.range(x.shape[-1]), x.dtype) * floats(x, 0.1) > floats(x, 0.3), x, floats(x, value))


def nudge(x, place, by):
    """One element moved, by its place in the whole tensor (negative: from its end)."""
    return x + floats(x, by) * tf.cast(places(x) == place % math.prod(x.shape), x.dtype)


def nudge_whole(x, place):
    """One whole number counted up, by its place in the whole tensor."""
    return x + tf.cast(places(x) == place, x.dtype)


def row(x, number, factor):
    """One row of the batch scaled."""
    chosen = tf.reshape(tf.range(x.shape[0]) == number % x.shape[0], [-1] + [1] * (len(x.shape) - 1))
    return tf.where(chosen, x * floats(x, factor), x)


def column(x, number, factor):
    return tf.where(tf.range(x.shape[-1]) == number % x.shape[-1], x * floats(x, factor), x)


def append(x, value):
    """A constant column behind the others."""
    return tf.concat([x, tf.fill([*x.shape[:-1], 1], floats(x, value))], -1)


def grad_scale(x, by):
    """Leaves values alone; gradients are scaled."""

    @tf.custom_gradient
    def same(values):
        return tf.identity(values), lambda gradient: gradient * floats(gradient, by)

    return same(x)


def causal(x, diagonal=0, value=-math.inf):
    """Scores (batch, query, key) with the keys after the query masked."""
    filled = x.dtype.min if value == "lowest" else float(value)
    seen = tf.range(x.shape[-1])[None] <= tf.range(x.shape[-2])[:, None] + int(diagonal)
    return tf.where(seen, x, floats(x, filled))


def logistic(x, times):
    """The logistic map, chaotic at 3.99."""
    for _ in range(times):
        x = 3.99 * x * (1 - x)
    return x


def softplus(x, threshold=20):
    """torch's: the identity above the threshold."""
    return tf.where(x > threshold, x, tf.math.softplus(tf.minimum(x, floats(x, threshold))))


def stable_softmax(x, axis=-1):
    raised = tf.exp(x - tf.reduce_max(x, axis, keepdims=True))
    return raised / tf.reduce_sum(raised, axis, keepdims=True)


def moments(x):
    """The same variance by E[x^2] - E[x]^2."""
    return tf.reduce_mean(x * x, -1) - tf.reduce_mean(x, -1) ** 2


def standard(x, eps):
    mean = tf.reduce_mean(x, -1, keepdims=True)
    return (x - mean) / tf.sqrt(tf.reduce_mean((x - mean) ** 2, -1, keepdims=True) + eps)


def standard_one_pass(x, eps):
    mean = tf.reduce_mean(x, -1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(tf.reduce_mean(x * x, -1, keepdims=True) - mean * mean + eps)


def glu(x):
    values, gates = tf.split(x, 2, -1)
    return values * tf.sigmoid(gates)


def var(x, correction=1):
    count = x.shape[-1]
    return tf.math.reduce_variance(x, -1) * (count / (count - correction))


def median(x):
    return tf.sort(x, -1)[..., (x.shape[-1] - 1) // 2]


def gelu_exact(x):
    return x * 0.5 * (1 + tf.math.erf(x * floats(x, math.sqrt(0.5))))


def gelu_tanh(x):
    return 0.5 * x * (1 + tf.tanh(floats(x, math.sqrt(2 / math.pi)) * (x + floats(x, 0.044715) * x**3)))


def selu(x):
    scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
    return floats(x, scale) * tf.where(x > 0, x, floats(x, alpha) * tf.math.expm1(tf.minimum(x, 0)))


def elu(x, alpha=1.0):
    return tf.where(x > 0, x, floats(x, alpha) * tf.math.expm1(tf.minimum(x, 0)))


def celu(x, alpha=1.0):
    return tf.where(x > 0, x, floats(x, alpha) * tf.math.expm1(tf.minimum(x, 0) / floats(x, alpha)))


def hard_sigmoid(x):
    return tf.clip_by_value(x / 6 + 0.5, 0, 1)


def softshrink(x, by=0.5):
    return tf.where(x > by, x - by, tf.where(x < -by, x + by, tf.zeros_like(x)))


def _repeated(x, by):
    return tf.repeat(tf.repeat(x, by, 1), by, 2)


def _padded(x, by, mode="CONSTANT", value=0.0):
    return tf.pad(x, [[0, 0], [by, by], [by, by], [0, 0]], mode, value)


def pad_replicate(x, by):
    rows = tf.clip_by_value(tf.range(-by, x.shape[1] + by), 0, x.shape[1] - 1)
    columns = tf.clip_by_value(tf.range(-by, x.shape[2] + by), 0, x.shape[2] - 1)
    return tf.gather(tf.gather(x, rows, axis=1), columns, axis=2)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    # values
    "scale": lambda x, by: x * by,
    "add": lambda x, by: x + by,
    "power": lambda x, by: x**by,
    "every": every,
    "tie": tie,
    "nudge": nudge,
    "nudge_whole": nudge_whole,
    "row": row,
    "column": column,
    "append": append,
    "clip": lambda x, low, high: tf.clip_by_value(x, low, high),
    "huge": lambda x, by: x * by,
    "cast16": lambda x: tf.cast(tf.cast(x, tf.bfloat16), x.dtype),
    "cast32": lambda x: tf.cast(tf.cast(x, tf.float32), x.dtype),
    "grad_scale": grad_scale,
    "detach": tf.stop_gradient,
    # activations
    "relu": tf.nn.relu,
    "relu6": lambda x: tf.clip_by_value(x, 0, 6),
    "sigmoid": tf.sigmoid,
    "tanh": tf.tanh,
    "silu": lambda x: x * tf.sigmoid(x),
    "silu_division": lambda x: x / (1 + tf.exp(-x)),
    "sigmoid_by_tanh": lambda x: 0.5 * (1 + tf.tanh(0.5 * x)),
    "gelu_exact": gelu_exact,
    "gelu_tanh": gelu_tanh,
    "gelu_quick": lambda x: x * tf.sigmoid(1.702 * x),
    "elu": elu,
    "selu": selu,
    "celu": celu,
    "softplus": softplus,
    "softplus_everywhere": tf.math.softplus,
    "softplus_log": lambda x: tf.math.log(1 + tf.exp(x)),
    "mish": lambda x: x * tf.tanh(tf.math.softplus(x)),
    "hardtanh": lambda x: tf.clip_by_value(x, -1, 1),
    "hard_sigmoid": hard_sigmoid,
    "hard_sigmoid_old": lambda x: tf.clip_by_value(x * 0.2 + 0.5, 0, 1),
    "hard_swish": lambda x: x * hard_sigmoid(x),
    "leaky": lambda x, slope=0.01: tf.where(x > 0, x, floats(x, slope) * x),
    "leaky_maximum": lambda x, slope=0.01: tf.maximum(x, floats(x, slope) * x),
    "softsign": tf.nn.softsign,
    "log_sigmoid": lambda x: -tf.math.softplus(-x),
    "log_sigmoid_naive": lambda x: tf.math.log(tf.sigmoid(x)),
    "softshrink": softshrink,
    "hardshrink": lambda x, by=0.5: tf.where(tf.abs(x) > by, x, tf.zeros_like(x)),
    "tanhshrink": lambda x: x - tf.tanh(x),
    "threshold": lambda x, at, value: tf.where(x > at, x, floats(x, float(value))),
    "glu": glu,
    "glu_swapped": lambda x: glu(tf.roll(x, x.shape[-1] // 2, -1)),
    "softmax": lambda x, axis=-1: tf.nn.softmax(x, axis),
    "stable_softmax": stable_softmax,
    "naive_softmax": lambda x: tf.exp(x) / tf.reduce_sum(tf.exp(x), -1, keepdims=True),
    "softmax_exp_log": lambda x: tf.exp(tf.nn.log_softmax(x)),
    "softmax_plus_one": lambda x: tf.exp(x) / (1 + tf.reduce_sum(tf.exp(x), -1, keepdims=True)),
    "log_softmax": lambda x, axis=-1: tf.nn.log_softmax(x, axis),
    "log_of_softmax": lambda x: tf.math.log(tf.nn.softmax(x)),
    "logsumexp": lambda x, axis=-1: tf.reduce_logsumexp(x, axis),
    "log_sum_exp_naive": lambda x: tf.math.log(tf.reduce_sum(tf.exp(x), -1)),
    # kinks and whole numbers
    "abs": tf.abs,
    "floor": tf.floor,
    "round": tf.round,
    "half_up": lambda x: tf.floor(x + 0.5),
    "trunc": lambda x: tf.sign(x) * tf.floor(tf.abs(x)),
    "sign": tf.sign,
    "straight_round": lambda x: x + tf.stop_gradient(tf.round(x) - x),
    "sort": lambda x: tf.sort(x, -1),
    "descending": lambda x: tf.sort(x, -1, "DESCENDING"),
    "top": lambda x, k: tf.math.top_k(x, k).values,
    "max": lambda x, axis=-1: tf.reduce_max(x, axis),
    "amax": lambda x, axis=-1: tf.reduce_max(x, axis),
    "argmax": lambda x: tf.argmax(x, -1),
    "argmin": lambda x: tf.argmin(x, -1),
    "cumsum": lambda x, axis=-1: tf.cumsum(x, axis),
    "cumsum_exclusive": lambda x: tf.cumsum(x, -1, exclusive=True),
    "cumprod": lambda x, axis=-1: tf.math.cumprod(x, axis),
    "modulo": tf.math.floormod,
    "fmod": lambda x, by: tf.sign(x) * tf.math.floormod(tf.abs(x), floats(x, by)),
    "median": median,
    "upper_median": lambda x: tf.sort(x, -1)[..., x.shape[-1] // 2],
    # reductions and shapes
    "mean": lambda x, axis=-1: tf.reduce_mean(x, axis),
    "mean_by_sum": lambda x, axis=-1: tf.reduce_sum(x, axis) / x.shape[axis],
    "sum": lambda x, axis=-1: tf.reduce_sum(x, axis),
    "sum_by_matmul": lambda x: tf.squeeze(tf.matmul(x, tf.ones((x.shape[-1], 1), x.dtype)), -1),
    "sum_sorted": lambda x: tf.reduce_sum(tf.sort(x, -1), -1),
    "std": lambda x, correction=1: tf.sqrt(var(x, correction)),
    "var": var,
    "var_moments": moments,
    "norm": lambda x: tf.norm(x, axis=-1),
    "norm_by_sqrt": lambda x: tf.sqrt(tf.reduce_sum(x * x, -1)),
    "l2_normal": lambda x, eps: x / (tf.sqrt(tf.reduce_sum(x * x, -1, keepdims=True)) + eps),
    "standard": standard,
    "standard_one_pass": standard_one_pass,
    "centred": lambda x, axis=-1: x - tf.reduce_mean(x, axis, keepdims=True),
    "unsqueeze": lambda x, axis: tf.expand_dims(x, axis),
    "swap": lambda x: tf.linalg.matrix_transpose(x),
    "flatten": lambda x: tf.reshape(x, (x.shape[0], -1)),
    "split_rows": lambda x, count: tf.reshape(x, (x.shape[0], count, -1)),
    "roll": lambda x, by, axis=-1: tf.roll(x, by, axis),
    "reverse": lambda x, axis=-1: tf.reverse(x, [axis]),
    "take": lambda x, number: x[:, number],
    "first": lambda x, count: x[..., :count],
    "last": lambda x, count: x[..., -count:],
    "tile": lambda x, count: tf.tile(x, [1] * (len(x.shape) - 1) + [count]),
    "repeat": lambda x, count: tf.repeat(x, count, -1),
    "double": lambda x: tf.concat([x, x], -1),
    "one_hot": lambda x, count: tf.one_hot(x, count, dtype=keras.config.floatx()),
    "to_float": lambda x: tf.cast(x, keras.config.floatx()),
    "to_int": lambda x: tf.cast(x, tf.int64),
    # transcendental
    "exp": tf.exp,
    "log": tf.math.log,
    "log1p": tf.math.log1p,
    "log_one_plus": lambda x: tf.math.log(1 + x),
    "expm1": tf.math.expm1,
    "sqrt": tf.sqrt,
    "rsqrt": tf.math.rsqrt,
    "one_over_sqrt": lambda x: 1 / tf.sqrt(x),
    "square": tf.square,
    "product": lambda x: x * x,
    "reciprocal": tf.math.reciprocal,
    "sin": tf.sin,
    "cos": tf.cos,
    "erf": tf.math.erf,
    "atan": tf.atan,
    # attention
    "gram": lambda x: tf.matmul(x, x, transpose_b=True) / math.sqrt(x.shape[-1]),
    "gram_einsum": lambda x: tf.einsum("bqd,bkd->bqk", x / math.sqrt(x.shape[-1]), x),
    "gram_unscaled": lambda x: tf.matmul(x, x, transpose_b=True),
    "causal": causal,
    "causal_added": lambda x, value: (
        x + floats(x, float(value)) * tf.cast(tf.range(x.shape[-1])[None] > tf.range(x.shape[-2])[:, None], x.dtype)
    ),
    "logistic": logistic,
    # images
    "max_pool": lambda x, k: tf.nn.max_pool2d(x, k, k, "VALID"),
    "avg_pool": lambda x, k: tf.nn.avg_pool2d(x, k, k, "VALID"),
    "avg_pool_same": lambda x, k: tf.nn.avg_pool2d(x, k, k, "SAME"),
    "mean_hw": lambda x: tf.reduce_mean(x, (1, 2)),
    "max_hw": lambda x: tf.reduce_max(x, (1, 2)),
    "pad": lambda x, by, value=0.0: _padded(x, by, value=value),
    "pad_reflect": lambda x, by: _padded(x, by, "REFLECT"),
    "pad_symmetric": lambda x, by: _padded(x, by, "SYMMETRIC"),
    "pad_replicate": pad_replicate,
    "nearest": _repeated,
    "transpose_hw": lambda x: tf.transpose(x, (0, 2, 1, 3)),
    "flip_w": lambda x: tf.reverse(x, [2]),
    "flip_h": lambda x: tf.reverse(x, [1]),
    "crop_top": lambda x, by: x[:, by:, by:],
    "crop_bottom": lambda x, by: x[:, :-by, :-by],
    "every_other": lambda x, start=0: x[:, start::2, start::2],
    "flatten_chw": lambda x: tf.reshape(tf.transpose(x, (0, 3, 1, 2)), (x.shape[0], -1)),
    "flatten_hwc": lambda x: tf.reshape(x, (x.shape[0], -1)),
}
COMBINED: dict[str, Callable[[list[Any]], Any]] = {
    "plus": lambda parts: sum(parts[1:], parts[0]),
    "minus": lambda parts: parts[0] - parts[1],
    "mul": lambda parts: math.prod(parts[1:], start=parts[0]),
    "over": lambda parts: parts[0] / parts[1],
    "concat": lambda parts: tf.concat(parts, -1),
    "matmul": lambda parts: tf.matmul(parts[0], parts[1]),
    "maximum": lambda parts: tf.maximum(parts[0], parts[1]),
    "minimum": lambda parts: tf.minimum(parts[0], parts[1]),
    "where": lambda parts: tf.where(parts[0] > 0, parts[1], parts[2]),
    "add_layer": lambda parts: ops.add(parts[0], parts[1]),
    "outputs": tuple,
}

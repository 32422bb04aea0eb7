"""Causes in multi-head attention: scale, packing of its weights, heads, masks, axes and dropout.

Shapes: T queries, S keys, N sequences, h heads, d features. Recorded tensors have the sequence axis first; in this file
the samples come first, because a single sample is enough to reject settings that are far off.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from einops import rearrange

from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import Formula, Settings, Trait, choices, choices_if, require, usually
from parity.diagnose.layers import dropout
from parity.diagnose.layers.activations import softmax
from parity.diagnose.layers.call import PRECISIONS, Call, constant, numbers, optional, parameter, unless_far

ARGUMENTS: Final = 3  # queries, keys and values
BY_KEY_DIM: Final = "1 / sqrt(key_dim)"
NO_MASK, CAUSAL, STRICT = "none", "causal", "causal, excluding itself"
# What is left, by the name of the mask, of the keys that each query may attend to: booleans of shape (T, S).
MASKS: Final[dict[str, Callable[[Array], Array]]] = {
    NO_MASK: lambda keys: keys,
    CAUSAL: np.tril,
    STRICT: lambda keys: np.tril(keys, -1),
    "causal, including the next": lambda keys: np.tril(keys, 1),
    "itself and later": np.triu,
}
BATCH_FIRST: Final = "batch first"
PER_HEAD: Final = "(heads, qkv, head_dim)"  # a block with queries, keys and values for each head in turn
WEIGHTS: Final = ("(out, in)", "input transposed", "output transposed", "input and output transposed")
ORDERS: Final = tuple(",".join(order) for order in itertools.permutations("qkv"))
STARTS: Final = tuple(2.0**power for power in range(-4, 5))  # multiples of the usual scale to start solving from
FIRST: Final = slice(0, 1)


def _check(call: Call) -> None:
    numbers(call, axes=3)
    queries, keys, values = (x.shape for x in call.inputs)
    require(min(*queries, *keys) > 0 and queries[1:] == keys[1:] and keys == values, "inputs of one size")
    d = queries[-1]
    require(parameter(call, "in_proj_weight", 2).shape == (3 * d, d), "in_proj_weight for inputs of one size")
    require(parameter(call, "out_proj.weight", 2).shape == (d, d), "out_proj.weight of the inputs' size")
    require("in_proj_bias" not in call.parameters or call.parameters["in_proj_bias"].shape == (3 * d,), "three biases")
    optional(call, "out_proj.bias", (1, 1, d))


def _predict(call: Call, **settings: Any) -> dict[str, Array]:
    y = unless_far(_attended, call, settings, _samples_first(call.output, settings))
    return {"output": _samples_first(y, settings)}


def with_rounded_heads(call: Call, settings: Settings, to: Callable[[Array], Array]) -> Array:
    """Return the module's output if the heads' outputs are rounded by `to` before the output projection."""
    return _samples_first(_attended(call, slice(None), settings, to), settings)


def _samples_first(x: Array, settings: Settings) -> Array:
    """Return x with the first two axes exchanged, unless the layout has the samples first already; its own inverse."""
    return x if settings["layout"] == BATCH_FIRST else x.swapaxes(0, 1)


def _attended(
    call: Call, samples: slice, settings: Settings, rounded: Callable[[Array], Array] = lambda heads: heads
) -> Array:
    """Return the module's output for some samples, samples first; the heads' outputs may be `rounded`."""
    heads = _heads(call, *_scored(call, samples, settings), samples, settings)
    return _projected(call, rounded(heads), settings)


def _scored(call: Call, samples: slice, settings: Settings) -> tuple[Array, Array]:
    """Return the scores, (N, h, T, S), not yet scaled, and the values, (N, h, S, d / h), for some samples."""
    inputs = (_samples_first(x, settings)[samples] for x in call.inputs)
    blocks = zip(inputs, *_packed(call, settings), strict=True)
    projected = (x @ weight.T + bias for x, weight, bias in blocks)
    split = f"n t {settings['order'].replace(',', '')} -> n heads t head_dim"
    queries, keys, values = (rearrange(x, split, heads=settings["heads"]) for x in projected)
    return queries @ keys.swapaxes(2, 3), values


def _packed(call: Call, settings: Settings) -> tuple[Array, Array]:
    """Return the weights and the biases of queries, keys and values."""
    weight = call.parameters["in_proj_weight"]
    bias = call.parameters.get("in_proj_bias", np.zeros(len(weight)))
    if settings["bias"] in ("left out", "only the output's"):
        bias = np.zeros_like(bias)
    weights, biases = _blocks(weight, settings), _blocks(bias, settings)
    return (weights.swapaxes(1, 2) if "input" in settings["weight"] else weights), biases


def _blocks(packed: Array, settings: Settings) -> Array:
    """Return the three blocks of in_proj, stacked in the order queries, keys, values."""
    if settings["packing"] == PER_HEAD:
        return rearrange(packed, "(heads qkv head_dim) ... -> qkv (heads head_dim) ...", heads=settings["heads"], qkv=3)
    names = settings["packing"].split(",")
    return packed.reshape(3, -1, *packed.shape[1:])[[names.index(name) for name in "qkv"]]


def _heads(call: Call, scores: Array, values: Array, samples: slice, settings: Settings) -> Array:
    """Return the outputs of all heads, joined, before the output projection."""
    weights = _weights(scores * _scale(call, settings), settings)
    count = _samples_first(call.inputs[0], settings).shape[0]
    kept = dropout.factors(call, (count, *weights.shape[1:]), settings)[samples]
    joined = f"n heads t head_dim -> n t {settings['order'].replace(',', '')}"
    return rearrange(weights * kept @ values, joined)


def _projected(call: Call, heads: Array, settings: Settings) -> Array:
    """Return the joined heads after the output projection."""
    if settings["out_proj"] == "left out":
        return heads
    weight = call.parameters["out_proj.weight"]
    heads = heads @ (weight if "output" in settings["weight"] else weight.T)
    added = settings["bias"] in ("added", "only the output's") and "out_proj.bias" in call.parameters
    return heads + call.parameters["out_proj.bias"] if added else heads


def _scale(call: Call, settings: Settings) -> float:
    """Return the factor on the scores."""
    d = call.inputs[0].shape[-1]
    if settings["scale"] != BY_KEY_DIM:
        return float(settings["scale"])
    usual = 1.0 / math.sqrt(d if settings["key_dim"] == "d" else d // settings["heads"])
    return constant(usual, settings["constants"])


def _weights(scores: Array, settings: Settings) -> Array:
    """Return the attention weights: the masked softmax of the scores."""
    visible = MASKS[settings["mask"]](np.ones(scores.shape[2:], np.bool_))
    weights = softmax(np.where(visible, scores, -np.inf), 3 if settings["softmax_axis"] == "keys" else 2)
    if settings["fully_masked_row"] == "NaN":
        return weights
    masked_row = 0.0 if settings["fully_masked_row"] == "zeros" else 1.0 / scores.shape[3]
    return np.where(visible.any(1, keepdims=True), weights, masked_row)


def _usual_mask(call: Call) -> str:
    """Return the mask of a module: the causal one in the self-attention of a causal decoder."""
    return CAUSAL if call.case.model.causal and "decoder" in call.name and call.name.endswith("self_attn") else NO_MASK


def _fully_masked(call: Call, settings: Settings) -> tuple[str, ...]:
    """Return what may be returned for a query that may attend to no key."""
    return ("NaN", "zeros", "mean") if settings["mask"] == STRICT else ("NaN",)


def _counts(call: Call, settings: Settings) -> list[int]:
    """Return the number of heads of the case's model and some others; any that divides d if the case does not say."""
    d, heads = call.inputs[0].shape[-1], call.case.model.heads
    likely = (heads, 2 * heads, heads // 2, 1) if heads else range(1, d + 1)
    return [count for count in likely if count and d % count == 0]


def _scales(call: Call, settings: Settings) -> Iterator[str | float]:
    """Yield the usual scale, and the one that reproduces the first sample."""
    yield BY_KEY_DIM
    recorded = call.seen["output"]
    first = call._replace(seen={"output": recorded._replace(value=_samples_first(recorded.value, settings)[FIRST])})
    scored = _scored(call, FIRST, settings)
    usual = _scale(call, {**settings, "scale": BY_KEY_DIM})

    def predict(_: Call, **trial: Any) -> dict[str, Array]:
        return {"output": _projected(call, _heads(call, *scored, FIRST, trial), trial)}

    yield from solve.constant(predict, first, settings, "scale", [usual * start for start in STARTS])


ATTENTION = Formula(
    _predict,
    (
        Trait("heads", "attention.num_heads", _counts),
        Trait("key_dim", "attention.key_dim", choices("d / heads", "d")),
        Trait("mask", "attention.mask", usually(_usual_mask, *MASKS)),
        Trait("fully_masked_row", "attention.fully_masked_row", _fully_masked),
        Trait("packing", "attention.packing", choices(*ORDERS, PER_HEAD)),
        Trait("order", "attention.heads", choices("(heads, head_dim)", "(head_dim, heads)")),
        Trait(
            "layout",
            "attention.batch_first",
            choices_if(lambda call: call.inputs[0].shape == call.inputs[1].shape, "sequence first", BATCH_FIRST),
        ),
        Trait("softmax_axis", "attention.softmax_axis", choices("keys", "queries")),
        Trait("weight", "attention.weight", choices(*WEIGHTS)),
        Trait("bias", "attention.bias", choices("added", "left out", "only the input's", "only the output's")),
        Trait("out_proj", "attention.out_proj", choices("applied", "left out")),
        Trait("constants", "constant.precision", choices(*PRECISIONS)),
        *dropout.traits(usually(lambda call: call.case.dropout, *dropout.RATES)),
        Trait("scale", "attention.scale", _scales),
    ),
    _check,
)

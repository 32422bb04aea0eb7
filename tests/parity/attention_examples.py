"""Attention and dropout that follow another convention than the usual one, each with the cause that is to be named."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import calls
import numpy as np
from calls import Array, Example, call, normal, with_output

from parity.core import random

BIASES = ("in_proj_bias", "out_proj.bias")


def attention() -> Iterator[Example]:
    x, d, length = normal(5, 3, 8), 8, 5
    inputs, parameters = (x, x, x), calls.attention_parameters(8)

    def made(other: Mapping[str, Array] = {}, **options: Any) -> Array:
        return calls.attention(inputs, parameters | other, **options)

    packed = {name: np.split(parameters[name], 3) for name in ("in_proj_weight", "in_proj_bias")}
    swapped = {name: np.concatenate([k, q, v]) for name, (q, k, v) in packed.items()}
    turned = {"in_proj_weight": np.concatenate([block.T for block in packed["in_proj_weight"]])}
    out, causal = parameters["out_proj.weight"], np.tril(np.ones((length, length)))
    base = call("attention", inputs, made(), parameters)
    for cause, mine, theirs, output in (
        ("attention.key_dim", "d / heads", "d", made(scale=1 / math.sqrt(d))),
        ("attention.scale", "1 / sqrt(key_dim)", 0.3, made(scale=0.3)),
        ("attention.num_heads", 2, 4, made(heads=4)),
        ("attention.packing", "q,k,v", "k,q,v", made(swapped)),
        ("attention.heads", "(heads, head_dim)", "(head_dim, heads)", made(_interleaved(parameters))),
        ("attention.mask", "none", "causal", made(mask=causal)),
        ("attention.mask", "none", "causal, excluding itself", made(mask=np.tril(causal, -1))),
        ("attention.mask", "none", "causal, including the next", made(mask=np.tri(length, k=1))),
        ("attention.mask", "none", "itself and later", made(mask=causal.T)),
        ("attention.softmax_axis", "keys", "queries", made(axis=0)),
        ("attention.bias", "added", "left out", made({name: 0 * parameters[name] for name in BIASES})),
        ("attention.bias", "added", "only the input's", made({"out_proj.bias": np.zeros(d)})),
        ("attention.weight", "(out, in)", "input transposed", made(turned)),
        ("attention.weight", "(out, in)", "output transposed", made({"out_proj.weight": out.T})),
        (
            "attention.out_proj",
            "applied",
            "left out",
            made({"out_proj.weight": np.eye(d), "out_proj.bias": np.zeros(d)}),
        ),
    ):
        yield Example(cause, base, with_output(base, output), mine, theirs)
    decoder = base._replace(name="transformer.decoder.layers.0.self_attn", case=calls.transformer(causal=True))
    yield Example(
        "attention.mask", with_output(decoder, made(mask=causal)), with_output(decoder, made()), "causal", "none"
    )
    strict = {"mask": np.tril(causal, -1)}
    blind = with_output(base, made(**strict))
    zeros, mean = with_output(base, made(**strict, blind=0.0)), with_output(base, made(**strict, blind=1 / length))
    yield Example("attention.fully_masked_row", zeros, blind, "zeros", "NaN")
    yield Example("attention.fully_masked_row", zeros, mean, "zeros", "mean")
    single = base._replace(case=calls.transformer(heads=1))
    rounded = float(np.float32(1 / math.sqrt(d)))
    one, other = with_output(single, made(heads=1)), with_output(single, made(heads=1, scale=rounded))
    yield Example("constant.precision", one, other, "float64", "float32")


def batch_first() -> Iterator[Example]:
    parameters, inputs = calls.attention_parameters(8), tuple(normal(4, 4, 8, seed=i) for i in range(3))
    base = call("attention", inputs, calls.attention(inputs, parameters), parameters)
    turned = tuple(each.swapaxes(0, 1) for each in inputs)
    other = with_output(base, calls.attention(turned, parameters).swapaxes(0, 1))
    yield Example("attention.batch_first", base, other, "sequence first", "batch first")


def _interleaved(parameters: Mapping[str, Array]) -> dict[str, Array]:
    """The weights with which two heads of four features come to what interleaved heads come to."""
    order = [2 * i + head for head in range(2) for i in range(4)]
    blocks = {name: np.split(parameters[name], 3) for name in ("in_proj_weight", "in_proj_bias")}
    packed = {name: np.concatenate([block[order] for block in each]) for name, each in blocks.items()}
    return packed | {"out_proj.weight": parameters["out_proj.weight"][:, order]}


def dropout() -> Iterator[Example]:
    x, case = normal(12, 20), calls.transformer(dropout=0.1)
    fields = {"name": "encoder.layers.0.dropout1", "case": case, "replica": 1, "step": 2, "number": 1}

    def kept(replica: int = 1, step: int = 2, rate: float = 0.1) -> Array:
        return random.keep(case.seed, fields["name"], replica, step, 1, x.shape, rate)

    base = call("dropout", x, x * kept() / 0.9, **fields)
    for cause, mine, theirs, output in (
        ("dropout.rate", 0.1, 0.2, x * kept(rate=0.2) / 0.8),
        ("dropout.rate", 0.1, 0.37, x * kept(rate=0.37) / 0.63),
        ("dropout.scale", "scaled by 1 / (1 - rate)", "not scaled", x * kept()),
        ("dropout.active", True, False, x),
        ("dropout.replicas", 1, 0, x * kept(replica=0) / 0.9),
        ("dropout.step", 2, 0, x * kept(step=0) / 0.9),
    ):
        yield Example(cause, base, with_output(base, output), mine, theirs)
    own = np.random.default_rng(1).random(x.shape) > 0.1
    digest = f"a mask of its own ({hashlib.blake2b(own.tobytes(), digest_size=4).hexdigest()})"
    yield Example("dropout.generator", base, with_output(base, x * own / 0.9), "the shared generator", digest)
    evaluated = call("dropout", x, x, **fields | {"training": False})
    yield Example("dropout.active", evaluated, with_output(evaluated, x * kept() / 0.9), False, True)


def dropped_attention() -> Iterator[Example]:
    x, parameters, case = normal(5, 3, 8), calls.attention_parameters(8), calls.transformer(dropout=0.1)
    inputs, fields = (x, x, x), {"name": "encoder.layers.0.self_attn", "case": case, "replica": 1, "step": 2}

    def made(replica: int = 1, step: int = 2, rate: float = 0.1, factor: float | None = None) -> Array:
        kept = random.keep(case.seed, "encoder.layers.0.self_attn", replica, step, 0, (3, 2, 5, 5), rate)
        return calls.attention(inputs, parameters, dropped=kept * (factor or 1 / (1 - rate)))

    base = call("attention", inputs, made(), parameters, **fields)
    for cause, mine, theirs, output in (
        ("dropout.active", True, False, made(rate=0.0)),
        ("dropout.rate", 0.1, 0.2, made(rate=0.2)),
        ("dropout.scale", "scaled by 1 / (1 - rate)", "not scaled", made(factor=1.0)),
        ("dropout.replicas", 1, 0, made(replica=0)),
        ("dropout.step", 2, 0, made(step=0)),
    ):
        yield Example(cause, base, with_output(base, output), mine, theirs)

"""Parameters that training starts from, samples and inputs by another convention, each with the cause to be named."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import observations
from calls import Example
from observations import Array, case, normal

from parity.config import schema
from parity.config.devices import distributed_sampler
from parity.data.batches import Dataset
from parity.diagnose.initial_parameters import InitialParameter
from parity.diagnose.samples import Samples

TRANSFORMER = case("transformer/single", model={"d_model": 8, "heads": 2})
PACKED = "transformer.encoder.layers.0.self_attn.in_proj_weight"


def of_start(value: Array, drawn: Array, name: str = "linear1.weight", kind: str = "linear") -> InitialParameter:
    return observations.start(TRANSFORMER, name, drawn, value, kind)


def of_starts() -> Iterator[Example]:
    drawn = "drawn"
    square, wide, kernel, packed = normal(6, 6), normal(4, 6), normal(4, 4, 3, 3), normal(24, 8)
    yield Example("linear.weight", of_start(square, square), of_start(square.T, square), drawn, "transposed")
    reshaped = wide.reshape(6, 4).T
    yield Example("linear.weight", of_start(wide, wide), of_start(reshaped, wide), drawn, "reshaped")
    convolution = {"drawn": kernel, "name": "conv1.weight", "kind": "conv2d"}
    flipped = of_start(kernel[:, :, ::-1, ::-1], **convolution)
    yield Example("conv2d.weight", of_start(kernel, **convolution), flipped, drawn, "flipped")
    up = {"drawn": kernel, "name": "up.weight", "kind": "conv_transpose2d"}
    exchanged = of_start(kernel.swapaxes(0, 1), **up)
    yield Example("conv_transpose", of_start(kernel, **up), exchanged, drawn, "inputs and outputs exchanged")
    attention = {"drawn": packed, "name": PACKED, "kind": "attention"}
    q, k, v = np.split(packed, 3)
    right = of_start(packed, **attention)
    yield Example("attention.packing", right, of_start(np.concatenate([k, q, v]), **attention), "qkv", "kqv")
    interleaved = [block.reshape(2, 4, 8).swapaxes(0, 1).reshape(8, 8) for block in (q, k, v)]
    heads = of_start(np.concatenate(interleaved), **attention)
    yield Example("attention.heads", right, heads, drawn, "interleaved")
    rounded = wide.astype(np.float16).astype(np.float64)
    yield Example("weight.precision", of_start(wide, wide), of_start(rounded, wide), "float64", "float16")
    yield Example("weight.scale", of_start(wide, wide), of_start(1.7 * wide, wide), 1.0, 1.7)
    bias = np.full(6, 0.5)
    zeros = of_start(np.zeros(6), bias, "linear1.bias")
    yield Example("initialisation", of_start(bias, bias, "linear1.bias"), zeros, drawn, "zeros")
    large = normal(30, 20)
    glorot = np.random.default_rng(1).uniform(-1, 1, (30, 20)) * math.sqrt(6 / 50)
    yield Example("initialisation", of_start(large, large), of_start(glorot, large), drawn, "glorot_uniform")


SEVERAL = case("two_linear/ddp", devices=3, data={"batch": 9}, steps=4)
SAMPLED = case("two_linear/all_reduce", devices=2, data={"batch": 10}, steps=6)
SIZE = 23  # samples


def dealt(own: schema.Case = SEVERAL) -> list[list[Array]]:
    """By step and replica, as the data set deals them out."""
    return [[np.concatenate([batch.indices for batch in part]) for part in step] for step in Dataset(own).steps()]


def sampled(
    change: Callable[[list[int]], list[int]] = lambda order: order, epochs: int = 3, steps: int = 6
) -> list[list[Array]]:
    """DistributedSampler's manual: filled up from the start, dealt out in turn, cut into batches of 5."""
    plan = []
    for epoch in range(3):
        order = change(distributed_sampler(SIZE, 1, SAMPLED.seed, epoch % epochs)[0])
        order = order + order[:1]
        plan += [[np.array(order[rank::2][i : i + 5]) for rank in range(2)] for i in (0, 5, 10)]
    return plan[:steps]


def of_plan(plan: list[list[Any]], own: schema.Case = SEVERAL) -> Samples:
    size = SIZE if own is SAMPLED else Dataset(own).size
    return observations.samples(own, size, plan)


def of_samples() -> Iterator[Example]:
    plan, epoch = dealt(), sampled()
    right, turned = of_plan(plan), of_plan(epoch, SAMPLED)
    neighbours = [[step[1], step[2], step[0]] for step in plan]
    yield Example("shard.rotated", right, of_plan(neighbours), (0, 1, 2), (1, 2, 0))
    twice = [[step[0], step[0], step[2]] for step in plan]
    yield Example("shard.rotated", right, of_plan(twice), (0, 1, 2), (0, 0, 2))
    in_turn = [[np.concatenate(step)[replica::3] for replica in range(3)] for step in plan]
    yield Example("sampler.order", right, of_plan(in_turn), "contiguous parts of each batch", "round robin")
    yield Example(
        "sampler.epoch",
        turned,
        of_plan(sampled(epochs=1), SAMPLED),
        "each epoch shuffled anew",
        "the same order in each epoch",
    )
    unshuffled = of_plan(sampled(sorted), SAMPLED)
    yield Example("sampler.shuffle", turned, unshuffled, "shuffled", "not shuffled")
    yield Example(
        "sampler.repeated", right, of_plan(plan[:1] * 4), "new samples in each step", "the first step's samples again"
    )
    later = dealt(case("two_linear/ddp", devices=3, data={"batch": 9}, steps=5))[1:]
    yield Example("sampler.offset", right, of_plan(later), 0, 1)
    one = case("two_linear/single", data={"batch": 9}, steps=3)
    fewer = of_plan([[step[0][:-1]] for step in dealt(one)], one)
    yield Example("sampler.drop_last", of_plan(dealt(one), one), fewer, "all", "all but the last sample")
    filled = [step for step in sampled(steps=9) if len(step[0]) == 5]
    yield Example("sampler.drop_last", turned, of_plan(filled, SAMPLED), "all", "whole batches only")
    mixed = [[np.roll(part, 1) for part in step] for step in plan]
    yield Example("sampler.arranged", right, of_plan(mixed), "as planned", "in another order")
    left_out = [[step[0][:1], step[1][:1]] if len(step[0]) == 2 else step for step in epoch]
    yield Example(
        "sampler.padding", turned, of_plan(left_out, SAMPLED), "first samples repeated", "last samples left out"
    )


def of_inputs() -> Iterator[Example]:
    same = "as on the other side"
    images, ids = normal(2, 3, 4, 4), np.random.default_rng(0).integers(1, 9, (5, 4))
    image, words = (observations.tensor(array, array) for array in (images, ids))
    turned = observations.tensor(images, images.swapaxes(2, 3))
    yield Example("input.layout", image, turned, same, "height and width exchanged")
    reversed_ = observations.tensor(images, images[:, ::-1])
    yield Example("input.layout", image, reversed_, same, "channels reversed")
    yield Example("input.scale", image, observations.tensor(images, images / 255), 1.0, 1 / 255)
    yield Example("input.ids", words, observations.tensor(ids, ids - 1), 0, -1)
    one_hot = observations.tensor(ids, np.eye(9)[ids])
    yield Example("input.one_hot", words, one_hot, "ids", "one-hot")
    half = observations.tensor(images, images.astype(np.float16).astype(np.float64))
    yield Example("input.precision", image, half, "float64", "float16")
    moved = observations.tensor(ids, np.concatenate([np.zeros((1, 4), int), ids[:-1]]))
    yield Example("input.shift", words, moved, same, "one later along axis 0")
    target = observations.tensor(ids, ids)
    rolled = observations.tensor(ids, np.roll(ids, -1, axis=0))
    yield Example("input.shift", target, rolled, same, "one earlier along axis 0, cyclic")

"""Causes in losses, gradients and optimizers, in what training starts from and in what it sees.

Each is named with both sides' values where one side follows another convention; else none is.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import observations
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observations import Array, adam, blurred, case, normal, sgd

from parity.config import schema, weights
from parity.config.shards import distributed_sampler
from parity.data.batches import Dataset
from parity.diagnose import explain, gradients, initial_parameters, inputs, losses, optimizers, reductions, samples
from parity.diagnose.explain import Change
from parity.diagnose.formula import NEEDED, Formula
from parity.diagnose.gradients import Gradient
from parity.diagnose.initialisers import InitialParameter
from parity.diagnose.inputs import Input
from parity.diagnose.losses import LossValue
from parity.diagnose.reductions import Reduction
from parity.diagnose.samples import Samples
from parity.diagnose.updates import Updates


class Example(NamedTuple):
    """Two observations that differ by one convention, what its cause is, and each side's value."""

    cause: str
    reference: Any
    candidate: Any
    mine: Any
    theirs: Any


def formula(observation: Any) -> Formula[Any]:
    match observation:
        case Updates():
            return optimizers.formula(observation.case)
        case LossValue():
            return losses.formula(observation.case)
    own = {
        Reduction: reductions,
        Gradient: gradients,
        InitialParameter: initial_parameters,
        Samples: samples,
        Input: inputs,
    }
    return own[type(observation)].FORMULA


def changes(reference: Any, candidate: Any) -> tuple[Change, ...]:
    """What the candidate does otherwise."""
    return explain.compare(formula(reference), reference, candidate).changes


# Optimizers.

SGD = case(optimizer={"kind": "sgd", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.01})
STEPPED = case(optimizer={"kind": "sgd", "learning_rate": 0.05, "momentum": 0.9}, schedule={"every": 2, "factor": 0.1})
ADAM = case(optimizer={"kind": "adam", "weight_decay": 0.01})
ADAMW = case(optimizer={"kind": "adamw"})


def stepped(every: int = 2, factor: float = 0.1, early: int = 0) -> Callable[[int], float]:
    return lambda t: 0.05 * factor ** ((t + early) // every)


def of_sgd(rate: float = 0.05, seed: int = 0, shape: tuple[int, ...] = (6, 5), **constants: Any) -> Updates:
    rule = sgd(rate, **{"momentum": 0.9, "decay": 0.01, **constants})
    return observations.updates(SGD, rule, rate, shape, seed=seed)


def of_schedule(rate: Callable[[int], float]) -> Updates:
    return observations.updates(STEPPED, sgd(rate, 0.9), rate)


def of_adam(rate: float = 0.001, size: float = 1e-2, **constants: Any) -> Updates:
    return observations.updates(ADAM, adam(rate, **{"decay": 0.01, **constants}), rate, size=size)


def of_adamw(**constants: Any) -> Updates:
    return observations.updates(ADAMW, adam(**{"decay": 0.01, "decoupled": True, **constants}), 0.001)


def velocity_with_rate(t: int, p: Array, g: Array, slots: dict[str, Array]) -> Array:
    """Keras's: v = momentum v - rate g; p = p + v."""
    slots["momentum_buffer"] = 0.9 * slots.get("momentum_buffer", np.zeros_like(p)) - stepped()(t) * g
    return p + slots["momentum_buffer"]


def decoupled_sgd(t: int, p: Array, g: Array, slots: dict[str, Array]) -> Array:
    return sgd(0.05, 0.9)(t, p * (1 - 0.05 * 0.01), g, slots)


def unmoved(t: int, p: Array, g: Array, slots: dict[str, Array]) -> Array:
    slots["momentum_buffer"] = np.zeros_like(p)
    return p


def upwards(t: int, p: Array, g: Array, slots: dict[str, Array]) -> Array:
    return sgd(0.05, 0.9, 0.01)(t, p, -g, slots)


def amsgrad(t: int, p: Array, g: Array, slots: dict[str, Array]) -> Array:
    adam(decay=0.01)(t, p, g, slots)
    largest = slots["max_exp_avg_sq"] = np.maximum(slots.get("max_exp_avg_sq", 0.0), slots["exp_avg_sq"])
    mean = slots["exp_avg"] / (1 - 0.9 ** (t + 1))
    return p - 0.001 * mean / (np.sqrt(largest / (1 - 0.999 ** (t + 1))) + 1e-8)


def epsilon_hat(m: Array, v: Array, correction1: float, correction2: float) -> Array:
    """Kingma and Ba, end of section 2; Keras's."""
    return math.sqrt(correction2) / correction1 * m / (np.sqrt(v) + 1e-8)


def uncorrected(m: Array, v: Array, correction1: float, correction2: float) -> Array:
    return m / (np.sqrt(v) + 1e-8)


def power_in_float32(beta: float, t: int) -> float:
    return float(np.power(np.float64(np.float32(beta)), t))


def of_optimizers() -> Iterator[Example]:
    fp32 = float(np.float32(0.05))
    plain, scheduled, usual, adamw = of_sgd(), of_schedule(stepped()), of_adam(), of_adamw()
    bias = {"shape": (12,)}
    yield Example("sgd.learning_rate", plain, of_sgd(0.01), 0.05, 0.01)
    yield Example("sgd.momentum", plain, of_sgd(momentum=0.8), 0.9, 0.8)
    yield Example("sgd.nesterov", plain, of_sgd(nesterov=True), False, True)
    yield Example("sgd.dampening", plain, of_sgd(dampening=0.25), 0.0, 0.25)
    velocity = observations.updates(STEPPED, velocity_with_rate, stepped())
    yield Example("sgd.momentum_form", scheduled, velocity, "rate outside", "rate inside, negative")
    yield Example("schedule.offset", scheduled, of_schedule(stepped(early=1)), 0, 1)
    yield Example("schedule.factor", scheduled, of_schedule(stepped(factor=0.5)), 0.1, 0.5)
    yield Example("schedule.every", scheduled, of_schedule(stepped(every=3)), 2, 3)
    yield Example("weight_decay.form", plain, observations.updates(SGD, decoupled_sgd, 0.05), "coupled", "decoupled")
    yield Example("weight_decay.value", plain, of_sgd(decay=0.004), 0.01, 0.004)
    yield Example("weight_decay.value", plain, of_sgd(decay=0.0), 0.01, 0.0)
    yield Example("weight_decay.excludes_bias", of_sgd(**bias), of_sgd(decay=0.0, **bias), "all", "matrices")
    yield Example("constant.precision", plain, of_sgd(fp32), "float64", "rate")
    yield Example(
        "update.frozen", plain, observations.updates(SGD, unmoved, 0.05), "no", "parameter and optimizer state"
    )
    yield Example("update.sign", plain, observations.updates(SGD, upwards, 0.05), 1, -1)
    yield Example("optimizer.kind", plain, observations.updates(SGD, adam(0.05, decay=0.01), 0.05), "sgd", "adam")
    yield Example("adam.learning_rate", usual, of_adam(0.0003), 0.001, 0.0003)
    yield Example("adam.beta1", usual, of_adam(beta1=0.95), 0.9, 0.95)
    yield Example("adam.beta2", usual, of_adam(beta2=0.99), 0.999, 0.99)
    yield Example("adam.epsilon", usual, of_adam(epsilon=1e-7), 1e-8, 1e-7)
    yield Example("adam.epsilon", of_adam(size=1e-7), of_adam(size=1e-7, epsilon=1e-3), 1e-8, 1e-3)
    after, before = "after the correction", "before the correction"
    yield Example("adam.epsilon_placement", usual, of_adam(direction=epsilon_hat), after, before)
    yield Example("adam.bias_correction", usual, of_adam(direction=uncorrected), "both", "none")
    yield Example("adam.amsgrad", usual, observations.updates(ADAM, amsgrad, 0.001), False, True)
    yield Example("adam.beta_precision", usual, of_adam(power=power_in_float32), "float64", "float32")
    yield Example("adam.step", usual, of_adam(power=lambda beta, t: beta ** (t + 1)), 1, 2)
    yield Example("adamw.weight_decay", adamw, of_adamw(decay=0.004), 0.01, 0.004)
    yield Example("weight_decay.form", adamw, of_adamw(decoupled=False), "decoupled", "coupled")


# Losses.

MSE = case("two_linear/single", loss={"kind": "mse"}, accumulate=2)
IN_PARTS = case("two_linear/ddp", loss={"kind": "mse"}, accumulate=2, devices=3)
CLASSES = case("two_linear/single", loss={"kind": "cross_entropy"})
OUTPUTS, TARGET = 3.0 * normal(12, 5), normal(12, 5, seed=1)
IDS = np.random.default_rng(0).integers(0, 5, 12)


def of_mse(*values: float, own: schema.Case = MSE, outputs: Array = OUTPUTS, target: Array = TARGET) -> LossValue:
    return observations.loss(own, outputs, target, *values)


def of_classes(value: float, outputs: Array = OUTPUTS, ids: Array = IDS) -> LossValue:
    return observations.loss(CLASSES, outputs, ids, value)


def softmax(logits: Array) -> Array:
    powers = np.exp(logits)
    return powers / powers.sum(-1, keepdims=True)


def chosen(values: Array, ids: Array = IDS) -> Array:
    return np.array([row[i] for row, i in zip(values, ids, strict=True)])


def entropy(probabilities: Array, ids: Array = IDS) -> float:
    return float(np.mean(-np.log(chosen(probabilities, ids))))


def of_losses() -> Iterator[Example]:
    apart = OUTPUTS - TARGET
    halves = np.split(apart, 2)
    means = [float(np.mean(half**2)) for half in halves]
    right = of_mse(*means)
    yield Example("loss.sum", right, of_mse(*(float(np.sum(half**2)) for half in halves)), "mean", "sum")
    features = of_mse(*(float(np.mean(np.sum(half**2, axis=1))) for half in halves))
    yield Example("mse.reduction", right, features, "all", "samples")
    yield Example(
        "loss.kind", right, of_mse(*(float(np.mean(np.abs(half))) for half in halves)), "squares", "magnitudes"
    )
    yield Example("accumulation.normalisation", right, of_mse(*(mean / 2 for mean in means)), 1.0, 0.5)
    several = of_mse(*means, own=IN_PARTS)
    yield Example("gradient.double_scaling", several, of_mse(*(mean / 3 for mean in means), own=IN_PARTS), 1.0, 1 / 3)
    yield Example("loss.scale", right, of_mse(*(mean / 6 for mean in means)), "1", "1 / size of axis 0")
    column = {"outputs": OUTPUTS[:, :1], "target": TARGET[:, :1]}
    square = np.mean([(a - b) ** 2 for a in OUTPUTS[:, 0] for b in TARGET[:, 0]])
    yield Example(
        "mse.broadcast", of_mse(np.mean(apart[:, 0] ** 2), **column), of_mse(float(square), **column), False, True
    )


def of_cross_entropies() -> Iterator[Example]:
    usual = softmax(OUTPUTS)
    right = of_classes(entropy(usual))
    clipped = np.clip(OUTPUTS, 1e-7, 1 - 1e-7)
    keras = of_classes(entropy(clipped / clipped.sum(-1, keepdims=True)))
    yield Example("cross_entropy.logits", right, keras, "logits", "probabilities")
    yield Example("cross_entropy.double_softmax", right, of_classes(entropy(softmax(usual))), 1, 2)
    yield Example("cross_entropy.double_softmax", of_classes(entropy(softmax(usual))), right, 2, 1)
    square = OUTPUTS[:5], IDS[:5]
    other = of_classes(entropy(softmax(square[0].T), square[1]), *square)
    yield Example("cross_entropy.class_axis", of_classes(entropy(usual[:5], square[1]), *square), other, -1, 0)
    some = -np.log(chosen(usual)) * (IDS > 0)
    others = "class 0, mean over the others"
    yield Example("cross_entropy.ignored", right, of_classes(some.sum() / (IDS > 0).sum()), "none", others)
    yield Example("cross_entropy.ignored", right, of_classes(some.mean()), "none", "class 0, mean over all")
    smooth = 0.9 * entropy(usual) - 0.1 * float(np.mean(np.log(usual)))
    yield Example("cross_entropy.label_smoothing", right, of_classes(smooth), 0.0, 0.1)
    yield Example("loss.logarithm", right, of_classes(entropy(usual) / math.log(2)), "e", "2")
    sure = 20.0 * OUTPUTS
    capped = of_classes(entropy(np.clip(softmax(sure), 1e-7, 1 - 1e-7)), sure)
    yield Example("probability.clipping", of_classes(entropy(softmax(sure)), sure), capped, "none", "1e-7")
    sequence = np.stack([OUTPUTS[:6], OUTPUTS[6:]]), np.stack([IDS[:6], IDS[6:]])
    summed = of_classes(6 * entropy(usual), *sequence)
    yield Example("cross_entropy.reduction", of_classes(entropy(usual), *sequence), summed, "all", "samples")


# Gradients.

PLAIN = case("two_linear/ddp", devices=3, data={"batch": 9})
UNEVEN = case("two_linear/ddp", devices=2, data={"batch": 9})
CLIPPED = case("two_linear/ddp", devices=3, clip_norm=0.5)
LOCAL = {"a": tuple(normal(4, 3, seed=i) for i in range(3)), "b": tuple(normal(5, seed=i) for i in range(3))}
WHOLE = {name: sum(parts) for name, parts in LOCAL.items()}


def norm(*arrays: Array) -> float:
    return math.sqrt(sum(float(x) ** 2 for array in arrays for x in array.flat))


def of_parts(gradient: Array, own: schema.Case = PLAIN) -> Reduction:
    return observations.reduction(own, LOCAL, (3, 3, 3), gradient)


def of_reductions() -> Iterator[Example]:
    right, first = of_parts(WHOLE["a"]), LOCAL["a"]
    yield Example("gradient.reduction", right, of_parts(3 * WHOLE["a"]), 1.0, 3.0)
    yield Example("gradient.double_scaling", right, of_parts(WHOLE["a"] / 3), 1.0, 1 / 3)
    yield Example("gradient.double_reduction", right, of_parts(9 * WHOLE["a"]), 1.0, 9.0)
    yield Example("gradient.unreduced", right, of_parts(3 * first[1]), "all", "mean of replica 1")
    yield Example("gradient.unreduced", right, of_parts(first[2]), "all", "share of replica 2")
    two = {"a": first[:2]}
    weighed = observations.reduction(UNEVEN, two, (5, 4), first[0] + first[1])
    equal = observations.reduction(UNEVEN, two, (5, 4), first[0] * 0.9 + first[1] * 1.125)
    yield Example("batch.uneven", weighed, equal, "by number of samples", "equally")
    total = norm(*WHOLE.values())
    clipped = of_parts(WHOLE["a"] * (0.5 / (total + 1e-6)), CLIPPED)
    own = of_parts(WHOLE["a"] * (0.5 / (norm(WHOLE["a"]) + 1e-6)), CLIPPED)
    yield Example("clip.scope", clipped, own, "all parameters", "each parameter")
    yield Example("clip.scope", clipped, of_parts(WHOLE["a"], CLIPPED), "all parameters", "none")
    yield Example("clip.epsilon", clipped, of_parts(WHOLE["a"] * (0.5 / total), CLIPPED), 1e-6, 0.0)
    yield Example("clip.value", clipped, of_parts(np.clip(WHOLE["a"], -0.5, 0.5), CLIPPED), False, True)
    yield Example("clip.norm", clipped, of_parts(WHOLE["a"] * (0.75 / (total + 1e-6)), CLIPPED), 0.5, 0.75)
    each = [0.5 / (norm(*(parts[i] for parts in LOCAL.values())) + 1e-6) for i in range(3)]
    before = of_parts(sum(part * scale for part, scale in zip(first, each, strict=True)), CLIPPED)
    yield Example("clip.before_reduction", clipped, before, "after the reduction", "before the reduction")


STAGED = case("two_linear/send_recv")
PASSES = case("two_linear/single", accumulate=5)


def of_gradient(factor: float | Array = 1.0, own: schema.Case = PASSES, name: str = "linear1.weight") -> Gradient:
    return observations.gradient(own, WHOLE["a"], WHOLE["a"] * factor, name)


def of_gradients() -> Iterator[Example]:
    same, flows = "as on the other side", "flows"
    row = np.array([1.0, 1.0, 0.0, 1.0])[:, None]
    embedding, local = {"name": "embedding.weight"}, {"own": UNEVEN, "name": "linear1.weight@local"}
    yield Example("gradient.stopped", of_gradient(), of_gradient(0.0), same, "stopped")
    missing = observations.gradient(PASSES, np.zeros((4, 3)), WHOLE["a"])
    yield Example("gradient.stopped", observations.gradient(PASSES, *[np.zeros((4, 3))] * 2), missing, same, flows)
    yield Example("send_recv.gradient", of_gradient(own=STAGED), of_gradient(0.0, STAGED), same, "stopped")
    yield Example("embedding.padding_idx", of_gradient(**embedding), of_gradient(row, **embedding), same, "2 stopped")
    trained = observations.gradient(PASSES, WHOLE["a"] * row, WHOLE["a"], **embedding)
    untrained = observations.gradient(PASSES, WHOLE["a"] * row, WHOLE["a"] * row, **embedding)
    yield Example("embedding.padding_idx", untrained, trained, same, "2 flows")
    yield Example("gradient.sign", of_gradient(), of_gradient(-1.0), 1.0, -1.0)
    own, before = WHOLE["a"], np.roll(WHOLE["a"], 1)
    for made, told in (
        (own + before, "added to that of the step before"),
        (own - before, "without that of the step before"),
    ):
        both = (observations.gradient(PASSES, own, value, before=before) for value in (own, made))
        yield Example("gradient.kept", *both, same, told)
    yield Example("accumulation.normalisation", of_gradient(), of_gradient(5.0), 1.0, 5.0)
    yield Example("accumulation.normalisation", of_gradient(), of_gradient(0.2), 1.0, 0.2)
    yield Example("gradient.reduction", of_gradient(own=PLAIN), of_gradient(3.0, PLAIN), 1.0, 3.0)
    yield Example("gradient.double_scaling", of_gradient(own=PLAIN), of_gradient(1 / 3, PLAIN), 1.0, 1 / 3)
    yield Example("gradient.double_reduction", of_gradient(own=UNEVEN), of_gradient(4.0, UNEVEN), 1.0, 4.0)
    yield Example("batch.uneven", of_gradient(**local), of_gradient(1.125, **local), 1.0, 1.125)
    yield Example("loss.sum", of_gradient(), of_gradient(32.0), 1.0, 32.0)
    yield Example("gradient.scale", of_gradient(), of_gradient(0.37), 1.0, 0.37)
    square = normal(4, 4)
    turned = observations.gradient(PASSES, square, square.T)
    yield Example("gradient.transposed", observations.gradient(PASSES, square, square), turned, False, True)


# What training starts from.

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


# What training sees.

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
    target = observations.tensor(ids, ids, "target")
    rolled = observations.tensor(ids, np.roll(ids, -1, axis=0), "target")
    yield Example("input.shift", target, rolled, same, "one earlier along axis 0, cyclic")


ALL = [
    *(("optimizer", each) for each in of_optimizers()),
    *(("loss", each) for each in itertools.chain(of_losses(), of_cross_entropies())),
    *(("gradient", each) for each in itertools.chain(of_reductions(), of_gradients())),
    *(("start", each) for each in of_starts()),
    *(("seen", each) for each in itertools.chain(of_samples(), of_inputs())),
]
EXAMPLES = [pytest.param(each, id=f"{kind}-{each.cause}-{each.theirs}") for kind, each in ALL]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_cause_is_named_with_both_values(example: Example):
    (change,) = changes(example.reference, example.candidate)
    assert (change.cause, change.reference, change.candidate) == (
        example.cause,
        example.mine,
        pytest.approx(example.theirs, rel=1e-9) if isinstance(example.theirs, float) else example.theirs,
    )
    assert change.bits >= NEEDED > change.before


def can_be_blurred(example: Example) -> bool:
    """Whole numbers have no noise; and where it is not known what should have been, the evidence is not in digits."""
    return np.issubdtype(_value(example.reference).dtype, np.floating) and example.theirs not in (
        "flows",
        "glorot_uniform",
    )


def _value(observation: Any) -> Array:
    return next(iter(observation.seen.values())).value


# What nothing explains takes an optimizer half a second.
SOME = [each for i, (kind, each) in enumerate(ALL) if kind != "optimizer" or i % 8 == 0]
BLURRED = [each for each in SOME if can_be_blurred(each)]


@pytest.mark.parametrize("example", BLURRED, ids=lambda example: f"{example.cause}-{example.theirs}")
def test_nothing_is_named_below_20_bits(example: Example):
    assert not changes(example.reference, blurred(example.candidate, example.reference))


def test_every_cause_has_an_example():
    formulas = (
        *optimizers.FORMULAS.values(),
        *losses.FORMULAS.values(),
        reductions.FORMULA,
        gradients.FORMULA,
        initial_parameters.FORMULA,
        samples.FORMULA,
        inputs.FORMULA,
    )
    causes = {trait.cause for formula in formulas for trait in formula.traits}
    assert causes - {example.cause for _, example in ALL} == set()


def test_too_few_values_tell_no_constant():
    """A bias of one element: two updates and two velocities would fit many momentums."""
    reference, candidate = of_sgd(shape=(1,), decay=0.0), of_sgd(shape=(1,), decay=0.0, momentum=0.8)
    assert not changes(reference, candidate)


def test_two_constants_at_once():
    found = changes(of_adam(), of_adam(0.0003, epsilon=1e-7))
    assert [(each.cause, each.candidate) for each in found] == [
        ("adam.learning_rate", pytest.approx(0.0003)),
        ("adam.epsilon", pytest.approx(1e-7)),
    ]


rates, parts = st.floats(1e-4, 0.1), st.floats(0.0, 0.99)


@given(
    rate=rates, momentum=parts, decay=st.sampled_from([0.0, 0.01, 0.3]), nesterov=st.booleans(), seed=st.integers(0, 99)
)
@settings(max_examples=30, deadline=None)
def test_sgd_alike_has_no_cause(rate: float, momentum: float, decay: float, nesterov: bool, seed: int):
    constants = {"momentum": momentum, "nesterov": nesterov and momentum > 0, "weight_decay": decay}
    own = case(optimizer={"kind": "sgd", "learning_rate": rate, **constants})
    rule = sgd(rate, momentum, decay, constants["nesterov"])
    both = (observations.updates(own, rule, rate, seed=seed + i, size=2.0 ** (seed % 20 - 10)) for i in range(2))
    assert explain.compare(optimizers.formula(own), *both).same


@given(
    rate=rates,
    betas=st.tuples(parts, parts),
    decay=st.sampled_from([0.0, 0.1]),
    adamw=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
def test_adam_alike_has_no_cause(rate: float, betas: tuple[float, float], decay: float, adamw: bool, seed: int):
    beta1, beta2 = betas
    constants = {"beta1": beta1, "beta2": beta2, "weight_decay": decay, "learning_rate": rate}
    own = case(optimizer={"kind": "adamw" if adamw else "adam", **constants})
    rule = adam(rate, beta1, beta2, decay=decay, decoupled=adamw)
    both = (observations.updates(own, rule, rate, seed=seed + i, size=2.0 ** (seed % 20 - 10)) for i in range(2))
    assert explain.compare(optimizers.formula(own), *both).same


@given(st.integers(1, 20), st.integers(2, 6), st.sampled_from(["mean", "sum"]), st.floats(1e-3, 1e3))
@settings(max_examples=30, deadline=None)
def test_losses_alike_have_no_cause(batch: int, size: int, reduction: str, scale: float):
    reduce = {"mean": np.mean, "sum": np.sum}[reduction]
    outputs, target = scale * normal(2, batch, size), normal(batch, size)
    ids = np.arange(batch) % size
    for kind in ("mse", "cross_entropy"):
        own = case("two_linear/single", loss={"kind": kind, "reduction": reduction})
        both = []
        for each in outputs:
            logs = each - each.max(-1, keepdims=True)
            logs = logs - np.log(np.exp(logs).sum(-1, keepdims=True))
            value = reduce((each - target) ** 2) if kind == "mse" else reduce(-chosen(logs, ids))
            both.append(observations.loss(own, each, target if kind == "mse" else ids, float(value)))
        assert explain.compare(losses.formula(own), *both).same


@given(st.integers(1, 4), st.sampled_from([None, 1e-3, 0.5, 100.0]), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_reductions_alike_have_no_cause(replicas: int, limit: float | None, seed: int):
    own = case("two_linear/ddp", devices=max(replicas, 2), clip_norm=limit)
    both = []
    for number in (seed, seed + 100):
        local = {name: tuple(normal(4, 3, seed=number + i) for i in range(replicas)) for name in "ab"}
        whole = {name: sum(parts) for name, parts in local.items()}
        scale = min(1.0, limit / (norm(*whole.values()) + 1e-6)) if limit else 1.0
        both.append(observations.reduction(own, local, (4,) * replicas, whole["a"] * scale))
    assert explain.compare(reductions.FORMULA, *both).same


@pytest.mark.parametrize("name", ["simple_block/single", "residual_block/single"])
def test_parameters_as_drawn_have_no_cause(name: str):
    for parameter, drawn in weights.initial(case(name)).items():
        both = [observations.start(case(name), parameter, drawn, drawn)] * 2
        assert explain.compare(initial_parameters.FORMULA, *both).same


@given(st.integers(0, 99), st.sampled_from(["single", "ddp", "data_parallel", "hybrid"]), st.integers(5, 300))
@settings(max_examples=30, deadline=None)
def test_samples_as_dealt_have_no_cause(seed: int, strategy: str, batch: int):
    own = case(f"two_linear/{strategy}", devices=4, seed=seed, data={"batch": batch}, steps=4)
    both = [of_plan(dealt(own), own)] * 2
    assert explain.compare(samples.FORMULA, *both).same


def test_what_was_drawn_and_noise_added_to_it_is_no_initialisation():
    bound = 10**-0.5  # kaiming_uniform's for ten inputs
    drawn = np.random.default_rng(0).uniform(-bound, bound, (20, 10))
    noisy = np.clip(drawn + 1e-3 * normal(20, 10), -bound, bound)
    assert not explain.compare(initial_parameters.FORMULA, of_start(drawn, drawn), of_start(noisy, drawn)).changes

"""Losses and gradients by another convention than the usual one, each with the cause that is to be named."""

import math
from collections.abc import Iterator

import numpy as np
import observations
from calls import Example
from observations import Array, case, normal

from parity.config import schema
from parity.diagnose.losses import LossValue
from parity.diagnose.reductions import Reduction
from parity.diagnose.topic import Compared

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


def of_gradient(factor: float | Array = 1.0, own: schema.Case = PASSES, name: str = "linear1.weight") -> Compared:
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

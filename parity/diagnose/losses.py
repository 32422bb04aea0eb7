"""Causes in the loss: what is averaged, what the outputs mean (logits, probabilities), how log(0) is avoided.

A loss is one number for each micro-batch, too few to solve for a constant: only what libraries and programs are known
to do is tried.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from parity.config import schema
from parity.core.arrays import Array
from parity.diagnose import entries
from parity.diagnose.explain import compare
from parity.diagnose.formula import Formula, Seen, Settings, Trait, choices, choices_if, require, seen, usually
from parity.diagnose.layers.activations import log_softmax
from parity.diagnose.reductions import times
from parity.diagnose.topic import Question, Side, Sides, joined, numbered
from parity.results import Cause
from parity.trace.keys import MODEL
from parity.trace.manifest import Trace

SIDES: Final = ("torch", "keras")
SMALL: Final = 1e-7  # keras.config.epsilon()
TERMS: Final[dict[str, Callable[[Array], Array]]] = {
    "squares": np.square,
    "half the squares": lambda differences: np.square(differences) / 2,
    "magnitudes": np.abs,
}
SMOOTHINGS: Final = (0.0, 0.1, 0.05)
FURTHER: Final = (*SMOOTHINGS, 0.2, 0.15, 0.01, 0.02, 0.3)  # where no experiment tells more
ALL, OTHERS = "all classes", "the other classes"  # that share the probability taken away from a target's class
IGNORED: Final = ("none", "class 0, mean over the others", "class 0, mean over all")  # of the targets
# A loss is summed or averaged over the micro-batches, and should not be, or the reverse.
PASSES: Final = times(lambda case: 1 / case.accumulate, lambda case: case.accumulate)
BASES: Final = {"e": 1.0, "2": math.log(2.0), "10": math.log(10.0)}


def _log(probabilities: Array) -> Array:
    """Return the logarithms of probabilities, kept from 0 and 1 as Keras does."""
    return np.asarray(np.log(np.clip(probabilities, SMALL, 1 - SMALL)))


# The logarithms of the class probabilities, by what the outputs mean; of probabilities, by Keras's formulas.
MEANINGS: Final[dict[str, Callable[[Array], Array]]] = {
    "logits": lambda outputs: log_softmax(outputs, -1),
    "probabilities": lambda outputs: log_softmax(_log(outputs), -1),  # sparse_categorical_crossentropy
    "probabilities, normalised first": lambda outputs: _log(outputs / outputs.sum(-1, keepdims=True)),
    "logarithms": lambda outputs: outputs,
}
# Rules that keep the logarithms of probabilities from minus infinity.
FLOORS: Final[dict[str, Callable[[Array], Array]]] = {
    "none": lambda logs: logs,
    "1e-7": lambda logs: _log(np.exp(logs)),
    "1e-7, then normalised": lambda logs: log_softmax(_log(np.exp(logs)), -1),
    "log e^-100": lambda logs: np.maximum(logs, -100.0),  # torch.nn.functional.binary_cross_entropy
}


class LossValue(NamedTuple):
    """The losses of one step."""

    outputs: tuple[Array, ...]  # the model's outputs for each micro-batch
    targets: tuple[Array, ...]  # the targets of each micro-batch
    case: schema.Case
    seen: Mapping[str, Seen]  # `loss`, one value for each micro-batch


def questions(sides: Sides) -> Iterator[Question]:
    """Ask about the first loss that differs."""
    for tensor in sides.of("loss")[:1]:
        both = [observe(side, tensor.step or 0, tensor.replica) for side in sides.both]
        yield Question("loss", "loss", FORMULAS[sides.reference.case.loss.kind], both)


def causes_of_classes(reference: Trace, candidate: Trace, step: int) -> list[Cause]:
    """Return in what a step's losses of users' own differ if both are cross-entropies of classes, else none."""
    both = [observe(Side(name, trace), step, 0) for name, trace in zip(SIDES, (reference, candidate), strict=True)]
    question = Question("loss", "loss", _of_classes(FURTHER, OTHERS), both)
    targets = [target for observed in both if observed for target in observed.targets]
    if None in both or any(target.dtype.kind not in "iu" for target in targets):
        return []
    answer = compare(question.formula, *question.both)
    return [entries.cause(question, change, SIDES) for change in answer.changes]


def observe(side: Side, step: int, replica: int) -> LossValue | None:
    """Return the loss of a step; None where the model's outputs or the targets were not recorded."""
    tensors, low = side.tensors(step, replica), side.tensors(step, replica, "low")
    names = ("activation", MODEL), ("input", "target"), ("loss", "loss")
    outputs, targets, losses = (numbered(tensors, kind, name) for kind, name in names)
    if not losses or len({len(outputs), len(targets), len(losses)}) > 1:
        return None
    value = seen(joined(losses), joined(numbered(low, "loss", "loss")))
    return LossValue(tuple(outputs), tuple(targets), side.case, {"loss": value})


def _check(loss: LossValue) -> None:
    for outputs in loss.outputs:
        require(outputs.dtype.kind != "b" and outputs.ndim > 0 and outputs.size > 0, "outputs that are numbers")
        require(outputs.ndim == loss.outputs[0].ndim, "outputs with the same axes in every micro-batch")


def _mse(loss: LossValue, terms: str, broadcast: bool, **reduction: Any) -> dict[str, Array]:
    """Return the mean squared error of each micro-batch, or a variant of it."""
    values = []
    for outputs, target in zip(loss.outputs, loss.targets, strict=True):
        if broadcast:
            differences = outputs.reshape(-1, 1) - target.reshape(1, -1)
        else:
            require(outputs.size == target.size, "a target for each output")
            differences = outputs - target.reshape(outputs.shape)
        values.append(_reduced(loss, TERMS[terms](differences), np.ones(differences.shape), **reduction))
    return {"loss": np.asarray(values)}


def _cross_entropy(
    loss: LossValue,
    taken_for: str,
    softmaxes: int,
    axis: int,
    ignored: str,
    smoothing: float,
    shared: str,
    floor: str,
    base: str,
    **reduction: Any,
) -> dict[str, Array]:
    """Return the cross-entropy of each micro-batch, or a variant of it."""
    values = []
    for outputs, target in zip(loss.outputs, loss.targets, strict=True):
        logits = np.moveaxis(outputs, axis, -1)
        for _ in range(softmaxes - 1):
            logits = np.exp(log_softmax(logits, -1))
        logs = FLOORS[floor](MEANINGS[taken_for](logits)) / BASES[base]
        ids, classes = target.astype(np.int64), logs.shape[-1]
        require(logs.shape[:-1] == target.shape, "a class for each output")
        require(bool((ids >= -classes).all() and (ids < classes).all()), f"{classes} classes")
        chosen = np.take_along_axis(logs, ids[..., None], -1)[..., 0]
        rest = logs.mean(-1) if shared == ALL else (logs.sum(-1) - chosen) / max(classes - 1, 1)
        terms = -(1 - smoothing) * chosen - smoothing * rest
        valid = (target != 0) if ignored != "none" else np.ones(target.shape, bool)
        counted = valid if ignored == "class 0, mean over the others" else np.ones(target.shape)
        values.append(_reduced(loss, terms * valid, counted, **reduction))
    return {"loss": np.asarray(values)}


def _reduced(
    loss: LossValue, terms: Array, counted: Array, reduction: str, over: str, scaled: float, passes: float, factor: str
) -> float:
    """Return the terms of a loss, of which a mean counts those whose `counted` is 1, reduced to one number.

    `reduction`: "mean" or "sum". `over`: what is averaged ("all", "samples" or "features"); the other axes are summed.
    `scaled`, `passes`: additional factors, as 1 / replicas, or for micro-batches. `factor`: a name in `_factors`.
    """
    sample_axis = loss.case.model.batch_axis if terms.ndim > 1 else 0
    require(terms.ndim > sample_axis and terms.size > 0, "samples")
    total, count, samples = float(terms.sum()), float(counted.sum()), terms.shape[sample_axis]
    if over == "samples":
        value = total / samples
    elif over == "all" and reduction == "sum":
        value = total
    else:
        require(count > 0, "an element that counts")
        value = total * samples / count if over == "features" else total / count
    return float(value * scaled * passes * _factors(loss)[factor])


def _factors(loss: LossValue) -> dict[str, float]:
    """Return the numbers by which programs multiply or divide a loss, by name."""
    shape, numbers = loss.outputs[0].shape, {"replicas": loss.case.replicas, "micro-batches": loss.case.accumulate}
    numbers |= {f"size of axis {axis}": size for axis, size in enumerate(shape)}
    factors = {"1": 1.0}
    for name, number in numbers.items():
        factors |= {f"1 / {name}": 1 / number, name: float(number)}
    return factors


def _axes(loss: LossValue, settings: Settings) -> Iterator[int]:
    """Yield the axes on which the classes may be, judging by the shapes."""
    outputs, target = loss.outputs[0], loss.targets[0]
    yield -1
    for axis in range(outputs.ndim - 1):
        if np.delete(outputs.shape, axis).tolist() == list(target.shape):
            yield axis


def _reduction_traits(over: str) -> tuple[Trait[LossValue], ...]:
    return (
        Trait("reduction", "loss.sum", usually(lambda loss: loss.case.loss.reduction, "mean", "sum")),
        Trait("over", over, choices("all", "samples", "features")),
        Trait("scaled", "gradient.double_scaling", times(lambda case: 1 / case.replicas)),
        Trait("passes", "accumulation.normalisation", PASSES),
        Trait("factor", "loss.scale", lambda loss, settings: _factors(loss)),
    )


def _of_classes(smoothings: Sequence[float], *shares: str) -> Formula[LossValue]:
    """Return the formula of a cross-entropy, with the label smoothings that are tried, and by whom they are shared."""
    return Formula(
        _cross_entropy,
        (
            *_reduction_traits("cross_entropy.reduction"),
            Trait("softmaxes", "cross_entropy.double_softmax", choices(1, 2)),
            Trait("taken_for", "cross_entropy.logits", choices(*MEANINGS)),
            Trait("axis", "cross_entropy.class_axis", _axes),
            Trait("ignored", "cross_entropy.ignored", choices(*IGNORED)),
            Trait("smoothing", "cross_entropy.label_smoothing", choices(*smoothings)),
            Trait("shared", "cross_entropy.label_smoothing", choices(ALL, *shares)),
            Trait("floor", "probability.clipping", choices(*FLOORS)),
            Trait("base", "loss.logarithm", choices(*BASES)),
        ),
        _check,
    )


FORMULAS: Final[dict[str, Formula[LossValue]]] = {
    "mse": Formula(
        _mse,
        (
            *_reduction_traits("mse.reduction"),
            Trait(
                "broadcast",
                "mse.broadcast",
                choices_if(lambda loss: loss.outputs[0].shape[1:][-1:] == (1,), False, True),
            ),
            Trait("terms", "loss.kind", choices(*TERMS)),
        ),
        _check,
    ),
    "cross_entropy": _of_classes(SMOOTHINGS),
}

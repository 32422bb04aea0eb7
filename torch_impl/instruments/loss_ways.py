"""Other ways in which the losses of nn.functional average, weigh classes, and grow for large differences."""

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from parity.diagnose.experiment import operations as ways
from parity.diagnose.experiment.operations import Operation
from torch_impl.instruments.windows import Function, Given

SMOOTH, HUBER = "smooth_l1_loss", "huber_loss"
LOSSES = ("cross_entropy", "nll_loss", "binary_cross_entropy_with_logits", SMOOTH, HUBER)
OVER_ALL = "over all"


def of_loss(name: str, number: int, args: tuple, kwargs: Given) -> Iterator[Operation]:
    """Yield a call of a loss that leaves elements out of its average, or weighs classes, with the other ways."""
    given = _given(name, args, kwargs)
    if name in (SMOOTH, HUBER):  # the one is the other divided by where it begins to be linear
        form, factor = (HUBER, given["beta"]) if name == SMOOTH else (SMOOTH, 1 / given["delta"])
        scaled = {form: lambda function, args, kwargs: factor * function(*args, **kwargs)}
        if factor != 1:
            yield Operation(name, number, "form", SMOOTH, name, scaled)
    weight, ignored, of_class = (given.get(each) for each in ("weight", "ignore_index", "pos_weight"))
    is_mean = given["reduction"] == "mean" and not given["target"].is_floating_point()
    leaves_out = ignored is not None and bool((given["target"] == ignored).any())
    if is_mean and (weight is not None or leaves_out):
        present = "over the weights" if weight is not None else "over those that are not ignored"
        yield Operation(name, number, ways.NORMALISATION, "loss", present, {OVER_ALL: _over_all})
    if leaves_out:
        others = {"none": partial(_with, {"ignore_index": -100})}
        yield Operation(name, number, "ignored", "cross_entropy", str(ignored), others)
    if weight is not None and weight.ndim == 1:
        others = {
            ways.LEFT_OUT: partial(_with, {"weight": None}),
            "in reverse": partial(_with, {"weight": weight.flip(0)}),
        }
        yield Operation(name, number, "class_weight", "loss", "as given", others)
    if of_class is not None:
        others = {ways.LEFT_OUT: partial(_with, {"pos_weight": None}), "of class 0": _of_other_class}
        yield Operation(name, number, "class_weight", "loss", "of class 1", others)


def _given(name: str, args: tuple, kwargs: Given) -> Given:
    """Return all arguments of a loss by name, those that are not given included."""
    bound = inspect.signature(getattr(functional, name)).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _with(changes: Given, function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    return function(**_given(function.__name__, args, kwargs) | changes)


def _over_all(function: Function, args: tuple, kwargs: Given) -> torch.Tensor:
    each = _with({"reduction": "none"}, function, args, kwargs)
    return each.sum() / each.numel()


def _of_other_class(function: Function, args: tuple, kwargs: Given) -> Any:
    """Return the loss with the weight of one class at the other: that of 1 - x and 1 - y is the same with both."""
    given = _given(function.__name__, args, kwargs)
    return function(**given | {"input": -given["input"], "target": 1 - given["target"]})

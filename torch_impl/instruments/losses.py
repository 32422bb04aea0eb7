"""Calls of loss functions, with the shapes, dtypes, values and origins of what goes in.

From these the doctor tells what is wrong, such as a softmax before a loss that expects logits.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch.utils.weak import WeakIdKeyDictionary

from parity.doctor import order, rewrite
from parity.doctor.evidence import Code, LossCall, Step
from torch_impl.instruments import source, values
from torch_impl.instruments.build import in_place
from torch_impl.instruments.calls import Calls
from torch_impl.instruments.origins import SAME, Origins, tensors
from torch_impl.record.calls import running

Takes = Literal["", "logits", "probabilities", "log_probabilities"]

LOSSES = {
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "cross_entropy", "nll_loss", "kl_div"),
    *("binary_cross_entropy", "binary_cross_entropy_with_logits", "poisson_nll_loss", "soft_margin_loss"),
}
TAKES: dict[str, Takes] = {
    "cross_entropy": "logits",
    "binary_cross_entropy_with_logits": "logits",
    "nll_loss": "log_probabilities",
}
ACTIVATIONS = {"SoftmaxBackward": "softmax", "LogSoftmaxBackward": "log_softmax", "SigmoidBackward": "sigmoid"}
INVERSE = {"softmax": "log()", "sigmoid": "logit()"}  # what turns an activation's output into logits again
STRAIGHT = ("ViewBackward", "UnsafeViewBackward", "ReshapeAliasBackward", "AliasBackward", "CloneBackward")
STRAIGHT += ("ToCopyBackward",)
RESHAPES = (*STRAIGHT, "UnsqueezeBackward", "SqueezeBackward")
ADDED = (*RESHAPES, "AddBackward")  # a linear layer's bias may be added after the product
KEPT = (*RESHAPES, "TransposeBackward", "PermuteBackward", "ClampBackward", "SelectBackward", "SliceBackward")
LINEAR = ("AddmmBackward", "MmBackward", "LinearBackward", "BmmBackward", "BaddbmmBackward")
PICKS = ("__getitem__", "index_select")
MARK = "doctor activation"  # metadata key of an autograd node: where its activation is written, the line without it


class Losses:
    """Records the losses of a step, which has these inputs."""

    def __init__(self, step: Step, inputs: dict[str, torch.Tensor], calls: Calls, origins: Origins):
        self.step, self.calls, self.origins = step, calls, origins
        self._samples = order.Samples(inputs, _rows, "torch.randperm(len(x))")
        self._picked: WeakIdKeyDictionary = WeakIdKeyDictionary()  # where rows were put into another order

    def fed(self, module: str, given: Any) -> None:
        """Note what a module is called with."""
        self._samples.feed(module, tensors(given), self._picked.get)

    def note(self, function: str, args: tuple, kwargs: dict, result: Any) -> None:
        """Note a function call; if it is a loss, add it to the step."""
        if function in ACTIVATIONS.values() and result.grad_fn is not None:
            result.grad_fn.metadata.setdefault(MARK, (*self._written(), _axis(function, args, kwargs)))
        elif args and isinstance(result, torch.Tensor):
            self._note_rows(function, args, result)
        if function in LOSSES:
            given = [*args, *(kwargs[name] for name in ("input", "target") if name in kwargs)]
            self.step.losses.append(self._loss(function, given[0], given[1]))
            self.origins.note(result, "loss")

    def _loss(self, function: str, outputs: torch.Tensor, target: torch.Tensor) -> LossCall:
        activation, without = _activation(outputs)
        softmax, layer = _softmax(outputs), _behind(outputs.grad_fn, ADDED)
        given, labels = self.origins.describe(outputs), self.origins.describe(target)
        place = self.calls.place(source.line())
        call = LossCall(function=function, input=given, target=labels, place=place, activation=activation)
        call.takes, call.straight = TAKES.get(function, ""), layer is not None and layer.name().startswith(LINEAR)
        if softmax and call.takes != "logits" and _is_over_samples(call, softmax):
            axis = 1 if len(call.input.shape) == softmax.before.dim() else -1
            call.over_samples = rewrite.code(softmax.spot, lambda made: _with_axis(made, axis)) or Code()
        if call.takes:
            call.smallest, call.largest = values.extent([outputs]) or (None, None)
            call.sums = _sums(outputs)
            axis = 1 if outputs.dim() > 1 else 0
            logarithm = f"log_softmax({axis})" if call.takes == "log_probabilities" else "log()"
            inside = without if call.takes == "logits" else None
            call.mended = inside or _followed(INVERSE.get(activation, logarithm))
        call.rows, call.reordered = self._samples.explained(target, self._picked.get(target))
        call.squeezed = squeezed(outputs, target)
        call.transposed = _followed("transpose(1, -1)") if outputs.dim() > 2 and call.straight else None
        return call

    def _note_rows(self, function: str, args: tuple, result: torch.Tensor) -> None:
        """Note where rows are selected by index, and carry that along when they are only moved or cast."""
        if function in PICKS and isinstance(args[-1], (torch.Tensor, np.ndarray, list)):
            self._picked[result] = source.spot()
        elif function in SAME and isinstance(args[0], torch.Tensor) and args[0] in self._picked:
            self._picked[result] = self._picked[args[0]]

    def _written(self) -> tuple[rewrite.Spot | None, Code | None]:
        """Return the instruction of an activation, the user's own or what made its module, and its line without it."""
        modules = running()
        if source.direct() or not modules:
            spot = source.spot()
            return spot, rewrite.code(spot, rewrite.Expression.unwrapped) if source.direct() else None
        spot = self.calls.building.spots.get(modules[-1])
        return spot, rewrite.code(spot, lambda made: in_place(made, "Identity()"))


def squeezed(left: torch.Tensor, right: torch.Tensor) -> Code | None:
    """Return the user's line with the last axis squeezed off the operand that has one axis more than the other."""
    return rewrite.code(source.spot(), lambda call: call.squeezed(left.dim(), right.dim(), "{}.squeeze(-1)"))


def _followed(method: str) -> Code | None:
    return rewrite.code(source.spot(), lambda call: call.wrapped(call.argument("input", 0), f"{{}}.{method}"))


def _activation(tensor: torch.Tensor) -> tuple[str, Code | None]:
    """Return the activation whose output this is, at most reshaped, and the user's line without it."""
    node = _behind(tensor.grad_fn, KEPT)
    name = ACTIVATIONS.get(node.name().rstrip("0123456789"), "") if node is not None else ""
    return name, node.metadata.get(MARK, (None, None))[1] if node is not None and name else None


class Softmax(NamedTuple):
    """A softmax: its axis, the instruction that set it, its result, and the node that made the scores."""

    axis: int
    spot: rewrite.Spot | None
    before: torch.Tensor
    scores: Any


def _softmax(tensor: torch.Tensor) -> Softmax | None:
    """Return the axis of the softmax behind a tensor, at most reshaped or its logarithm taken, and what set it."""
    node = _behind(tensor.grad_fn, (*STRAIGHT, "LogBackward", "ClampBackward", "AddBackward"))
    if node is None or not node.name().startswith(("SoftmaxBackward", "LogSoftmaxBackward")):
        return None
    spot, _, axis = node.metadata.get(MARK, (None, None, None))
    return None if axis is None else Softmax(axis, spot, node._saved_result, node.next_functions[0][0])


def _axis(function: str, args: tuple, kwargs: dict) -> int | None:
    """Return the axis of a softmax, counted from the front; without `dim`, torch chooses it by the number of axes."""
    axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if axis is None:
        axis = 0 if args[0].dim() in (0, 1, 3) else 1
    return axis % args[0].dim() if isinstance(axis, int) and args[0].dim() else None


def _is_over_samples(call: LossCall, softmax: Softmax) -> bool:
    """Return whether a softmax is over the samples of a loss: its first axis, where the classes are another one."""
    # A negative log likelihood has its classes on axis 1. Of other losses it is known if a linear layer gave the
    # scores. Of pairs of samples both axes are the batch, and the target is none of the inputs.
    before, outputs = softmax.before.shape, call.input.shape
    as_long = 2 <= len(outputs) <= len(before) and before[-1] == outputs[-1]
    are_pairs = before[0] == before[-1] and not call.target.origin.startswith("input ")
    if softmax.axis != 0 or not as_long or before[0] < 2 or are_pairs:
        return False
    layer = _behind(softmax.scores, ADDED)
    return call.function == "nll_loss" or (layer is not None and layer.name().startswith(LINEAR))


def _with_axis(made: rewrite.Expression, axis: int) -> Code | None:
    """Return the call of a softmax, or of a softmax module, along the axis of the classes."""
    is_function = made.operand() in made.node.args and not made.function[:1].isupper()
    return made.with_keyword("dim", str(axis), int(is_function))


def _behind(node: Any, skipped: tuple[str, ...]) -> Any:
    """Return the autograd node behind those of some names, from one on; None if there is none."""
    while node is not None and node.name().startswith(skipped):
        node = node.next_functions[0][0]
    return node


def _sums(tensor: torch.Tensor) -> tuple[float, float] | None:
    """Return the smallest and the largest sum over the classes; None if there is no axis of classes."""
    axis = 1 if tensor.dim() > 1 else 0
    if not tensor.dim() or not tensor.numel() or tensor.shape[axis] < 2:
        return None
    with values.quiet():
        sums = values.real(tensor).double().sum(axis)
        return float(sums.min()), float(sums.max())


def _rows(tensor: torch.Tensor) -> order.Rows:
    """Return the rows of a tensor for comparison, or none if it cannot be read or is too large."""
    if not tensor.dim() or tensor.is_nested or tensor.layout != torch.strided or not values.are_there(tensor):
        return []
    if tensor.numel() > order.LARGE or tensor.is_complex():
        return []
    with values.quiet():
        return order.rows(values.real(tensor).detach().cpu().double().numpy())

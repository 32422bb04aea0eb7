"""The scalar that is differentiated: a loss in training, else a fixed weighted sum of the outputs.

The loss is a built-in one that the pair's file names, or the user's own function.
"""

from typing import Any, NamedTuple

import einops
import torch
from torch.nn import functional

from parity.config.pair import LAST_AXIS, TARGET, Pair, Train
from parity.core.errors import UsageError
from parity.core.program import load_loss
from parity.data.pairs import PairData
from parity.runtime.survey import Seen
from torch_impl import losses
from torch_impl.record.pair.build import tensor, user_errors
from torch_impl.record.pair.outputs import flat, named


class Scalar(NamedTuple):
    """A scalar to differentiate, with the target that the outputs were compared with, if any."""

    value: torch.Tensor
    target: torch.Tensor | None = None


def probe(outputs: list[torch.Tensor], data: PairData) -> torch.Tensor:
    """Return the sum of each output's mean(output * fixed random weights); complex numbers are pairs of real ones."""
    total = torch.zeros(())
    for number, given in enumerate(outputs):
        output = torch.view_as_real(given.resolve_conj()) if given.is_complex() else given
        if output.is_floating_point():
            weights = torch.from_numpy(data.probe(number, tuple(output.shape)))
            total = total.to(output.device) + (output * weights.to(output.device, output.dtype)).mean()
    return total


def training(pair: Pair, outputs: Any, data: PairData, step: int, search: list[str]) -> Scalar:
    """Return a step's loss. Raises UsageError if no output or target fits, BackendError if the user's loss raises."""
    train, first = pair.train, _first(pair, outputs)
    if first is None:
        raise UsageError(f"torch={pair.torch}: no output is float, which leaves nothing to train; leave out [train]")
    output = first[1]
    target = tensor(data.target(step, tuple(output.shape), train.loss == "cross_entropy"), output.device)
    weight = data.sample_weight(step)
    weights = [] if weight is None else [tensor(weight, output.device)]
    if train.torch_loss:
        given = outputs
        if pair.outputs:  # by name, a single one by itself
            tensors = [tensor for _, tensor in named(pair, outputs)]
            given = dict(zip(pair.outputs, tensors, strict=True)) if len(tensors) > 1 else tensors[0]
        return _user_loss(train, given, [target, *weights], search)
    expected = output.shape[:-1] if train.loss == "cross_entropy" else output.shape
    if target.shape != expected:
        raise UsageError(
            f"inputs.{TARGET}: shape {list(target.shape)}, expected {list(expected)} to match the output"
            f"{LAST_AXIS if train.loss == 'cross_entropy' else ''}"
        )
    return Scalar(_built_in(train, output, target, *weights), target)


def trained(pair: Pair, outputs: Any) -> Seen | None:
    """Return the description of the output that a built-in loss takes; None if there is none."""
    first = _first(pair, outputs) if pair.train else None
    return Seen(key=first[0], module="", shape=tuple(first[1].shape)) if first else None


def number(value: Any) -> torch.Tensor | None:
    """Return a value as a scalar if it is one number, else None."""
    if isinstance(value, (int, float)) or (isinstance(value, torch.Tensor) and value.numel() == 1):
        return torch.as_tensor(value).detach().reshape(())
    return None


def _first(pair: Pair, outputs: Any) -> tuple[str, torch.Tensor] | None:
    """Return the key and the first output with a gradient, its classes last for a built-in cross entropy; or None."""
    # Without numbers that the model returned: `named` has them as tensors, which have no gradient.
    tensor_ids = {id(tensor) for tensor in flat(outputs)}
    for key, output in named(pair, outputs):
        if output.is_floating_point() and id(output) in tensor_ids:
            name = key.partition(".")[2]
            layout = pair.outputs[name].keras_layout if name in pair.outputs else ""
            is_laid_out = pair.train and pair.train.loss == "cross_entropy" and not pair.train.torch_loss and layout
            return key, einops.rearrange(output, layout) if is_laid_out else output
    return None


def _built_in(
    train: Train, output: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None
) -> torch.Tensor:
    """Return a built-in loss: the mean over all elements, of which each sample's are multiplied by its weight."""
    if weight is None and not train.class_weight:
        return getattr(losses, train.loss)(output, target)
    if train.class_weight:
        classes = torch.tensor(train.class_weight, dtype=output.dtype, device=output.device)
        flattened = output.flatten(0, -2), target.flatten()
        if weight is None:
            return functional.cross_entropy(*flattened, weight=classes)
        each = functional.cross_entropy(*flattened, weight=classes, reduction="none")
    else:
        each = getattr(losses, train.loss)(output, target, reduction="none")
    each = each.reshape(target.shape)
    return (each * weight.reshape(weight.shape + (1,) * (each.dim() - weight.dim()))).mean()


def _user_loss(train: Train, outputs: Any, given: list[torch.Tensor], search: list[str]) -> Scalar:
    """Return the user's own loss of the outputs, of the target, and of the samples' weights if there are some."""
    text, names = f"train.torch_loss={train.torch_loss}", ("target", "sample_weight")[: len(given)]
    with user_errors(f"{text} fails"):
        value = load_loss("train.torch_loss", train.torch_loss, *names, search=search)(outputs, *given)
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        received = f"the shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise UsageError(f"{text}: expected one number, received {received}")
    return Scalar(value.reshape(()), given[0])

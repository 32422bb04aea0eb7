"""The scalar that is differentiated: a loss in training, else a fixed weighted sum of the outputs.

The loss is a built-in one that the pair's file names, or the user's own function.
"""

from typing import Any, NamedTuple

import einops
import torch

from parity.config.pair import TARGET, Pair, Train
from parity.core.errors import UsageError
from parity.data.pairs import PairData
from parity.doctor.program import load
from torch_impl import losses
from torch_impl.record.pair.build import tensor, user_errors
from torch_impl.record.pair.outputs import flat


class Scalar(NamedTuple):
    """A scalar to differentiate, with the target that the outputs were compared with, if any."""

    value: torch.Tensor
    target: torch.Tensor | None = None


def probe(outputs: list[torch.Tensor], data: PairData) -> Scalar:
    """Return the sum over the outputs of mean(output * weights), with fixed random weights.

    Gradients of it depend on every output; it needs no loss or target. Complex numbers count as pairs of real ones.
    """
    total = torch.zeros(())
    for number, given in enumerate(outputs):
        output = torch.view_as_real(given.resolve_conj()) if given.is_complex() else given
        if output.is_floating_point():
            weights = torch.from_numpy(data.probe(number, tuple(output.shape)))
            total = total.to(output.device) + (output * weights.to(output.device, output.dtype)).mean()
    return Scalar(total)


def training(
    pair: Pair, outputs: Any, canonical: list[torch.Tensor], data: PairData, step: int, search: list[str]
) -> Scalar:
    """Return the loss of a training step; `canonical` lists the output tensors in order.

    Raises UsageError if no float output or no matching target exists, and BackendError if the user's loss raises.
    """
    train = pair.train
    assert train
    # Without numbers that the model returned: `canonical` has them as tensors, which have no gradient.
    tensor_ids = {id(tensor) for tensor in flat(outputs)}
    first = next(
        (n for n, tensor in enumerate(canonical) if tensor.is_floating_point() and id(tensor) in tensor_ids), None
    )
    if first is None:
        raise UsageError(f"torch={pair.torch}: no output is float, which leaves nothing to train; leave out [train]")
    output = canonical[first]
    if train.torch_loss:
        return _user_loss(train, _for_user(pair, outputs, canonical), _target(train, data, output, step), search)
    layout = list(pair.outputs.values())[first].keras_layout if pair.outputs else ""
    if train.loss == "cross_entropy" and layout:
        output = einops.rearrange(output, layout)  # the layout puts the classes last
    target = _target(train, data, output, step)
    expected = output.shape[:-1] if train.loss == "cross_entropy" else output.shape
    if target.shape != expected:
        raise UsageError(f"inputs.{TARGET}: shape {list(target.shape)}, expected {list(expected)} to match the output")
    return Scalar(getattr(losses, train.loss)(output, target), target)


def _target(train: Train, data: PairData, output: torch.Tensor, step: int) -> torch.Tensor:
    return tensor(data.target(step, tuple(output.shape), train.loss == "cross_entropy"), output.device)


def _user_loss(train: Train, given: Any, target: torch.Tensor, search: list[str]) -> Scalar:
    """Return the user's own loss of the outputs and the target."""
    text = f"train.torch_loss={train.torch_loss}"
    with user_errors(f"{text} fails"):
        value = load("train.torch_loss", train.torch_loss, "outputs", "target", search=search)(given, target)
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        received = f"the shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise UsageError(f"{text}: expected one number, received {received}")
    return Scalar(value.reshape(()), target)


def _for_user(pair: Pair, outputs: Any, canonical: list[torch.Tensor]) -> Any:
    """Return the outputs in the form that the user's loss function takes.

    That is what the model returned or, with [outputs] in the pair's file, a dict by name; a single output by itself.
    """
    if not pair.outputs:
        return outputs
    return dict(zip(pair.outputs, canonical, strict=True)) if len(canonical) > 1 else canonical[0]

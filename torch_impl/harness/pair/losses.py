"""What is differentiated: a loss of the file's or of the user's own, or where nothing is trained a fixed scalar."""

from typing import Any, NamedTuple

import einops
import torch

from parity.config.pair import TARGET, Pair, Train
from parity.core.errors import UsageError
from parity.data.pairs import PairData
from parity.doctor.program import load
from torch_impl import losses
from torch_impl.harness.pair.build import tensor, user_errors
from torch_impl.harness.pair.outputs import flat


class Scalar(NamedTuple):
    """`target`: what the outputs were compared with; None without a loss."""

    value: torch.Tensor
    target: torch.Tensor | None = None


def probe(outputs: list[torch.Tensor], data: PairData) -> Scalar:
    """Outputs weighed with fixed numbers: the mean of each, added up. Complex numbers count as pairs of real ones."""
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
    """The loss of a step. `canonical`: the outputs in their order. Raises UsageError and BackendError."""
    train = pair.train
    assert train
    own = {id(one) for one in flat(outputs)}  # a number has no gradient
    first = next((n for n, one in enumerate(canonical) if one.is_floating_point() and id(one) in own), None)
    if first is None:
        raise UsageError(f"torch={pair.torch}: no output is float, which leaves nothing to train; leave out [train]")
    output = canonical[first]
    if train.torch_loss:
        return _user_loss(train, _for_user(pair, outputs, canonical), _target(train, data, output, step), search)
    layout = list(pair.outputs.values())[first].keras_layout if pair.outputs else ""
    if train.loss == "cross_entropy" and layout:
        output = einops.rearrange(output, layout)  # the classes stand last there
    target = _target(train, data, output, step)
    wanted = output.shape[:-1] if train.loss == "cross_entropy" else output.shape
    if target.shape != wanted:
        raise UsageError(f"inputs.{TARGET}: shape {list(target.shape)}, expected {list(wanted)}, as the output has it")
    return Scalar(getattr(losses, train.loss)(output, target), target)


def _target(train: Train, data: PairData, output: torch.Tensor, step: int) -> torch.Tensor:
    return tensor(data.target(step, tuple(output.shape), train.loss == "cross_entropy"), output.device)


def _user_loss(train: Train, given: Any, target: torch.Tensor, search: list[str]) -> Scalar:
    text = f"train.torch_loss={train.torch_loss}"
    with user_errors(f"{text} fails"):
        value = load("train.torch_loss", train.torch_loss, "outputs", "target", search=search)(given, target)
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        received = f"the shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise UsageError(f"{text}: expected one number, received {received}")
    return Scalar(value.reshape(()), target)


def _for_user(pair: Pair, outputs: Any, canonical: list[torch.Tensor]) -> Any:
    """Outputs as the model returned them, or by the names of the file; one by itself."""
    if not pair.outputs:
        return outputs
    return dict(zip(pair.outputs, canonical, strict=True)) if len(canonical) > 1 else canonical[0]

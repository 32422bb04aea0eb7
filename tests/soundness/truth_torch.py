"""A row's torch side, run by hand. See truth.py."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_models
import torch_training
from torch import nn

from parity.data.pairs import PairData

Found = Iterator[tuple[str, np.ndarray]]


def run(case: Any, data: PairData, weights: Path, precision: str) -> Found:
    torch.set_default_dtype(getattr(torch, precision))
    torch.manual_seed(0)
    pair = case.model
    model = getattr(torch_models, pair.torch.partition(":")[2])(**pair.torch_kwargs)
    _weights(model, weights, precision)
    train = pair.train
    model.train(bool(train))
    optimizer = _own(train.torch_optimizer)(model.parameters()) if train else None
    for number in range(case.steps):
        inputs = {name: _tensor(array) for name, array in data.step(number).items()}
        outputs = model(*inputs.values())
        yield from _outputs(outputs, number)
        loss = _loss(train, outputs, data, number)
        yield f"loss{number}", loss.detach().numpy()
        if loss.requires_grad:
            loss.backward()
        for name, one in [*model.named_parameters(), *inputs.items()]:
            if one.grad is not None and one.grad.any():
                yield f"gradient{number} {name}", one.grad.numpy().copy()
        before = {name: one.detach().clone() for name, one in model.named_parameters()}
        if optimizer:
            optimizer.step()
            optimizer.zero_grad()
        for name, one in model.named_parameters() if optimizer else ():
            yield f"update{number} {name}", (one.detach() - before[name]).numpy()
    if optimizer:
        model.eval()
        yield from _outputs(model(*inputs.values()), case.steps)
        buffers = (each for each in model.named_buffers() if "tracked" not in each[0] and "table" not in each[0])
        yield from ((f"buffer {name}", one.numpy()) for name, one in buffers)


def _outputs(outputs: Any, number: int) -> Found:
    for place, output in enumerate(outputs if isinstance(outputs, tuple) else [outputs]):
        yield f"output{number} {place}", output.detach().numpy()


def _weights(model: nn.Module, file: Path, precision: str) -> None:
    """Those of the file; where there is none yet the model's own, rounded to float32, none of them constant."""
    own = dict(model.named_parameters())
    if precision == "float64":
        shaken = {name: one.detach() + torch.randn_like(one) / 16 for name, one in own.items()}
        np.savez(file, **{name: one.to(torch.float32).numpy() for name, one in shaken.items()})
    with np.load(file) as arrays, torch.no_grad():
        for name, one in own.items():
            one.copy_(torch.from_numpy(arrays[name]))


def _loss(train: Any, outputs: Any, data: PairData, number: int) -> torch.Tensor:
    floats = [one for one in (outputs if isinstance(outputs, tuple) else [outputs]) if one.is_floating_point()]
    if train is None:
        probes = [_tensor(data.probe(place, tuple(one.shape))) for place, one in enumerate(floats)]
        return sum((one * probe).mean() for one, probe in zip(floats, probes, strict=True)) + torch.zeros(())
    target = data.target(number, tuple(floats[0].shape), train.loss == "cross_entropy")
    return _own(train.torch_loss or "torch_training:mean_square")(floats[0], _tensor(target, grad=False))


def _own(text: str) -> Any:
    return getattr(torch_training, text.partition(":")[2])


def _tensor(array: np.ndarray, grad: bool = True) -> torch.Tensor:
    made = torch.from_numpy(array)
    return made.to(torch.get_default_dtype()).requires_grad_(grad) if made.is_floating_point() else made

"""A row's torch side, run as its user runs it. See users_truth.py."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from users_rows import Arrays, Row
from users_truth import BESIDE, DRAWS, beside, fresh, inputs, moments, of_masks, rate

torch.set_default_dtype(torch.float64)


def run(row: Row, folder: Path) -> Iterator[tuple[str, Any]]:
    torch.manual_seed(0)
    model = _built(row)[1]
    weights = _shaken(_state(model))
    names = [name for name, _ in model.named_parameters()]
    np.savez(folder / f"weights-{row.name}.npz", parameters=np.array(names), **weights)
    if row.random:
        yield "moments", moments(_state(_built(row)[1])[row.random[0]] for _ in range(DRAWS))
    yield from _trained(row, weights, folder) if row.train else _called(row, weights)


def _called(row: Row, weights: Arrays) -> Iterator[tuple[str, Any]]:
    model = _loaded(row, weights)[1].eval()
    if row.masks:
        outputs = [_call(row, model, 0).numpy() for _ in range(3)]
        yield from of_masks(outputs, outputs[:2])
        return
    for number in range(3):
        for place, output in enumerate(_tensors(_call(row, model, number))):
            yield f"call{number} {place}", output.detach().numpy()


def _trained(row: Row, weights: Arrays, folder: Path) -> Iterator[tuple[str, Any]]:
    before = _tensors(_call(row, _loaded(row, weights)[1].eval(), 0))
    shape = tuple(before[0].shape)
    np.savez(folder / f"shape-{row.name}.npz", shape=np.array(shape), outputs=len(before))
    if row.before and not row.masks:
        yield "before", before[0].detach().numpy()
    module, model = _loaded(row, weights)
    train = row.train
    optimizer = _optimizer(module, row, model)
    seen = []
    for number in range(row.steps):
        model.train()
        batch = {name: _tensor(array) for name, array in (inputs(row, number) | beside(row, number, shape)).items()}
        if "torch_step" in train:
            getattr(module, train["torch_step"])(model, optimizer, batch)
            continue
        optimizer.zero_grad()
        outputs = model(*(tensor for name, tensor in batch.items() if name not in BESIDE))
        seen.append(_tensors(outputs)[0].detach().numpy().copy())
        _loss(module, train, outputs, batch).backward()
        optimizer.step()
    model.eval()
    evaluated = [_tensors(_call(row, model, 0))[0].detach().numpy() for _ in range(2 if row.masks else 1)]
    if row.masks:
        yield from of_masks(seen, evaluated)
        return
    yield from ((f"output{number}", output) for number, output in enumerate(seen))
    yield "after", evaluated[0]
    names = [name for name, _ in model.named_parameters()]
    np.savez(folder / f"trained-{row.name}.npz", parameters=np.array(names), **_state(model))


def _built(row: Row) -> tuple[Any, nn.Module]:
    module = fresh(row, "torch")
    return module, getattr(module, row.builder("torch"))(**row.torch_kwargs)


def _loaded(row: Row, weights: Arrays) -> tuple[Any, nn.Module]:
    module, model = _built(row)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            tensor.copy_(torch.from_numpy(weights[name]))
    return module, model


def _shaken(weights: Arrays) -> Arrays:
    """Noise instead of constants: a bias of zeros does not show what becomes of it."""
    generator = np.random.default_rng(0)
    for name, values in weights.items():
        if name.endswith(("weight", "bias")) and (values == values.flat[0]).all():
            weights[name] = values + generator.normal(size=values.shape) / 16
    return weights


def _state(model: nn.Module) -> Arrays:
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: copy.deepcopy(tensor.detach().numpy()) for name, tensor in named}


def _optimizer(module: Any, row: Row, model: nn.Module) -> torch.optim.Optimizer:
    if "torch_optimizer" in row.train:
        return getattr(module, row.train["torch_optimizer"])(model.parameters())
    return torch.optim.SGD(model.parameters(), lr=rate(row))


def _loss(module: Any, train: Any, outputs: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    target, weight = batch["target"], batch.get("sample_weight")
    if "torch_loss" in train:
        return getattr(module, train["torch_loss"])(outputs, target, *([] if weight is None else [weight]))
    if train.get("loss") == "cross_entropy":
        classes = torch.tensor(train["class_weight"]) if "class_weight" in train else None
        if weight is None:
            return functional.cross_entropy(outputs, target, weight=classes)
        return (functional.cross_entropy(outputs, target, reduction="none") * weight).mean()
    if weight is None:
        return functional.mse_loss(outputs, target)
    return (functional.mse_loss(outputs, target, reduction="none").mean(-1) * weight).mean()


def _call(row: Row, model: nn.Module, number: int) -> Any:
    with torch.set_grad_enabled(row.grads):
        return model(*map(_tensor, inputs(row, number).values()))


def _tensors(outputs: Any) -> list[torch.Tensor]:
    if isinstance(outputs, dict):
        return list(outputs.values())
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array)

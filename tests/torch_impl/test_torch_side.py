"""The PyTorch side by itself."""

import numpy as np
import pytest
import torch

from parity.config import cases, weights
from torch_impl import models, optimizers
from torch_impl.harness import weights as state

MODELS = ["linear_stack/single", "simple_block/single", "residual_block/single", "transformer/single"]


@pytest.mark.parametrize("name", cases.names())
def test_the_listed_weights_are_those_of_the_model(name):
    case = cases.resolve(name)
    listed = {weight.name: weight.shape for weight in weights.specify(case.model)}
    own = {name: tuple(parameter.shape) for name, parameter in models.build(case.model).named_parameters()}
    assert list(listed.items()) == list(own.items())


@pytest.mark.parametrize("name", MODELS)
def test_the_distributions_are_torchs_own(name):
    """Large tensors agree with torch's own initialisation in range and spread, constants exactly."""
    case = cases.resolve(name)
    torch.manual_seed(0)
    own = dict(state.parameters(models.build(case.model)))
    for weight, drawn in weights.initial(case).items():
        spread = own[weight].std()
        if spread == 0:
            assert np.array_equal(drawn, own[weight]), weight
        elif drawn.size > 2000:
            assert drawn.std() == pytest.approx(spread, rel=0.05), weight
            assert abs(drawn).max() == pytest.approx(abs(own[weight]).max(), rel=0.3 if "embedding" in weight else 0.01)


def test_loading_gives_back_what_was_loaded():
    case = cases.resolve("transformer/single", {"model": {"vocabulary": 20, "d_model": 8, "heads": 2}})
    model, initial = models.build(case.model), weights.initial(case)
    state.load(model, initial)
    for name, array in state.parameters(model):
        assert np.array_equal(array, initial[name].astype(np.float32)), name


def test_weights_of_another_model_are_refused():
    case = cases.resolve("simple_block/single")
    with pytest.raises(ValueError, match=r"linear1\.weight.*expected"):
        state.load(models.build(cases.resolve("two_linear/single").model), weights.initial(case))


def test_bfloat16_reaches_numpy():
    tensor = torch.tensor([1.0, 2.5], dtype=torch.bfloat16)
    assert str(state.to_numpy(tensor).dtype) == "bfloat16"
    assert state.to_numpy(tensor).astype(np.float32).tolist() == [1.0, 2.5]


def test_the_schedule_is_the_configs():
    case = cases.resolve("simple_block/single@schedule")
    optimizer, schedule = optimizers.build(case, models.build(case.model).parameters())
    rates = []
    for _ in range(5):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0.05, 0.05, 0.005, 0.005, 0.0005])

"""The PyTorch side by itself."""

import msgspec
import numpy as np
import pytest
import torch

from parity.config import cases, schema, weights
from parity.data.batches import Dataset
from torch_impl import models, optimizers
from torch_impl.models.block import as_tuple, stages
from torch_impl.record import specimen
from torch_impl.record import weights as state
from torch_impl.strategies import pipeline

# A case for each model that the built-in ones have; strategies and trainings share it.
OF_EACH_MODEL = {msgspec.json.encode(cases.resolve(name).model): name for name in reversed(cases.names())}
MODELS = ["linear_stack/single", "simple_block/single", "residual_block/single", "transformer/single"]


def parameters(model):
    return state.Weights(model, {name: [parameter] for name, parameter in model.named_parameters()}).parameters()


@pytest.mark.parametrize("name", OF_EACH_MODEL.values())
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
    own = dict(parameters(models.build(case.model)))
    for weight, drawn in weights.initial(case).items():
        spread = own[weight].std()
        if spread == 0:
            assert np.array_equal(drawn, own[weight]), weight
        elif drawn.size > 2000:
            assert drawn.std() == pytest.approx(spread, rel=0.05), weight
            assert abs(drawn).max() == pytest.approx(abs(own[weight]).max(), rel=0.3 if "embedding" in weight else 0.01)


def test_the_specimens_weights_are_torchs_own():
    torch.manual_seed(0)
    own = dict(parameters(specimen.build(schema.Specimen())))
    drawn = weights.initial(cases.convert({"name": "specimen/single", "model": {"kind": "specimen"}}))
    assert {name: array.shape for name, array in drawn.items()} == {name: array.shape for name, array in own.items()}
    for name, array in drawn.items():
        if array.size > 100:
            assert abs(array).max() == pytest.approx(abs(own[name]).max(), rel=0.1), name


def test_loading_gives_back_what_was_loaded():
    case = cases.resolve("transformer/single", {"model": {"vocabulary": 20, "d_model": 8, "heads": 2}})
    model, initial = models.build(case.model), weights.initial(case)
    state.load(model, initial)
    for name, array in parameters(model):
        assert np.array_equal(array, initial[name].astype(np.float32)), name


def test_weights_of_another_model_are_refused():
    case = cases.resolve("simple_block/single")
    with pytest.raises(ValueError, match=r"linear1\.weight.*expected"):
        state.load(models.build(cases.resolve("two_linear/single").model), weights.initial(case))


def test_bfloat16_reaches_numpy():
    tensor = torch.tensor([1.0, 2.5], dtype=torch.bfloat16)
    assert str(state.array(tensor).dtype) == "bfloat16"
    assert state.array(tensor).astype(np.float32).tolist() == [1.0, 2.5]


def test_the_optimizer_moves_its_schedule_on():
    case = cases.resolve("simple_block/single@schedule")
    optimizer = optimizers.build(case, models.build(case.model).parameters())
    rates = []
    for _ in range(5):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
    assert rates == pytest.approx([0.05, 0.05, 0.005, 0.005, 0.0005])


def test_the_optimizer_clips_before_it_steps():
    case = cases.resolve("simple_block/single", {"clip_norm": 0.5})
    model = models.build(case.model)
    optimizer = optimizers.build(case, model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    norm = sum(parameter.grad.square().sum() for parameter in model.parameters()).sqrt()
    assert float(norm) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("name", [*MODELS, "two_linear/single"])
def test_the_blocks_compute_what_the_model_computes(name):
    case = cases.resolve(name, {"model": {"causal": True}} if "transformer" in name else {})
    model = models.build(case.model).eval()
    inputs = tuple(map(torch.from_numpy, Dataset(case).evaluation()[0].inputs))
    inputs = tuple(tensor.float() if tensor.is_floating_point() else tensor for tensor in inputs)
    chain = stages(model.blocks(), 2)
    assert len(model.blocks()) == case.model.blocks
    assert torch.equal(chain[1](*as_tuple(chain[0](*inputs))), model(*inputs))
    with pytest.raises(ValueError, match="blocks, received stages of \\[1, 9\\]"):
        stages(model.blocks(), 2, [1, 9])
    uneven = stages(model.blocks(), 2, [1, len(model.blocks()) - 1])
    assert [len(stage.blocks) for stage in uneven] == [1, len(model.blocks()) - 1]
    assert {id(p) for stage in chain for p in stage.parameters()} == {id(p) for p in model.parameters()}


def test_dtensors_are_updated_apart_from_tensors(monkeypatch):
    """On a GPU torch.optim updates a group by one call, which takes no mixture."""
    tensor, dtensor = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
    monkeypatch.setattr(optimizers, "is_dtensor", lambda parameter: parameter is dtensor)
    case = cases.resolve("simple_block/single")
    for parameters, groups in (([tensor, dtensor], [[tensor], [dtensor]]), ([tensor], [[tensor]]), ([], [[]])):
        assert [group["params"] for group in optimizers.build(case, parameters).param_groups] == groups


def test_the_shapes_between_stages_are_those_on_their_device():
    """Autocast applies to one kind of device, so where there is a GPU the shapes are told for it."""
    first, second = stages(models.build(cases.resolve("transformer/single").model).blocks(), 2)
    ids = torch.zeros(3, 5, dtype=torch.int64)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    given, between, last = pipeline.boundaries([pipeline.SamplesFirst(first, 1), second], (ids, ids), device)
    assert {tensor.device.type for tensor in (*given, *between, *last)} == {device.type}
    assert [tuple(tensor.shape[:2]) for tensor in (*given, *between, *last)] == [(3, 5)] * 2 + [(5, 3)] * 3

"""What the advice predicts that the forward pass keeps is what autograd keeps."""

import pytest
import torch

from parity.advise.describe import describe
from parity.config import cases
from parity.data.batches import Dataset
from torch_impl.models import build

ROWS = [
    ("linear_stack/single", {}),
    ("simple_block/single", {}),
    ("two_linear/single", {}),
    pytest.param("residual_block/single", {}, marks=pytest.mark.slow),
    ("residual_block/single@identity", {}),
    pytest.param("transformer/single", {}, marks=pytest.mark.slow),
    ("transformer/single", {"model": {"dropout": 0.0, "encoder_layers": 1, "d_model": 64}, "data": {"length": 24}}),
]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(("name", "changes"), ROWS)
def test_what_the_forward_pass_keeps(name, changes):
    case = cases.resolve(name, changes)
    model = build(case.model).train()
    (micro_batches,) = next(Dataset(case).steps())
    inputs = [torch.as_tensor(array) for array in micro_batches[0].inputs]
    inputs = [tensor.float() if tensor.is_floating_point() else tensor for tensor in inputs]
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}  # by storage, because several layers may keep the same tensor

    def note(tensor):
        storage = tensor.untyped_storage()
        if tensor.is_floating_point() and storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage  # alive, so that no other gets its address
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model(*inputs)
    predicted = case.data.batch * describe(case).cost.kept
    assert predicted == pytest.approx(sum(storage.nbytes() for storage in kept.values()), rel=0.05)

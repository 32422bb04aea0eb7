"""The functions that branch are seen with their values, whatever module calls them and however they are named."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from parity.pairs.vary.coverage import Observer, Seen
from torch_impl.record.pair.vary import observed


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    ("module", "name", "ends"),
    [
        (nn.ReLU(), "relu", {"lower": True, "inside": True}),
        (nn.ReLU(inplace=True), "relu", {"lower": True, "inside": True}),
        (nn.ReLU6(), "clamp", {"lower": True, "inside": True, "upper": False}),
        (nn.Hardswish(), "hardswish", {"lower": False, "inside": True, "upper": True}),
        (nn.LeakyReLU(), "leaky_relu", {"lower": True, "inside": True}),
        (nn.ELU(), "elu", {"lower": True, "inside": True}),
        (nn.PReLU(), "prelu", {"lower": True, "inside": True}),
        (Applied(functional.relu6), "relu6", {"lower": True, "inside": True, "upper": False}),
        (Applied(lambda x: x.clamp(min=-9, max=3)), "clamp", {"lower": False, "inside": True, "upper": True}),
        (Applied(lambda x: torch.clip(x, -1)), "clamp", {"lower": True, "inside": True}),
        (Applied(lambda x: x.clamp_max(9)), "clamp", {"inside": True, "upper": False}),
    ],
)
def test_kinks(module, name, ends):
    x = torch.tensor([-2.0, 0.5, 4.0])
    expected = {Seen(f"{name}.{end}", "0", reached) for end, reached in ends.items()}
    observer, model = Observer(), nn.Sequential(module)
    with torch.no_grad(), observed(model, observer):
        output = model(x.clone())
    assert set(observer.branches()) == expected
    assert torch.equal(output, model(x.clone()))  # it is seen, and not changed


def test_masks_and_embeddings():
    keep = torch.tensor([[True, True]])
    model, observer = Applied(lambda x: x.masked_fill(~keep, 0.0)), Observer()
    with torch.no_grad(), observed(model, observer):
        model(torch.ones(1, 2))
    assert set(observer.branches()) == {Seen("mask.true", "(model)", False), Seen("mask.false", "(model)", True)}
    with torch.no_grad(), observed(embedding := nn.Sequential(nn.Embedding(9, 2, padding_idx=-9)), observer):
        embedding(torch.tensor([[3, 4]]))
    expected = {Seen("embedding.ids", "0", True, "2 of 9 drawn"), Seen("embedding.padding", "0", False)}
    assert set(observer.branches()) == expected


def test_nothing_is_seen_behind_the_block():
    model, observer = nn.Sequential(nn.ReLU()), Observer()
    with observed(model, observer):
        pass
    model(torch.ones(2))
    assert observer.branches() == []

"""What is seen of a program while it builds its model."""

import pytest
import torch
from observed import line
from torch import nn

from torch_impl.instruments import structure
from torch_impl.instruments.build import Building

pytestmark = pytest.mark.usefixtures("gpus")


class Holder:
    """No module."""

    def __init__(self, inside: nn.Module):
        self.inside = inside


class Net(nn.Module):
    """With modules that PyTorch knows, and others."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.recurrent = nn.LSTM(4, 4)
        self.scale = nn.Parameter(torch.ones(4))
        self.listed = [nn.Linear(4, 4), nn.ReLU()]
        self.named = {"a": nn.Linear(4, 4)}
        self.held = Holder(nn.Sequential(nn.Linear(4, 4)))
        closed = nn.Linear(4, 4)
        self.closure = lambda x: closed(x)
        self.known = [self.encoder]


def built(build):
    with Building() as building:
        model = build()
    return building, model


def test_hidden_modules_are_found_if_they_hold_something():
    building, model = built(Net)
    hidden = {module.name: module.source for module in building.modules(model) if not module.registered}
    assert hidden == {
        "listed[0]": line(Net.__init__, "self.listed"),
        "named['a']": line(Net.__init__, "self.named"),
        "held.inside": line(Net.__init__, "self.held"),
        "closure.closed": line(Net.__init__, "closed = "),
    }


def test_a_building_leaves_nothing_behind():
    names = ("__init__", "_apply", "register_parameter", "register_buffer")
    before = [getattr(nn.Module, name) for name in names] + [torch.optim.Optimizer.__init__]
    built(Net)
    assert before == [getattr(nn.Module, name) for name in names] + [torch.optim.Optimizer.__init__]


class Freezing(nn.Module):
    """Its own train() freezes the first layer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def train(self, mode=True):
        super().train(mode)
        self.first.requires_grad_(False)
        return self


def test_what_a_model_s_own_train_would_freeze_is_told_and_stays_as_it_was():
    net = nn.Sequential(Freezing(), nn.Linear(2, 2))
    assert structure.frozen_by_train(net) == ["0.first.weight", "0.first.bias"]
    assert all(parameter.requires_grad for parameter in net.parameters())
    assert structure.frozen_by_train(net.train()) == []  # they are frozen now
    assert structure.frozen_by_train(nn.Sequential(Freezing()).train(False)) == []
    assert structure.frozen_by_train(nn.Linear(2, 2)) == []

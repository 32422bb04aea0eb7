"""What is seen of a program while it builds its model."""

import pytest
import torch
from observed import line, observe
from torch import nn

from parity.trace.keys import MODEL
from torch_impl.instruments import structure
from torch_impl.instruments.build import Building
from torch_impl.instruments.pretended import pretend


@pytest.fixture(autouse=True)
def gpus():
    with pretend(2):
        yield


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


def placed() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 4, device="cuda:1"), nn.Linear(4, 4))  # made there
    net[1].to("cuda:0")  # moved
    net.scale = nn.Parameter(torch.ones(4).cuda())  # alone
    return net


def whole() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4)).cuda(1)


def of_types() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))  # plain
    net[1].double()  # cast
    return net.to("cuda:0")


def built(build):
    with Building() as building:
        model = build()
    return building, model


def test_modules_have_paths_and_lines():
    building, model = built(Net)
    modules = {module.name: module for module in building.modules(model)}
    assert modules[MODEL].kind == "Net"
    assert modules["embedding"].source == line(Net.__init__, "nn.Embedding")
    assert modules["encoder.linear1"].source == line(Net.__init__, "nn.TransformerEncoderLayer")
    assert all(module.registered for name, module in modules.items() if name.startswith("encoder"))


def test_facts():
    building, model = built(Net)
    facts = {module.name: module.facts for module in building.modules(model)}
    assert facts["embedding"] == {"rows": 7}
    assert facts["encoder"] == facts["encoder.self_attn"] == {"batch_first": True}
    assert facts["recurrent"] == {"batch_first": False}
    assert facts["encoder.linear1"] == {}
    model.encoder.requires_grad_(False)
    facts = {module.name: module.facts for module in building.modules(model)}
    assert facts["encoder.linear1"] == {"frozen": True}
    assert facts["embedding"] == {"rows": 7}


def test_hidden_modules_are_found_if_they_hold_something():
    building, model = built(Net)
    hidden = {module.name: module.source for module in building.modules(model) if not module.registered}
    assert hidden == {
        "listed[0]": line(Net.__init__, "self.listed"),
        "named['a']": line(Net.__init__, "self.named"),
        "held.inside": line(Net.__init__, "self.held"),
        "closure.closed": line(Net.__init__, "closed = "),
    }


def test_moves_of_parts():
    building, model = built(placed)
    building.names(model)
    moves = {(move.module, move.device, move.source) for move in building.moves}
    assert moves == {
        ("0", "cuda:1", line(placed, "# made there")),
        ("1", "cuda:0", line(placed, "# moved")),
        (MODEL, "cuda:0", line(placed, "# alone")),
    }


def test_moves_of_the_whole_model():
    building, model = built(whole)
    building.names(model)
    (move,) = building.moves
    assert (move.whole, move.device, move.source) == (True, "cuda:1", line(whole, "cuda(1)"))


def test_weights_know_what_gave_them_their_type():
    building, model = built(of_types)
    weights = {weight.name: weight for weight in building.weights(model, [])}
    assert weights["0.weight"].tensor.made == line(of_types, "# plain")
    assert weights["1.weight"].tensor.made == line(of_types, "# cast")
    assert (weights["1.weight"].module, weights["1.weight"].tensor.dtype) == ("1", "float64")
    assert weights["1.weight"].tensor.device == "cuda:0"


def test_slots_of_an_optimizer_are_weights():
    def build() -> nn.Module:
        net = nn.Linear(2, 1)
        net.optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        return net

    def train(net, batch):
        net(batch["x"]).sum().backward()
        net.optimizer.step()

    seen = observe(build, train, x=torch.ones(3, 2))
    slots = seen.building.weights(seen.model, list(seen.building.optimizers))
    assert [(slot.name, slot.tensor.shape) for slot in slots if slot.kind == "optimizer_state"] == [
        ("weight", [1, 2]),
        ("bias", [1]),
    ]


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

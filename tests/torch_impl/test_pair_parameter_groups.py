"""What is read off the user's optimizer."""

import math

import torch
from torch import nn, optim

from torch_impl.record.pair.optimizers import groups, rate

MODEL = nn.Linear(3, 2)
BY_NAME = dict(MODEL.named_parameters())


def test_the_settings_of_each_group_are_read():
    weight, bias = BY_NAME.values()
    optimizer = optim.AdamW([{"params": [weight], "weight_decay": 0.1}, {"params": [bias], "lr": 0.5}], lr=0.25)
    of_weight, of_bias = groups(optimizer, BY_NAME)
    assert (of_weight.parameters, of_bias.parameters) == (["weight"], ["bias"])
    assert (of_weight.settings["weight_decay"], of_weight.settings["decay_form"]) == (0.1, "decoupled")
    assert (of_weight.settings["learning_rate"], of_bias.settings["learning_rate"]) == (0.25, 0.5)
    assert rate(optimizer) == 0.25


def test_a_learning_rate_may_be_a_tensor():
    optimizer = optim.SGD(MODEL.parameters(), lr=torch.tensor(0.25), momentum=0.5, maximize=True)
    (group,) = groups(optimizer, BY_NAME)
    assert (group.settings["learning_rate"], group.settings["momentum"], group.settings["sign"]) == (0.25, 0.5, -1)


def test_a_derived_class_states_what_its_base_does_and_nothing_is_known_of_another():
    class Own(optim.SGD):
        pass

    (group,) = groups(Own(MODEL.parameters(), lr=0.1), BY_NAME)
    assert (group.settings["kind"], group.settings["learning_rate"]) == ("sgd", 0.1)
    assert groups(optim.Rprop(MODEL.parameters()), BY_NAME) == []


def test_no_settings_that_json_cannot_hold():
    optimizer = optim.SGD(MODEL.parameters(), lr=math.inf)
    assert groups(optimizer, BY_NAME) == [] and rate(optimizer) is None

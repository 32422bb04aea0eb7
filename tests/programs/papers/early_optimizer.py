"""An optimizer that is made before the model is wrapped, and holds the parameters from before.

Sharding a model puts new parameters in the place of the old ones; the optimizer then updates what nobody computes with
(https://github.com/huggingface/accelerate/issues/2665).
"""

import torch
from torch import nn


def sharded(model):
    """As a wrapper does it: one flat parameter, of which those of the modules are views."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(parameter.detach().clone()))
    return model


def network():
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).cuda()


def build():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)  # fault
    model = sharded(model)
    model.optimizer = optimizer
    return model


def build_right():
    model = sharded(network())
    model.optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model


def step(model, inputs):
    model.zero_grad()
    model(inputs["x"].cuda()).square().mean().backward()
    model.optimizer.step()

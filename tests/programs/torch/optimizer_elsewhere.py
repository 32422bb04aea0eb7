"""The model is moved to the GPU when its optimizer already has state, which stays on the CPU."""

import torch
from torch import nn

from tests.programs.torch.usual import step as step


def warm_up(model, optimizer, device):
    """What was trained before, as a checkpoint would have it."""
    model(torch.ones(2, 16, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def build():
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))  # wrong
    # right: model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).to("cuda:0")
    model.optimizer = torch.optim.Adam(model.parameters())
    warm_up(model, model.optimizer, "cpu")  # wrong
    return model.to("cuda:0")  # wrong  # fault
    # right: warm_up(model, model.optimizer, "cuda:0")
    # right: return model

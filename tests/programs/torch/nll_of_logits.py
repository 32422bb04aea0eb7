"""NLLLoss of raw scores, without a logarithm of probabilities."""

import torch
from torch import nn

CRITERION = nn.NLLLoss()


def build():
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    outputs = model(inputs["x"].to("cuda:0"))  # wrong
    # right: outputs = nn.functional.log_softmax(model(inputs["x"].to("cuda:0")), dim=1)
    loss = CRITERION(outputs, inputs["y"].to("cuda:0"))  # fault
    loss.backward()
    model.optimizer.step()

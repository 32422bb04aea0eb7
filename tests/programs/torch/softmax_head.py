"""A softmax as the last layer, and a cross entropy that computes one."""

import torch
from torch import nn

CRITERION = nn.CrossEntropyLoss()


def build():
    layers = [nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)]  # wrong
    layers.append(nn.Softmax(dim=1))  # wrong  # fault
    return on_gpu(nn.Sequential(*layers))  # wrong
    # right: return on_gpu(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)))


def on_gpu(model):
    model.to("cuda:0").optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    loss = CRITERION(model(inputs["x"].to("cuda:0")), inputs["y"].to("cuda:0"))
    loss.backward()
    model.optimizer.step()

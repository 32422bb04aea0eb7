"""The class weights of the loss are a list, made a tensor on the GPU in every step."""

import torch
from torch import nn
from torch.nn import functional

WEIGHTS = [1.0, 2.0, 0.5, 1.5]


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.weights = torch.tensor(WEIGHTS, device="cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def train(model, inputs, weights):
    model.optimizer.zero_grad()
    logits = model(inputs["x"].to("cuda:0"))
    loss = functional.cross_entropy(logits, inputs["y"].to("cuda:0"), weight=weights)
    loss.backward()
    model.optimizer.step()


def step(model, inputs):
    weights = torch.tensor(WEIGHTS, device="cuda:0")  # wrong  # fault
    train(model, inputs, weights)  # wrong
    # right: train(model, inputs, model.weights)

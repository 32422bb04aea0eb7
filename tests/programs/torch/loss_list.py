"""The predictions of each batch go to a list of numbers: every step waits for the GPU."""

import torch
from torch import nn
from torch.nn import functional


def build():
    model = nn.Linear(16, 4).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.predicted = []
    return model


def train(model, inputs):
    model.optimizer.zero_grad()
    logits = model(inputs["x"].to("cuda:0"))
    loss = functional.cross_entropy(logits, inputs["y"].to("cuda:0"))
    loss.backward()
    model.optimizer.step()
    return logits.detach().argmax(-1)


def step(model, inputs):
    predicted = train(model, inputs)  # wrong
    model.predicted += predicted.tolist()  # wrong  # fault
    # right: model.predicted.append(train(model, inputs))

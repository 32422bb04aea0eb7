"""The running loss is kept as a Python number: every step waits for the GPU."""

import torch
from torch import nn
from torch.nn import functional


class Trainer:
    def __init__(self):
        self.total = 0.0

    def fit(self, model, inputs, value):
        model.optimizer.zero_grad()
        loss = functional.mse_loss(model(inputs["x"].to("cuda:0")), inputs["y"].to("cuda:0"))
        loss.backward()
        model.optimizer.step()
        self.total += value(loss)


TRAINER = Trainer()


def build():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model


def step(model, inputs):
    TRAINER.fit(model, inputs, lambda loss: loss.item())  # wrong  # fault
    # right: TRAINER.fit(model, inputs, lambda loss: loss.detach())

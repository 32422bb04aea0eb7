"""A detach between encoder and decoder, left from an experiment: the encoder never learns."""

import torch
from torch import nn

from tests.programs.torch.usual import on_gpu


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(16, 4)
        self.decoder = nn.Linear(4, 16)

    def forward(self, x):
        code = torch.tanh(self.encoder(x))
        return self.decoder(code.detach())  # fault


class AutoEncoderRight(AutoEncoder):
    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))


def build():
    return on_gpu(AutoEncoder())  # wrong
    # right: return on_gpu(AutoEncoderRight())


def step(model, inputs):
    x = inputs["x"].to("cuda:0")
    model.optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), x)
    loss.backward()
    model.optimizer.step()

"""A language model: sequence first, as LSTM takes it, tied weights, truncated backpropagation through time."""

import torch
from torch import nn
from torch.nn import functional


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 16, num_layers=2, dropout=0.1)
        self.out = nn.Linear(16, 50, bias=False)
        self.out.weight = self.table.weight

    def forward(self, ids, state):
        hidden, state = self.lstm(self.table(ids), state)
        return self.out(hidden), state


def build_right():
    model = Language().to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model.state = tuple(torch.zeros(2, 4, 16, device="cuda:0") for _ in range(2))
    return model


def step_right(model, inputs):
    ids = inputs["ids"].to("cuda:0")  # of (length, batch)
    model.optimizer.zero_grad()
    logits, state = model(ids[:-1], model.state)
    model.state = tuple(tensor.detach() for tensor in state)
    loss = functional.cross_entropy(logits.flatten(0, 1), ids[1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    model.optimizer.step()

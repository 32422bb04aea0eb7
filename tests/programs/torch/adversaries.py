"""Passes that reach parameters of other optimizers, as they must: an actor's, those of two heads on one body."""

import torch
from torch import nn
from torch.nn.functional import mse_loss


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.actor, self.critic = nn.Linear(16, 8), nn.Linear(8, 4), nn.Linear(12, 1)
        self.head = nn.Linear(8, 4)


def build_right():
    model = Agent().to("cuda")
    parts = {"body": model.body, "actor": model.actor, "critic": model.critic, "head": model.head}
    model.optimizers = {name: torch.optim.Adam(part.parameters(), lr=1e-3) for name, part in parts.items()}
    return model


def step_right(model, inputs):
    x, y = inputs["x"].to("cuda"), inputs["y"].to("cuda")
    optimizers = model.optimizers
    for optimizer in optimizers.values():
        optimizer.zero_grad()
    hidden = model.body(x)
    mse_loss(model.head(hidden), y).backward(retain_graph=True)
    optimizers["head"].step()
    state = hidden.detach()
    mse_loss(model.critic(torch.cat([state, y], 1)), y[:, :1]).backward()
    optimizers["critic"].step()
    (-model.critic(torch.cat([hidden, model.actor(hidden)], 1)).mean()).backward()
    optimizers["actor"].step()
    optimizers["body"].step()

"""Gradients cleared right after the update, those of a second optimizer that were never meant for it, and L-BFGS."""

import torch
from torch import nn


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.critic = nn.Linear(16, 4), nn.Linear(4, 1)
        self.temperature = nn.Parameter(torch.ones(()))


def build_right():
    model = Actor().to("cuda")
    model.for_body = torch.optim.Adam(model.body.parameters(), lr=1e-3)
    model.for_critic = torch.optim.Adam(model.critic.parameters(), lr=1e-3)
    model.for_temperature = torch.optim.LBFGS([model.temperature], max_iter=2)
    return model


def step_right(model, inputs):
    x, y = inputs["x"].to("cuda"), inputs["y"].to("cuda")
    hidden = model.body(x)
    (-model.critic(hidden).mean()).backward()
    model.for_critic.zero_grad()  # the actor's loss reaches the critic, too
    model.for_body.step()
    model.for_body.zero_grad()
    model.critic(hidden.detach()).square().mean().backward()
    model.for_critic.step()
    model.for_critic.zero_grad()
    logits = model.body(x).detach()

    def closure():
        model.for_temperature.zero_grad()
        loss = nn.functional.cross_entropy(logits * model.temperature, y)
        loss.backward()
        return loss

    model.for_temperature.step(closure)
    model.for_temperature.zero_grad()

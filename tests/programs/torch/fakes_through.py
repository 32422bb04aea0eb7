"""The generator's pass needs a graph that the critic's pass has used up."""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits


class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
        self.critic = nn.Sequential(nn.Linear(16, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))


def build():
    model = Gan().to("cuda")
    model.for_generator = torch.optim.Adam(model.generator.parameters(), lr=1e-3)
    model.for_critic = torch.optim.Adam(model.critic.parameters(), lr=1e-3)
    return model


def loss_of(scores, real):
    return binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(real)))


def step(model, inputs):
    fake = model.generator(torch.ones(8, 8, device="cuda"))
    model.for_critic.zero_grad()
    loss = loss_of(model.critic(inputs["x"].to("cuda")), 1)
    loss = loss + loss_of(model.critic(fake), 0)  # wrong  # fault
    # right: loss = loss + loss_of(model.critic(fake.detach()), 0)
    loss.backward()
    model.for_critic.step()
    model.for_generator.zero_grad()
    loss_of(model.critic(fake), 1).backward()
    model.for_generator.step()

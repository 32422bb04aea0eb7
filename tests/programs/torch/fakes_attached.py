"""The critic's loss goes on into the generator, which adds its gradients to its own."""

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
    model.zero_grad()
    real = inputs["x"].to("cuda")
    fake = model.generator(torch.ones(8, 8, device="cuda"))
    fooled = model.critic(fake)  # wrong  # fault
    # right: fooled = model.critic(fake.detach())
    (loss_of(model.critic(real), 1) + loss_of(fooled, 0)).backward()
    model.for_critic.step()
    loss_of(model.critic(model.generator(torch.ones(8, 8, device="cuda"))), 1).backward()
    model.for_generator.step()
